"""Quantiles that intervals need, with the standard library alone."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike


def t_quantile(p: float, dof: int) -> float:
    """Quantile of Student's t distribution.

    The expansion of G. W. Hill (Algorithm 396, Communications of the ACM 13, 1970), exact for
    one and two degrees of freedom and good to five digits from three on. Predicting must not
    import scipy.

    Parameters
    ----------
    p
        Probability, between 0 and 1.
    dof
        Degrees of freedom, at least 1.

    Raises
    ------
    ValueError
        If ``p`` or ``dof`` is out of range.
    """
    if not 0 < p < 1 or dof < 1:
        raise ValueError(f"no t quantile for p = {p}, dof = {dof}")
    if p < 0.5:
        return -t_quantile(1 - p, dof)
    two_sided = 2 * (1 - p)
    if two_sided == 1:
        return 0.0
    if dof == 1:
        return 1 / math.tan(two_sided * math.pi / 2)
    if dof == 2:
        return math.sqrt(2 / (two_sided * (2 - two_sided)) - 2)
    return _hill(two_sided, dof)


def _hill(two_sided: float, n: int) -> float:
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * two_sided) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(two_sided / 2)
        y = x**2
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y**2)
    else:
        y = (
            (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1
        ) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


def check_level(level: float) -> None:
    """Refuse what is no level of an interval.

    Raises
    ------
    ValueError
        If it is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"a level of {level}: between 0 and 1, such as 0.9")


def log_interval(
    seconds: np.ndarray, noise: float, dof: int, level: float, doubt: ArrayLike = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Interval of a new measurement whose logarithm scatters around the predicted one.

    Parameters
    ----------
    seconds
        Predictions, shape ``(rows,)``.
    noise
        Standard deviation of the log residuals.
    dof
        Degrees of freedom that it rests on.
    doubt
        Standard deviation of the logarithm of the prediction itself, shape ``(rows,)``.

    Returns
    -------
    low, high : ndarray
        Seconds, shape ``(rows,)`` each; NaN where nothing is left over to judge the noise.

    Raises
    ------
    ValueError
        If the level is not between 0 and 1.
    """
    check_level(level)
    if dof <= 0 or not math.isfinite(noise):
        nothing = np.full(len(seconds), np.nan)
        return nothing, nothing
    spread = np.sqrt(noise**2 + np.square(doubt))
    factor = np.exp(np.minimum(t_quantile(0.5 + level / 2, dof) * spread, 50.0))
    return seconds / factor, seconds * factor
