"""Conditions: which rows they choose, and that nothing in them is ever evaluated."""

from __future__ import annotations

import ast
import builtins
import os
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.conditions import parse_condition


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "n_nodes": [1, 2, 8, 16],
            "batch": [32.0, None, 64.0, -1.5],
            "network": ["bert", None, "gpt", "ber t"],
            "is_partial": pd.Series([True, None, False, None], dtype=object),
            "started_at": pd.to_datetime(
                ["2026-01-01", None, "2026-02-01", "2026-03-01"], utc=True
            ),
        }
    )  # fmt: skip


def chosen(condition: str, frame: pd.DataFrame) -> list[int]:
    mask = parse_condition(condition).mask(frame)
    assert (mask.dtype, mask.shape) == (np.dtype(bool), (len(frame),))
    return np.flatnonzero(mask).tolist()


# --- what they choose -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("n_nodes == 8", [2]),
        ("n_nodes != 8", [0, 1, 3]),
        ("n_nodes < 8", [0, 1]),
        ("n_nodes <= 8", [0, 1, 2]),
        ("n_nodes > 8", [3]),
        ("n_nodes >= 8", [2, 3]),
        ("n_nodes in [1, 16, 99]", [0, 3]),
        ("n_nodes in (1, 16)", [0, 3]),
        ("n_nodes in []", []),
        ("n_nodes > 1 and n_nodes < 16", [1, 2]),
        ("n_nodes > 1 and n_nodes < 16 and network == 'gpt'", [2]),
        ("(n_nodes > 1) and (n_nodes < 16)", [1, 2]),
        ("  n_nodes>1  ", [1, 2, 3]),
        ("n_nodes == 8.0", [2]),
        ("n_nodes > 1e400", []),
        ("n_nodes < 99999999999999999999999", [0, 1, 2, 3]),
        ("n_nodes in [99999999999999999999999, 8]", [2]),
        ("n_nodes == 'eight'", []),
        ("batch == -1.5", [3]),
        ("batch > -2", [0, 2, 3]),
        ("batch in [-1.5, 32]", [0, 3]),
        ("network == \"bert\"", [0]),
        ("network in ['bert', 'ber t', 1]", [0, 3]),
        ("network > 'c'", [2]),
        ("is_partial == True", [0]),
        ("is_partial == False", [2]),
        ("started_at >= '2026-02-01'", [2, 3]),
        ("started_at == '2026-02-01'", [2]),
        ("started_at in ['2026-02-01', '2026-03-01T00:00:00+00:00']", [2, 3]),
    ],
)  # fmt: skip
def test_the_rows_that_a_condition_chooses(
    frame: pd.DataFrame, condition: str, rows: list[int]
) -> None:
    assert chosen(condition, frame) == rows


@pytest.mark.parametrize(
    "condition",
    [
        "batch == 32", "batch != 32", "batch < 1e9", "batch in [32]", "network == 'x'",
        "network != 'x'", "is_partial != True", "started_at != '2026-01-01'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("backend", ["numpy", "nullable", "arrow"])
def test_a_null_never_matches(frame: pd.DataFrame, condition: str, backend: str) -> None:
    if backend == "nullable":
        frame = frame.convert_dtypes()
    if backend == "arrow":
        frame = pa.Table.from_pandas(frame).to_pandas(types_mapper=pd.ArrowDtype)
    assert 1 not in chosen(condition, frame)


def test_an_unknown_instant_is_before_and_after_nothing(frame: pd.DataFrame) -> None:
    assert chosen("started_at < '2099-01-01'", frame) == [0, 2, 3]
    assert chosen("started_at > '1999-01-01'", frame) == [0, 2, 3]


def test_no_row_is_chosen_from_an_empty_frame(frame: pd.DataFrame) -> None:
    assert chosen("n_nodes > 1 and network == 'bert'", frame.head(0)) == []


def test_the_index_of_the_frame_does_not_matter(frame: pd.DataFrame) -> None:
    frame.index = pd.Index([7, 7, 7, 7])
    assert chosen("n_nodes > 1 and n_nodes in [2, 8]", frame) == [1, 2]


@given(st.lists(st.integers(-9, 9) | st.none(), max_size=20), st.integers(-9, 9))
def test_every_known_value_is_equal_to_a_literal_or_different(
    values: list[int | None], literal: int
) -> None:
    frame = pd.DataFrame({"n": pd.array(values, dtype="Int64")})
    known = [i for i, value in enumerate(values) if value is not None]
    equal, other = (chosen(f"n {op} {literal}", frame) for op in ("==", "!="))
    assert sorted(equal + other) == known
    below, above = (chosen(f"n {op} {literal}", frame) for op in ("<", ">="))
    assert sorted(below + above) == known


@given(st.text(max_size=20))
def test_any_text_can_be_compared_with(text: str) -> None:
    frame = pd.DataFrame({"network": [text, text + "x"]})
    assert chosen(f"network == {text!r}", frame) == [0]


# --- wrong conditions -----------------------------------------------------------------------


def test_an_unknown_column_is_named_with_those_that_exist(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="no column 'nodes'; there are n_nodes, batch, network"):
        chosen("n_nodes > 1 and nodes > 1", frame)


@pytest.mark.parametrize(
    "condition",
    ["n_nodes < 'many'", "network < 3", "network >= 1.5", "started_at > 'then'", "started_at < 5"],
)  # fmt: skip
def test_what_cannot_be_ordered_is_said(frame: pd.DataFrame, condition: str) -> None:
    column, symbol, _ = condition.split()
    with pytest.raises(ValueError, match=rf"^cannot compare {column} \(.*\) {symbol} "):
        chosen(condition, frame)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("", "write one such as"),
        ("n_nodes", "compare a column with a value"),
        ("n_nodes >", "write one such as"),
        ("n_nodes = 8", "write one such as"),
        ("network == bert", "a word needs quotes"),
        ("network in bert", "a word needs quotes"),
        ("network in 'bert'", "'in' takes a list, others a value"),
        ("network in ('bert')", "'in' takes a list, others a value"),
        ("network == ['bert']", "'in' takes a list, others a value"),
        ("network in [['bert']]", "is not a plain value"),
        ("network == None", "None is not a plain value"),
        ("network == b'bert'", "is not a plain value"),
        ("network == {'a': 1}", "is not a plain value"),
        ("network in {'a'}", "is not a plain value"),
        ("n_nodes == 1j", "is not a plain value"),
        ("n_nodes == 1 + 1", "a word needs quotes"),
        ("8 < n_nodes", "compare a column with a value"),
        ("1 < n_nodes < 8", "compare a column with a value"),
        ("n_nodes is 8", "compare a column with a value"),
        ("n_nodes not in [8]", "compare a column with a value"),
        ("n_nodes > 8 or n_nodes < 2", "compare a column with a value"),
        ("not n_nodes > 8", "compare a column with a value"),
        ("n_nodes > n_workers", "a word needs quotes"),
        ("n_nodes > 1\nnetwork == 'bert'", "write one such as"),
        ("n_nodes > 1; n_nodes < 9", "write one such as"),
        ("n_nodes > 1\x00", "write one such as"),
        ("True == 1", "compare a column with a value"),
    ],
)
def test_anything_else_is_refused(condition: str, hint: str) -> None:
    with pytest.raises(ValueError, match=r"^cannot read the condition ") as caught:
        parse_condition(condition)
    assert hint in str(caught.value)


