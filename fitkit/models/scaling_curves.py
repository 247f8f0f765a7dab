"""Times by scale: repetitions pooled, and curves with a knee and without fitted to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
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
    low = values.min()
    return np.asarray((values - low) / (values.max() - low))


def _sum_of(*amounts: np.ndarray) -> Curves:
    units = np.array([_unit(amount) for amount in amounts])

    def curves(points: np.ndarray) -> np.ndarray:
        added = np.expm1(points) @ units
        return np.log1p(added, out=added)

    return curves


def smooth_shapes(n: np.ndarray, growth: float) -> dict[str, Shape]:
    """The alternatives to a knee, each a constant plus what its name says.

    One amount may have either sign, two are both costs. The power reaches 2: the largest that a
    message between any two workers explains. N log N, log N rounds of N messages through
    one link, counts log N from the smallest scale: the unit of the scale does not matter.
    """
    log, ring, inverse, square = np.log(n), 1 - 1 / n, 1 / n, n**2
    below = np.log(n / n[-1])

    def power(points: np.ndarray) -> np.ndarray:
        raised = np.exp(points[:, :1] * below)  # from the first scale, the least, up to 1
        least = raised[:, :1]
        return np.log1p(np.expm1(points[:, 1:]) * ((raised - least) / (1.0 - least)))

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

    def misfit(self) -> Callable[[np.ndarray], np.ndarray]:
        """Weighted squares that curves ``(points, scales)`` leave, at their best levels."""
        shares = self.weights / self.weights.sum()

        def left_of(curves: np.ndarray) -> np.ndarray:
            left = self.means - curves
            left -= (left @ shares)[:, None]
            left *= left
            return np.asarray(left @ self.weights)

        return left_of

    @property
    def scatter(self) -> float:
        """Squares that no curve can explain."""
        return self.within + self.n * NOT_REPEATED**2


class ShapeFit(NamedTuple):
    """A shape at its best, and all of its curves that come near: a grid around it.

    Attributes
    ----------
    points, curves
        The grid, shape ``(points, dimensions)``, and the curves on it but for their levels.
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
    left_of, scatter = table.misfit(), table.scatter
    dof = max(table.n - 1 - len(low), 1)
    for points, step in _grids(low, high):
        curves = shape.curves(points)
        squares = left_of(curves) + scatter
        best = int(squares.argmin())
        if not len(low):
            break
        near = points[squares <= squares[best] * (1 + _REGION / dof)]
        closer = np.maximum(low, near.min(0) - step), np.minimum(high, near.max(0) + step)
        if np.all(closer[1] - closer[0] > _STILL * (high - low)):
            break
        low[:], high[:] = closer
    at = _closest(shape, left_of, points[best], step)
    curve = shape.curves(at[None])
    level = float((table.means - curve[0]) @ table.weights / table.weights.sum())
    least = float(left_of(curve)[0] + scatter)
    criterion = float(aicc(np.array(least), table.n, 1 + len(low)))
    return ShapeFit(points, curves, at, least, criterion, curve[0] + level)


def _closest(
    shape: Shape,
    left_of: Callable[[np.ndarray], np.ndarray],
    at: np.ndarray,
    step: np.ndarray,
) -> np.ndarray:
    """The best point, from the best one of a grid and its steps."""
    if not len(at):
        return at
    around, low, high = _around(len(at)), np.array(shape.low), np.array(shape.high)
    for _ in range(_ZOOMS):
        points = np.minimum(np.maximum(at + around * step, low), high)
        at = points[left_of(shape.curves(points)).argmin()]
        step = step * _ZOOM
    return np.asarray(at)


@lru_cache
def _around(dimensions: int) -> np.ndarray:
    """Points around one, in steps, shape ``(points, dimensions)``."""
    return _mesh([np.linspace(-2, 2, 7)] * dimensions)


@lru_cache
def _numbered(mesh: tuple[int, ...]) -> np.ndarray:
    """Points of a grid by their numbers along each axis, shape ``(points, dimensions)``."""
    return _mesh([np.arange(m, dtype=float) for m in mesh])


def _mesh(axes: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _grids(low: np.ndarray, high: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points between bounds that the caller moves, shape ``(points, dimensions)``, and steps."""
    if not len(low):
        yield np.zeros((1, 0)), np.zeros(0)
        return
    mesh = _MESH[len(low)]
    numbers, last = _numbered(mesh), np.array(mesh) - 1
    for _ in range(_ROUNDS):
        step = (high - low) / last
        yield np.minimum(low + numbers * step, high), step
