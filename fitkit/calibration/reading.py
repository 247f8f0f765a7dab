"""What the rates of storage make of the prior of a part that reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fitkit.calibration.prior import Prior
from fitkit.calibration.specifications import Device

_CLIENT = ("own_reading", "sharded_reading")  # at the pace of one client: 1 / b
_ALL = ("reading_in_turn",)  # at that of the file system that all share: 1 / B
_KNOWN = 0.3  # standard deviation of the logarithm of a price that the rates tell
_PAID = 0.02  # share of the source's longest time, from which on a term is paid at all


def with_rates(prior: Prior, storage: Device, amounts: np.ndarray) -> Prior:
    """A prior whose reading costs what is known of the new storage, if the source reads at all.

    Parameters
    ----------
    storage
        What one client gets, and all together, as far as known: see
        `fitkit.calibration.storage.storage_rates`.
    amounts
        Of the terms, on the source, shape ``(rows, terms)``: they tell which of them is paid.
    """
    law = prior.law
    costs = np.nan_to_num(amounts) * np.exp(prior.center[: len(law.terms)])
    shares = costs.max(axis=0) / costs.sum(axis=1).max()
    paces = dict.fromkeys(_CLIENT, storage.client_bytes_per_s)
    paces |= dict.fromkeys(_ALL, storage.aggregate_bytes_per_s)
    center, spread = prior.center.copy(), prior.spread.copy()
    for k, name in enumerate(law.terms):
        pace = paces.get(name, np.nan)
        if not np.isfinite(pace) or shares[k] < _PAID:
            continue
        center[k] = -np.log(pace)
        spread[k, :], spread[:, k] = 0.0, 0.0
        spread[k, k] = _KNOWN**2
    return replace(prior, center=center, spread=spread)
