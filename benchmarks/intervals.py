"""How often intervals of a nominal 90 % hold the truth of configurations that no fit saw."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import deepbench
import layers
import mlperf
import numpy as np
import pandas as pd
import pollux
import vtrain
from lines import Line, Section
from trials import Trial, ingest

import fitkit
from fitkit.models.columns import Key
from fitkit.models.prediction_intervals import PredictionIntervals
from fitkit.models.selection import Question

STEPS = "Intervals of step times, Sia and Pollux"
STEPS_TEXT = """
`public_tables/sia_pollux`, recipe `step`, intervals of 90 %, units and splits as above, seeds 0 to
4; all twelve pairs of network and cluster are fitted together. The 40 configurations are
`RandomState(s).choice`s among all of a pair. Coverage is the share of held-out configurations whose
median lies inside the interval, width the mean of (high - low) / measured; both of a pair, then
the mean over seeds, then over the pairs. "inside alone" is what the same intervals would be if
they took what lies beyond the measured range for more of the same: exchangeable errors.
"""
TARGETS = "Intervals and refusals, MLPerf and DeepBench"
TARGETS_TEXT = """
MLPerf: the 42 targets as above, intervals of 90 % with `allow_extrapolation`; without it, a target
that is more than two doublings out, or whose family was measured at one scale, has to be refused,
and the reason has to name a column of the scale. DeepBench: GPUs trained with 2 to 8 ranks, all on
one node, asked for 16 and 32 ranks on two and four nodes.
"""
OTHERS = "Intervals of other recipes"
OTHERS_TEXT = """
The same figures for the recipes `pipeline`, `layers` and `comms`: of each table so many rows of
`RandomState(s).permutation(n)` are trained on, all others predicted, s = 0 to 4. No bar was set.
"""
SCALE = ("n_workers", "n_nodes", "local_batch")


def forty(job: pd.DataFrame) -> list[np.ndarray]:
    """Masks of 40 configurations of a pair, one for each seed."""
    masks = np.zeros((len(pollux.SEEDS), len(job)), dtype=bool)
    for seed, mask in zip(pollux.SEEDS, masks, strict=True):
        mask[np.random.RandomState(seed).choice(len(job), 40, replace=False)] = True
    return list(masks)


SPLITS: dict[str, tuple[pollux.Splits, Question]] = {
    "20 % out at random": (pollux.random_fifth, "interpolation"),
    "40 random configurations": (forty, "interpolation"),
    "trained at a quarter of the replicas": (pollux.up_to(1 / 4), "scale-up"),
}
# Least and largest coverage, least of a pair, largest width.
BARS = {
    "20 % out at random": (0.87, 0.93, 0.83, 0.20),
    "40 random configurations": (0.87, 0.93, 0.80, 0.30),
    "trained at a quarter of the replicas": (0.87, 0.95, 0.65, 0.45),
}

Reach = Mapping[str, np.ndarray]
Trained = tuple[fitkit.PerformanceModel, pd.DataFrame, pd.DataFrame]


def trained(frame: pd.DataFrame, name: str) -> Iterator[Trained]:
    """Of each seed of a split the model, its training rows and the held-out ones."""
    split, question = SPLITS[name]
    for train, test in pollux.whole(frame, split):
        yield fitkit.fit(train, "step", question=question, statistic="median"), train, test


def answers(
    model: fitkit.PerformanceModel, rows: pd.DataFrame, *, allow: bool = True
) -> pd.DataFrame:
    """What a model answers, warnings about extrapolation apart: it is asked for here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
        return model.predict(rows, allow_extrapolation=allow)


def step_times(shared: Path, folder: Path) -> Section:
    """Coverage and width on the twelve pairs."""
    frame = pollux.load(shared, folder)
    lines: list[Line] = []
    for name in SPLITS:
        parts, inside = [], []
        for model, _, test in trained(frame, name):
            parts.append(held(answers(model, test), test))
            model.intervals = _InsideAlone(model.recipe.name, (), model.intervals.groups)
            inside.append(held(answers(model, test), test))
        lines += _lines(name, _pairs(parts), _pairs(inside))
    return Section(STEPS, STEPS_TEXT, lines)


class _InsideAlone(PredictionIntervals):
    """Intervals that take what lies beyond for more of the same."""

    def _drift(self, key: Key, reach: Reach, n_rows: int, level: float) -> np.ndarray:
        return np.zeros(n_rows)


