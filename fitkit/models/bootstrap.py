"""Bounds of parameters by the bootstrap over configurations: rows drawn again, fitted again.

Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 9 and 13: a configuration
is drawn with its times, so that nothing is assumed of how the noise grows. With few rows such
draws scatter too little and the normal quantile is too short; the distance of each bound from the
estimate grows by what a mean of normal values needs, see `bounds`.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from fitkit.models.intervals import t_quantile
from fitkit.models.log_squares import Problem, descend, soft_weights, solved_many

N_DRAWS = 299  # the 15th from either end is then the 5 % quantile
_GUESS = float(np.log(10))  # a start of a coefficient is known to a factor of about ten
_FEW = 200  # rows; of more, a single step from the solution says the same
_STEPS = 40  # of a search that starts from the solution; most end after a few
_SWAPS = 25  # exchanges between the terms at zero and the others
_TINY = 1e-12  # of the largest
_ALONE = 1e-6  # 1 - leverage below which a row alone determines something


def counts(n_rows: int, n_draws: int = N_DRAWS) -> np.ndarray:
    """How often each row is drawn, always the same, shape ``(draws, rows)``."""
    draw = np.random.default_rng(0)
    return draw.multinomial(n_rows, np.full(n_rows, 1 / n_rows), n_draws).astype(float)


def bounds(
    estimates: np.ndarray, drawn: np.ndarray, level: float, n_rows: int, dof: int
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bounds, widened for few rows, shape ``(parameters,)`` each.

    Residuals are too short by the root of dof / rows, and their scatter is itself estimated: the
    distances from the estimate grow by the root of rows / dof and by the ratio of Student's to the
    normal quantile (Hesterberg, The American Statistician 69, 2015, section 5.3).

    Parameters
    ----------
    estimates
        What the draws scatter around, shape ``(parameters,)``.
    drawn
        Estimates of every draw, shape ``(draws, parameters)``; NaN where a draw has none.
    n_rows, dof
        Rows, and rows less parameters, at least 1.
    """
    tail = (1 - level) / 2
    grown = (n_rows / dof) ** 0.5 * t_quantile(1 - tail, dof) / NormalDist().inv_cdf(1 - tail)
    low, high = np.nanquantile(drawn, [tail, 1 - tail], axis=0, method="weibull")
    return (
        estimates + grown * np.minimum(low - estimates, 0.0),
        estimates + grown * np.maximum(high - estimates, 0.0),
    )


# -- sums of terms -------------------------------------------------------------------------


def linear_draws(design: np.ndarray, times: np.ndarray, n_draws: int = N_DRAWS) -> np.ndarray:
    """Non-negative least squares of rows drawn again, shape ``(draws, terms)``.

    A row that alone determines a term has no residual: it gets the noise of the others.

    Parameters
    ----------
    design, times
        Rows times their weight, shapes ``(rows, terms)`` and ``(rows,)``; the weights are those
        of the fit.
    """
    scale = np.linalg.norm(design, axis=0)
    design = design / scale
    n_rows, n_terms = design.shape
    drawn = counts(n_rows, n_draws)
    noise = _own_noise(design, times, n_draws)
    gram = (drawn @ (design[:, :, None] * design[:, None, :]).reshape(n_rows, -1)).reshape(
        -1, n_terms, n_terms
    )
    found = non_negative_many(gram, (drawn * (times + noise)) @ design)
    missing = np.diagonal(gram, axis1=1, axis2=2) < _TINY  # a term of which the draw has nothing
    return np.where(missing, np.nan, found) / scale


def _own_noise(design: np.ndarray, times: np.ndarray, n_draws: int) -> np.ndarray:
    """Noise of rows that alone determine a term, 0 elsewhere; shape ``(draws, rows)``."""
    left, values, _ = np.linalg.svd(design, full_matrices=False)
    left = left[:, values > _TINY * values[0]]
    alone = 1 - (left**2).sum(axis=1) < _ALONE
    noise = np.zeros((n_draws, len(times)))
    dof = len(times) - left.shape[1]
    if alone.any() and dof > 0:
        residuals = times - left @ (left.T @ times)
        draw = np.random.default_rng(1)
        size = float(np.sqrt(residuals @ residuals / dof))
        noise[:, alone] = size * draw.standard_normal((n_draws, int(alone.sum())))
    return noise


