"""Patterns of mapping files: the syntax of RE2, matched in linear time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.source import SourceFile
from fitkit.parsers.table import read_mapping
from fitkit.parsers.table.patterns import REST, compile_pattern, compile_prefix

BLOCK = '[[records]]\ntable = "steps"\n[records.columns]\nn_steps = 1\n'


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Fail instead of hanging."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_groups_of_texts_that_match() -> None:
    pattern = compile_pattern(r"(?P<kind>[av])100(?:_x(?P<n>\d+))?")
    assert pattern.names == ("kind", "n")
    matches = pattern.matches(["a100_x8", "no", "run/v100/"])
    assert matches.found == [True, False, True]
    assert matches.groups == {"kind": ["a", "", "v"], "n": ["8", "", ""]}
    assert pattern.matches([]).groups == {"kind": [], "n": []}


def test_a_pattern_without_groups_tells_only_whether_it_is_there() -> None:
    matches = compile_pattern("step|iter").matches(["iter 3", "epoch 1", ""])
    assert (matches.found, matches.groups) == ([True, False, False], {})


def test_a_prefix_gives_what_follows_it() -> None:
    matches = compile_prefix(r"\[rank(?P<rank>\d+)\] ").matches(["[rank1] a\tb", "a [rank1] b"])
    assert matches.found == [True, False]
    assert matches.groups == {"rank": ["1", ""], REST: ["a\tb", ""]}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (r"(?P<a>.)\1", r"no regular expression: invalid escape sequence: \\1"),
        ("(?P<a>.)(?=b)", r"no regular expression: invalid perl operator: \(\?="),
        ("(?<!x)(?P<a>.)", "no regular expression: invalid perl operator"),
        ("(?P<a>.", "no regular expression: missing \\)"),
        ("(?P<a>.)++", "no regular expression: bad repetition operator"),
        ("(?P<a>x{5000})", "no regular expression: invalid repetition size"),
        ("(?P<a>.)(b)", "a group without a name: write"),
        ("(?P<a>.)(?P<a>b)", "names the column 'a' twice"),
        ("\ud800", "no regular expression"),
    ],
)
def test_what_is_no_pattern(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"^{what}"):
        compile_pattern(text)
    with pytest.raises(ValueError, match=f"^{what}"):
        compile_prefix(text)


@pytest.mark.parametrize("text", ["(a+)+$", "^(a|aa)*$", "(.*a){30}$", "^(a*)*c"])
def test_no_pattern_takes_more_than_linear_time(text: str) -> None:
    named = compile_pattern(text.replace("(", "(?P<x>", 1))
    with alarm(20):
        assert named.matches(["a" * 100_000 + "b"]).found == [False]


def test_a_pattern_for_paths_cannot_hang_either(tmp_path: Path) -> None:
    toml = tmp_path / "m.toml"
    toml.write_text(f"[path]\npattern = '(?P<x>(?:a+)+)$'\n{BLOCK}", encoding="utf-8")
    mapping = read_mapping(toml)
    with alarm(20), pytest.raises(ParseError, match="its path has nothing of the form"):
        mapping.facts(SourceFile(tmp_path / ("a" * 200 + "b"), "b"))
    assert mapping.facts(SourceFile(Path("/x/ba"), "ba")) == {"x": "a"}


def test_a_path_that_is_not_utf_8_is_searched_all_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "m.toml"
    toml.write_text(f"[path]\npattern = 'r(?P<x>.+)$'\n{BLOCK}", encoding="utf-8")
    assert read_mapping(toml).facts(SourceFile(Path("/r\udcff"), "r")) == {"x": "?"}


@given(st.text(alphabet="ab(|)*+?[]{}^$\\P<x>:d.19,", max_size=30), st.text(max_size=20))
def test_any_text_is_a_pattern_or_a_plain_error(text: str, line: str) -> None:
    try:
        pattern = compile_pattern(text)
    except ValueError:
        return
    matches = pattern.matches([line, ""])
    assert len(matches.found) == 2
    assert matches.groups.keys() == {*pattern.names}
