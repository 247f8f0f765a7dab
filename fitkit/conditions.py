"""The comparisons of ``--where`` and ``--hold-out``: parsed, never evaluated.

``n_nodes > 8 and network == "bert"``: columns compared with literals, joined by ``and``;
``== != < <= > >= in``.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Literal = str | int | float | bool


def _any_equal(column: pd.Series, values: list[Literal]) -> pd.Series:
    """As ``==`` does: ``isin`` would not take a text for the instant that it names."""
    found = column.isna()  # no match: the mask clears them
    for value in values:
        found |= column == value
    return found


_OPERATORS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", _any_equal),
}
_MAX_LENGTH = 10_000
_HELP = 'such as: n_nodes > 8 and network == "bert"'


@dataclass(frozen=True)
class Comparison:
    """One column compared with one literal, or with a list of them."""

    column: str
    kind: type[ast.cmpop]
    value: Any

    def mask(self, frame: pd.DataFrame) -> np.ndarray:
        """Rows for which the comparison holds; it never holds where the column is null."""
        if self.column not in frame.columns:
            raise ValueError(
                f"no column {self.column!r}; there are {', '.join(map(str, frame.columns))}"
            )
        column = frame[self.column]
        symbol, compare = _OPERATORS[self.kind]
        try:
            found = compare(column, self.value)
        except TypeError as error:
            raise ValueError(
                f"cannot compare {self.column} ({column.dtype}) {symbol} {self.value!r}"
            ) from error
        return np.asarray(found.fillna(False), dtype=bool) & np.asarray(column.notna(), dtype=bool)


@dataclass(frozen=True)
class Condition:
    """Comparisons that must all hold."""

    text: str
    comparisons: tuple[Comparison, ...]

    def mask(self, frame: pd.DataFrame) -> np.ndarray:
        """Boolean array, shape ``(rows,)``: rows for which every comparison holds.

        Raises
        ------
        ValueError
            If a column is missing, or cannot be compared with its literal.
        """
        mask = np.ones(len(frame), dtype=bool)
        for comparison in self.comparisons:
            mask &= comparison.mask(frame)
        return mask


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises
    ------
    ValueError
        If the text is anything else than comparisons joined by ``and``.

    Examples
    --------
    >>> parse_condition('n_nodes > 8 and network in ["bert", "gpt"]').comparisons[0].column
    'n_nodes'
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"condition of {len(text)} characters: too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backslashes in texts
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot read the condition {text!r}; write one {_HELP}") from error
    match tree:
        case ast.BoolOp(op=ast.And(), values=parts):
            pass
        case _:
            parts = [tree]
    return Condition(text.strip(), tuple(_comparison(part, text) for part in parts))


def _comparison(node: ast.expr, text: str) -> Comparison:
    if not (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and len(node.ops) == 1
        and type(node.ops[0]) in _OPERATORS
    ):
        raise ValueError(
            f"cannot read the condition {text!r}: compare a column with a value, {_HELP}"
        )
    kind = type(node.ops[0])
    value = _literal(node.comparators[0], text)
    if (kind is ast.In) != isinstance(value, list):
        raise ValueError(f"cannot read the condition {text!r}: 'in' takes a list, others a value")
    return Comparison(node.left.id, kind, value)


def _literal(node: ast.expr, text: str) -> Literal | list[Literal]:
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(element, text) for element in node.elts]
    return _plain(node, text)


def _plain(node: ast.expr, text: str) -> Literal:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"cannot read the condition {text!r}: a word needs quotes, {_HELP}"
        ) from error
    if not isinstance(value, Literal):
        raise ValueError(f"cannot read the condition {text!r}: {value!r} is not a plain value")
    return value
