"""How wide an interval must be: by the errors of configurations that the fit did not see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from fitkit.errors import FitError
from fitkit.models.columns import Key, keys, rows_by_key, sorted_rows, take
from fitkit.models.estimator import Estimator, fresh
from fitkit.models.parameters import number, plain
from fitkit.splits import k_fold

MIN_INSIDE = 10  # held-out rows: of fewer, no 90 % quantile can be told
MIN_BEYOND = 20  # rows of a group whose small scales are asked for its large ones
_FOLDS, _FEW_FOLDS, _MANY = 10, 5, 50
_CUTS = (2, 4)  # of the largest scale: what is trained on
_NEAR = 0.25  # doublings; nearer to the measured, errors are those of the inside
_KEPT = 2_000  # scores; of more, evenly spaced ranks
_DIGITS = 9
RESOLUTION = 1e-9  # of an error: below it rounding alone is left
_NOTHING = 1e-12


@dataclass(frozen=True)
class HeldOutErrors:
    r"""Errors of a group's own configurations when they were held out.

    Inside the measured range an error is :math:`|\log t - \log \hat t|` of a row that was left
    out of one of 10 folds (5 from 50 rows on), by the width of the model's own interval there as
    a share of its median: so the interval keeps the shape that the model gives it and takes its
    size from what was held out. The quantile of level :math:`\lceil (n + 1) p \rceil / n` of such
    errors is the half-width of a cross-conformal interval (V. Vovk, Annals of Mathematics and
    Artificial Intelligence 74, 2015; R. F. Barber et al., Annals of Statistics 49, 2021).

    Beyond the range, exchangeability is gone. There the small scales predict the larger ones, and
    an error counts by the root of its distance in doublings, as a random walk would grow. What
    the extrapolation adds is independent of what the model errs inside, so the variances add:
    :math:`h^2 = h_{in}^2 + q^2 d`.

    Attributes
    ----------
    inside
        Errors inside the range, ascending.
    beyond
        By axis, errors beyond the range for each root of a doubling, ascending.
    typical
        Median width of the model's own interval, see `typical_width`; NaN without any.
    """

    inside: np.ndarray = field(default_factory=lambda: np.empty(0))
    beyond: Mapping[str, np.ndarray] = field(default_factory=dict)
    typical: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "inside": self.inside.tolist(),
            "beyond": {axis: errors.tolist() for axis, errors in self.beyond.items()},
            "typical": plain(self.typical),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` described.

        Raises
        ------
        ValueError
            If an error is no positive number or zero.
        """
        beyond = {str(axis): _checked(errors) for axis, errors in state["beyond"].items()}
        return cls(_checked(state["inside"]), beyond, number(state["typical"]))


def _checked(errors: Sequence[float]) -> np.ndarray:
    found = np.sort(np.array(errors, dtype=float))
    if not np.all(np.isfinite(found) & (found >= 0)):
        raise ValueError("a held-out error that is no number from 0")
    return found


def quantile(errors: np.ndarray, level: float) -> float:
    """Quantile that a further exchangeable error stays below with probability ``level``.

    Infinite where there are too few errors for that level.

    Parameters
    ----------
    errors
        Ascending, shape ``(errors,)``.
    """
    rank = math.ceil((len(errors) + 1) * level - _NOTHING)
    return float(errors[rank - 1]) if rank <= len(errors) else math.inf


def needed(level: float) -> int:
    """Fewest errors that tell a quantile of that level."""
    return math.ceil(level / (1 - level) - _NOTHING)


def held_out_errors(
    model: Any,
    X: SimpleNamespace,
    times: np.ndarray,
    axes: Sequence[str],
    apart: Sequence[str] = (),
) -> HeldOutErrors:
    """Fit a model again and again without some of its rows, and see how it errs there.

    Parameters
    ----------
    model
        Fitted; what it chose by all rows stays chosen.
    X, times
        Its rows: one for each configuration, so that repetitions are held out together.
    axes
        Columns of which the larger values are asked for.
    apart
        Columns whose values were each measured over a range of their own.
    """
    is_judged = len(times) >= MIN_INSIDE and model.intervals_by == "theory"
    can_tell = len(times) >= MIN_BEYOND and model.intervals_by != "posterior"
    if not (is_judged or can_tell):
        return HeldOutErrors()
    X, times = sorted_rows(X, times, model.columns)
    again = model.settled()
    inside = _inside(again, X, times) if is_judged else np.empty(0)
    beyond = {}
    for axis in axes if can_tell else ():
        errors = _beyond(again, X, times, axis, apart)
        if len(errors) >= MIN_INSIDE:
            beyond[axis] = errors
    typical = typical_width(model, X) if len(inside) else math.nan
    return HeldOutErrors(inside, beyond, typical)


