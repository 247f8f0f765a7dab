"""The least squares of a form in coordinates that have no bounds: logarithms, mostly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from fitkit.errors import FitError
from fitkit.models.columns import Columns, MissingColumnError
from fitkit.models.forms import Coefficient, Form, Sensitivities
from fitkit.models.parameters import Status

SOFT = 0.1  # log residual from which on an outlier counts less than its square
_LINKS = (1.0, 0.1)  # starts: as the form says, and with links that are ten times as fast
_PLENTY = 200  # rows from which on the first start is enough
CUT = 30.0  # a log coefficient moves at most so far from its start: 13 orders of magnitude
_ALONE = math.log(100)  # log of the ratio to the next longer time
_STEP = 1e-5
_ENOUGH = 1e-10  # relative change of the sum of squares at which the search ends
_STRIDE = 3.0  # a log coefficient moves at most so far in one step
_SETTLED = 1e-5  # relative change of the sum of squares from which on a search has ended
_DAMPED, _RELAXED, _TIGHTENED = 1e-3, 0.2, 8.0  # Levenberg's damping and how it changes
_HELD = 1e-15  # of the largest, below what any ridge holds


class Problem:
    """Least squares in the logarithm of prices and sizes, in the logit of bounded numbers."""

    def __init__(
        self, form: Form, X: Any, amounts: Mapping[str, np.ndarray], logs: np.ndarray, ridge: float
    ) -> None:
        self.form, self.X, self.logs, self.ridge = form, X, logs, ridge
        self.status = {c.name: status_of(c, amounts[c.name]) for c in form.coefficients}
        fitted = [c for c in form.coefficients if self.status[c.name] == "positive"]
        self.fitted = fitted
        self.amounts = {c.name: amounts[c.name] for c in fitted}
        self.start = np.zeros(len(fitted))
        names = [c.name for c in form.coefficients]
        self.at = [names.index(c.name) for c in fitted]
        self.table = np.zeros((len(logs), len(names)))  # of what is not fitted, nothing is paid
        self.table[:, self.at] = np.column_stack([amounts[c.name] for c in fitted])

    def solve(self, near: Mapping[str, float] | None = None) -> np.ndarray:
        """Best of all starts, shape ``(coefficients,)``.

        Parameters
        ----------
        near
            Values of the coefficients where to start; then the start that is nearest to them
            only is what holds them.
        """
        from scipy.optimize import least_squares  # here, so that predicting needs numpy alone

        best, least = self.start, math.inf
        anchor = self.start
        for start in self._starts(near):
            self.start, first = start, start if near is None else self._places(near)
            found = least_squares(
                self.residuals, first, jac=self.jacobian, loss="soft_l1", f_scale=SOFT,
                ftol=_ENOUGH, xtol=_ENOUGH, max_nfev=200, x_scale="jac",
            )  # fmt: skip
            if found.cost < least:
                best, least, anchor = found.x, found.cost, self.start
        self.start = anchor
        return self._cut(best)

    def _starts(self, near: Mapping[str, float] | None) -> list[np.ndarray]:
        """Where searches start, and hold what the data do not tell; the nearest one if told."""
        shortest = _shortest(self.logs)
        starts = [
            np.array([_start(c, self.amounts[c.name], shortest, links) for c in self.fitted])
            for links in (_LINKS if len(self.logs) < _PLENTY else _LINKS[:1])
        ]
        if near is None:
            return starts
        places = self._places(near)
        return [min(starts, key=lambda start: float(np.abs(places - start).sum()))]

    def _places(self, near: Mapping[str, float]) -> np.ndarray:
        """Coordinates of coefficients, none farther from the first start than a float can bear."""
        shortest = _shortest(self.logs)
        found = []
        for c in self.fitted:
            start = _start(c, self.amounts[c.name], shortest, _LINKS[0])
            value = near.get(c.name, 0.0)  # what that fit had no use for starts as ever
            found.append(np.clip(place_at(c, value), start - CUT, start + CUT) if value else start)
        return np.array(found)

    def _cut(self, theta: np.ndarray) -> np.ndarray:
        """Coordinates, none farther from the start than a float can bear."""
        return np.clip(theta, self.start - CUT, self.start + CUT)

    def _values(self, theta: np.ndarray) -> np.ndarray:
        """Values of all coefficients; those that are not fitted are 0."""
        values = np.zeros(self.table.shape[1])
        places = self._cut(theta).tolist()
        values[self.at] = [value_at(c, place) for c, place in zip(self.fitted, places, strict=True)]
        return values

    def _log_time(self, theta: np.ndarray) -> np.ndarray:
        values = self._values(theta)
        try:
            if self.form.sensitivities is not None:  # the amounts are there: no term is asked again
                seconds, _ = self.form.sensitivities(self.table, values)
            else:
                names = (c.name for c in self.form.coefficients)
                given = SimpleNamespace(**dict(zip(names, values.tolist(), strict=True)))
                seconds = seconds_of(self.form, self.X, given)
        except MissingColumnError:
            seconds = np.array(np.nan)
        if not np.all(np.isfinite(seconds) & (seconds > 0)):
            raise FitError(
                f"form {self.form.name}: a column that it needs is missing, null or not positive",
                f"it needs {', '.join(self.form.columns)}",
            )
        return np.broadcast_to(np.log(seconds), self.logs.shape)

    def many_log_times(self, thetas: np.ndarray) -> np.ndarray:
        """Log times at many places, shapes ``(places, coefficients)`` and ``(places, rows)``.

        Not a number where a place has no time for a row.
        """
        if self.form.sensitivities is not None:
            values = self._many_values(thetas)
            seconds = np.array([self.form.sensitivities(self.table, v)[0] for v in values])
        else:
            seconds = self._many_seconds(thetas)
        with np.errstate(all="ignore"):
            return np.where(seconds > 0, np.log(seconds), np.nan)

    def _many_values(self, thetas: np.ndarray) -> np.ndarray:
        values = np.zeros((len(thetas), self.table.shape[1]))
        for k, c in enumerate(self.fitted):
            values[:, self.at[k]] = values_at(c, self._cut(thetas)[:, k])
        return values

    def _many_seconds(self, thetas: np.ndarray) -> np.ndarray:
        values = self._many_values(thetas)[..., None]
        names = [c.name for c in self.form.coefficients]
        shape = (len(thetas), len(self.logs))
        try:
            given = SimpleNamespace(**{name: values[:, k] for k, name in enumerate(names)})
            return np.broadcast_to(seconds_of(self.form, self.X, given), shape)
        except (TypeError, ValueError):  # a form that asks one number of a coefficient
            each = [SimpleNamespace(**dict(zip(names, v[:, 0], strict=True))) for v in values]
            found = [seconds_of(self.form, self.X, given) for given in each]
            return np.array([np.broadcast_to(seconds, shape[1:]) for seconds in found])

    def many_jacobians(self, thetas: np.ndarray) -> np.ndarray:
        """Derivatives of `many_log_times`, shape ``(places, rows, coefficients)``."""
        if self.form.sensitivities is not None:
            return np.array([self._by_formula(t, self.form.sensitivities) for t in thetas])
        steps = _STEP * np.eye(thetas.shape[1])
        return np.stack(
            [
                (self.many_log_times(thetas + h) - self.many_log_times(thetas - h)) / (2 * _STEP)
                for h in steps
            ],
            axis=-1,
        )

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        """Of the rows and, behind them, of the ridge."""
        return np.concatenate(
            [self._log_time(theta) - self.logs, self.ridge * (theta - self.start)]
        )

    def jacobian(self, theta: np.ndarray) -> np.ndarray:
        """Derivatives of `residuals`, shape ``(rows + coefficients, coefficients)``."""
        if self.form.sensitivities is None:
            own = self._by_difference(theta)
        else:
            own = self._by_formula(theta, self.form.sensitivities)
        return np.vstack([own, self.ridge * np.eye(len(theta))])

    def _by_formula(self, theta: np.ndarray, sensitivities: Sensitivities) -> np.ndarray:
        values = self._values(theta)
        seconds, found = sensitivities(self.table, values)
        slopes = [
            slope_at(c, v) for c, v in zip(self.fitted, values[self.at].tolist(), strict=True)
        ]
        return found[:, self.at] * slopes / seconds[:, None]

    def _by_difference(self, theta: np.ndarray) -> np.ndarray:
        columns = []
        for k in range(len(theta)):
            step = np.zeros(len(theta))
            step[k] = _STEP
            difference = self._log_time(theta + step) - self._log_time(theta - step)
            columns.append(difference / (2 * _STEP))
        return np.column_stack(columns)


def seconds_of(form: Form, X: SimpleNamespace, given: SimpleNamespace) -> np.ndarray:
    """Time of each row by a form with given coefficients; what is no number is told by no one."""
    with np.errstate(all="ignore"):  # what is no number is told by who asked
        return np.asarray(form.seconds(Columns(X), given), dtype=float)


def status_of(c: Coefficient, amount: np.ndarray) -> Status:
    """Whether a coefficient can be fitted to rows that have so much of it."""
    if not np.all(np.isfinite(amount)):
        return "unknown"
    return "positive" if np.any(amount > 0) else "undetermined"


def _shortest(logs: np.ndarray) -> float:
    """Log of the shortest time that is not alone: a single one may be absurd."""
    ascending = np.sort(logs)
    near = np.flatnonzero(np.diff(ascending) < _ALONE)
    return float(ascending[near[0] if len(near) else 0])


def _start(c: Coefficient, amount: np.ndarray, shortest: float, links: float) -> float:
    """Start in the coordinate that is fitted, see `Coefficient.start`; log of the shortest time."""
    if c.kind == "number":
        share = (c.start - c.low) / (c.high - c.low)
        return math.log(share / (1 - share))
    typical = math.log(float(np.median(amount[amount > 0])))
    if c.kind == "size":
        return math.log(c.start) + typical
    share = c.start * (links if c.resource.startswith("link") else 1)
    return math.log(share) + shortest - typical


def value_at(c: Coefficient, place: float) -> float:
    """Coefficient from the coordinate that is fitted."""
    if c.kind == "number":
        return c.low + (c.high - c.low) / (1 + math.exp(-place))
    return math.exp(place)


def place_at(c: Coefficient, value: float) -> float:
    """The coordinate of a coefficient, the inverse of `value_at`."""
    if c.kind == "number":
        share = min(max((value - c.low) / (c.high - c.low), 1e-9), 1 - 1e-9)
        return math.log(share / (1 - share))
    return math.log(value)


def values_at(c: Coefficient, places: np.ndarray) -> np.ndarray:
    """Coefficients from the coordinates that are fitted, shape ``(places,)``."""
    if c.kind == "number":
        return c.low + (c.high - c.low) / (1 + np.exp(-places))
    return np.exp(places)


def slope_at(c: Coefficient, value: float) -> float:
    """Derivative of a coefficient by the coordinate that is fitted."""
    if c.kind == "number":
        return (value - c.low) * (c.high - value) / (c.high - c.low)
    return value


# -- many searches at once -----------------------------------------------------------------


def descend(
    problem: Problem,
    places: np.ndarray,
    weights: np.ndarray,
    starts: np.ndarray,
    fixed: np.ndarray | None = None,
    steps: int = 12,
) -> tuple[np.ndarray, np.ndarray]:
    """Levenberg and Marquardt's search from many places at once; places and costs at their end.

    Parameters
    ----------
    places, starts
        Where the searches begin and where the ridge pulls to, shape ``(searches, coefficients)``.
    weights
        How often each row counts, shape ``(searches, rows)``.
    fixed
        Coordinates that stay as they are, shape ``(searches, coefficients)``; none by default.
    """
    places = places.copy()
    fixed = np.zeros(places.shape, dtype=bool) if fixed is None else fixed
    logs = problem.many_log_times(places)
    costs = _costs(problem, places, logs, weights, starts)
    damping = np.full(len(places), _DAMPED)
    left = np.arange(len(places))
    for _ in range(steps):
        curvature, pull = _normal(problem, places[left], logs[left], weights[left], starts[left])
        step = _damped_step(curvature, pull, fixed[left], damping[left])
        tried = np.clip(places[left] - step, problem.start - CUT, problem.start + CUT)
        new_logs = problem.many_log_times(tried)
        new = _costs(problem, tried, new_logs, weights[left], starts[left])
        better = new < costs[left]
        gain = np.where(better, costs[left] - new, 0.0)
        ended = better & (gain <= _SETTLED * costs[left])
        moved = left[better]
        places[moved], logs[moved], costs[moved] = tried[better], new_logs[better], new[better]
        damping[left] *= np.where(better, _RELAXED, _TIGHTENED)
        left = left[~ended]
        if not len(left):
            break
    return places, costs


def _normal(
    problem: Problem,
    places: np.ndarray,
    logs: np.ndarray,
    weights: np.ndarray,
    starts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss and Newton's matrix and the gradient of each search, rows weighted by their trust."""
    residuals = logs - problem.logs
    trust, _ = soft_weights(residuals)
    jacobians = np.nan_to_num(problem.many_jacobians(places))
    weighted = (weights * trust)[..., None] * jacobians
    held, _ = soft_weights(problem.ridge * (places - starts))
    curvature = np.swapaxes(weighted, 1, 2) @ jacobians
    curvature += problem.ridge**2 * held[..., None] * np.eye(places.shape[1])
    pull = np.einsum("dri,dr->di", weighted, residuals)
    return curvature, pull + problem.ridge**2 * held * (places - starts)


