"""NonlinearModel: a form fitted to log times, held near its start where the data say little."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

import fitkit.models.pipeline_forms  # noqa: F401 - registers its form
from fitkit.errors import FitError
from fitkit.models.columns import (
    Columns,
    MissingColumnError,
    drawn_rows,
    known_numbers,
    n_rows,
    sorted_rows,
    take,
)
from fitkit.models.estimator import Estimator, checked_times, require_fitted
from fitkit.models.forms import Coefficient, Form, Sensitivities, amount_of, form_named
from fitkit.models.intervals import log_interval, t_quantile
from fitkit.models.parameters import (
    Parameter,
    Status,
    number,
    parameters_from_json,
    parameters_to_json,
    plain,
)
from fitkit.models.regression import absurd

if TYPE_CHECKING:
    pass

_SOFT = 0.1  # log residual from which on an outlier counts less than its square
_LINKS = (1.0, 0.1)  # starts: as the form says, and with links that are ten times as fast
_PLENTY = 200  # rows from which on the first start is enough
_MOST = 5_000  # rows; of more, so many drawn at random determine a dozen coefficients as well
_CUT = 30.0  # a log coefficient moves at most so far from its start: 13 orders of magnitude
_NOTHING = 1e-4  # share of every time below which a price might as well be zero
_ALONE = math.log(100)  # log of the ratio to the next longer time
_STEP = 1e-5
_ENOUGH = 1e-10  # relative change of the sum of squares at which the search ends


class NonlinearModel(Estimator):
    r"""A form, fitted by robust least squares on the logarithm of time.

    Prices and sizes are positive by construction: their logarithms are fitted. With residuals
    :math:`r_i = \log \hat t_i - \log t_i`, the fit minimises
    :math:`\sum_i \rho(r_i) + \sum_k \rho(\lambda (\theta_k - \theta_k^0))`, :math:`\rho` the
    soft-L1 loss, so that an outlier pulls linearly only and a coefficient that the data say
    nothing about stays at its start. Times that are `absurd` beside the others are not used.

    Parameters
    ----------
    form
        Name in `fitkit.models.forms.FORMS`.
    ridge
        :math:`\lambda`.
    level
        Level of the parameters' confidence intervals.

    Attributes
    ----------
    parameters_ : list of Parameter
        The form's coefficients; intervals by linearisation in the logarithm.
    noise_ : float
        Standard deviation of the log residuals; NaN without a residual degree of freedom.

    Examples
    --------
    >>> frame = pd.DataFrame({"n_workers": [1.0, 2, 4, 8, 16, 32], "local_batch": 32.0})
    >>> model = NonlinearModel("serial_server").fit(frame, [0.4, 0.4, 0.4, 0.4, 0.8, 1.6])
    >>> float(model.params_.set_index("term").estimate["service"].round(2))
    0.05
    """

    def __init__(self, form: str, ridge: float = 0.03, level: float = 0.9) -> None:
        self.form = form
        self.ridge = ridge
        self.level = level

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return form_named(self.form).columns

    # -- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to measured times.

        Parameters
        ----------
        X
            Columns that the form reads; shape ``(rows, ...)``.
        y
            Seconds, shape ``(rows,)``, all positive.

        Raises
        ------
        ValueError
            If the form is unknown, a column holds words, or a time is not a positive number.
        FitError
            If there is no row, or a column that the form cannot do without is null.
        """
        form = form_named(self.form)
        X, times = drawn_rows(*sorted_rows(X, checked_times(y), form.columns), _MOST)
        X = known_numbers(X, form.columns)
        problem, theta = self._solved(form, X, times)
        residuals = problem.residuals(theta)[: len(times)]
        used = np.flatnonzero(~absurd(residuals))
        if len(used) < len(times):
            X, times = take(X, used), times[used]
            problem, theta = self._solved(form, X, times)
            residuals = problem.residuals(theta)[: len(times)]
        fitted, amounts = problem.fitted, problem.amounts
        self.n_obs_, self.dof_ = len(times), max(len(times) - len(fitted), 0)
        self.noise_ = _spread(residuals, self.dof_)
        self._coefficients = dict.fromkeys((c.name for c in form.coefficients), 0.0)
        errors = _errors(problem.jacobian(theta), self.noise_)
        found = {}
        for c, place, error in zip(fitted, theta.tolist(), errors.tolist(), strict=True):
            self._coefficients[c.name] = _value(c, place)
            found[c.name] = self._parameter(c, place, error, amounts[c.name] / times)
        nan = float("nan")
        self.parameters_ = [
            found.get(c.name, Parameter(c.name, nan, nan, nan, nan, c.unit, problem.status[c.name]))
            for c in form.coefficients
        ]
        return self

    def _solved(
        self, form: Form, X: SimpleNamespace, times: np.ndarray
    ) -> tuple[_Problem, np.ndarray]:
        """The problem that the rows pose, and its solution."""
        amounts = {c.name: amount_of(c, X, len(times)) for c in form.coefficients}
        problem = _Problem(form, X, amounts, np.log(times), self.ridge)
        if not any(c.kind == "price" for c in problem.fitted):
            raise FitError(
                f"form {self.form} needs one of {', '.join(form.columns)}", "add the columns"
            )
        return problem, problem.solve()

    def _parameter(
        self, c: Coefficient, place: float, error: float, amount: np.ndarray
    ) -> Parameter:
        """One that was fitted, from its coordinate, the error of that, and the amount a second."""
        value = _value(c, place)
        nothing = c.kind == "price" and np.all(value * amount < _NOTHING)
        status: Status = "zero" if nothing else "positive"
        if self.dof_ <= 0 or not math.isfinite(error):
            return Parameter(c.name, value, math.nan, math.nan, math.nan, c.unit, status)
        reach = min(t_quantile(0.5 + self.level / 2, self.dof_) * error, _CUT)
        low, high = _value(c, place - reach), _value(c, place + reach)
        return Parameter(c.name, value, _slope(c, value) * error, low, high, c.unit, status)

    # -- using it --------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a column is null.

        Raises
        ------
        ValueError
            If a column that it needs is missing, or holds words.
        """
        require_fitted(self, "parameters_")
        form, given = form_named(self.form), SimpleNamespace(**self._coefficients)
        seconds = _seconds(form, known_numbers(X, form.columns), given)
        return np.array(np.broadcast_to(seconds, (n_rows(X),)))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, see `log_interval`.

        The variance of the fitted mean counts as it is on average, coefficients / rows.
        """
        require_fitted(self, "parameters_")
        spread = self.noise_ * math.sqrt(2 - self.dof_ / self.n_obs_)
        return log_interval(self.predict(X), spread, self.dof_, level)

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "parameters_")
        return {
            "form": self.form,
            "ridge": float(self.ridge),
            "level": float(self.level),
            "n_obs": self.n_obs_,
            "dof": self.dof_,
            "noise": plain(self.noise_),
            "coefficients": self._coefficients,
            "parameters": parameters_to_json(self.parameters_),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If the form, a coefficient or a parameter is none of ours.
        """
        form = form_named(state["form"])
        model = cls(form.name, number(state["ridge"]), number(state["level"]))
        model.n_obs_, model.dof_ = int(state["n_obs"]), int(state["dof"])
        model.noise_ = number(state["noise"])
        if not 0 <= model.dof_ < model.n_obs_:
            raise ValueError(f"{model.dof_} degrees of freedom of {model.n_obs_} rows")
        model._coefficients = {
            c.name: number(state["coefficients"][c.name]) for c in form.coefficients
        }
        for c in form.coefficients:
            low = c.low if c.kind == "number" else 0.0
            if not low <= model._coefficients[c.name] <= c.high:
                raise ValueError(f"{c.name}: {model._coefficients[c.name]} is out of range")
        model.parameters_ = parameters_from_json(state["parameters"])
        if [p.term for p in model.parameters_] != [c.name for c in form.coefficients]:
            raise ValueError("parameters of another form")
        return model


class _Problem:
    """Least squares in the logarithm of prices and sizes, in the logit of bounded numbers."""

    def __init__(
        self, form: Form, X: Any, amounts: Mapping[str, np.ndarray], logs: np.ndarray, ridge: float
    ) -> None:
        self.form, self.X, self.logs, self.ridge = form, X, logs, ridge
        self.status = {c.name: _status(c, amounts[c.name]) for c in form.coefficients}
        fitted = [c for c in form.coefficients if self.status[c.name] == "positive"]
        self.fitted = fitted
        self.amounts = {c.name: amounts[c.name] for c in fitted}
        self.start = np.zeros(len(fitted))
        names = [c.name for c in form.coefficients]
        self.at = [names.index(c.name) for c in fitted]
        self.table = np.zeros((len(logs), len(names)))  # of what is not fitted, nothing is paid
        self.table[:, self.at] = np.column_stack([amounts[c.name] for c in fitted])

    def solve(self) -> np.ndarray:
        """Best of all starts, shape ``(coefficients,)``."""
        from scipy.optimize import least_squares  # here, so that predicting needs numpy alone

        best, least = self.start, math.inf
        anchor = self.start
        shortest = _shortest(self.logs)
        for links in _LINKS if len(self.logs) < _PLENTY else _LINKS[:1]:
            self.start = np.array(
                [_start(c, self.amounts[c.name], shortest, links) for c in self.fitted]
            )
            found = least_squares(
                self.residuals, self.start, jac=self.jacobian, loss="soft_l1", f_scale=_SOFT,
                ftol=_ENOUGH, xtol=_ENOUGH, max_nfev=200, x_scale="jac",
            )  # fmt: skip
            if found.cost < least:
                best, least, anchor = found.x, found.cost, self.start
        self.start = anchor
        return self._cut(best)

    def _cut(self, theta: np.ndarray) -> np.ndarray:
        """Coordinates, none farther from the start than a float can bear."""
        return np.clip(theta, self.start - _CUT, self.start + _CUT)

    def _values(self, theta: np.ndarray) -> np.ndarray:
        """Values of all coefficients; those that are not fitted are 0."""
        values = np.zeros(self.table.shape[1])
        places = self._cut(theta).tolist()
        values[self.at] = [_value(c, place) for c, place in zip(self.fitted, places, strict=True)]
        return values

    def _log_time(self, theta: np.ndarray) -> np.ndarray:
        values = self._values(theta)
        try:
            if self.form.sensitivities is not None:  # the amounts are there: no term is asked again
                seconds, _ = self.form.sensitivities(self.table, values)
            else:
                names = (c.name for c in self.form.coefficients)
                given = SimpleNamespace(**dict(zip(names, values.tolist(), strict=True)))
                seconds = _seconds(self.form, self.X, given)
        except MissingColumnError:
            seconds = np.array(np.nan)
        if not np.all(np.isfinite(seconds) & (seconds > 0)):
            raise FitError(
                f"form {self.form.name}: a column that it needs is missing, null or not positive",
                f"it needs {', '.join(self.form.columns)}",
            )
        return np.broadcast_to(np.log(seconds), self.logs.shape)

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
        slopes = [_slope(c, v) for c, v in zip(self.fitted, values[self.at].tolist(), strict=True)]
        return found[:, self.at] * slopes / seconds[:, None]

    def _by_difference(self, theta: np.ndarray) -> np.ndarray:
        columns = []
        for k in range(len(theta)):
            step = np.zeros(len(theta))
            step[k] = _STEP
            difference = self._log_time(theta + step) - self._log_time(theta - step)
            columns.append(difference / (2 * _STEP))
        return np.column_stack(columns)


def _seconds(form: Form, X: SimpleNamespace, given: SimpleNamespace) -> np.ndarray:
    with np.errstate(all="ignore"):  # what is no number is told by who asked
        return np.asarray(form.seconds(Columns(X), given), dtype=float)


def _status(c: Coefficient, amount: np.ndarray) -> Status:
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


def _value(c: Coefficient, place: float) -> float:
    """Coefficient from the coordinate that is fitted."""
    if c.kind == "number":
        return c.low + (c.high - c.low) / (1 + math.exp(-place))
    return math.exp(place)


def _slope(c: Coefficient, value: float) -> float:
    """Derivative of a coefficient by the coordinate that is fitted."""
    if c.kind == "number":
        return (value - c.low) * (c.high - value) / (c.high - c.low)
    return value


def _spread(residuals: np.ndarray, dof: int) -> float:
    return float(np.sqrt((residuals**2).sum() / dof)) if dof > 0 else float("nan")


def _errors(jacobian: np.ndarray, noise: float) -> np.ndarray:
    """Standard error of each coordinate: linear theory, the ridge counted as knowledge."""
    try:
        variance = np.diag(np.linalg.inv(jacobian.T @ jacobian)) * noise**2
    except np.linalg.LinAlgError:  # without a ridge, of coefficients that the data cannot tell
        return np.full(jacobian.shape[1], np.nan)
    return np.sqrt(np.where(variance >= 0, variance, np.nan))
