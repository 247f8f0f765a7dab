"""Folds: which rows determine the parameters and which are predicted.

One row is one measured configuration: repetitions were pooled before, so they never straddle a
fold.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Fold:
    """One split of the rows.

    Attributes
    ----------
    label
        What is held out.
    train, test
        Boolean arrays, shape ``(rows,)``.
    """

    label: str
    train: np.ndarray
    test: np.ndarray


def leave_one_out(values: pd.Series, *, keep_smallest: bool = False) -> list[Fold]:
    """Hold out each value of a column in turn.

    Parameters
    ----------
    values
        The column; rows where it is null are always in training.
    keep_smallest
        Never hold out the smallest value: without it nothing tells the fixed cost from the
        cost of the work.

    Raises
    ------
    ValueError
        If the column has fewer than two values.
    """
    distinct = sorted(values.dropna().unique().tolist(), key=_order)
    if len(distinct) < 2:
        raise ValueError(f"cannot leave one {values.name} out: it has {len(distinct)} value(s)")
    held = [np.asarray((values == value).fillna(False), dtype=bool) for value in distinct]
    folds = [
        Fold(f"{values.name} = {_text(value)}", ~mask, mask)
        for value, mask in zip(distinct, held, strict=True)
    ]
    return folds[1:] if keep_smallest else folds


def _text(value: Hashable) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _order(value: Hashable) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, str(value)  # type: ignore[arg-type]


def hold_out(mask: np.ndarray, label: str) -> list[Fold]:
    """Hold out the rows of a mask at once.

    Raises
    ------
    ValueError
        If that leaves nothing to train on, or nothing to predict.
    """
    if not mask.any():
        raise ValueError(f"no row has {label}: nothing to predict")
    if mask.all():
        raise ValueError(f"every row has {label}: nothing to train on")
    return [Fold(label, ~mask, mask)]


def k_fold(n_rows: int, k: int, seed: int = 0) -> list[Fold]:
    """Deal the rows into ``k`` folds of nearly equal size, at random.

    Raises
    ------
    ValueError
        If ``k`` is below 2 or above the number of rows.
    """
    if not 2 <= k <= n_rows:
        raise ValueError(f"cannot make {k} folds of {n_rows} configurations: 2 to {n_rows}")
    fold_of = np.random.default_rng(seed).permutation(n_rows) % k
    return [Fold(f"fold {i + 1} of {k}", fold_of != i, fold_of == i) for i in range(k)]


def forward_chaining(values: pd.Series, cuts: Sequence[float] | None = None) -> list[Fold]:
    """Train on the small values of a column and predict the next larger one.

    Parameters
    ----------
    cuts
        Largest values to train on; default every distinct value but the smallest and the
        largest. Rows where the column is null are in no fold.

    Raises
    ------
    ValueError
        If the column is not numeric or has fewer than three values, or if no cut has a value
        on either side.
    """
    try:
        numbers = values.to_numpy(dtype=float, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"cannot scale up over {values.name}: not a number") from error
    distinct = np.unique(numbers[~np.isnan(numbers)])
    if len(distinct) < 3:
        raise ValueError(f"cannot scale up over {values.name}: fewer than three values")
    folds = []
    for cut in cuts if cuts is not None else distinct[1:-1]:
        larger = distinct[distinct > cut]
        if len(larger) and cut >= distinct[0]:
            label = f"{values.name} <= {cut:g} → {larger[0]:g}"
            folds.append(Fold(label, numbers <= cut, numbers == larger[0]))
    if not folds:
        raise ValueError(f"cannot scale up over {values.name}: no value on either side of {cuts}")
    return folds


def scale_chain(numbers: np.ndarray) -> list[Fold]:
    """Train up to a quarter and up to half of the largest scale, and predict all above.

    So the rows at hand are asked what a larger scale will ask. Fewer than three scales up to the
    quarter cannot tell which cost grows how: then there is no fold.

    Parameters
    ----------
    numbers
        The scale of each row; rows where it is not a positive number are in no fold.
    """
    known = np.isfinite(numbers) & (numbers > 0)
    largest = numbers[known].max(initial=0.0)
    if len(np.unique(numbers[known & (numbers <= largest / 4)])) < 3:
        return []
    return [
        Fold(f"above {cut:g}", known & (numbers <= cut), known & (numbers > cut))
        for cut in (largest / 4, largest / 2)
    ]
