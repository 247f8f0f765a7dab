"""Repair of one event: what its writer meant is what the repaired text says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fitkit.parsers.kineto.faults import Fault
from fitkit.parsers.kineto.repair import repair

LINES = """{
    "ph": "X", "cat": "python_function", "name": "%s", "pid": 1, "tid": 2,
    "ts": 10.5, "dur": 0.5,
    "args": {
      "Python id": 3, "Python parent id": null, "Ev Idx": 5
    }
  }"""
INDENTED = """{
    "ph": "X",
    "cat": "python_function",
    "name": "%s",
    "pid": 1,
    "tid": 2,
    "ts": 10.5,
    "dur": 0.5,
    "args": {
      "Python id": 3,
      "Python parent id": null,
      "Ev Idx": 5
    }
  }"""
COMPACT = (
    '{"ph":"X","cat":"python_function","name":"%s","pid":1,"tid":2,"ts":10.5,"dur":0.5,'
    '"args":{"Python id":3,"Python parent id":null,"Ev Idx":5}}'
)
NAME_LAST = '{"ph": "X", "cat": "python_function", "dur": 0.5, "name": "%s"}'
LAYOUTS = [LINES, INDENTED, COMPACT, NAME_LAST]


def repaired(text: str | bytes) -> tuple[dict[str, Any], frozenset[Fault]]:
    """The object that a text becomes, followed by what must not matter, and its faults."""
    damaged = text if isinstance(text, bytes) else text.encode()
    found = repair(damaged + b',\n  {"ph": "X"')
    assert found is not None
    assert found.end == len(damaged)
    return json.loads(found.text), found.faults


@pytest.mark.parametrize("layout", LAYOUTS, ids=["lines", "indented", "compact", "last"])
@pytest.mark.parametrize(
    ("written", "meant", "fault"),
    [
        # pytorch#146900, reproduced with torch 2.13 for code with such a file name
        ('{"device": "cpu"}(0): <module>', '{"device": "cpu"}(0): <module>', Fault.QUOTES),
        ('{"a": "b", "c": "d"}(0): f', '{"a": "b", "c": "d"}(0): f', Fault.QUOTES),
        ('say "hi"', 'say "hi"', Fault.QUOTES),
        ('"', '"', Fault.QUOTES),
        ('f("a", 1)', 'f("a", 1)', Fault.QUOTES),
        ("one\ntwo\n", "one\ntwo\n", Fault.CONTROL),  # pytorch#113001
        ("one\ttwo", "one\ttwo", Fault.CONTROL),
        ("a\x01b", "a\x01b", Fault.CONTROL),  # pytorch#136180, perfetto#598
        # pytorch#60187, #92988, #98432, kineto#336, #617, #750: paths of Windows
        (r"torch\cuda\__init__.py(3): f", r"torch\cuda\__init__.py(3): f", Fault.BACKSLASHES),
        (r"C:\new\table\unit\_x.py", r"C:\new\table\unit\_x.py", Fault.BACKSLASHES),
        (r"C:\work\%", "C:\\work\\%", Fault.BACKSLASHES),
        (r"\ud83d alone", "\ufffd alone", Fault.SURROGATES),
        (r"\ude00\ud83d", "\ufffd\ufffd", Fault.SURROGATES),
    ],
)
def test_a_name_is_kept_as_it_was_meant(
    layout: str, written: str, meant: str, fault: Fault
) -> None:
    event, faults = repaired(layout.replace("%s", written))
    assert faults == {fault}
    assert event == json.loads(layout % "x") | {"name": meant}


def test_a_path_that_ends_in_a_backslash_is_kept() -> None:
    event, faults = repaired(LINES.replace("%s", "D:\\data\\"))
    assert event["name"] == "D:\\data\\"
    assert (event["pid"], faults) == (1, {Fault.BACKSLASHES})


def test_bytes_that_are_not_utf_8_become_the_replacement_character() -> None:
    event, faults = repaired(LINES.encode().replace(b"%s", b"a\xffb\xed\xa0\x80\xc3"))
    assert event["name"] == "a\ufffdb" + 3 * "\ufffd" + "\ufffd"
    assert faults == {Fault.ENCODING}


def test_an_event_without_faults_stays_as_it_is() -> None:
    name = r"say \"hi\" \\ \n \u00e9 \ud83d\ude00 é}, {\"ph\": \"X\", ], {"
    for layout in LAYOUTS:
        event, faults = repaired(layout % name)
        assert event == json.loads(layout % name)
        assert not faults


@pytest.mark.parametrize(
    "word",
    # kineto#105: bandwidth of a copy that took no time; kineto PR 131 and 133: N/A
    ["inf", "-inf", "nan", "-nan", "NaN", "Infinity", "-Infinity", "N/A", "1.#INF", "None",
     "-nan(ind)", "True", "+5", ".5", "5.", "01", "0x7f"],
)  # fmt: skip
def test_a_value_that_is_none_becomes_null(word: str) -> None:
    text = '{"ph": "X", "args": {"memory bandwidth (GB/s)": %s, "bytes": 8, "x": [%s, 2]}}'
    event, faults = repaired(text % (word, word))
    figures = {"memory bandwidth (GB/s)": None, "bytes": 8, "x": [None, 2]}
    assert event == {"ph": "X", "args": figures}
    assert faults == {Fault.WORDS}


def test_every_other_value_stays() -> None:
    values = [0, -1, 1.5, -2.5e-3, 1e22, 1 << 70, True, False, None, "", [], {}, [[1], ["a"]]]
    text = json.dumps({"args": {str(i): value for i, value in enumerate(values)}, "name": "é"})
    event, faults = repaired(text)
    assert event == json.loads(text)
    assert not faults


def test_a_comma_too_many_is_left_out() -> None:
    event, faults = repaired('{"ph": "X", "args": {"a": [1, 2, ], },}')
    assert event == {"ph": "X", "args": {"a": [1, 2]}}
    assert faults == {Fault.COMMAS}


def test_texts_in_lists_and_arguments_are_repaired() -> None:
    text = r'{"args": {"Input type": ["a "b" c", "d"], "kernel_file": "C:\x\_y", "stream": 7}}'
    event, faults = repaired(text)
    assert event["args"] == {
        "Input type": ['a "b" c', "d"], "kernel_file": r"C:\x\_y", "stream": 7,
    }  # fmt: skip
    assert faults == {Fault.QUOTES, Fault.BACKSLASHES}


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"a', b'{"a": ', b'{"a": "b', b'{"a": [1, 2}', b'{"a": {"b": 1}', b"}", b'"',
     b'{"name": "x, "pid": 1', b'{"a": 1]'],
)  # fmt: skip
def test_what_does_not_end_is_refused(text: bytes) -> None:
    assert repair(text) is None


@given(st.text(max_size=40) | st.text('{}[],:"\\ \nabc', max_size=40))
@example('"}')
@example("\\")
def test_any_name_that_is_written_raw_is_given_back_or_refused(name: str) -> None:
    raw = INDENTED.encode().replace(b"%s", name.encode("utf-8", "surrogatepass"))
    found = repair(raw)
    if found is None:
        return
    event = json.loads(found.text)
    assert event["ph"] == "X"
    if found.end == len(raw) and not found.faults:
        assert event == json.loads(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_repaired_or_refused(junk: bytes) -> None:
    for text in (junk, b"{" + junk, b'{"name": "' + junk + b'", "pid": 1}'):
        found = repair(text)
        if found is not None:
            assert 0 < found.end <= len(text)
            found.text.decode()


def test_the_time_is_in_proportion_to_the_length() -> None:
    # Were it the square, they would take an hour.
    for text in (b'{"a": "' + b'"' * 200_000, b'{"a": "' + b'", ' * 60_000,
                 b'{"a": [' + b"[" * 200_000, b'{"a": "' + b"\\" * 200_000,
                 b'{"a": "' + b'"      ' * 30_000, b"{" + b" " * 200_000):  # fmt: skip
        assert repair(text) is None
