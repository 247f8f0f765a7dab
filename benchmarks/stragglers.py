"""How much slow steps among the training rows cost: the Sia and Pollux step times again."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from lines import Line, Section
from trials import ingest

import fitkit
from fitkit.features import pool_repeats
from fitkit.fitting import measurements

TITLE = "Stragglers among the training rows"
TEXT = """
`public_tables/sia_pollux`, four networks on aws, recipe `step`. Random 20 % of the configurations
are held out as above, seeds 0 to 4. Of the rows of the others, before repetitions are pooled, 10 %
at random take 1.5 to 4 times as long; three quarters of the configurations have a single row. The
held-out times stay as they were measured. A ratio is the mean error of the model fitted to the
disturbed rows by that of the model fitted to the rows as they were.
"""
ORDER = ["network", "n_nodes", "n_workers", "local_batch", "run_id"]
SEEDS = range(5)
SHARE, FACTORS = 0.1, (1.5, 4.0)
BAR = 1.3


def load(shared: Path, folder: Path) -> pd.DataFrame:
    """Rows of the four networks on aws with the number of their configuration, sorted."""
    dataset = ingest(shared / "public_tables/sia_pollux/all_points.csv", "sia_pollux", folder)
    found = measurements(dataset, "step", where='device == "aws"', statistic="median")
    rows = found.runs.assign(configuration=found.configuration)
    return rows.sort_values(ORDER, ignore_index=True)


def is_held_out(rows: pd.DataFrame, seed: int) -> np.ndarray:
    """Whether the configuration of a row is held out, shape ``(rows,)``."""
    held: list[int] = []
    for _, job in rows.groupby("network"):
        numbers = job.configuration.unique()
        held += numbers[np.random.RandomState(seed).rand(len(numbers)) < 0.2].tolist()
    return rows.configuration.isin(held).to_numpy()


def disturb(rows: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The rows, some of them slower."""
    draw = np.random.default_rng(seed)
    factor = np.where(draw.random(len(rows)) < SHARE, draw.uniform(*FACTORS, len(rows)), 1.0)
    return rows.assign(step_s=rows.step_s * factor)


def job_errors(train: pd.DataFrame, test: pd.DataFrame) -> pd.Series:
    """Mean error of each network on test configurations."""
    model = fitkit.fit(train, "step", statistic="median")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
        predicted = model.predict(test, allow_extrapolation=True).predicted_s
    error = (predicted / test.step_s - 1).abs().fillna(np.inf)
    return error.groupby(test.network).mean()


def measure(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean error of each network over the seeds: ``clean`` and ``disturbed``."""
    found = []
    for seed in SEEDS:
        held = is_held_out(rows, seed)
        train, test = rows[~held], rows[held].reset_index(drop=True)
        test = pool_repeats(test, test.configuration.to_numpy(), "step_s", "median")
        errors = {"clean": train, "disturbed": disturb(train, seed)}
        found.append(pd.DataFrame({name: job_errors(k, test) for name, k in errors.items()}))
    return pd.concat(found).groupby(level=0).mean()


def section(shared: Path, folder: Path) -> Section:
    """The ratio of the mean errors, and the errors themselves."""
    errors = measure(load(shared, folder))
    mean = errors.mean()
    lines = [
        Line("ratio of the mean errors", float(mean.disturbed / mean.clean), BAR),
        Line("ratio of the worst network", float((errors.disturbed / errors.clean).max()), BAR),
        Line("mean error, rows as they were", float(mean.clean)),
        Line("mean error, 10 % stragglers", float(mean.disturbed)),
    ]
    return Section(TITLE, TEXT, lines)


def main() -> None:
    """Print the table alone; the folder of shared data is the argument, or beside the project."""
    import sys
    import tempfile

    from lines import show

    shared = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "shared"
    with tempfile.TemporaryDirectory() as folder:
        show(section(shared, Path(folder)))


if __name__ == "__main__":
    main()
