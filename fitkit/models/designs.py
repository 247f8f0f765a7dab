"""What identifiability asks of a model: derivatives at rows, and how far parameters can move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from fitkit.models.columns import drawn_rows, known_numbers, n_rows, sorted_rows, take
from fitkit.models.forms import amount_of, form_named
from fitkit.models.linear import LinearModel
from fitkit.models.log_squares import Problem, place_at, values_at
from fitkit.models.next_run import covariance
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.parameters import Parameter
from fitkit.models.profiles import FAR, form_profile, linear_profile
from fitkit.models.regression import absurd
from fitkit.models.terms import needed_columns, terms_named

_SMALL = 0.1  # share of the time that a parameter at zero, or never paid, may have cost
_LINEAR_PRIOR, _LOG_PRIOR = 10.0, math.log(10)
_MOST = 250  # rows that a form's profiles are sought with
_RIDGE = 1e-3  # of the noise: the data alone are asked


@dataclass(frozen=True)
class View:
    """A fitted model at its rows.

    Attributes
    ----------
    names, units, estimates
        Of the parameters that the model knows; NaN for those that were not fitted.
    jacobian
        Derivatives of the weighted time by each parameter, measured in its own size, shape
        ``(rows, parameters)``; NaN where a column is null, 0 where no row pays it.
    noise
        Standard deviation of the weighted time.
    low, high, open_below, open_above
        Ends of the profile intervals and whether they are open.
    columns
        That the model reads.
    with_candidates
        From further configurations, `jacobian` as it is for them and for those.
    sizes
        What a parameter is measured in: its estimate, or, of one at zero or never paid, what costs
        a tenth of the time.
    share
        Of a parameter by its position and a value, its share of the time, in the median of the
        rows that pay it.
    prior
        Standard deviation of a parameter in its own size that is believed without any data.
    made
        From one further configuration, what its parameters are and a standard normal value of its
        noise, the view of the model that is fitted again with it; None where that takes long.
    """

    names: list[str]
    units: list[str]
    estimates: np.ndarray
    jacobian: np.ndarray
    noise: float
    low: np.ndarray
    high: np.ndarray
    open_below: np.ndarray
    open_above: np.ndarray
    columns: tuple[str, ...]
    with_candidates: Callable[[SimpleNamespace], tuple[np.ndarray, np.ndarray]]
    sizes: np.ndarray
    share: Callable[[int, float], float]
    prior: float
    made: Callable[[SimpleNamespace, np.ndarray, float], View] | None = None
    nothing: float = _SMALL


def view_of(model: Any, X: Any, times: np.ndarray, rise: float) -> View | None:
    """The view of a model of terms or of a form; None of others.

    Parameters
    ----------
    rise
        By which the sum of squares may rise in a profile, in variances of the noise.
    """
    if isinstance(model, LinearModel):
        return _widened(_linear_view(model, X, times, rise), model.parameters_)
    if isinstance(model, NonlinearModel):
        return _widened(_form_view(model, X, times, rise), model.parameters_)
    return None


def _widened(view: View, parameters: Sequence[Parameter]) -> View:
    """The view, its intervals at least as wide as the confidence bounds of the parameters.

    A profile takes the noise for known and even. Where the bootstrap says more, a reader would
    find "determined" beside bounds that contradict it.
    """
    by_name = {p.term: p for p in parameters}
    lower, upper = (
        np.array([getattr(by_name[name], end) for name in view.names], dtype=float)
        for end in ("ci_low", "ci_high")
    )
    judged = ~np.isnan(view.high)
    low = np.where(judged, np.fmin(view.low, lower), view.low)
    high = np.where(judged, np.fmax(view.high, upper), view.high)
    far = math.exp(FAR)
    paid = judged & (view.estimates > 0)
    return replace(
        view, low=low, high=high,
        open_below=view.open_below | paid & (lower <= view.estimates / far),
        open_above=view.open_above | paid & (upper >= view.estimates * far),
    )  # fmt: skip


# -- sums of terms -------------------------------------------------------------------------


def _linear_view(model: LinearModel, X: Any, times: np.ndarray, rise: float) -> View:
    terms = terms_named(list(model.terms))
    amounts = np.column_stack([term.amount(X, len(times)) for term in terms])
    by_name = {p.term: p.estimate for p in model.parameters_}
    estimates = np.array([by_name[term.name] for term in terms])
    fitted = np.maximum(LinearModel.predict(model, X), 1e-3 * times.min())
    weights = fitted**-model.noise_exponent_
    design = amounts * weights[:, None]
    known = np.isfinite(design).all(axis=0) & (np.abs(design).max(axis=0) > 0)
    at = np.nan_to_num(estimates)
    size = np.where(at > 0, at, _typical(amounts, times))
    low, high = np.full((2, len(terms)), np.nan)
    if known.any() and math.isfinite(model.noise_):
        residuals = np.clip((times - fitted) * weights, -2 * model.noise_, 2 * model.noise_)
        low[known], high[known] = linear_profile(
            design[:, known].T @ design[:, known],
            _pull(design[:, known], at[known] > 0, residuals),
            at[known],
            rise * max(model.noise_, 1e-9 * float((times * weights).max())) ** 2,
        )

    def with_candidates(others: SimpleNamespace) -> tuple[np.ndarray, np.ndarray]:
        n = n_rows(others)
        further = np.column_stack([term.amount(others, n) for term in terms])
        there = np.where(size > 0, size, _typical(further, times))
        seconds = further[:, at > 0] @ at[at > 0]
        seconds = np.maximum(seconds, times.min())
        weighted = further * seconds[:, None] ** -model.noise_exponent_ * there
        return design * there, weighted

    def made(run: SimpleNamespace, values: np.ndarray, deviate: float) -> View:
        return _with_run(model, X, times, run, values, deviate, rise)

    def share(k: int, value: float) -> float:
        paid = amounts[:, k] > 0
        return float(np.median(value * amounts[paid, k] / times[paid])) if paid.any() else 0.0

    return View(
        [term.name for term in terms], [term.unit for term in terms], estimates, design * size,
        model.noise_, low, high, low <= 0, np.isinf(high), tuple(needed_columns(model.terms)),
        with_candidates, size, share, _LINEAR_PRIOR, made,
    )  # fmt: skip


def _with_run(
    model: LinearModel, X: Any, times: np.ndarray, run: SimpleNamespace, values: np.ndarray,
    deviate: float, rise: float,
) -> View:  # fmt: skip
    """The view once a run is made that takes as long as the values say, and noise adds."""
    amounts = np.array([term.amount(run, 1)[0] for term in terms_named(list(model.terms))])
    seconds = float(np.nansum(amounts * values))
    added = model.noise_ * seconds**model.noise_exponent_ * deviate
    seconds = max(seconds + added, _SMALL * seconds, _SMALL * float(times.min()))
    rows = known_numbers(X, needed_columns(model.terms))
    both = SimpleNamespace(
        **{
            name: np.append(known, getattr(run, name, math.nan))
            for name, known in vars(rows).items()
        }
    )
    longer = np.append(times, seconds)
    again = LinearModel(model.terms, model.noise_exponent_, model.level, "drop", model.loss)
    again.fit(both, longer)
    return _widened(_linear_view(again, both, longer, rise), again.parameters_)


def _typical(amounts: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Price of each term at which it costs a tenth of the time; 0 where no row pays it."""
    found = np.zeros(amounts.shape[1])
    for k, column in enumerate(amounts.T):
        paid = column[column > 0]
        if len(paid):
            found[k] = _SMALL * float(np.median(times)) / float(np.median(paid))
    return found


