"""Step times of four networks on three clusters: the traces behind Sia and Pollux.

A unit is a configuration (network, cluster, nodes, replicas, batch of a replica); its time is the
median of its rows. The error of a network on a cluster is the mean over its configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from lines import Line, Section
from rivals import PLACES, adaptdl_predictions, extrap_predictions
from trials import OURS, Trial, errors, ingest

from fitkit.fitting import measurements
from fitkit.models.selection import Question

TITLE = "Step times, Sia and Pollux"
TEXT = """
`public_tables/sia_pollux`, recipe `step`. A unit is a configuration (network, cluster, nodes,
replicas, batch of a replica) with the median of its rows; errors are means over the configurations
of a network on a cluster, then over seeds, then over the networks. Random 20 %: configurations
sorted by nodes, replicas and batch, held out where `RandomState(s).rand(n) < 0.2`, s = 0 to 4. The
16 configurations are `RandomState(s).choice`s among those of up to 8 replicas, s = 0 to 4. Where
the held-out rows are larger the model is fitted with the question `scale-up`. In every mean over
the four networks fitkit has to err a tenth less than each baseline but gradient boosting, which
may be 0.3 points better. Extra-P and AdaptDL are the published tools themselves; "normal form" and
"pollux" are our own code of their forms. AdaptDL is told what part of each time is
synchronisation, as it wants to be.
"""
TRIAL = Trial("step", ("n_workers", "n_nodes", "local_batch", "global_batch"), "local_batch")
JOB = ["network", "device"]
SEEDS = range(5)
BEATEN = (
    "constant", "nearest_configuration", "perfect_scaling", "ernest", "pollux", "normal_form",
)  # fmt: skip

Pythons = dict[str, str | None]
# Masks of the training rows of one network on one cluster, one for each seed.
Splits = Callable[[pd.DataFrame], list[np.ndarray]]


def load(shared: Path, folder: Path) -> pd.DataFrame:
    """Configurations, sorted, with the median time of synchronisation beside the step's."""
    dataset = ingest(shared / "public_tables/sia_pollux/all_points.csv", "sia_pollux", folder)
    found = measurements(dataset, "step", statistic="median")
    sync = dataset.read("phases", ["run_id", "phase", "duration_s"])
    sync = sync[sync.phase == "comm"].set_index("run_id").duration_s
    of_run = found.runs.run_id.map(sync)
    frame = found.pooled.assign(sync_s=of_run.groupby(found.configuration).median())
    return frame.sort_values([*JOB, "n_nodes", "n_workers", "local_batch"], ignore_index=True)


def random_fifth(job: pd.DataFrame) -> list[np.ndarray]:
    return [np.random.RandomState(seed).rand(len(job)) >= 0.2 for seed in SEEDS]


def up_to(share: float) -> Splits:
    def split(job: pd.DataFrame) -> list[np.ndarray]:
        return [(job.n_workers <= share * job.n_workers.max()).to_numpy()]

    return split


def sixteen_small(job: pd.DataFrame) -> list[np.ndarray]:
    small = np.flatnonzero(job.n_workers <= 8)
    masks = np.zeros((len(SEEDS), len(job)), dtype=bool)
    for seed, mask in zip(SEEDS, masks, strict=True):
        mask[np.random.RandomState(seed).choice(small, 16, replace=False)] = True
    return list(masks)


def job_errors(
    frame: pd.DataFrame, split: Splits, question: Question, pythons: Pythons
) -> pd.DataFrame:
    """Mean error of each job, by network and cluster, of fitkit and of every baseline."""
    of_seed = []
    for train, test in whole(frame, split):
        predicted = TRIAL.predict(train, test, question).join(_tools(train, test, pythons))
        found = errors(predicted, test.step_s)
        of_seed.append(found.groupby([test[name] for name in JOB]).mean())
    return pd.concat(of_seed).groupby(level=JOB).mean()


def whole(frame: pd.DataFrame, split: Splits) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Training and test rows of all jobs, seed by seed."""
    jobs = [job for _, job in frame.groupby(JOB)]
    for masks in zip(*map(split, jobs), strict=True):
        known = pd.concat(job[mask] for job, mask in zip(jobs, masks, strict=True))
        yield known, frame.drop(index=known.index)


def _tools(train: pd.DataFrame, test: pd.DataFrame, pythons: Pythons) -> pd.DataFrame:
    """Predictions of the published tools that are installed."""
    found = {}
    if python := pythons.get("extrap"):
        found["Extra-P"] = extrap_predictions(train, test, PLACES, "step_s", python, JOB)
    if python := pythons.get("adaptdl"):
        found["AdaptDL"] = adaptdl_predictions(train, test, PLACES, "step_s", python, JOB, "sync_s")
    return pd.DataFrame(found, index=test.index)


def mean_line(name: str, jobs: pd.DataFrame, bar: float, *, is_judged: bool = True) -> Line:
    """The mean over the jobs; judged against the baselines too, or against the bar alone."""
    beaten, matched = (BEATEN, ("gradient_boosting",)) if is_judged else ((), ())
    mean = jobs.mean().to_dict()
    return Line(name, mean.pop(OURS), bar, mean, beaten, matched)


def worst_line(name: str, jobs: pd.DataFrame, bar: float | None) -> Line:
    """The largest error of a job; of each baseline its own largest."""
    worst = jobs.max().to_dict()
    return Line(name, worst.pop(OURS), bar, worst)


def section(shared: Path, folder: Path, pythons: Pythons) -> Section:
    """All lines of the data set."""
    frame = load(shared, folder)
    lines = []
    for cluster, bar in (("aws", 0.045), ("rtx", 0.032), ("dgx", 0.028)):
        jobs = job_errors(frame[frame.device == cluster], random_fifth, "interpolation", pythons)
        lines.append(mean_line(f"{cluster}, 20 % out at random", jobs, bar))
    quarter = job_errors(frame, up_to(1 / 4), "scale-up", pythons)
    on_aws = quarter.xs("aws", level="device")
    lines.append(mean_line("aws, trained up to 16 GPUs, asked for 17 to 64", on_aws, 0.09))
    lines.append(worst_line("the same, worst network", on_aws, 0.15))
    jobs = job_errors(frame[frame.device == "aws"], sixteen_small, "scale-up", pythons)
    lines.append(mean_line("aws, 16 configurations up to 8 GPUs, all others", jobs, 0.105))
    return Section(TITLE, TEXT, [*lines, *pair_lines(quarter, frame, pythons)])


def pair_lines(quarter: pd.DataFrame, frame: pd.DataFrame, pythons: Pythons) -> list[Line]:
    """Lines of all networks on all clusters, trained up to a share of the largest scale."""
    half = job_errors(frame, up_to(1 / 2), "scale-up", pythons)
    hardest = ("ncf", "aws")
    name = f"{len(quarter)} pairs, trained up to a"
    return [
        mean_line(f"{name} quarter of the GPUs", quarter, 0.08, is_judged=False),
        worst_line("the same, worst pair", quarter, 0.16),
        mean_line(f"{name} half of the GPUs", half, 0.09, is_judged=False),
        worst_line("the same, worst pair but ncf on aws", half.drop(hardest), 0.18),
        worst_line("the same, ncf on aws", half.loc[[hardest]], None),
    ]