def non_negative_many(gram: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Non-negative least squares of many Gram matrices at once, shape ``(draws, terms)``.

    Block principal pivoting (Kim and Park, SIAM Journal on Scientific Computing 33, 2011): all
    terms with a wrong sign change sides at once, and only the last of them once that has failed
    to reduce their number three times.

    Parameters
    ----------
    gram, moments
        X'X and X'y of columns of about length one, shapes ``(draws, terms, terms)`` and
        ``(draws, terms)``.
    """
    n_terms = moments.shape[1]
    gram = gram + _TINY * np.einsum("dii->d", gram)[:, None, None] * np.eye(n_terms)
    free = np.ones(moments.shape, dtype=bool)
    fewest, chances = np.full(len(gram), n_terms + 1), np.full(len(gram), 3)
    found = np.zeros_like(moments)
    open_ = np.arange(len(gram))
    for _ in range(_SWAPS):
        found[open_], wrong = _at_corner(gram[open_], moments[open_], free[open_])
        open_, wrong = open_[wrong.any(axis=1)], wrong[wrong.any(axis=1)]
        if not len(open_):
            break
        n_wrong = wrong.sum(axis=1)
        better = n_wrong < fewest[open_]
        fewest[open_] = np.minimum(n_wrong, fewest[open_])
        chances[open_] = np.where(better, 3, chances[open_] - 1)
        last = n_terms - 1 - np.argmax(wrong[:, ::-1], axis=1)
        single = np.arange(n_terms) == last[:, None]
        free[open_] ^= np.where((chances[open_] < 0)[:, None], single, wrong)
    return np.maximum(found, 0.0)


def _at_corner(
    gram: np.ndarray, moments: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solution of the free terms alone, and which terms are on the wrong side."""
    both = free[:, :, None] & free[:, None, :]
    system = np.where(both, gram, np.eye(gram.shape[1]))
    found = np.linalg.solve(system, np.where(free, moments, 0.0)[..., None])[..., 0]
    pull = moments - np.einsum("dij,dj->di", gram, np.where(free, found, 0.0))
    size = np.abs(moments).max(axis=1, keepdims=True) * 1e-10
    wrong = np.where(free, found < -_TINY, pull > size)
    return np.where(free, found, 0.0), wrong


# -- forms ---------------------------------------------------------------------------------


def form_draws(problem: Problem, theta: np.ndarray, n_draws: int = N_DRAWS) -> np.ndarray:
    """Coordinates of a form fitted to rows drawn again, shape ``(draws, coefficients)``.

    The starts, which hold what the data say nothing about, are guesses: they are drawn as well,
    with a standard deviation of a factor of ten, so that their hold is not taken for knowledge.

    Parameters
    ----------
    problem, theta
        What was fitted and its solution; the search starts there. It is one step where a step
        says the same: beyond 200 rows, and for a form whose derivatives are known by formula,
        which has no corner.
    """
    drawn = counts(len(problem.logs), n_draws)
    guess = np.random.default_rng(2).standard_normal((n_draws, len(theta)))
    starts = problem.start + _GUESS * guess
    if len(problem.logs) > _FEW or problem.form.sensitivities is not None:
        return _one_step(problem, theta, drawn, starts)
    places = np.repeat(theta[None], n_draws, axis=0)
    return descend(problem, places, drawn, starts, steps=_STEPS)[0]


def _one_step(
    problem: Problem, theta: np.ndarray, drawn: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    jacobian = problem.many_jacobians(theta[None])[0]
    residuals = problem.many_log_times(theta[None])[0] - problem.logs
    trust, slope = soft_weights(residuals)
    n_rows, n_places = jacobian.shape
    squares = (jacobian[:, :, None] * jacobian[:, None, :]).reshape(n_rows, -1)
    curvature = ((drawn * slope) @ squares).reshape(-1, n_places, n_places)
    pull = (drawn * (trust * residuals)) @ jacobian
    held, _ = soft_weights(problem.ridge * (theta - starts))
    curvature = curvature + problem.ridge**2 * np.eye(n_places)
    pull = pull + problem.ridge**2 * held * (theta - starts)
    return theta - solved_many(curvature, pull)
