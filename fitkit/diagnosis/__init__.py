"""Where the time goes, what disturbs it, and whether the way it was measured misleads.

Shares of the phases in a step and of the layers in a network; stragglers of each run and rank; the
drift of the machine while the runs were measured; the scale from which on more workers no longer
pay.
"""

from fitkit.diagnosis.order import order_drift
from fitkit.diagnosis.ranks import stragglers
from fitkit.diagnosis.scaling import scaling
from fitkit.diagnosis.selected import SelectedRuns
from fitkit.diagnosis.shares import device_shares, layer_shares, phase_shares

__all__ = [
    "SelectedRuns", "device_shares", "layer_shares", "order_drift", "phase_shares", "scaling",
    "stragglers",
]  # fmt: skip
