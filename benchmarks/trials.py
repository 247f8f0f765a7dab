"""From a published table to predictions of the rows that were held out, all by the public path."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

import fitkit
from fitkit.features import FRAMES
from fitkit.fitting import measurements
from fitkit.ingestion import Options
from fitkit.models.baselines import BASELINES
from fitkit.models.columns import keys, rows_by_key
from fitkit.models.recipes import RECIPES
from fitkit.models.selection import Question

MAPPINGS = Path(__file__).parent / "mappings"
OURS = "fitkit"


def ingest(paths: Path | str | Sequence[Path], mapping: str, folder: Path) -> fitkit.Dataset:
    """A dataset of a published table, as a file of ``benchmarks/mappings`` reads it."""
    options = Options(mapping=MAPPINGS / f"{mapping}.toml")
    return fitkit.ingest(paths, folder / mapping, options=options)


@dataclass(frozen=True)
class Trial:
    """A shipped recipe and the baselines, ready to be fitted to some rows and asked for others.

    Attributes
    ----------
    recipe
        Its name.
    features
        Columns that the baselines read as numbers.
    work
        Column that perfect scaling takes the time to be in proportion to.
    baselines
        Names of those that are asked.
    """

    recipe: str
    features: Sequence[str]
    work: str
    baselines: Sequence[str] = tuple(BASELINES)

    @property
    def target(self) -> str:
        """Column of the measured time."""
        return RECIPES[self.recipe].target

    def frame(self, dataset: fitkit.Dataset) -> pd.DataFrame:
        """A row for each run and thing measured in it."""
        return FRAMES[self.recipe](dataset, "median")

    def pool(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A row for each configuration, its repetitions pooled by the median."""
        return measurements(frame, self.recipe, statistic="median").pooled

    def predict(
        self, train: pd.DataFrame, test: pd.DataFrame, question: Question = "interpolation"
    ) -> pd.DataFrame:
        """Predicted time of each test row: a column for fitkit and one for each baseline."""
        model = fitkit.fit(train, self.recipe, question=question, statistic="median")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # asked for here
            ours = model.predict(test, allow_extrapolation=True).predicted_s
        return pd.DataFrame({OURS: ours, **self._guesses(train, test)}, index=test.index)

    def _guesses(self, train: pd.DataFrame, test: pd.DataFrame) -> dict[str, np.ndarray]:
        """Predictions of each baseline, fitted to each group of the recipe on its own."""
        models = {name: BASELINES[name].over(self.features) for name in self.baselines}
        seconds = {name: np.full(len(test), np.nan) for name, model in models.items() if model}
        recipe = RECIPES[self.recipe]
        rows_of, rows_asked = (
            rows_by_key(keys(recipe.prepare(rows), recipe.groups)) for rows in (train, test)
        )
        for key, asked in rows_asked.items():
            if key not in rows_of:
                continue
            known = train.iloc[rows_of[key]]
            for name, found in seconds.items():
                model = models[name].fit(self._columns(known), known[self.target])
                found[asked] = model.predict(self._columns(test.iloc[asked]))
        return seconds

    def _columns(self, rows: pd.DataFrame) -> SimpleNamespace:
        columns = {name: rows[name].to_numpy(dtype=float) for name in self.features}
        return SimpleNamespace(**columns, work=rows[self.work].to_numpy(dtype=float))


def errors(predicted: pd.DataFrame, measured: pd.Series) -> pd.DataFrame:
    """Absolute errors of each prediction as a share of what was measured.

    Where fitkit refuses to answer its error is infinite: refusing may not make it look better.
    """
    found = predicted.div(measured, axis=0).sub(1).abs()
    return found.fillna({OURS: np.inf})
