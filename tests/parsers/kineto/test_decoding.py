"""Decoding of events: what fits the narrow types, and what only an untyped reading takes."""

from __future__ import annotations

import json
from decimal import Decimal
from math import isnan
from typing import Any

import msgspec
import pytest

from fitkit.parsers.kineto.decoding import (
    Arguments,
    Event,
    Phase,
    UnreadableError,
    Word,
    decode,
    decode_anything,
    exact_starts,
    whole,
)
from fitkit.parsers.kineto.events import NONE, Category


def one(event: dict[str, Any]) -> Event:
    (found,) = decode(json.dumps([event]).encode())
    return found


OPERATOR: dict[str, Any] = {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 12, "tid": 13, "ts": 10.5, "dur": 2,
    "args": {
        "External id": 4, "Record function id": 5, "Sequence number": 6, "Fwd thread id": 1,
        "Input Dims": [[2, 3], []], "Input type": ["float", ""], "Ev Idx": 9,
    },
}  # fmt: skip
KERNEL: dict[str, Any] = {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL", "pid": 0, "tid": 7,
    "ts": 11, "dur": 3.25,
    "args": {
        "External id": 4, "device": 0, "stream": 7, "correlation": 99,
        "Collective name": "allgather", "In msg nelems": 8, "Out msg nelems": 64, "Group size": 8,
        "dtype": "Float", "Process Group Name": "0",
    },
}  # fmt: skip
COPY: dict[str, Any] = {
    "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 1, "dur": 1,
    "args": {"bytes": 4096, "stream": 7, "correlation": 3, "device": 0, "external id": 8},
}  # fmt: skip


def test_the_fields_of_an_event() -> None:
    event = one(OPERATOR)
    assert (event.ph, event.cat, event.name) == (Phase.COMPLETE, Word.CPU_OP, "aten::mm")
    assert (event.pid, event.tid, event.ts, event.dur) == (12, 13, 10.5, 2)
    args = event.args
    assert (args.external_id, args.record_id, args.sequence, args.forward_thread) == (4, 5, 6, 1)
    assert bytes(args.dims) == b"[[2, 3], []]"
    assert bytes(args.types) == b'["float", ""]'
    args = one(KERNEL).args
    assert (args.device, args.stream, args.correlation) == (0, 7, 99)
    assert (args.collective, args.n_elements_in, args.n_elements_out) == ("allgather", 8, 64)
    assert (args.group_size, args.element_type, args.group) == (8, "Float", "0")
    args = one(COPY).args
    assert (args.n_bytes, args.external_id, args.old_external_id) == (4096, 0, 8)
    assert (args.sequence, args.collective, args.group_id) == (NONE, None, None)


@pytest.mark.parametrize(
    ("cat", "category"),
    [
        ("cpu_op", 1), ("Operator", 1), ("user_annotation", 2), ("python_function", 3),
        ("cuda_runtime", 4), ("cuda_driver", 4), ("Runtime", 4), ("mtia_runtime", 4),
        ("kernel", 5), ("Kernel", 5), ("mtia_ccp_events", 5), ("gpu_memcpy", 6),
        ("gpu_memset", 6), ("Memcpy", 6), ("Memset", 6), ("cuda_sync", 7),
        ("gpu_user_annotation", 8), ("overhead", 9), ("ac2g", 10), ("fwdbwd", 10), ("async", 10),
        ("Trace", 0), ("cuda_profiler_range", 0), ("mtia_counters", 0), ("", 0), (None, 0),
    ],
)  # fmt: skip
def test_old_and_new_names_of_categories(cat: str | None, category: int) -> None:
    assert one({"ph": "X", "cat": cat}).cat.code == category
    assert one({"ph": "X", "cat": cat, "dur": "1"}).cat.code == category


def test_every_category_has_a_word() -> None:
    assert {word.code for word in Word} == set(Category)


def test_an_event_without_fields_has_none() -> None:
    event = one({})
    assert event.ph is Phase.OTHER
    assert isnan(event.ts)
    assert isnan(event.dur)
    assert (event.name, event.pid, event.tid, event.cat.code) == ("", "", "", Category.OTHER)
    assert event.args == one({"args": {}}).args


