"""JSON objects as rows: nested entries, rows in a cell, lists of objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.errors import ParseError

Reader = Callable[..., Any]
COMMS = """
[input]
format = "json"
{rows}
[[records]]
table = "comms"
[records.columns]
op = "op.name"
duration_s = "{t}"
n_ranks = "`parts.#count`"
topology = "parts.host"
"""


def test_nested_entries_and_lists_of_them(read: Reader) -> None:
    table = """[
      {"op": {"name": "a"}, "t": 0.5, "parts": [{"host": "x"}, {"host": "y"}]},
      {"op": {"name": "b"}, "t": 1.5, "parts": [{"host": "z"}]},
      {"op": {"name": "c"}, "t": 2.5}
    ]"""
    found = read(table, COMMS.format(rows="", t="t"))
    assert [(c.op, c.duration_s, c.n_ranks, c.topology) for c in found.of("comms")] == [
        ("a", 0.5, 2, "x,y"), ("b", 1.5, 1, "z"), ("c", 2.5, None, None),
    ]  # fmt: skip
    assert found.notes == []


def test_entries_of_a_list_are_rows(read: Reader) -> None:
    table = """[
      {"op": {"name": "a"}, "tries": [{"t": 1}, {"t": 2}, {"t": 3}], "parts": []},
      {"op": {"name": "b"}, "tries": []}
    ]"""
    mapping = COMMS.format(rows='rows = "tries"', t="tries.t")
    found = read(table, mapping.replace('"`parts.#count`"', '"`tries.#number`"'))
    assert [(c.op, c.duration_s, c.n_ranks) for c in found.of("comms")] == [
        ("a", 1.0, 1), ("a", 2.0, 2), ("a", 3.0, 3),
    ]  # fmt: skip
    assert found.codes == [(2, "missing_value")]
    left = mapping.replace('table = "comms"', 'table = "comms"\nwhere = "`tries.#left` == 0"')
    assert [c.duration_s for c in read(table, left).of("comms")] == [3.0]


def test_lines_have_nested_entries_too(read: Reader) -> None:
    mapping = COMMS.format(rows="", t="t").replace('"json"', '"jsonl"')
    found = read('{"op": {"name": "a"}, "t": 1, "parts": [{"host": 7}]}\n', mapping)
    assert [(c.op, c.topology) for c in found.of("comms")] == [("a", "7")]
    dotted = '{"op.name": "a", "t": 1, "parts": 3, "parts.host": "h"}\n'
    assert [(c.op, c.topology) for c in read(dotted, mapping).of("comms")] == [("a", "h")]


def test_the_content_tells_a_list(read: Reader) -> None:
    mapping = COMMS.format(rows="", t="t").replace('format = "json"', "")
    table = '\n[ {"op": {"name": "a"}, "t": 1, "parts": []} ]'
    assert len(read(table, mapping).of("comms")) == 1
    found = read("[]", mapping)
    assert (found.records, found.codes) == ([], [(None, "no_rows")])


def test_what_is_no_list_of_objects(read: Reader) -> None:
    mapping = COMMS.format(rows="", t="t")
    with pytest.raises(ParseError, match="not a JSON list"):
        read('{"op": 1}', mapping)
    with pytest.raises(ParseError, match="not valid JSON"):
        read("[1, 2", mapping)
    with pytest.raises(ParseError, match=r"t\.csv:2: cannot read: entry 2 is no JSON object"):
        read('[{"op": {"name": "a"}, "t": 1, "parts": []}, 7]', mapping)
    found = read('[7, {"op": {"name": "a"}, "t": 1, "parts": []}]', mapping, skip=True)
    assert (len(found.of("comms")), found.codes) == (1, [(1, "bad_line")])
    cut = read('[{"op": {"name": "a"}, "t": 1, "parts": []}, {"op', mapping)
    assert (len(cut.of("comms")), cut.codes) == (1, [(None, "truncated")])
    with pytest.raises(ParseError, match=r"has no column 'op\.name'"):
        read('[{"t": 1, "parts": []}]', mapping)
