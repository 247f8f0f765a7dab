"""Some runs of a dataset, read as if there were no others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from fitkit.conditions import parse_condition
from fitkit.dataset import Dataset
from fitkit.diagnosis.comparable import same_wholes, told_apart
from fitkit.errors import InputError
from fitkit.fitting import Measurements, measurements
from fitkit.schema import arrow_schema

T = TypeVar("T")


class SelectedRuns(Dataset):
    """The runs of a dataset that meet a condition, with what was measured in them.

    Tables are read once: a dataset that is written to meanwhile is seen as it was.

    Parameters
    ----------
    dataset
        Where the runs are.
    where
        Condition on the columns of the table ``runs``; every run without one.
    run_ids
        The runs, instead.

    Raises
    ------
    ValueError
        If the condition cannot be read, or names a column that runs do not have.
    """

    def __init__(
        self, dataset: Dataset, where: str | None = None, run_ids: Collection[str] | None = None
    ) -> None:
        super().__init__(dataset.path)
        self.run_ids = frozenset(run_ids if run_ids is not None else self._meeting(where))
        self._is_all = not where and run_ids is None
        self._columns: dict[tuple[str, str], pd.Series] = {}
        self._kept: dict[str, Any] = {}

    def _meeting(self, where: str | None) -> pd.Series:
        runs = super().read("runs")
        return (runs[parse_condition(where).mask(runs)] if where else runs).run_id

    def read(self, table: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read the rows of these runs; tables that know no runs are read whole."""
        names = list(arrow_schema(table).names if columns is None else columns)
        unread = [name for name in dict.fromkeys(names) if (table, name) not in self._columns]
        if unread or not names:
            frame = self._selected(table, unread)
            self._columns.update({(table, name): frame[name] for name in unread})
        # A copy of what was read: what a reader does to it is no matter to the next one.
        return pd.DataFrame({name: self._columns[table, name] for name in names}, copy=True)

    def _selected(self, table: str, columns: Sequence[str]) -> pd.DataFrame:
        if self._is_all or "run_id" not in arrow_schema(table).names:
            return super().read(table, columns)
        frame = super().read(table, list(dict.fromkeys([*columns, "run_id"])))
        return frame[frame.run_id.isin(self.run_ids)].reset_index(drop=True)

    def keep(self, found: Measurements) -> None:
        """Take measurements of these runs, by the median over steps, for what `measured` says."""
        apart = told_apart(found)
        name = found.recipe.name
        self._kept[_kept_name(name)] = same_wholes(apart, self) if name == "run" else apart

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """What is computed of these runs, once; who takes it leaves it as it is."""
        if name not in self._kept:
            self._kept[name] = compute()
        found: T = self._kept[name]
        return found


def select(dataset: Dataset, where: str | None = None) -> SelectedRuns:
    """`SelectedRuns`, of which there is at least one.

    Raises
    ------
    InputError
        If there is no dataset, or no run meets the condition.
    ValueError
        If the condition cannot be read.
    """
    path = dataset.path
    if not dataset.exists:
        raise InputError(f"{path}: no dataset here", "fitkit ingest LOGS -d DATASET makes one")
    if isinstance(dataset, SelectedRuns) and not where:
        runs = dataset
    else:
        runs = SelectedRuns(dataset, where)
    if not runs.run_ids and not where and len(dataset.read("jobs", ["job_id"])):
        hint = f"fitkit show {path} says where the time of jobs goes"
        raise InputError(f"{path}: there are jobs, but no training runs", hint)
    if not runs.run_ids:
        which = f"no run meets {where!r}" if where else "there are no runs"
        raise InputError(f"{path}: {which}", f"fitkit show {path} runs lists them")
    return runs


def once(data: Any, name: str, compute: Callable[[], T]) -> T:
    """What is computed of selected runs, once; of other data whenever it is asked for."""
    return data.once(name, compute) if isinstance(data, SelectedRuns) else compute()


def measured(
    data: Dataset | pd.DataFrame | Path | str, recipe: str, where: str | None = None
) -> Measurements:
    """`measurements` by the median over steps, of runs that may be compared with one another.

    Of selected runs those that they have.

    Raises
    ------
    FitError
        If no row is left.
    """

    def compute() -> Measurements:
        found = told_apart(measurements(data, recipe, where=where, statistic="median"))
        if recipe != "run" or isinstance(data, pd.DataFrame):
            return found
        return same_wholes(found, data if isinstance(data, Dataset) else Dataset(data))

    return compute() if where else once(data, _kept_name(recipe), compute)


def _kept_name(recipe: str) -> str:
    return f"measurements of {recipe}"
