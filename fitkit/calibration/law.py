"""Law: a time as a sum of priced amounts, two sums that overlap, in unbounded coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fitkit.models.columns import n_rows
from fitkit.models.forms import MAX_OVERLAP, p_norm
from fitkit.models.parameters import Parameter
from fitkit.models.terms import needed_columns, terms_named

OVERLAP = "overlap"


class Law:
    r"""Two sums of terms, compute and communication: :math:`(a^p + b^p)^{1/p}`, or their sum.

    The coordinates are the logarithms of the prices and, where the sums overlap, the logit of the
    exponent between 1 and 10, as in `fitkit.models.forms`. Terms whose resource is a link make up
    the communication.

    Parameters
    ----------
    terms
        Names of the terms.
    overlaps
        Whether the sums overlap; else they add.
    """

    def __init__(self, terms: Sequence[str], overlaps: bool) -> None:
        self.terms = tuple(terms)
        known = terms_named(self.terms)
        self.is_link = np.array([term.resource.startswith("link") for term in known], dtype=bool)
        self.overlaps = overlaps and bool(self.is_link.any()) and not bool(self.is_link.all())
        self.resources = [*(term.resource for term in known), *([OVERLAP] * self.overlaps)]

    @property
    def names(self) -> list[str]:
        """Of the coordinates."""
        return [*self.terms, *([OVERLAP] * self.overlaps)]

    @property
    def columns(self) -> list[str]:
        """Columns that it reads."""
        return needed_columns(self.terms)

    def amounts(self, X: Any) -> np.ndarray:
        """Amount of each term in each row, shape ``(rows, terms)``; NaN where it is not known."""
        rows = n_rows(X)
        return np.column_stack([term.amount(X, rows) for term in terms_named(self.terms)])

    def log_times(self, amounts: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Logarithm of the time of each row, shape ``(rows,)``."""
        return self.with_derivatives(amounts, places)[0]

    def with_derivatives(
        self, amounts: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`log_times`, and their derivatives by the places, shape ``(rows, coordinates)``."""
        costs = amounts * np.exp(places[: len(self.terms)])
        parts = np.array([costs[:, ~self.is_link].sum(axis=1), costs[:, self.is_link].sum(axis=1)])
        exponent = overlap_at(places[-1]) if self.overlaps else 1.0
        whole = p_norm(parts[0], parts[1], exponent)
        with np.errstate(divide="ignore", invalid="ignore"):  # no time: no logarithm
            shares = parts / whole
            slopes = shares ** (exponent - 1) if self.overlaps else np.ones_like(shares)
            found = costs * slopes[self.is_link.astype(int)].T / whole[:, None]
            logs = np.log(whole)
        if self.overlaps:
            inner = np.log(np.where(shares > 0, shares, 1.0))
            by_exponent = (slopes * shares * inner).sum(axis=0) / exponent
            slope = (exponent - 1) * (MAX_OVERLAP - exponent) / (MAX_OVERLAP - 1)
            found = np.column_stack([found, by_exponent * slope])
        return logs, found

    def parameter(self, k: int, place: float, error: float, level_z: float) -> Parameter:
        """A coordinate as a parameter, from its standard deviation and a normal quantile."""
        low, high = place - level_z * error, place + level_z * error
        if k < len(self.terms):
            term = terms_named(self.terms)[k]
            value = math.exp(place)
            bounds = math.exp(low), math.exp(high)
            return Parameter(term.name, value, value * error, *bounds, term.unit, "positive")
        value = overlap_at(place)
        slope = (value - 1) * (MAX_OVERLAP - value) / (MAX_OVERLAP - 1)
        bounds = overlap_at(low), overlap_at(high)
        return Parameter(OVERLAP, value, slope * error, *bounds, "", "positive")


def overlap_at(place: float) -> float:
    """The exponent at a place of its logit."""
    return 1 + (MAX_OVERLAP - 1) / (1 + math.exp(-place))
