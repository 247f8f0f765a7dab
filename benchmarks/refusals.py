"""How often the guard refuses what no measurement tells, and answers what they do.

How far a request lies outside is worked out here anew, by the definition and not by the guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import deepbench
import intervals
import layers
import mlperf
import numpy as np
import pandas as pd
import pipedream
import pollux
from lines import Line, Section

import fitkit

TITLE = "What the guard refuses"
TEXT = """
Requests: every held-out configuration of the splits above (Sia/Pollux seeds 0 to 4, MLPerf,
DeepBench), each also with 8 and with 16 times the replicas, on as many times the nodes, and with 8
and 16 times the batch of a replica (of a collective the ranks, and the bytes); all of these under a
network, a device and a collective that nobody measured; and the layers of PipeDream's image
networks under a layer type, a phase and a device that nobody measured. A request has to be refused
if a column lies more than two doublings outside the measurements of its group, or never varied
there and has another value, or if its group is unknown.
"""
UNKNOWN = "unheard of"
DOUBLINGS = 2.0
TIMES = (8, 16)
STEP = ("n_workers", "n_nodes", "local_batch")
COMMS = ("n_ranks", "n_bytes")
INSIDE = "20 % out at random"


def section(shared: Path, folder: Path) -> Section:
    """Shares refused of what has to be, and of what should not be."""
    parts = [*_step_times(shared, folder), *_targets(shared, folder)]
    parts += [*_collectives(shared, folder), *_layers(shared)]
    found = pd.concat(parts, ignore_index=True)
    has_to = found[found.why != ""]
    lines = [
        Line(f"{why}: refused of {len(rows):,}", rows.is_refused.mean(), None, least=0.95)
        for why, rows in has_to.groupby("why")
    ]
    lines.insert(0, Line("all that has to be refused", has_to.is_refused.mean(), None, least=0.95))
    inside = found[found.split == INSIDE]
    name = f"refused of {len(inside):,} held-out configurations of the 20 % splits"
    return Section(TITLE, TEXT, [*lines, Line(name, inside.is_refused.mean(), 0.02)])


def _step_times(shared: Path, folder: Path) -> Iterator[pd.DataFrame]:
    frame = pollux.load(shared, folder)
    for name in intervals.SPLITS:
        for model, train, test in intervals.trained(frame, name):
            yield _judged(model, test, _why(train, test, pollux.JOB, STEP), name)
            yield from _scaled(model, train, test, pollux.JOB, STEP)
            yield from _unknown(model, test, ["network", "device"])


def _targets(shared: Path, folder: Path) -> Iterator[pd.DataFrame]:
    train, test = mlperf.split(mlperf.load(shared, folder))
    model = fitkit.fit(train, "step", question="scale-up", statistic="median")
    yield _judged(model, test, _why(train, test, ["family"], STEP))
    yield from _scaled(model, train, test, ["family"], STEP)
    yield from _unknown(model, test, ["network", "device"])


def _collectives(shared: Path, folder: Path) -> Iterator[pd.DataFrame]:
    frame = deepbench.load(shared, folder)
    known = frame.n_ranks <= 8
    train, test = frame[known], frame[~known]
    model = fitkit.fit(train, "comms", question="scale-up", statistic="median")
    link_is_new = test.n_nodes.notna()  # the smaller ones were on one node
    why = _why(train, test, ["device"], COMMS).mask(link_is_new, "an unknown link")
    yield _judged(model, test, why)
    yield from _scaled(model, train, train, ["device"], COMMS)
    yield from _unknown(model, train, ["op", "device"])


def _layers(shared: Path) -> Iterator[pd.DataFrame]:
    frame = pipedream.load(shared / "public_tables/pipedream_profiles")
    model = fitkit.fit(frame, layers.TRIAL.recipe)
    yield from _unknown(model, frame, ["layer_type", "phase", "device"])


def _scaled(
    model: fitkit.PerformanceModel,
    train: pd.DataFrame,
    test: pd.DataFrame,
    group: Sequence[str],
    columns: Sequence[str],
) -> Iterator[pd.DataFrame]:
    """The requests at 8 and 16 times the scale, and at 8 and 16 times the work of each."""
    for moved in (columns[:-1], columns[-1:]):
        for times in TIMES:
            asked = test.assign(**{name: test[name] * times for name in moved})
            yield _judged(model, asked, _why(train, asked, group, columns))


def _unknown(
    model: fitkit.PerformanceModel, rows: pd.DataFrame, columns: Sequence[str]
) -> Iterator[pd.DataFrame]:
    for name in columns:
        yield _judged(model, rows.assign(**{name: UNKNOWN}), f"an unknown {name}")


def _judged(
    model: fitkit.PerformanceModel, rows: pd.DataFrame, why: pd.Series | str, split: str = ""
) -> pd.DataFrame:
    refused = intervals.answers(model, rows, allow=False).status == "refused"
    return pd.DataFrame({"is_refused": refused, "why": why, "split": split})


def _why(
    train: pd.DataFrame, asked: pd.DataFrame, group: Sequence[str], columns: Sequence[str]
) -> pd.Series:
    """Why each request has to be refused, empty where it has not."""
    why = pd.Series("", index=asked.index)
    by_group = train.groupby(group)
    for name in columns:
        known = by_group[name].agg(low="min", high="max")
        bounds = asked[[*group]].join(known, on=[*group])
        low, high, value = bounds.low, bounds.high, asked[name]
        with np.errstate(divide="ignore"):
            away = np.maximum(np.log2(value / high), np.log2(low / value))
        never = (low == high) & (value != low)
        why = why.mask(away > DOUBLINGS, f"{name} more than two doublings out")
        why = why.mask(never, f"{name} off the only value")
    return why
