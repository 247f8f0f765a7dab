"""Profiles: how far one parameter can move while all others are fitted again.

The interval of a parameter is where the sum of squares, minimised over the others, rises by no
more than a quantile of chi-square with one degree of freedom times the variance of the noise
(Venzon and Moolgavkar, Applied Statistics 37, 1988; Raue et al., Bioinformatics 25, 2009, who call
a parameter with an open end not identifiable).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fitkit.models.bootstrap import non_negative_many
from fitkit.models.log_squares import Problem, descend

FAR = math.log(100)  # a log coefficient that may lie farther from its estimate is open there
_GROWN = 4.0  # an end is sought at distances that grow by so much
_DISTANCES = 16
_NARROWINGS = 3
_TRIES = 5  # of an end of a form, each of which is a search
_STEPS = 4  # of the search for the others, from where the last one ended
_FIRST = 1e-3  # share of the largest distance at which the search of an end begins at least
_TINY = 1e-14


def linear_profile(
    gram: np.ndarray, pull: np.ndarray, estimates: np.ndarray, rise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of non-negative parameters, shape ``(terms,)`` each; a lower end is 0 where open.

    Parameters
    ----------
    gram, pull
        X'X, shape ``(terms, terms)``, and X' times the residuals, 0 for a term above zero and not
        above 0 for the others.
    rise
        Of the sum of squares.
    """
    scale = np.sqrt(np.diag(gram))
    scaled = gram / np.outer(scale, scale)
    own, held = estimates * scale, pull / scale
    which = np.tile(np.arange(len(own)), 2)
    upward = np.arange(len(which)) >= len(own)
    near, aim = np.tile(own, 2), math.sqrt(rise)
    far = np.where(upward, near + aim + _TINY * float(own.max()), 0.0)
    roots = [np.zeros(len(which)), _roots(scaled, held, own, which, far)]
    open_ = ~upward & (roots[1] <= aim)
    for _ in range(_DISTANCES):
        short = upward & (roots[1] <= aim)
        if not short.any():
            break
        near, roots[0] = np.where(short, far, near), np.where(short, roots[1], roots[0])
        far = np.where(short, own[which] + _GROWN * (far - own[which]), far)
        roots[1][short] = _roots(scaled, held, own, which[short], far[short])
    for _ in range(_NARROWINGS):  # the root of the rise is nearly a straight line
        middle = near + _share(roots, aim) * (far - near)
        root = _roots(scaled, held, own, which, middle)
        beyond = root > aim
        roots = [np.where(beyond, roots[0], root), np.where(beyond, root, roots[1])]
        near, far = np.where(beyond, near, middle), np.where(beyond, middle, far)
    ends = np.where(open_, 0.0, near + _share(roots, aim) * (far - near)).reshape(2, -1)
    return ends[0] / scale, ends[1] / scale


def _share(roots: Sequence[np.ndarray], aim: float) -> np.ndarray:
    """Part of the way from near to far at which a straight line meets the aim."""
    share = (aim - roots[0]) / np.maximum(roots[1] - roots[0], _TINY)
    return np.asarray(np.clip(share, 0.02, 0.98))


def _roots(
    gram: np.ndarray,
    pull: np.ndarray,
    estimates: np.ndarray,
    which: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    return np.sqrt(_rises(gram, pull, estimates, which, values))


def _rises(
    gram: np.ndarray,
    pull: np.ndarray,
    estimates: np.ndarray,
    which: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Rise of the sum of squares with one parameter at a value, the others fitted again."""
    own = np.arange(len(estimates)) == which[:, None]
    moments = (gram @ estimates + pull) - values[:, None] * gram[which]
    both = ~own[:, :, None] & ~own[:, None, :]
    systems = np.where(both, gram, np.eye(len(estimates)))
    found = non_negative_many(systems, np.where(own, 0.0, moments))
    away = np.where(own, values[:, None], found) - estimates
    rises = np.einsum("di,ij,dj->d", away, gram, away) - 2 * away @ pull
    return np.maximum(rises, 0.0)


def form_profile(
    problem: Problem, theta: np.ndarray, guesses: np.ndarray, rise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of log coordinates, shape ``(coefficients,)`` each; infinite where open.

    Parameters
    ----------
    problem
        With next to no ridge: the data alone are asked.
    theta
        The solution.
    guesses
        Distances of the ends by linear theory, shape ``(coefficients,)``.
    rise
        Of the sum of squares.
    """
    n = len(theta)
    side, fixed = np.repeat([-1.0, 1.0], n), np.tile(np.eye(n, dtype=bool), (2, 1))
    starts, ones = np.tile(theta, (2 * n, 1)), np.ones((2 * n, len(problem.logs)))
    best, least = descend(problem, starts[:1], ones[:1], starts[:1], steps=2 * _STEPS)
    places, lowest = np.tile(best[0], (2 * n, 1)), float(least[0])
    near, far = np.zeros(2 * n), np.full(2 * n, np.inf)
    roots = np.zeros(2 * n), np.full(2 * n, np.inf)
    tried = np.clip(np.tile(np.nan_to_num(guesses, nan=FAR), 2), _FIRST * FAR, FAR)
    for _ in range(_TRIES):
        places = np.where(fixed, starts + (side * tried)[:, None], places)
        places, costs = descend(problem, places, ones, starts, fixed, steps=_STEPS)
        root = np.sqrt(np.maximum(costs - lowest, 0.0))
        beyond = root > math.sqrt(rise)
        near, far = np.where(beyond, near, tried), np.where(beyond, tried, far)
        roots = np.where(beyond, roots[0], root), np.where(beyond, root, roots[1])
        tried = _next(near, far, roots, math.sqrt(rise))
    ends = np.where(np.isfinite(far), tried, np.inf)
    return theta - ends[:n], theta + ends[n:]


def _next(
    near: np.ndarray, far: np.ndarray, roots: tuple[np.ndarray, np.ndarray], aim: float
) -> np.ndarray:
    """Distances to try: between two by false position, else farther, at most where it is open."""
    known = np.isfinite(far)
    share = _share([roots[0], np.where(known, roots[1], 1.0)], aim)
    between = near + share * (np.where(known, far, near) - near)
    return np.where(known, between, np.minimum(_GROWN * near, FAR))
