"""What two training jobs on one GPU keep of their speed: the pairs that Gavel measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from lines import Line, Section
from trials import OURS, Trial, errors, ingest

TITLE = "Two jobs on one GPU, Gavel"
TEXT = """
`public_tables/gavel/colocated_pairs.csv`, recipe `shared`: the share of its speed that each job of
a pair keeps. Of the three GPUs of the table only k80 and p100 have pairs. In the order of the
file, the pairs of a GPU are held out where `RandomState(s).rand(n) < 0.3`, s = 0 to 4; both jobs
of a pair are on the same side. The additive model has an effect of the job and one of its
neighbour, on the logarithm of the share or on the share itself.
"""
TRIAL = Trial("shared", (), "n_workers", ("constant",))
RIDGE = 1e-3  # jobs and neighbours are told apart from the mean by so little


def section(shared: Path, folder: Path) -> Section:
    """All lines of the data set."""
    path = shared / "public_tables/gavel/colocated_pairs.csv"
    dataset = ingest(path, "gavel_pairs", folder)
    in_file = dataset.read("pairs", ["pair_id"]).pair_id.drop_duplicates()
    frame = TRIAL.frame(dataset)
    lines = []
    for device, rows in frame.groupby("device"):
        pairs = in_file[in_file.isin(rows.pair_id)].to_numpy()
        of_seed = [_seed_errors(rows, pairs, seed) for seed in range(5)]
        mean = pd.DataFrame(of_seed).mean(skipna=False).to_dict()
        name = f"{device}, 30 % of {len(pairs)} pairs out at random"
        lines.append(Line(name, mean.pop(OURS), 0.05, mean))
    return Section(TITLE, TEXT, lines)


def _seed_errors(rows: pd.DataFrame, pairs: np.ndarray, seed: int) -> pd.Series:
    held = rows.pair_id.isin(pairs[np.random.RandomState(seed).rand(len(pairs)) < 0.3])
    train, test = rows[~held], rows[held]
    predicted = TRIAL.predict(train, test).assign(
        additive_logarithm=np.exp(additive(train, test, np.log(train[TRIAL.target]))),
        additive=additive(train, test, train[TRIAL.target]),
    )
    return errors(predicted, test[TRIAL.target]).mean(skipna=False)


def additive(train: pd.DataFrame, test: pd.DataFrame, values: pd.Series) -> np.ndarray:
    """An effect of each job and of each neighbour, by least squares with a weak ridge."""
    jobs = sorted({*train.job, *train.neighbour})

    def design(rows: pd.DataFrame) -> np.ndarray:
        columns = [rows[name].to_numpy()[:, None] == jobs for name in ("job", "neighbour")]
        return np.hstack([np.ones((len(rows), 1)), *columns])

    known = design(train)
    penalty = RIDGE * np.diag([0.0] + [1.0] * (known.shape[1] - 1))
    effects = np.linalg.solve(known.T @ known + penalty, known.T @ values.to_numpy())
    return np.asarray(design(test) @ effects)