def test_a_backslash_in_a_text_gives_no_warning() -> None:
    assert parse_condition(r"hosts == 'C:\data'").comparisons[0].value == "C:\\data"


# --- nothing is evaluated -------------------------------------------------------------------

HOSTILE = [
    "__import__('os').system('touch {path}')",
    "n_nodes > __import__('os').system('touch {path}')",
    "n_nodes > open('{path}', 'w')",
    "n_nodes in [open('{path}', 'w')]",
    "n_nodes in [x for x in [open('{path}', 'w')]]",
    "n_nodes == (lambda: open('{path}', 'w'))()",
    "(open('{path}', 'w')) and n_nodes > 1",
    "open('{path}', 'w').name == 'x'",
    "n_nodes == f\"{{open('{path}', 'w')}}\"",
    "(x := open('{path}', 'w')) == 1",
    "n_nodes.__class__.__base__.__subclasses__() == 1",
    "n_nodes[open('{path}', 'w')] == 1",
    "@n_nodes > 1",
    "`open('{path}', 'w')` == 1",
    "n_nodes == await open('{path}', 'w')",
    "n_nodes == 9**9**9**9",
    "n_nodes == 'a' * 10**10",
    "n_nodes == {path}",
]


@pytest.mark.parametrize("condition", HOSTILE)
def test_nothing_in_a_condition_is_evaluated(
    condition: str, frame: pd.DataFrame, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("evaluated")

    for module, name in [(builtins, "eval"), (builtins, "exec"), (os, "system"), (pickle, "loads")]:
        monkeypatch.setattr(module, name, forbidden)
    monkeypatch.setattr(pd.DataFrame, "eval", forbidden)
    monkeypatch.setattr(pd.DataFrame, "query", forbidden)
    path = tmp_path / "evil"
    with pytest.raises(ValueError, match="condition"):
        chosen(condition.format(path=path), frame)
    assert not path.exists()


@pytest.mark.parametrize(
    "condition",
    [
        "n == " + "-" * 5000 + "1",
        "n" + ".a" * 4000 + " == 1",
        "(" * 500 + "n == 1" + ")" * 500,
        "n in " + "[" * 150 + "]" * 150,
        "n == " + "not " * 2000 + "1",
        "n == " + "{" * 150 + "}" * 150,
        "n == '" + "x" * 20_000 + "'",
        "n == " + "9" * 9000,
    ],
    ids=lambda text: text[:9],
)
def test_deep_and_long_conditions_are_refused_soon(condition: str) -> None:
    with pytest.raises(ValueError, match="condition"):
        parse_condition(condition)


def test_many_comparisons_are_read() -> None:
    assert len(parse_condition(" and ".join(["n > 1"] * 900)).comparisons) == 900


@given(st.text(alphabet="n_odes ><=!in[]()'\"and13.-,\\#:+*\n\0{}", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        condition = parse_condition(text)
    except ValueError:
        return
    tree = ast.parse(text.strip(), mode="eval").body
    assert len(condition.comparisons) == len(getattr(tree, "values", [tree]))