def _damped_step(
    curvature: np.ndarray, pull: np.ndarray, fixed: np.ndarray, damping: np.ndarray
) -> np.ndarray:
    """Steps of Marquardt's damped systems; what is fixed stays, and none goes far at once."""
    both = ~fixed[:, :, None] & ~fixed[:, None, :]
    unit = np.eye(fixed.shape[1])
    system = np.where(both, curvature, unit)
    diagonal = np.einsum("dii->di", system)
    system = system + (damping[:, None] * diagonal)[:, :, None] * unit
    step = solved_many(system, np.where(fixed, 0.0, pull))
    return np.clip(step, -_STRIDE, _STRIDE)


def _costs(
    problem: Problem,
    places: np.ndarray,
    logs: np.ndarray,
    weights: np.ndarray,
    starts: np.ndarray,
) -> np.ndarray:
    own = (weights * _loss(logs - problem.logs)).sum(axis=1)
    held = _loss(problem.ridge * (places - starts)).sum(axis=1)
    return np.nan_to_num(own + held, nan=np.inf)


def _loss(residuals: np.ndarray) -> np.ndarray:
    return np.asarray(2 * SOFT**2 * (np.sqrt(1 + (residuals / SOFT) ** 2) - 1))


def soft_weights(residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Soft-L1 weights of residuals, and the second derivative of their loss, halved."""
    inner = 1 + (residuals / SOFT) ** 2
    return inner**-0.5, inner**-1.5


def solved_many(curvature: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """Steps of many small systems; what nothing holds does not move."""
    size = np.einsum("dii->d", curvature)[:, None, None]
    system = curvature + (_HELD * size + np.finfo(float).tiny) * np.eye(pull.shape[1])
    return np.asarray(np.linalg.solve(system, pull[..., None])[..., 0])