def held(found: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """By pair, the share of rows whose interval holds the truth, and the mean width."""
    is_held = (found.low_s <= test.step_s) & (test.step_s <= found.high_s)
    width = (found.high_s - found.low_s) / test.step_s
    figures = pd.DataFrame({"coverage": is_held, "width": width})
    by_pair = figures.groupby([test[name] for name in pollux.JOB])
    return by_pair.agg(lambda values: values.mean(skipna=False))


def _pairs(parts: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(parts).groupby(level=pollux.JOB).mean()


def _lines(name: str, pairs: pd.DataFrame, inside: pd.DataFrame) -> list[Line]:
    least, most, worst, widest = BARS[name]
    other = {"inside_alone": inside.coverage.mean()}
    worst_other = {"inside_alone": inside.coverage.min()}
    width_other = {"inside_alone": inside.width.mean()}
    return [
        Line(f"{name}: coverage", pairs.coverage.mean(), most, other, least=least),
        Line("the same, lowest pair", pairs.coverage.min(), None, worst_other, least=worst),
        Line("the same, width", pairs.width.mean(), widest, width_other),
    ]


def targets(shared: Path, folder: Path) -> Section:
    """The 42 targets of MLPerf, and DeepBench's GPUs on more than one node."""
    frame = mlperf.load(shared, folder)
    train, test = mlperf.split(frame)
    model = fitkit.fit(train, "step", question="scale-up", statistic="median")
    allowed, asked = answers(model, test), answers(model, test, allow=False)
    held = (allowed.low_s <= test.step_s) & (test.step_s <= allowed.high_s)
    width = ((allowed.high_s - allowed.low_s) / test.step_s).median()
    of_family = train.groupby("family").n_workers
    n_scales = test.family.map(of_family.nunique())
    doublings = np.log2(test.n_workers / test.family.map(of_family.max()))
    is_far = (n_scales == 1) | (doublings > 2)
    is_named = asked.reason.map(lambda reason: any(name in reason for name in SCALE))
    refused = (asked.status == "refused") & is_named
    n = len(test)
    return Section(
        TARGETS,
        TARGETS_TEXT,
        [
            Line(f"MLPerf, of {n} intervals hold the truth", held.mean(), None, least=34 / 42),
            Line("the same, median width", width),
            Line(
                f"MLPerf, refused with the column named, of {is_far.sum()} that have to be",
                refused[is_far].mean(), None, least=1.0,
            ),
            Line(f"MLPerf, refused of the {(~is_far).sum()} others", refused[~is_far].mean()),
            *_gpus(shared, folder),
        ],
    )  # fmt: skip


def _gpus(shared: Path, folder: Path) -> Iterator[Line]:
    """Of each GPU the share of rows on several nodes that is refused."""
    frame = deepbench.load(shared, folder)
    gpus = frame[frame.device != deepbench.MANYCORE]
    model = fitkit.fit(gpus[gpus.n_ranks <= 8], "comms", question="scale-up", statistic="median")
    asked = gpus[gpus.n_ranks > 8]
    refused = answers(model, asked, allow=False).status == "refused"
    for chip, part in refused.groupby(asked.device):
        yield Line(f"DeepBench, {chip} on several nodes, refused", part.mean(), None, least=1.0)


def other_recipes(shared: Path, folder: Path) -> Section:
    """Coverage and width of recipes other than ``step``, on rows that were left out at random."""
    path = shared / "public_tables/neusight_ops/linear.csv.gz"
    dense = layers.TRIAL.frame(ingest(path, "neusight_linear", folder))
    whole = vtrain.load(shared, folder)
    lines = []
    for n_train in (50, 100, 300):
        found = [_random_rows(vtrain.STEPS, whole, n_train, seed) for seed in pollux.SEEDS]
        lines += _two_lines(f"pipeline, vTrain, {n_train} configurations", found)
    for device in ("NVIDIA A100 80GB PCIe", "Tesla V100-PCIE-32GB"):
        rows = dense[dense.device == device]
        for n_train in (10, 100):
            found = [_random_rows(layers.TRIAL, rows, n_train, seed) for seed in pollux.SEEDS]
            lines += _two_lines(f"layers, NeuSight, {device}, {n_train} shapes", found)
    for name, table in vtrain.tables(shared, folder).groupby("run_id"):
        found = [_random_rows(vtrain.COMMS, table, 12, seed) for seed in pollux.SEEDS]
        lines += _two_lines(f"comms, vTrain, {name}, 12 sizes", found)
    return Section(OTHERS, OTHERS_TEXT, lines)


def _random_rows(trial: Trial, rows: pd.DataFrame, n_train: int, seed: int) -> tuple[float, float]:
    """Coverage and width of all rows but so many random ones that are trained on."""
    order = np.random.RandomState(seed).permutation(len(rows))
    train, test = rows.iloc[order[:n_train]], rows.iloc[order[n_train:]]
    found = answers(fitkit.fit(train, trial.recipe, statistic="median"), test)
    measured = test[trial.target]
    is_held = (found.low_s <= measured) & (measured <= found.high_s)
    return float(is_held.mean()), float(((found.high_s - found.low_s) / measured).mean())


def _two_lines(name: str, found: list[tuple[float, float]]) -> list[Line]:
    coverage, width = np.mean(found, axis=0).tolist()
    return [Line(f"{name}: coverage", coverage), Line("the same, width", width)]
