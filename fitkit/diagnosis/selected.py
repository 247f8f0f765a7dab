"""Some runs of a dataset, read as if there were no others."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fitkit.conditions import parse_condition
from fitkit.dataset import Dataset
from fitkit.schema import arrow_schema


class SelectedRuns(Dataset):
    """The runs of a dataset that meet a condition, with what was measured in them.

    Parameters
    ----------
    dataset
        Where the runs are.
    where
        Condition on the columns of the table ``runs``; every run without one.

    Raises
    ------
    ValueError
        If the condition cannot be read, or names a column that runs do not have.
    """

    def __init__(self, dataset: Dataset, where: str | None = None) -> None:
        super().__init__(dataset.path)
        runs = super().read("runs")
        if where:
            runs = runs[parse_condition(where).mask(runs)]
        self.run_ids = frozenset(runs.run_id)
        self._is_all = not where

    def read(self, table: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read the rows of these runs; tables that know no runs are read whole."""
        if self._is_all or "run_id" not in arrow_schema(table).names:
            return super().read(table, columns)
        named = None if columns is None else list(dict.fromkeys([*columns, "run_id"]))
        frame = super().read(table, named)
        chosen = frame[frame.run_id.isin(self.run_ids)].reset_index(drop=True)
        return chosen if columns is None else chosen[list(columns)]
