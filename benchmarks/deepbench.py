"""All-reduce between up to 32 chips of one kind: DeepBench's published times."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from lines import Line, Section
from trials import OURS, Trial, errors, ingest

TITLE = "All-reduce at more ranks, DeepBench"
TEXT = """
`public_tables/deepbench/allreduce.csv`, recipe `comms`. Of each GPU the rows of 2 to 8 ranks and
three sizes at 16 ranks (100,000, 6,553,600 and 64,500,000 floats) are trained on, the other sizes
at 16 ranks and all at 32 predicted. Of the KNL the rows of 2 to 8 ranks are trained on, those of
16 and 32 predicted. Each chip on its own.
"""
GIVEN_FLOATS = (100_000, 6_553_600, 64_500_000)
MANYCORE = "IA_KNL7250"
TRIAL = Trial(
    "comms",
    ("n_ranks", "n_bytes"),
    "n_bytes",
    ("constant", "nearest_configuration", "perfect_scaling", "gradient_boosting", "normal_form"),
)


def load(shared: Path, folder: Path) -> pd.DataFrame:
    """All rows of all chips."""
    path = shared / "public_tables/deepbench/allreduce.csv"
    return TRIAL.frame(ingest(path, "deepbench_allreduce", folder))


def section(shared: Path, folder: Path) -> Section:
    """All lines of the data set."""
    frame = load(shared, folder)
    is_given = (frame.n_ranks == 16) & frame.n_bytes.isin([4 * n for n in GIVEN_FLOATS])
    known = (frame.n_ranks <= 8) | (is_given & (frame.device != MANYCORE))
    test = frame[~known]
    found = errors(TRIAL.predict(frame[known], test, "scale-up"), test.duration_s)
    chips = found.groupby(test.device).mean()
    gpus = chips.drop(MANYCORE)
    lines = [_line("GPUs, mean over the chips", gpus.mean(), 0.14)]
    lines += [_line(str(chip), figures, None) for chip, figures in gpus.iterrows()]
    lines.append(_line(MANYCORE, chips.loc[MANYCORE], 0.12))
    return Section(TITLE, TEXT, lines)


def _line(name: str, found: pd.Series, bar: float | None) -> Line:
    figures = found.to_dict()
    return Line(name, figures.pop(OURS), bar, figures)
