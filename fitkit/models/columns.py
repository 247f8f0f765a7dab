"""What models read: columns of a DataFrame, or of a plain record of arrays; numpy is enough."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

UNKNOWN = "?"  # how a null in a column that tells groups apart is written
Key = tuple[str, ...]


class MissingColumnError(ValueError, AttributeError):
    """A column was asked for that is not there."""


class Columns:
    """Columns of a DataFrame or a record by attribute, read with `numbers`."""

    def __init__(self, X: Any) -> None:
        self._X = X

    def __getattr__(self, name: str) -> np.ndarray:
        return numbers(column(self._X, name))


def known_or(x: Columns, name: str, other: ArrayLike) -> np.ndarray:
    """A column of numbers, and where it is null, or not there, something else."""
    try:
        values = getattr(x, name)
    except MissingColumnError:
        return np.asarray(other, dtype=float)
    return np.where(np.isnan(values), other, values)


def column(X: Any, name: str) -> np.ndarray:
    """A column as it is, shape ``(rows,)``.

    Raises
    ------
    MissingColumnError
        If there is none of that name.
    """
    found = X.get(name) if hasattr(X, "iloc") else getattr(X, name, None)
    if found is None:
        raise MissingColumnError(f"no column {name!r}")
    return np.atleast_1d(np.asarray(found))


def numbers(values: np.ndarray) -> np.ndarray:
    """A column as floats, null as NaN; words stay words."""
    if values.dtype.kind in "biuf":
        return values.astype(float)
    plain = [np.nan if is_null(value) else value for value in values.tolist()]
    try:
        return np.array(plain, dtype=float)
    except (TypeError, ValueError):
        return np.array(plain, dtype=object)


def record(X: Any) -> SimpleNamespace:
    """All columns as arrays of the same length."""
    rows = n_rows(X)
    if hasattr(X, "iloc"):
        columns = {str(name): X[name].to_numpy() for name in X.columns}
    else:
        columns = {name: np.broadcast_to(np.asarray(v), (rows,)) for name, v in vars(X).items()}
    return SimpleNamespace(**columns)


def n_rows(X: Any) -> int:
    """Rows of a DataFrame, or of a record of arrays and scalars."""
    if hasattr(X, "iloc"):
        return len(X)
    return max((np.size(value) for value in vars(X).values()), default=1)


def take(columns: SimpleNamespace, rows: np.ndarray) -> SimpleNamespace:
    """Rows of a record, by position."""
    return SimpleNamespace(**{name: values[rows] for name, values in vars(columns).items()})


def sorted_rows(
    X: Any, times: np.ndarray, names: Collection[str]
) -> tuple[SimpleNamespace, np.ndarray]:
    """All columns, and times, in the canonical order of the columns of those names.

    Raises
    ------
    ValueError
        If there are more, or fewer, rows than times.
    """
    columns = record(X)
    if n_rows(X) != len(times):
        raise ValueError(f"{n_rows(X)} rows but {len(times)} times")
    own = {name: values for name, values in vars(columns).items() if name in names}
    order = canonical_order(SimpleNamespace(**own), times)
    return take(columns, order), times[order]


def known_numbers(X: Any, names: Sequence[str]) -> SimpleNamespace:
    """Columns of those names that there are, as floats, shape ``(rows,)`` each.

    Raises
    ------
    ValueError
        If a value is neither a number nor null.
    """
    found: dict[str, np.ndarray] = {}
    for name in names:
        with suppress(MissingColumnError):
            found[name] = column(X, name)
    return number_columns(found, list(found), n_rows(X))


def canonical_order(columns: SimpleNamespace, times: np.ndarray) -> np.ndarray:
    """Positions that sort the rows by their content, so that their order in a file is no matter."""
    texts = [values for _, values in sorted(vars(columns).items())]
    sortable = [v if v.dtype.kind in "biuf" else np.array([key_text(x) for x in v]) for v in texts]
    return np.lexsort((times, *sortable))


def drawn_rows(
    rows: SimpleNamespace, times: np.ndarray, n_rows: int
) -> tuple[SimpleNamespace, np.ndarray]:
    """The rows, or so many of them drawn at random, always the same ones, in their order."""
    if len(times) <= n_rows:
        return rows, times
    drawn = np.sort(np.random.default_rng(0).choice(len(times), n_rows, replace=False))
    return take(rows, drawn), times[drawn]


def is_null(value: Any) -> bool:
    """Whether a value is None, NaN, or a null of pandas."""
    if value is None:
        return True
    try:
        return not bool(value == value)
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True


@lru_cache(maxsize=4096, typed=True)
def key_text(value: Hashable) -> str:
    """A value of a grouping column as text: numbers plain, null as ``?``."""
    if is_null(value):
        return UNKNOWN
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def keys(X: Any, by: Sequence[str]) -> list[Key]:
    """Group key of each row."""
    columns = [[key_text(value) for value in column(X, name).tolist()] for name in by]
    return list(zip(*columns, strict=True)) if by else [()] * n_rows(X)


def rows_by_key(of_row: Sequence[Key | None]) -> dict[Key, np.ndarray]:
    """Positions of the rows of each group, in the order of their keys."""
    found: dict[Key, list[int]] = {}
    for position, key in enumerate(of_row):
        if key is not None:
            found.setdefault(key, []).append(position)
    return {key: np.array(found[key]) for key in sorted(found)}


def number_columns(
    columns: Mapping[str, Any], names: Sequence[str], n_rows: int
) -> SimpleNamespace:
    """Columns of those names as floats, shape ``(n_rows,)``; NaN where one is missing.

    Raises
    ------
    ValueError
        If a value is neither a number nor null.
    """
    found = {}
    for name in names:
        values = numbers(np.atleast_1d(np.asarray(columns.get(name, np.nan))))
        if values.dtype != float:
            word = next(value for value in values.tolist() if not _is_number(value))
            raise ValueError(f"column {name}: {word!r} is not a number")
        found[name] = np.broadcast_to(values, (n_rows,))
    return SimpleNamespace(**found)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def group_labels(groups: Iterable[Key], names: Sequence[str]) -> dict[Key, str]:
    """Name of each group: the values in which the groups differ, a bare count with its column.

    A count that the other values imply, such as the parameters of a network, is left out.
    """
    found = list(dict.fromkeys(groups))
    shown = [k for k in range(len(names)) if len({key[k] for key in found}) > 1]
    for k in [k for k in shown if names[k].startswith("n_")]:
        others = [other for other in shown if other != k]
        if len({tuple(key[other] for other in others) for key in found}) == len(found):
            shown = others
    shown = shown or list(range(len(names)))
    return {key: _label([(names[k], key[k]) for k in shown]) for key in found}


def common_label(groups: Iterable[Key], names: Sequence[str]) -> str:
    """The values that all groups share."""
    found = list(groups)
    shared = [k for k in range(len(names)) if len({key[k] for key in found}) == 1]
    return _label([(names[k], found[0][k]) for k in shared]) if shared else ""


def _label(parts: Iterable[tuple[str, str]]) -> str:
    known = [(name, value) for name, value in parts if value != UNKNOWN]
    texts = [f"{name} {value}" if name.startswith("n_") else value for name, value in known]
    return " · ".join(texts) or UNKNOWN