def shown(value: Any) -> Any:
    """A field so that those of two events can be compared; threads are words in the end."""
    if isinstance(value, Arguments):
        return [shown(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value) or "null")
    return str(value)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"x": 1.5}, {"dur": None}, {"ts": "7"}, {"pid": None}, {"args": None}, {"name": None},
        {"name": 5}, {"ph": 3}, {"cat": []}, {"tid": 1.5},
    ],
)  # fmt: skip
def test_an_odd_field_changes_no_other(change: dict[str, Any]) -> None:
    for plain in (OPERATOR, KERNEL, COPY):
        expected, found = one(plain), one(plain | change)
        for field in {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"} - set(change):
            assert shown(getattr(found, field)) == shown(getattr(expected, field))


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("7", 7), (" 7 ", 7), ("-1", -1), (7.0, 7), (7.5, 0), ("7.5", 0), ("0x7f", 0), ("", 0),
        (None, 0), (True, 0), ([7], 0), ({"a": 7}, 0), (1 << 70, 1 << 70), (1e300, 0),
        ("9" * 41, 0),
    ],
)  # fmt: skip
def test_an_integer_in_another_form(value: Any, meant: int) -> None:
    event = one({"ph": "X", "args": {"External id": value, "correlation": 3}})
    assert event.args.external_id == meant
    assert event.args.correlation == 3


@pytest.mark.parametrize(
    ("value", "meant"),
    [("10.5", "10.5"), ("-3", "-3"), (" 4 ", "4"), ("nan", None), ("1e5", None), ("x", None),
     (None, None), (True, None), ([], None), ("9" * 50, None)],
)  # fmt: skip
def test_a_stamp_in_another_form(value: Any, meant: str | None) -> None:
    event = one({"ph": "X", "ts": value, "dur": 1})
    assert isnan(event.ts) if meant is None else event.ts == Decimal(meant)
    assert event.dur == 1


def test_words_and_numbers_name_threads_and_groups() -> None:
    event = one(
        {"pid": "Spans", "tid": "stream 7", "args": {"Process Group Name": 3, "stream": "0x1"}}
    )
    assert (event.pid, event.tid) == ("Spans", "stream 7")
    assert (event.args.group, event.args.stream) == (3, "0x1")
    event = one({"pid": 1.5, "tid": 2, "args": {"Process Group Name": 3, "stream": "0x1"}})
    assert (event.pid, event.tid, event.args.group) == ("1.5", "2", "3")
    assert event.args.stream == NONE


def test_stamps_have_all_their_digits() -> None:
    text = (
        b'[{"ph": "X", "ts": 1712195495519695.812}, {"ph": "M", "ts": 1.5}, {"ph": "X", "ts": 3},'
        b' {"ph": "X"}]'
    )
    first, second, third = exact_starts(text)
    assert (first, second) == (Decimal("1712195495519695.812"), 3)
    assert third.is_nan()
    assert decode_anything(b"[1712195495519695.812, 5]") == [Decimal("1712195495519695.812"), 5]


@pytest.mark.parametrize(
    "text",
    [b"", b"[", b"{}", b"null", b"5", b"[5]", b"[null]", b'["a"]', b"[[]]", b'[{"a": nan}]',
     b'[{"name": "\xff"}]', b'[{"a": "\\c"}]', b'[{"a": "\x01"}]', b"[{}] x",
     b'[{"a": ' + b"[" * 100_000, b'[{"ts": "1", "a": ' + b"[" * 100_000,
     b'[{"dur": "1"}, 5]', b'[{"name": "\\ud800"}]', b'[{"args": {"a": 01}}]'],
)  # fmt: skip
def test_what_is_no_list_of_events_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode(text)


@pytest.mark.parametrize(
    ("value", "number"),
    [(5, 5), ("5", 5), (Decimal("5.0"), 5), (Decimal("5.5"), None), (Decimal("1e400"), None),
     (Decimal("nan"), None), (True, None), (None, None), ([], None), ("five", None), (1.5, None)],
)  # fmt: skip
def test_whole_numbers(value: Any, number: int | None) -> None:
    assert whole(value) == number
