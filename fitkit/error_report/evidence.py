"""What is known of the runs behind a report, besides what the model is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.error_report.accounts import COLUMNS as ACCOUNTS
from fitkit.error_report.accounts import time_accounts
from fitkit.error_report.leaks import (
    COLUMNS,
    Copy,
    not_contradicted,
    same_bytes,
    same_figures,
    split_leaks,
)
from fitkit.error_report.provenance import provenance
from fitkit.features import noise_of_steps, timed_steps
from fitkit.models.columns import key_text
from fitkit.splits import Fold

SAME_RUN = "same run"
_FACTS = ["run_id", "framework_version", "build"]


def _nothing(_run_ids: Sequence[str]) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True)
class Evidence:
    """What is known of the runs behind a report.

    Attributes
    ----------
    runs
        A row for each run and thing measured, with all that is known of it.
    configuration
        Number of the configuration of each row of ``runs``.
    target
        Column of the measured time.
    words
        Columns that tell classes apart: network, device, kind of layer.
    folds
        What was held out from what, masks over configurations; none for a model that was fitted
        elsewhere.
    dataset
        Where they come from, if it is a dataset.
    straggling
        Says of some runs which share of their time straggling steps cost, if it is their sum.
    """

    runs: pd.DataFrame
    configuration: np.ndarray
    target: str
    words: Sequence[str] = ()
    folds: Sequence[Fold] = ()
    dataset: Dataset | None = None
    straggling: Callable[[Sequence[str]], Mapping[str, float]] = _nothing

    @classmethod
    def gather(
        cls, runs: pd.DataFrame, configuration: np.ndarray, target: str, names: Sequence[str], *,
        folds: Sequence[Fold] = (), data: Dataset | pd.DataFrame | Path | str | None = None,
        is_sum: bool = False,
    ) -> Evidence:  # fmt: skip
        """Add what a dataset knows of the runs.

        Parameters
        ----------
        data
            Where the runs come from; only a dataset, or its folder, knows more of them.
        names
            Columns that name a configuration.
        is_sum
            Whether the measured time is a sum or a mean over steps, to which stragglers add.
        """
        words = [n for n in names if n in runs and not pd.api.types.is_numeric_dtype(runs[n])]
        dataset = Dataset(data) if isinstance(data, Path | str) else data
        if not isinstance(dataset, Dataset) or "run_id" not in runs:
            return cls(runs, configuration, target, words, folds)
        facts = dataset.read("runs", _FACTS).drop_duplicates("run_id").set_index("run_id")
        more = {name: runs.run_id.map(facts[name]) for name in _FACTS[1:] if name not in runs}
        straggling = (lambda run_ids: straggler_costs(dataset, run_ids)) if is_sum else _nothing
        return cls(runs.assign(**more), configuration, target, words, folds, dataset, straggling)

    @property
    def accounts(self) -> pd.DataFrame:
        """What phases and layers leave of the wholes that a dataset knows, see `time_accounts`."""
        if self.dataset is None:
            return pd.DataFrame(columns=ACCOUNTS)
        return time_accounts(self.dataset, self.runs.run_id.unique().tolist())

    @property
    def starts(self) -> pd.Series:
        """Mean start of the runs of each configuration; null where no run of it knows one."""
        starts = self.runs.get("started_at", pd.Series(pd.NaT, self.runs.index))
        times = pd.to_datetime(starts, utc=True, errors="coerce", format="mixed")
        by_configuration = times.reset_index(drop=True).groupby(self.configuration)
        found: pd.Series = by_configuration.mean()
        return found

    @property
    def provenance(self) -> dict[str, pd.DataFrame]:
        """Sources, versions and diagnostics behind the runs."""
        known = self.dataset is not None and "run_id" in self.runs
        return provenance(self.dataset, self.runs.run_id.unique().tolist() if known else [])

    def find_leaks(
        self, measured: Sequence[str], trained: Mapping[str, float] | None = None
    ) -> pd.DataFrame:
        """Runs that are the same run under another name, see `split_leaks`.

        Parameters
        ----------
        measured
            Columns of measured values.
        trained
            Runs that a model was fitted on elsewhere, and the measured total of each; NaN where
            it is not known.
        """
        if "run_id" not in self.runs:
            return pd.DataFrame(columns=COLUMNS)
        runs = self.runs.assign(run_id=self.runs.run_id.map(key_text, na_action="ignore"))
        copies = same_figures(runs, measured)
        if self.dataset is not None:
            phases = self.dataset.read("phases", ["run_id", "phase", "parent", "duration_s"])
            copies = not_contradicted(copies, phases)
            sources = self.dataset.read("sources", ["source_id", "files"])
            of_source = self.dataset.read("runs", ["run_id", "source_id"])
            copies = same_bytes(of_source, sources) + copies
        named = runs.run_id.isin({name for copy in copies for name in (copy.one, copy.other)})
        by_run = pd.Series(self.configuration[named]).groupby(runs.run_id[named].to_numpy())
        of_run = {str(name): numbers.unique().tolist() for name, numbers in by_run}
        found = split_leaks(copies, of_run, self.folds)
        if not trained:
            return found
        return pd.concat([found, self._seen(runs, trained)], ignore_index=True)

    def _seen(self, runs: pd.DataFrame, trained: Mapping[str, float]) -> pd.DataFrame:
        """Runs that a model was fitted on, under their own name or another."""
        totals = runs.groupby("run_id")[self.target].sum()
        own = [Copy(name, name, SAME_RUN) for name in totals.index if name in trained]
        known = {name: s for name, s in trained.items() if name not in totals and np.isfinite(s)}
        both = pd.concat([totals, pd.Series(known, dtype=float)])
        frame = pd.DataFrame({"run_id": both.index, "seconds": both.to_numpy()})
        pairs = same_figures(frame, ["seconds"])
        ordered = [pair if pair.one in totals else Copy(pair.other, pair.one, pair.how)
                   for pair in pairs]  # fmt: skip
        others = [pair for pair in ordered if pair.one in totals and pair.other in known]
        rows = [("leak", pair.how, pair.one, pair.other, "", None) for pair in [*own, *others]]
        return pd.DataFrame(rows, columns=COLUMNS)


def straggler_costs(dataset: Dataset, run_ids: Sequence[str]) -> dict[str, float]:
    """Share that straggling steps add to the time of some runs."""
    steps = timed_steps(dataset)
    steps = steps[steps.run_id.isin(list(run_ids))].reset_index(drop=True)
    if steps.empty:
        return {}
    noise = noise_of_steps(steps)
    steady = steps.step_s * steps.n_steps
    usual = steady / (1 + noise.excess.fillna(0.0))
    added = (steady - usual).groupby(steps.run_id).sum() / usual.groupby(steps.run_id).sum()
    return {str(name): float(cost) for name, cost in added.items()}
