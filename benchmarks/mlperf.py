"""Step times of MLPerf Training submissions: every family's largest scale from its smaller ones.

A family is one submission of a benchmark at several scales. A unit is a configuration (family,
workers, nodes, global batch); its time is the median of its runs.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from lines import Line, Section
from trials import OURS, Trial, errors, ingest

TITLE = "Step times, MLPerf Training"
TEXT = """
`mlperf/mlperf_runs.csv.gz`, rounds `train_*`, recipe `step`. A unit is a configuration (family,
workers, nodes, global batch) with the median of its runs; rows of a family count as their mean.
The largest scale of all 42 families that have two scales or more is held out at once; all other
rows, those of families of a single scale too, are trained on. The baselines see the rows of their
family alone.
"""
NEAR = 3  # times larger than what was trained on
TRIAL = Trial(
    "step",
    ("n_workers", "n_nodes", "local_batch", "global_batch"),
    "local_batch",
    ("constant", "nearest_configuration", "perfect_scaling", "ernest", "pollux"),
)


def load(shared: Path, folder: Path) -> pd.DataFrame:
    """Configurations of the rounds of MLPerf Training."""
    frame = TRIAL.frame(ingest(shared / "mlperf/mlperf_runs.csv.gz", "mlperf", folder))
    is_training = frame.run_id.str.startswith("train_") & (frame.n_workers > 0)
    return TRIAL.pool(frame[is_training & frame.global_batch.notna()])


def split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All other rows, and the largest scale of each family that has two scales or more."""
    scale = frame.groupby("family").n_workers
    held = (scale.transform("nunique") > 1) & (frame.n_workers == scale.transform("max"))
    return frame[~held], frame[held]


def families(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each family with held-out rows: scales, how much larger they are, and all errors."""
    scale = frame.groupby("family").n_workers
    train, test = split(frame)
    found = errors(TRIAL.predict(train, test, "scale-up"), test.step_s)
    by_family = found.groupby(test.family).mean()
    trained = train.groupby("family").n_workers.max()
    return by_family.assign(n_scales=scale.nunique(), ratio=scale.max() / trained)


def section(shared: Path, folder: Path) -> Section:
    """All lines of the data set."""
    found = families(load(shared, folder))
    near, many = found[found.ratio <= NEAR], found[found.n_scales >= 3]
    lines = [
        _line(f"the {len(near)} up to {NEAR} times larger, mean", near, "mean", 0.08),
        _line(f"all {len(found)}, mean", found, "mean", 0.18),
        _line(f"all {len(found)}, median", found, "median", 0.12),
        _line(f"the {len(many)} with three scales or more, mean", many, "mean", None),
    ]
    return Section(TITLE, TEXT, lines)


def _line(name: str, found: pd.DataFrame, statistic: str, bar: float | None) -> Line:
    figures = found.drop(columns=["n_scales", "ratio"]).agg(statistic, skipna=False).to_dict()
    return Line(name, figures.pop(OURS), bar, figures)
