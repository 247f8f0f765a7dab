"""Scratch: the probes alone, a sum of few terms, and how much it counts beside the prior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fitkit.models.columns import n_rows
from fitkit.models.terms import terms_named

_LEAST = 1e-12  # s: a sum of terms that are all zero is no time
_FEWEST = 4  # probes, below which they alone say nothing


def scratch_prices(amounts: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Non-negative prices of the least relative squares, shape ``(terms,)``."""
    from scipy.optimize import nnls  # here, so that predicting needs numpy alone

    design = amounts / times[:, None]
    size = np.linalg.norm(design, axis=0)
    size = np.where(size > 0, size, 1.0)
    found, _ = nnls(design / size, np.ones(len(times)))
    return np.asarray(found / size)


def scratch_terms(terms: Sequence[str], X: Any) -> tuple[str, ...]:
    """Those of the terms whose amounts are known in all rows."""
    rows = n_rows(X)
    known = terms_named(list(terms))
    return tuple(term.name for term in known if np.all(np.isfinite(term.amount(X, rows))))


def scratch_amounts(terms: Sequence[str], X: Any) -> np.ndarray:
    """Amounts of the terms, shape ``(rows, terms)``."""
    rows = n_rows(X)
    found = [term.amount(X, rows) for term in terms_named(list(terms))]
    return np.column_stack(found) if found else np.zeros((rows, 0))


def scratch_logs(amounts: np.ndarray, prices: np.ndarray) -> np.ndarray:
    """Logarithm of the time of each row, shape ``(rows,)``."""
    return np.asarray(np.log(np.maximum(amounts @ prices, _LEAST)))


def enough(n_probes: int) -> bool:
    """Whether the probes are enough to be asked without the prior."""
    return n_probes >= _FEWEST


def prior_weight(by_prior: np.ndarray, by_scratch: np.ndarray) -> float:
    """Share of the calibrated prior in the blend of logarithms, from 0 to 1.

    The share that minimises the squares of what the blend errs where each probe is left out,
    drawn half of the way to equal shares: so few errors say little, and averages are hard to beat
    (Clemen, International Journal of Forecasting 5, 1989).

    Parameters
    ----------
    by_prior, by_scratch
        Errors of the logarithm where a probe is left out, shape ``(probes,)``.
    """
    a, b = np.clip(by_prior, -1, 1), np.clip(by_scratch, -1, 1)
    apart = float(((a - b) ** 2).sum())
    if apart <= 0:
        return 0.5
    best = min(max(float(-(b * (a - b)).sum()) / apart, 0.0), 1.0)
    return 0.25 + 0.5 * best
