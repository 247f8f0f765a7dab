"""LinearModel: time = Σ parameter × term, every parameter at least zero."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.bootstrap import bounds, linear_draws
from fitkit.models.columns import n_rows
from fitkit.models.estimator import Estimator, checked_times, require_fitted
from fitkit.models.intervals import check_level, t_quantile
from fitkit.models.parameters import (
    Method,
    Parameter,
    Status,
    number,
    parameters_from_json,
    parameters_to_json,
    plain,
)
from fitkit.models.regression import (
    Loss,
    Solution,
    absurd_rows,
    log_likelihood,
    solve,
)
from fitkit.models.terms import needed_columns, terms_named

if TYPE_CHECKING:
    pass

# A column is dependent when less than this share of its length is left beside the earlier ones.
_DEPENDENT = 1e-6
_TOLD = 1e-3  # share of a dependent column from which on a term is named as its rival
_EXPONENTS = (1.0, 0.5, 0.0)  # of the noise, the preferred one first
_BETTER = 1.92  # log likelihood that another exponent must gain
_MIN_ROWS = 8  # with fewer, the exponent cannot be told


class LinearModel(Estimator):
    r"""Non-negative linear model of a time in named terms.

    .. math:: t = \sum_k \theta_k x_k, \quad \theta_k \ge 0

    The noise is taken to grow as the time to the power ``noise_exponent``, and the weights follow
    the fitted, not the measured time, since the latter would favour rows that noise made small.

    Parameters
    ----------
    terms
        Names of terms, the most certain first: where two cannot be told apart, the later goes.
    noise_exponent
        0 for errors of constant size, 1 for errors in proportion to the time; ``select`` takes
        that of 0, 0.5 and 1 under which the times are likeliest, 1 unless another is better by
        half the 95 % quantile of chi-square, 1.92, and 1 below 8 rows.
    level
        Level of the parameters' confidence intervals: those of normal theory where it holds, else
        of the bootstrap over configurations, see `Parameter.method`.
    undetermined
        What to do with a term that the data cannot tell from earlier ones: ``raise`` a
        `FitError` that names it, or ``drop`` it and say so in its status.
    loss
        ``squares``; or ``soft_l1``, by which a residual beyond two standard deviations counts
        ever less than its square, so that a few disturbed rows do not decide (P. J. Huber, Robust
        Statistics, 1981, chapter 7: weights from the residuals, scale from their MAD, errors from
        the pseudo-values). On normal noise its variance is 2 % larger. Times that are `absurd`
        beside the others are not used at all.

    Attributes
    ----------
    noise_exponent_ : float
        The exponent that was fitted with.
    outliers_ : ndarray of bool
        Which of the rows were not used, shape ``(rows,)``; a loaded model does not know.

    Examples
    --------
    >>> frame = pd.DataFrame({"local_batch": [1.0, 2, 4, 8]})
    >>> model = LinearModel(["fixed", "per_sample"]).fit(frame, [0.012, 0.014, 0.018, 0.026])
    >>> model.params_.estimate.round(4).tolist()
    [0.01, 0.002]
    """

    def __init__(
        self,
        terms: Sequence[str],
        noise_exponent: float | Literal["select"] = 1.0,
        level: float = 0.9,
        undetermined: Literal["raise", "drop"] = "raise",
        loss: Loss = "soft_l1",
    ) -> None:
        self.terms = terms
        self.noise_exponent = noise_exponent
        self.level = level
        self.undetermined = undetermined
        self.loss = loss

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return tuple(needed_columns(self.terms))

    # -- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to measured times.

        Parameters
        ----------
        X
            Columns that the terms need: a DataFrame, or a record of arrays; shape ``(rows, ...)``.
        y
            Seconds, shape ``(rows,)``, all positive.

        Raises
        ------
        ValueError
            If a term or the loss is unknown, or a time is not a positive number.
        FitError
            If there is no row, or the data cannot tell terms apart.
        """
        times = checked_times(y)
        loss = _loss(self.loss)
        terms = terms_named(list(self.terms))
        amounts = {term.name: term.amount(X, len(times)) for term in terms}
        self.outliers_ = _outliers(list(amounts.values()), times, loss)
        times = times[~self.outliers_]
        amounts = {name: amount[~self.outliers_] for name, amount in amounts.items()}
        status = self._choose(amounts, times)
        kept = [term for term in terms if status[term.name] == "positive"]
        if not kept:
            raise FitError("no term is determined by the data", "see the statuses of the terms")
        design = np.column_stack([amounts[term.name] for term in kept])
        solution, self.noise_exponent_ = self._best(design, times, loss)
        if not solution.positive.any():
            raise FitError("no term explains any of the time", "choose other terms")
        self.n_obs_, self.dof_ = len(times), len(times) - int(solution.positive.sum())
        self._keep(solution, [term.name for term in kept])
        self._evidence = solution, status
        self.__dict__.pop("parameters_", None)
        return self

    def _choose(self, amounts: Mapping[str, np.ndarray], times: np.ndarray) -> dict[str, Status]:
        """Keep each term that is known and differs from what the earlier ones can express."""
        status: dict[str, Status] = {}
        weight = times ** -self._exponents(len(times))[0]
        basis: list[np.ndarray] = []
        kept: list[str] = []
        for name, amount in amounts.items():
            if not np.all(np.isfinite(amount)):
                status[name] = "unknown"
                if self.undetermined == "raise":
                    raise FitError(
                        f"term {name}: a column that it needs is missing or null",
                        "add the column, or leave the term out",
                    )
                continue
            column = amount * weight
            rest = column - sum(b * (b @ column) for b in basis)
            rest = rest - sum(b * (b @ rest) for b in basis)  # again: rounding of the first pass
            length = np.linalg.norm(column)
            if length == 0 or np.linalg.norm(rest) <= _DEPENDENT * length:
                status[name] = "undetermined"
                if self.undetermined == "raise":
                    raise _dependence(name, column, {k: amounts[k] * weight for k in kept})
                continue
            status[name] = "positive"
            kept.append(name)
            basis.append(rest / np.linalg.norm(rest))
        return status

    def _exponents(self, n_rows: int) -> tuple[float, ...]:
        """Exponents to choose among, the preferred one first."""
        if self.noise_exponent != "select":
            return (self.noise_exponent,)
        return _EXPONENTS if n_rows >= _MIN_ROWS else _EXPONENTS[:1]

    def _best(self, design: np.ndarray, times: np.ndarray, loss: Loss) -> tuple[Solution, float]:
        """Solution under the noise exponent that makes the times likeliest, and the exponent."""
        exponents = self._exponents(len(times))
        found = [solve(design, times, k, loss) for k in exponents]
        if len(found) == 1 or len(times) <= design.shape[1]:
            return found[0], exponents[0]
        likelihoods = [log_likelihood(each, times, loss) for each in found]
        best = int(np.argmax(likelihoods))
        if likelihoods[best] <= likelihoods[0] + _BETTER:
            best = 0
        return found[best], exponents[best]

    def _keep(self, solution: Solution, names: Sequence[str]) -> None:
        """What predicting needs: the positive terms, their covariance, the noise."""
        positive = solution.positive
        self._active = [name for name, on in zip(names, positive, strict=True) if on]
        self._estimates = solution.estimates[positive]
        self._covariance = np.full((int(positive.sum()),) * 2, np.nan)
        self.noise_ = float("nan")
        if self.dof_:
            regression = solution.regression(positive)
            self._covariance = regression.cov_params()
            self.noise_ = float(np.sqrt(regression.scale))

    @cached_property
    def parameters_(self) -> list[Parameter]:
        """The terms; their bounds are found when first asked for, which most fits never are."""
        require_fitted(self, "n_obs_")
        solution, status = self._evidence
        low, high, errors, method = self._bounds(solution)
        kept = [name for name, state in status.items() if state == "positive"]
        parameters = []
        for term in terms_named(list(status)):
            figures, state = [np.nan] * 4, status[term.name]
            how: Method = ""
            if term.name in kept:
                k = kept.index(term.name)
                figures = [float(v[k]) for v in (solution.estimates, errors, low, high)]
                state = "positive" if solution.positive[k] else "zero"
                how = method if np.isfinite(high[k]) else ""
            estimate, std_err, ci_low, ci_high = figures
            parameters.append(
                Parameter(term.name, estimate, std_err, ci_low, ci_high, term.unit, state, how)
            )
        return parameters

    def _bounds(self, solution: Solution) -> tuple[np.ndarray, np.ndarray, np.ndarray, Method]:
        """Confidence bounds and standard errors, shape ``(terms,)`` each, and how they came.

        Normal theory of weighted least squares where it holds: no term comes near its bound at
        zero, and the residuals bear the noise model out, see `Regression.is_even`.
        Else the bootstrap over configurations, which keeps every draw at zero or above. Where a
        term comes near zero, such draws scatter to one side only, its own and those of the terms
        that trade off against it (D. W. K. Andrews, Econometrica 68, 2000): there the bounds are
        at least those of normal theory.
        """
        low, high, errors = (np.full(len(solution.positive), np.nan) for _ in range(3))
        whole = np.ones_like(solution.positive)
        judged = whole if self.n_obs_ > len(whole) else solution.positive
        if self.dof_ <= 0:
            return low, high, errors, ""
        regression = solution.regression(judged)
        errors[judged] = regression.bse
        least, most = regression.normal_bounds(1 - self.level)
        is_near_zero = not solution.positive.all() or bool(np.any(least <= 0))
        if not is_near_zero and regression.is_even():
            return least, most, errors, "normal theory"
        weighted = solution.design[:, judged] * solution.weights[:, None]
        drawn = linear_draws(weighted, solution.times * solution.weights)
        estimates = solution.estimates[judged]
        lower, upper = bounds(estimates, drawn, self.level, self.n_obs_, self.dof_)
        if is_near_zero:
            lower, upper = np.minimum(lower, least), np.maximum(upper, most)
        low[judged], high[judged] = np.maximum(lower, 0.0), upper
        return low, high, errors, "bootstrap"

    # -- using it --------------------------------------------------------------------------

    def _design(self, X: Any) -> np.ndarray:
        require_fitted(self, "n_obs_")
        rows = n_rows(X)
        columns = [term.amount(X, rows) for term in terms_named(self._active)]
        return np.column_stack(columns) if columns else np.zeros((rows, 0))

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a column is null."""
        return np.asarray(self._design(X) @ self._estimates)

    def drawn(self, X: Any) -> np.ndarray:
        """Seconds of each row by every draw of the bootstrap, see `Estimator.drawn`.

        Draws scatter too little by the root of degrees of freedom by rows, and are spread by it.

        Raises
        ------
        NotFittedError
            If it was loaded: the rows are gone.
        """
        require_fitted(self, "_evidence")
        solution, status = self._evidence
        if self.dof_ <= 0:
            return super().drawn(X)
        weighted = solution.design * solution.weights[:, None]
        drawn = linear_draws(weighted, solution.times * solution.weights) - solution.estimates
        spread = math.sqrt(self.n_obs_ / self.dof_) * np.nan_to_num(drawn)
        kept = terms_named([name for name, state in status.items() if state == "positive"])
        rows = n_rows(X)
        design = np.column_stack([term.amount(X, rows) for term in kept])
        return np.asarray(np.maximum(solution.estimates + spread, 0.0) @ design.T)

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; in seconds.

        Normal theory of weighted least squares: the variance of the fitted mean plus that of one
        measurement. NaN when no observation is left over to judge the noise.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        design = self._design(X)
        mean = design @ self._estimates
        if self.dof_ <= 0 or not np.isfinite(self.noise_):
            nothing = np.full(len(mean), np.nan)
            return nothing, nothing
        own = (self.noise_ * np.maximum(mean, 0.0) ** self.noise_exponent_) ** 2
        variance = own + np.einsum("ij,jk,ik->i", design, self._covariance, design)
        half = t_quantile(0.5 + level / 2, self.dof_) * np.sqrt(variance)
        return np.maximum(mean - half, 0.0), mean + half

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "parameters_")
        return {
            "terms": list(self.terms),
            "noise_exponent": float(self.noise_exponent_),
            "loss": self.loss,
            "level": float(self.level),
            "n_obs": self.n_obs_,
            "dof": self.dof_,
            "noise": plain(self.noise_),
            "active": self._active,
            "covariance": [[plain(v) for v in row] for row in self._covariance.tolist()],
            "parameters": parameters_to_json(self.parameters_),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described."""
        exponent, level = number(state["noise_exponent"]), number(state["level"])
        names = [term.name for term in terms_named(state["terms"])]
        model = cls(names, exponent, level, "drop")
        model.noise_exponent_, model.loss = exponent, _loss(state.get("loss", "squares"))
        model.n_obs_, model.dof_ = int(state["n_obs"]), int(state["dof"])
        model.noise_ = number(state["noise"])
        model._active = [term.name for term in terms_named(state["active"])]
        model._covariance = np.array(
            [[number(v) for v in row] for row in state["covariance"]], dtype=float
        ).reshape(len(model._active), len(model._active))
        model.parameters_ = parameters_from_json(state["parameters"])
        by_name = {p.term: p.estimate for p in model.parameters_}
        model._estimates = np.array([by_name[name] for name in model._active])
        if [p.term for p in model.parameters_] != names:
            raise ValueError("parameters of other terms")
        if not np.all(model._estimates > 0):
            raise ValueError("a parameter is not positive")
        return model


