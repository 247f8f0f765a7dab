"""Times by scale: repetitions pooled, and curves with a knee and without fitted to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.estimator import checked_times
from fitkit.models.guard import LARGEST

NOT_REPEATED = 1e-3  # log residual below which no two runs repeat each other
_FAR = 5.0  # standard deviations beyond which a repetition is a straggler
_MOST = 500  # repetitions of a scale; of more, evenly spaced ranks say the same of their scatter
_PAIR = 1.0483  # standard deviation of a normal variable by the median difference of two
_REGION = 30.0  # variances of the sum of squares around its least: five standard errors and more
_ROUNDS = 12
_MESH = {1: (121,), 2: (31, 21)}  # points of a grid by its dimensions
_ZOOMS, _ZOOM = 8, 0.5  # of the best point between those of the last grid
_STILL = 0.6  # share of its width to which a grid shrinks or else it has arrived

# -- repetitions -----------------------------------------------------------------------------


class Repeats(NamedTuple):
    """Repetitions pooled by scale, stragglers left out.

    Attributes
    ----------
    scales, means, counts
        Distinct scales, ascending; mean log time and number of the repetitions of each; shape
        ``(scales,)``.
    within
        Sum of the squared log deviations from the means.
    n_left_out
        Stragglers.
    """

    scales: np.ndarray
    means: np.ndarray
    counts: np.ndarray
    within: float
    n_left_out: int

    @property
    def n(self) -> int:
        """Measurements."""
        return int(self.counts.sum())


def pool_by_scale(scale: ArrayLike, times: ArrayLike) -> Repeats:
    """Mean log time of each scale.

    A repetition that lies 5 standard deviations from the (lower) median of its scale is left out.
    The standard deviation is the median difference of two repetitions, over all scales: a few
    stragglers do not move it.

    Parameters
    ----------
    scale, times
        Workers (or nodes) and seconds, shape ``(rows,)``; order does not matter.

    Raises
    ------
    ValueError
        If a value is no positive number, or there are more of one than of the other.
    FitError
        If there is no row.
    """
    seconds = checked_times(times)
    at = checked_scales(scale)
    if at.shape != seconds.shape:
        raise ValueError(f"{len(at)} scales but {len(seconds)} times")
    logs = np.log(seconds)
    scales = np.unique(at)
    kept = _without_stragglers([np.sort(logs[at == value]) for value in scales])
    means = np.array([group.mean() for group in kept])
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in kept)
    counts = np.array([float(len(group)) for group in kept])
    return Repeats(scales, means, counts, within, len(logs) - int(counts.sum()))


def checked_scales(scale: ArrayLike) -> np.ndarray:
    """Scales, shape ``(rows,)``.

    Raises
    ------
    ValueError
        If they are no single column, or one is not a positive number, or beyond 1e±30.
    """
    try:
        found = np.asarray(scale, dtype=float)
    except TypeError as error:  # a null of pandas
        raise ValueError("scales must be positive numbers") from error
    if found.ndim != 1 or not np.all(np.isfinite(found) & (found > 0)):
        raise ValueError("scales must be one column of positive numbers")
    if np.any((found > LARGEST) | (found < 1 / LARGEST)):
        raise ValueError(f"scales must be positive numbers from {1 / LARGEST:g} to {LARGEST:g}")
    return found


def _without_stragglers(groups: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Sorted repetitions of each scale, those left out that lie far from its lower median."""
    few = [g[np.linspace(0, len(g) - 1, min(len(g), _MOST)).round().astype(int)] for g in groups]
    pairs = [np.abs(np.subtract.outer(g, g))[np.triu_indices(len(g), 1)] for g in few]
    differences = np.concatenate(pairs)
    if not len(differences):
        return list(groups)
    far = _FAR * max(_PAIR * float(np.median(differences)), NOT_REPEATED)
    return [g[np.abs(g - g[(len(g) - 1) // 2]) <= far] for g in groups]


# -- forms of a curve ----------------------------------------------------------------------

Curves = Callable[[np.ndarray], np.ndarray]


class Shape(NamedTuple):
    """A log time but for its level: points ``(points, dimensions)`` to ``(points, scales)``.

    ``accelerates`` tells a smooth curve whose slope grows, which a knee of the same growth is
    hard to tell from, see `find_knee`.
    """

    curves: Curves
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    accelerates: bool = False


def _unit(values: np.ndarray) -> np.ndarray:
    """From 0 to 1 over the scales; `log1p(expm1(g) * unit)` is growth of log time by g."""
    low, high = values.min(axis=-1, keepdims=True), values.max(axis=-1, keepdims=True)
    return np.asarray((values - low) / (high - low))


def _sum_of(*amounts: np.ndarray) -> Curves:
    units = np.array([_unit(amount) for amount in amounts])
    return lambda points: np.log1p(np.expm1(points) @ units)


def smooth_shapes(n: np.ndarray, growth: float) -> dict[str, Shape]:
    """The alternatives to a knee, each a constant plus what its name says.

    One amount may have either sign, two are both costs. The power reaches 2: the largest that a
    message between any two workers explains. N log N, log N rounds of N messages through
    one link, counts log N from the smallest scale: the unit of the scale does not matter.
    """
    log, ring, inverse, square = np.log(n), 1 - 1 / n, 1 / n, n**2

    def power(points: np.ndarray) -> np.ndarray:
        raised = np.exp(points[:, :1] * np.log(n / n[-1]))
        return np.log1p(np.expm1(points[:, 1:]) * _unit(raised))

    one = {"affine": n, "log": log, "ring": ring, "1/N": inverse}
    pairs = {"log + linear": (log, n), "1/N + log": (inverse, log)}
    curved = {"1/N + linear": (inverse, n), "linear + square": (n, square)}
    low, high = (0.0, 0.0), (growth, growth)
    return {
        "constant": Shape(lambda points: np.zeros((len(points), len(n)))),
        **{name: Shape(_sum_of(f), (-growth,), (growth,)) for name, f in one.items()},
        **{name: Shape(_sum_of(*both), low, high) for name, both in pairs.items()},
        "square": Shape(_sum_of(square), (-growth,), (growth,), True),
        "N log N": Shape(_sum_of(n * (log - log[0])), (-growth,), (growth,), True),
        **{name: Shape(_sum_of(*both), low, high, True) for name, both in curved.items()},
        "power": Shape(power, (0.1, -growth), (2.0, growth), True),
    }


def knee_shapes(n: np.ndarray, growth: float) -> dict[str, Shape]:
    """A server in turn, max(a, a N / k), and the hinge a + b max(0, N - k), by log k."""
    ends = math.log(n[0]), math.log(n[-2] + 0.99 * (n[-1] - n[-2]))

    def server(points: np.ndarray) -> np.ndarray:
        return np.maximum(0.0, np.log(n) - points)

    def hinge(points: np.ndarray) -> np.ndarray:
        knee = np.exp(points[:, :1])
        return np.log1p(np.expm1(points[:, 1:]) * np.maximum(0, n - knee) / (n[-1] - knee))

    return {
        "serial server": Shape(server, ends[:1], ends[1:]),
        "hinge": Shape(hinge, (ends[0], 0.0), (ends[1], growth)),
    }


# -- fits ------------------------------------------------------------------------------------


class LogTimes(NamedTuple):
    """What is fitted: a mean log time for each scale, its weight, and how many rows that is."""

    means: np.ndarray
    weights: np.ndarray
    within: float
    n: int

    def centred(self, curves: np.ndarray) -> np.ndarray:
        """Without its weighted mean, times the square root of the weights."""
        mean = curves @ self.weights / self.weights.sum()
        return np.asarray((curves - mean[..., None]) * np.sqrt(self.weights))

    @property
    def scatter(self) -> float:
        """Squares that no curve can explain."""
        return self.within + self.n * NOT_REPEATED**2


class ShapeFit(NamedTuple):
    """A shape at its best, and all of its curves that come near: a grid around it.

    Attributes
    ----------
    points, curves
        The grid, shape ``(points, dimensions)``, and `LogTimes.centred` curves on it.
    at
        The best point, shape ``(dimensions,)``.
    squares, aicc
        Sum of squared log residuals there, and Akaike's criterion with the correction for few rows.
    curve
        Log time there, level included, shape ``(scales,)``.
    """

    points: np.ndarray
    curves: np.ndarray
    at: np.ndarray
    squares: float
    aicc: float
    curve: np.ndarray

    @property
    def n_parameters(self) -> int:
        """Level and shape; the noise not counted."""
        return 1 + len(self.at)


def aicc(squares: np.ndarray, n: int, n_parameters: int) -> np.ndarray:
    """Hurvich and Tsai, Biometrika 76, 1989; endless where nothing is left over.

    The variance of the noise is a parameter too.
    """
    k = n_parameters + 1
    if n - k - 1 <= 0:
        return np.full(np.shape(squares), np.inf)
    return np.asarray(n * np.log(squares / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def fit_shape(shape: Shape, table: LogTimes) -> ShapeFit:
    """Least squares on a grid that closes in on whatever the noise leaves possible."""
    low, high = np.array(shape.low), np.array(shape.high)
    target = table.centred(table.means)
    dof = max(table.n - 1 - len(low), 1)
    for points, step in _grids(low, high):
        curves = table.centred(shape.curves(points))
        squares = ((target - curves) ** 2).sum(axis=1) + table.scatter
        best = int(squares.argmin())
        near = points[squares <= squares[best] * (1 + _REGION / dof)]
        if not len(low):
            break
        closer = np.maximum(low, near.min(0) - step), np.minimum(high, near.max(0) + step)
        if np.all(closer[1] - closer[0] > _STILL * (high - low)):
            break
        low[:], high[:] = closer
    at = _closest(shape, table, points[best], step)
    curve = shape.curves(at[None])[0]
    level = float((table.means - curve) @ table.weights / table.weights.sum())
    least = float(((target - table.centred(curve)) ** 2).sum() + table.scatter)
    criterion = float(aicc(np.array(least), table.n, 1 + len(low)))
    return ShapeFit(points, curves, at, least, criterion, curve + level)


def _closest(shape: Shape, table: LogTimes, at: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The best point, from the best one of a grid and its steps."""
    if not len(at):
        return at
    target = table.centred(table.means)
    axis = np.linspace(-2, 2, 7)
    around = np.stack(np.meshgrid(*[axis] * len(at), indexing="ij"), axis=-1).reshape(-1, len(at))
    for _ in range(_ZOOMS):
        points = np.clip(at + around * step, shape.low, shape.high)
        at = points[((target - table.centred(shape.curves(points))) ** 2).sum(axis=1).argmin()]
        step = step * _ZOOM
    return np.asarray(at)


def _grids(low: np.ndarray, high: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points between bounds that the caller moves, shape ``(points, dimensions)``, and steps."""
    if not len(low):
        yield np.zeros((1, 0)), np.zeros(0)
        return
    mesh = _MESH[len(low)]
    for _ in range(_ROUNDS):
        axes = [np.linspace(a, b, m) for a, b, m in zip(low, high, mesh, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        yield grid.reshape(-1, len(low)), (high - low) / (np.array(mesh) - 1)
