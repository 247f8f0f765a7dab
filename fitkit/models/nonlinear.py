"""NonlinearModel: a form fitted to log times, held near its start where the data say little."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

import fitkit.models.pipeline_forms  # noqa: F401 - registers its form
from fitkit.errors import FitError
from fitkit.models.bootstrap import bounds, form_draws
from fitkit.models.columns import (
    drawn_rows,
    known_numbers,
    n_rows,
    sorted_rows,
    take,
)
from fitkit.models.estimator import Estimator, checked_times, require_fitted
from fitkit.models.forms import Coefficient, Form, amount_of, form_named
from fitkit.models.intervals import log_interval
from fitkit.models.log_squares import CUT, Problem, seconds_of, slope_at, value_at
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

_MOST = 5_000  # rows; of more, so many drawn at random determine a dozen coefficients as well
_NOTHING = 1e-4  # share of every time below which a price might as well be zero


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
    near
        Values of the coefficients by name, near which to search: of a fit to nearly the same
        rows. What the data do not tell is still held where it is without.

    Attributes
    ----------
    parameters_ : list of Parameter
        The form's coefficients; intervals by the bootstrap over configurations.
    noise_ : float
        Standard deviation of the log residuals; NaN without a residual degree of freedom.

    Examples
    --------
    >>> frame = pd.DataFrame({"n_workers": [1.0, 2, 4, 8, 16, 32], "local_batch": 32.0})
    >>> model = NonlinearModel("serial_server").fit(frame, [0.4, 0.4, 0.4, 0.4, 0.8, 1.6])
    >>> float(model.params_.set_index("term").estimate["service"].round(2))
    0.05
    """

    def __init__(
        self,
        form: str,
        ridge: float = 0.03,
        level: float = 0.9,
        near: Mapping[str, float] | None = None,
    ) -> None:
        self.form = form
        self.ridge = ridge
        self.level = level
        self.near = near

    def settled(self) -> Self:
        """A copy that searches near this fit."""
        require_fitted(self, "n_obs_")
        return type(self)(self.form, self.ridge, self.level, dict(self._coefficients))

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
        fitted = problem.fitted
        self.n_obs_, self.dof_ = len(times), max(len(times) - len(fitted), 0)
        self.noise_ = _spread(residuals, self.dof_)
        self._coefficients = dict.fromkeys((c.name for c in form.coefficients), 0.0)
        for c, place in zip(fitted, theta.tolist(), strict=True):
            self._coefficients[c.name] = value_at(c, place)
        self._posed = times, theta, problem
        for name in ("parameters_", "_draws"):
            self.__dict__.pop(name, None)
        return self

    def _problem(self, form: Form, X: SimpleNamespace, times: np.ndarray) -> Problem:
        """What the rows ask of the coefficients."""
        amounts = {c.name: amount_of(c, X, len(times)) for c in form.coefficients}
        return Problem(form, X, amounts, np.log(times), self.ridge)

    def _solved(
        self, form: Form, X: SimpleNamespace, times: np.ndarray
    ) -> tuple[Problem, np.ndarray]:
        """The problem that the rows pose, and its solution."""
        problem = self._problem(form, X, times)
        if not any(c.kind == "price" for c in problem.fitted):
            raise FitError(
                f"form {self.form} needs one of {', '.join(form.columns)}", "add the columns"
            )
        return problem, problem.solve(self.near)

    @cached_property
    def _draws(self) -> np.ndarray:
        _, theta, problem = self._posed
        return form_draws(problem, theta)

    @cached_property
    def parameters_(self) -> list[Parameter]:
        """The coefficients; their bounds are found when first asked for, most fits never are."""
        require_fitted(self, "n_obs_")
        form = form_named(self.form)
        times, theta, problem = self._posed
        errors = _errors(problem.jacobian(theta), self.noise_)
        low, high = np.full((2, len(theta)), np.nan)
        if self.dof_ > 0:
            low, high = bounds(theta, self._draws, self.level, self.n_obs_, self.dof_)
            # A search does not move along what next to nothing holds: the bounds are open there.
            low = np.where(errors > CUT, theta - CUT, low)
            high = np.where(errors > CUT, theta + CUT, high)
        nan = float("nan")
        found = {
            c.name: Parameter(c.name, nan, nan, nan, nan, c.unit, problem.status[c.name])
            for c in form.coefficients
        }
        for k, c in enumerate(problem.fitted):
            place, error, lower, upper = (float(v[k]) for v in (theta, errors, low, high))
            shares = problem.amounts[c.name] / times
            found[c.name] = _parameter(c, shares, place, error, lower, upper)
        return list(found.values())

    # -- using it --------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a column is null.

        Raises
        ------
        ValueError
            If a column that it needs is missing, or holds words.
        """
        require_fitted(self, "n_obs_")
        form, given = form_named(self.form), SimpleNamespace(**self._coefficients)
        seconds = seconds_of(form, known_numbers(X, form.columns), given)
        return np.array(np.broadcast_to(seconds, (n_rows(X),)))

    def drawn(self, X: Any) -> np.ndarray:
        """Seconds of each row by every draw of the bootstrap, see `LinearModel.drawn`."""
        require_fitted(self, "_posed")
        if self.dof_ <= 0:
            return super().drawn(X)
        _, theta, problem = self._posed
        form = form_named(self.form)
        spread = math.sqrt(self.n_obs_ / self.dof_) * (self._draws - theta)
        asked = known_numbers(X, form.columns)
        found = np.empty((len(spread), n_rows(X)))
        for k, places in enumerate(theta + np.clip(spread, -CUT, CUT)):
            given = dict.fromkeys((c.name for c in form.coefficients), 0.0)
            fitted = zip(problem.fitted, places.tolist(), strict=True)
            given.update({c.name: value_at(c, place) for c, place in fitted})
            found[k] = seconds_of(form, asked, SimpleNamespace(**given))
        return found

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, see `log_interval`.

        The variance of the fitted mean counts as it is on average, coefficients / rows.
        """
        require_fitted(self, "n_obs_")
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


def _spread(residuals: np.ndarray, dof: int) -> float:
    return float(np.sqrt((residuals**2).sum() / dof)) if dof > 0 else float("nan")


def _errors(jacobian: np.ndarray, noise: float) -> np.ndarray:
    """Standard error of each coordinate: linear theory, the ridge counted as knowledge."""
    try:
        variance = np.diag(np.linalg.inv(jacobian.T @ jacobian)) * noise**2
    except np.linalg.LinAlgError:  # without a ridge, of coefficients that the data cannot tell
        return np.full(jacobian.shape[1], np.nan)
    return np.sqrt(np.where(variance >= 0, variance, np.nan))


def _parameter(
    c: Coefficient, shares: np.ndarray, place: float, error: float, low: float, high: float
) -> Parameter:
    """One that was fitted, from its coordinate, the error and the bounds of that.

    A price that no row would feel, given what it costs of each at a price of one, is nothing:
    then so is a lower bound, which the logarithm alone keeps above zero.
    """

    def is_nothing(price: float) -> bool:
        return c.kind == "price" and bool(np.all(price * shares < _NOTHING))

    value = value_at(c, place)
    status: Status = "zero" if is_nothing(value) else "positive"
    if not (math.isfinite(error) and math.isfinite(low)):
        return Parameter(c.name, value, math.nan, math.nan, math.nan, c.unit, status)
    least, most = (value_at(c, place + min(max(b - place, -CUT), CUT)) for b in (low, high))
    least = 0.0 if is_nothing(least) else least
    std_err = slope_at(c, value) * error
    return Parameter(c.name, value, std_err, least, most, c.unit, status, "bootstrap")
