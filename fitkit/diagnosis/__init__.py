"""Where the time goes, what disturbs it, and whether the way it was measured misleads.

Shares of the phases in a step and of the layers in a network; stragglers of each run and rank; the
drift of the machine while the runs were measured; the scale from which on more workers no longer
pay, for a step and for a whole run.
"""

from fitkit.diagnosis.analysis import Analysis, analyse
from fitkit.diagnosis.bottlenecks import bottlenecks, crossings
from fitkit.diagnosis.efficiency import efficiency
from fitkit.diagnosis.exposure import exposed
from fitkit.diagnosis.job_phases import job_phase_summary, job_phases
from fitkit.diagnosis.order import order_drift
from fitkit.diagnosis.outlying import outlying_runs
from fitkit.diagnosis.ranks import stragglers
from fitkit.diagnosis.run_scaling import run_scaling
from fitkit.diagnosis.scaling import scaling
from fitkit.diagnosis.selected import SelectedRuns, select
from fitkit.diagnosis.shares import device_shares, layer_shares, of_several, phase_shares
from fitkit.diagnosis.time_use import time_use

__all__ = [
    "Analysis", "SelectedRuns", "analyse", "bottlenecks", "crossings", "device_shares",
    "efficiency", "exposed", "job_phase_summary", "job_phases", "layer_shares", "of_several",
    "order_drift", "outlying_runs", "phase_shares", "run_scaling", "scaling", "select",
    "stragglers", "time_use",
]  # fmt: skip
