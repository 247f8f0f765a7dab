"""Damaged logs: only ParseError, and what is believed of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.training_log import TrainingLogParser

Read = Callable[..., Any]
PARSER = TrainingLogParser()
FOLDER = Path(__file__).parents[3] / "data" / "training_log"
SAMPLES = {path.name: path.read_bytes() for path in sorted(FOLDER.glob("*.log"))}
DAMAGE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
HOSTILE = [b"9" * 400, b"1e999", b"nan", b"-1", b"\0", b"\xff\xfe", b"|", b"\n", b": ", b"(", b""]


@DAMAGE
@given(name=st.sampled_from(sorted(SAMPLES)), share=st.floats(0, 1), skip=st.booleans())
def test_a_log_that_is_cut(read: Read, name: str, share: float, skip: bool) -> None:
    text = SAMPLES[name]
    cut = text[: int(share * len(text))]
    try:
        whole, found = read(text), read(cut, skip_bad_lines=skip)
    except ParseError as error:  # nothing but what precedes the first line of these
        if "no line of a training log" not in str(error):
            raise
        return
    # What is there of it is believed, but for lines that may not be whole. Of Megatron-LM's, later
    # lines tell how many steps earlier ones cover.
    assert len(found.groups) <= len(whole.groups)
    if "megatron" not in name:
        assert found.groups == whole.groups[: len(found.groups)]


@DAMAGE
@given(
    name=st.sampled_from(sorted(SAMPLES)), share=st.floats(0, 1), length=st.integers(0, 6),
    put=st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=8)), skip=st.booleans(),
)  # fmt: skip
def test_bytes_that_are_damaged(
    read: Read, name: str, share: float, length: int, put: bytes, skip: bool
) -> None:
    text = SAMPLES[name]
    place = int(share * len(text))
    damaged = text[:place] + put + text[place + length :]
    PARSER.recognises(damaged)
    with suppress(ParseError):
        read(damaged, skip_bad_lines=skip)


@DAMAGE
@given(name=st.sampled_from(sorted(SAMPLES)), data=st.data())
def test_numbers_of_any_size(read: Read, name: str, data: st.DataObject) -> None:
    lines = SAMPLES[name].split(b"\n")
    number = data.draw(st.integers(0, len(lines) - 1))
    words = lines[number].split(b" ")
    place = data.draw(st.integers(0, len(words) - 1))
    words[place] = data.draw(st.sampled_from([b"999999999999", b"0", b"9e99", b"1" * 20, b"0.0"]))
    lines[number] = b" ".join(words)
    read(b"\n".join(lines), skip_bad_lines=True)


@DAMAGE
@given(st.binary(max_size=400))
def test_any_bytes(read: Read, content: bytes) -> None:
    PARSER.recognises(content)
    with suppress(ParseError):  # it can look like a packed file
        read(content, skip_bad_lines=True)