def _inside(again: Estimator, X: SimpleNamespace, times: np.ndarray) -> np.ndarray:
    n_folds = min(_FOLDS if len(times) < _MANY else _FEW_FOLDS, len(times))
    parts = []
    for fold in k_fold(len(times), n_folds):
        train, test = np.flatnonzero(fold.train), np.flatnonzero(fold.test)
        known, asked = take(X, train), take(X, test)
        try:
            model = fresh(again).fit(known, times[train])
        except FitError:
            continue
        parts.append(_errors(model, asked, times[test]) / _shape(model, known, asked))
    return _kept(parts)


def _errors(model: Any, asked: SimpleNamespace, times: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # a row without a prediction has no error
        return np.abs(np.log(times / model.predict(asked)))


def _shape(model: Any, known: SimpleNamespace, asked: SimpleNamespace) -> np.ndarray:
    """Width of the model's own interval by its typical one."""
    typical = typical_width(model, known)
    with np.errstate(all="ignore"):
        return own_shape(model.relative_width(asked), typical)


def typical_width(model: Any, X: SimpleNamespace) -> float:
    """Median of a model's relative width over rows; NaN if the model has no intervals."""
    with np.errstate(all="ignore"):
        widths = model.relative_width(X)
    widths = widths[np.isfinite(widths) & (widths > 0)]
    return float(np.median(widths)) if len(widths) else math.nan


def own_shape(widths: np.ndarray, typical: float) -> np.ndarray:
    """Widths by the typical one; 1 where the model has none."""
    shape = widths / typical
    return np.where(np.isfinite(shape) & (shape > 0), shape, 1.0)


def _beyond(
    again: Estimator, X: SimpleNamespace, times: np.ndarray, axis: str, apart: Sequence[str]
) -> np.ndarray:
    values = getattr(X, axis, None)
    if values is None:
        return np.empty(0)
    own = [name for name in apart if hasattr(X, name)]
    parts = []
    for cut in _CUTS:
        train, distance = _smaller(np.asarray(values, dtype=float), keys(X, own), cut)
        test = np.flatnonzero(distance > 0)
        if not len(test):
            continue
        try:
            model = fresh(again).fit(take(X, train), times[train])
        except FitError:
            continue
        reach = np.sqrt(np.maximum(distance[test], _NEAR))
        parts.append(_errors(model, take(X, test), times[test]) / reach)
    return _kept(parts)


def _smaller(values: np.ndarray, labels: Sequence[Key], cut: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions with up to one ``cut``-th of the largest value, and doublings of all beyond it.

    What was measured apart has a largest value of its own; where fewer than two smaller values
    are left, nothing tells how the time grows, and no row is asked for.
    """
    small, distance = np.zeros(len(values), dtype=bool), np.zeros(len(values))
    for rows in rows_by_key(labels).values():
        own = values[rows]
        below = own <= np.nanmax(own, initial=-np.inf) / cut
        known = np.unique(own[below & (own > 0)])
        if len(known) < 2:
            continue
        small[rows] = below
        with np.errstate(divide="ignore", invalid="ignore"):
            distance[rows] = np.where(below | np.isnan(own), 0.0, np.log2(own / known[-1]))
    return np.flatnonzero(small), distance


def _kept(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All finite errors in ascending order, of very many evenly spaced ranks."""
    errors = np.concatenate([*parts, np.empty(0)])
    errors = np.sort(errors[np.isfinite(errors)])
    if len(errors) > _KEPT:
        errors = np.quantile(errors, (np.arange(_KEPT) + 0.5) / _KEPT)
    return np.round(errors, _DIGITS)