def _pull(design: np.ndarray, positive: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """What pulls terms at zero farther down: X' residuals, none for the positive terms."""
    basis = np.linalg.qr(design[:, positive] / np.linalg.norm(design[:, positive], axis=0))[0]
    rest = residuals - basis @ (basis.T @ residuals)
    return np.where(positive, 0.0, np.minimum(design.T @ rest, 0.0))


# -- forms ---------------------------------------------------------------------------------


def _form_view(model: NonlinearModel, X: Any, times: np.ndarray, rise: float) -> View:
    form = form_named(model.form)
    rows, times = drawn_rows(*sorted_rows(X, times, form.columns), _MOST)
    rows = known_numbers(rows, form.columns)
    usual = ~absurd(np.log(times / model.predict(rows)))
    rows, times = take(rows, np.flatnonzero(usual)), times[usual]
    amounts = {c.name: amount_of(c, rows, len(times)) for c in form.coefficients}
    problem = Problem(form, rows, amounts, np.log(times), 0.0)
    values = {p.term: p.estimate for p in model.parameters_}
    theta = np.array([place_at(c, values[c.name]) for c in problem.fitted])
    noise = model.noise_
    names = [c.name for c in form.coefficients]
    where = problem.at
    jacobian = np.zeros((len(times), len(names)))
    jacobian[:, where] = problem.many_jacobians(theta[None])[0]
    jacobian[:, [problem.status[name] == "unknown" for name in names]] = np.nan
    low, high = np.full((2, len(names)), np.nan)
    open_below, open_above = np.zeros((2, len(names)), dtype=bool)
    if math.isfinite(noise) and model.dof_ > 0:
        ends = _form_ends(problem, theta, noise, rise)
        open_below[where], open_above[where] = (np.isinf(end) for end in ends)
        for k, c in enumerate(problem.fitted):
            low[where[k]], high[where[k]] = values_at(c, np.array([ends[0][k], ends[1][k]]))
    estimates = np.array([values[name] for name in names])

    def with_candidates(others: SimpleNamespace) -> tuple[np.ndarray, np.ndarray]:
        return jacobian, _at_candidates(problem, theta, times, others)

    return View(
        names, [c.unit for c in form.coefficients], estimates, jacobian, noise, low, high,
        open_below, open_above, form.columns, with_candidates, np.nan_to_num(estimates, nan=1.0),
        lambda k, value: 1.0, _LOG_PRIOR,
    )  # fmt: skip


def _form_ends(
    problem: Problem, theta: np.ndarray, noise: float, rise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Profile ends of the coordinates by the data alone."""
    noise = max(noise, 1e-9)
    problem.ridge, problem.start = _RIDGE * noise, theta
    own = problem.many_jacobians(theta[None])[0]
    found = covariance(own / noise, np.full(len(theta), FAR))
    guesses = np.sqrt(rise * np.diag(found))
    return form_profile(problem, theta, guesses, rise * noise**2)


def _at_candidates(
    problem: Problem, theta: np.ndarray, times: np.ndarray, others: SimpleNamespace
) -> np.ndarray:
    """Derivatives at candidates; what no row paid is taken to cost a tenth of the time."""
    form, n = problem.form, n_rows(others)
    further = {c.name: amount_of(c, others, n) for c in form.coefficients}
    there = Problem(form, others, further, np.zeros(n), 0.0)
    known = dict(zip((c.name for c in problem.fitted), theta.tolist(), strict=True))
    typical = _typical(there.table[:, there.at], times)
    places = [
        known.get(c.name, place_at(c, price) if price else 0.0)
        for c, price in zip(there.fitted, typical, strict=True)
    ]
    found = np.zeros((n, len(form.coefficients)))
    found[:, there.at] = there.many_jacobians(np.array([places]))[0]
    return found