def _outliers(amounts: Sequence[np.ndarray], times: np.ndarray, loss: Loss) -> np.ndarray:
    known = [amount for amount in amounts if np.all(np.isfinite(amount))]
    if loss == "squares" or not known:
        return np.zeros(len(times), dtype=bool)
    return absurd_rows(np.column_stack(known), times)


def _loss(name: str) -> Loss:
    if name not in get_args(Loss):
        raise ValueError(f"no loss {name!r}; known: {', '.join(get_args(Loss))}")
    return cast(Loss, name)


def _dependence(name: str, column: np.ndarray, earlier: Mapping[str, np.ndarray]) -> FitError:
    if not np.any(column):
        return FitError(
            f"term {name} is zero in every row: the data cannot determine it",
            f"measure runs in which {name} differs, or leave the term out",
        )
    # Only the terms that make up the column are to blame, not all the others.
    design = np.column_stack([values / np.linalg.norm(values) for values in earlier.values()])
    share = np.abs(np.linalg.lstsq(design, column / np.linalg.norm(column))[0])
    others = [other for other, part in zip(earlier, share, strict=True) if part > _TOLD]
    return FitError(
        f"the data cannot tell {name} from {', '.join(others)}",
        "measure runs in which they differ, or leave one of the terms out",
    )
