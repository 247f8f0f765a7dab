"""Background jobs in the gaps of a planned network: throughput of a cluster, by simulation."""

from fitkit.planner.sharing.cluster import Cluster
from fitkit.planner.sharing.interference import Interference, fitted_interference
from fitkit.planner.sharing.jobs import BackgroundJob, ForegroundJob
from fitkit.planner.sharing.plan_file import read_plan
from fitkit.planner.sharing.result import SharingResult
from fitkit.planner.sharing.rules import DEEPPOOL, Rules
from fitkit.planner.sharing.simulation import simulate
from fitkit.planner.sharing.sweep import Arrangement, compare, summarise, sweep

__all__ = [
    "DEEPPOOL",
    "Arrangement",
    "BackgroundJob",
    "Cluster",
    "ForegroundJob",
    "Interference",
    "Rules",
    "SharingResult",
    "compare",
    "fitted_interference",
    "read_plan",
    "simulate",
    "summarise",
    "sweep",
]
