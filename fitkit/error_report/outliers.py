"""The runs with the largest errors, and what is likely to be the reason of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fitkit.display import format_share
from fitkit.drift import drift_test
from fitkit.error_report.evidence import Evidence
from fitkit.models.columns import is_null, key_text
from fitkit.models.domain import STAMP

N_WORST = 10
NO_REASON = "none found"
COLUMNS = [
    "run_id", "fold", "group", "n", "measured_s", "predicted_s", "error", "reason", "reasons",
]  # fmt: skip
_SOFTWARE = ("framework", "framework_version", "build", "precision", "instrument")
_PART = 0.5  # of the error that a reason has to account for
_MOST = 0.8  # of the rows, of whom what they have in common sets none apart
_MUCH = 3.0  # times the usual difference of two repetitions


def run_totals(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Each run's measured total of the held-out rows beside the predicted one.

    Parameters
    ----------
    rows
        Held-out rows of a report, indexed by the number of their configuration.

    Returns
    -------
    DataFrame
        ``run_id, n, measured_s, predicted_s, error`` of the totals, ``mape`` over the rows.
    """
    names = ["run_id", "n", "measured_s", "predicted_s", "error", "mape"]
    each = _each_run(rows, evidence)
    if each.empty:
        return pd.DataFrame(columns=names)
    each["mape"] = (each.predicted_s / each.measured_s - 1).abs()
    by_run = each.groupby("run_id")
    totals = by_run[["measured_s", "predicted_s"]].sum()
    totals = totals.assign(n=by_run.size(), mape=by_run.mape.mean())
    totals["error"] = totals.predicted_s / totals.measured_s - 1
    return totals.reset_index()[names]


def _each_run(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows of the runs behind the held-out rows that have a prediction."""
    runs = evidence.runs
    if "run_id" not in runs:
        return pd.DataFrame()
    predicted = rows.predicted_s.reindex(evidence.configuration).to_numpy(dtype=float)
    each = pd.DataFrame(
        {
            "run_id": runs.run_id.to_numpy(),
            "measured_s": runs[evidence.target].to_numpy(dtype=float),
            "predicted_s": predicted,
            "configuration": evidence.configuration,
        }
    )
    return each[np.isfinite(predicted) & runs.run_id.notna().to_numpy()]


def worst_runs(rows: pd.DataFrame, evidence: Evidence, n_worst: int = N_WORST) -> pd.DataFrame:
    """Runs whose total is predicted worst, by the logarithm of the ratio, with likely reasons.

    Where runs have no names, it is the rows that stand for them.

    Returns
    -------
    DataFrame
        ``run_id, fold, group, n, measured_s, predicted_s, error``; ``reason``, the first that
        applies, and ``reasons``, all of them.
    """
    each = _each_run(rows, evidence)
    if each.empty:
        known = rows[rows.predicted_s.notna()]
        each = known[["measured_s", "predicted_s"]].assign(
            run_id=[f"row {number}" for number in known.index], configuration=known.index
        )
    totals = each.groupby("run_id", sort=True)[["measured_s", "predicted_s"]].sum()
    with np.errstate(divide="ignore"):
        distance = np.abs(np.log((totals.predicted_s / totals.measured_s).to_numpy()))
    names = totals.index[np.argsort(-distance, kind="stable")[:n_worst]]
    usual = float(rows.repeat_difference.median()) if "repeat_difference" in rows else math.nan
    costs = evidence.straggling([str(name) for name in names])
    found = []
    for name in names:
        own = each[each.run_id == name]
        cost = costs.get(str(name), 0.0)
        case = _Case(str(name), own, rows.loc[own.configuration], rows, evidence, usual, cost)
        found.append(case.row())
    return pd.DataFrame(found, columns=COLUMNS)


@dataclass(frozen=True)
class _Case:
    """One run that was predicted badly."""

    run_id: str
    own: pd.DataFrame
    rows: pd.DataFrame
    held_out: pd.DataFrame
    evidence: Evidence
    usual: float
    straggling: float

    def row(self) -> dict[str, Any]:
        measured, predicted = self.own.measured_s.sum(), self.own.predicted_s.sum()
        reasons = list(self._reasons()) or [NO_REASON]
        return {
            "run_id": self.run_id,
            "fold": str(self.rows.fold.iloc[0]) if "fold" in self.rows else "",
            "group": str(self.rows.group.iloc[0]) if "group" in self.rows else "",
            "n": len(self.own),
            "measured_s": measured,
            "predicted_s": predicted,
            "error": predicted / measured - 1,
            "reason": reasons[0],
            "reasons": reasons,
        }

    @property
    def _residual(self) -> float:
        """Log of measured by predicted: above zero the run took longer than predicted."""
        predicted = self.own.predicted_s.sum()
        return math.log(self.own.measured_s.sum() / predicted) if predicted > 0 else math.inf

    def _reasons(self) -> Iterator[str]:
        for reason in (self._straggler, self._unseen, self._software, self._outside, self._drift):
            said = reason()
            if said:
                yield said

    def _explains(self, effect: float) -> bool:
        """Whether an effect on the logarithm of the time accounts for half of the error."""
        residual = self._residual
        return effect * residual > 0 and abs(effect) >= _PART * abs(residual)

    def _straggler(self) -> str:
        usual, n = self._repetitions()
        off = math.log(self.own.measured_s.sum() / usual) if usual > 0 else 0.0
        if abs(off) > math.log1p(_MUCH * self.usual) and self._explains(off):
            times = f"than its {n} other repetitions" if n > 1 else "than its repetition"
            if off > 0:
                return f"straggler: {format_share(math.expm1(off))} longer {times}"
            return f"unlike its repetitions: {format_share(-math.expm1(off))} shorter {times}"
        if self.straggling > 0 and self._explains(math.log1p(self.straggling)):
            return f"straggler: slow steps add {format_share(self.straggling)} to its time"
        return ""

    def _repetitions(self) -> tuple[float, int]:
        """What the run's other repetitions took, and how many there are; 0 if there are none.

        The pooled time is no measure: of two repetitions it lies half-way to either.
        """
        runs = self.evidence.runs
        if "run_id" not in runs:
            return 0.0, 0
        alike = np.isin(self.evidence.configuration, self.own.configuration)
        alike &= (runs.run_id != self.run_id).to_numpy(dtype=bool, na_value=False)
        times = runs[self.evidence.target].astype(float)[alike]
        by_configuration = times.groupby(self.evidence.configuration[alike])
        if by_configuration.ngroups < self.own.configuration.nunique():
            return 0.0, 0
        return float(by_configuration.median().sum()), int(by_configuration.size().min())

    def _trained(self) -> pd.DataFrame | None:
        """Rows of the runs that the fit of its fold had seen."""
        label = str(self.rows.fold.iloc[0]) if "fold" in self.rows else ""
        folds = [fold for fold in self.evidence.folds if fold.label == label]
        if not folds:
            return None
        return self.evidence.runs[folds[0].train[self.evidence.configuration]]

    def _new_values(self, names: Sequence[str]) -> list[str]:
        trained, mine = self._trained(), self.evidence.runs
        if trained is None:
            return []
        mine = mine[np.isin(self.evidence.configuration, self.own.configuration)]
        if "run_id" in mine and not self.run_id.startswith("row "):
            mine = mine[mine.run_id == self.run_id]
        said = []
        for name in (name for name in dict.fromkeys(names) if name in mine):
            seen = {key_text(value) for value in trained[name].dropna().unique()}
            new = [key_text(v) for v in mine[name].dropna().unique() if key_text(v) not in seen]
            if new and seen:
                others = ", ".join(sorted(seen)[:3]) + (" …" if len(seen) > 3 else "")
                said.append(f"{name} {new[0]}, fitted to {others}")
        return said

    def _unseen(self) -> str:
        classes = [name for name in self.evidence.words if name not in _SOFTWARE]
        said = self._new_values(classes)
        return f"unseen class: {said[0]}" if said else ""

    def _software(self) -> str:
        said = self._new_values(_SOFTWARE)
        return f"different software: {said[0]}" if said else ""

    def _outside(self) -> str:
        if "status" not in self.rows:
            return ""
        far = self.rows[self.rows.status == "extrapolated"]
        if far.empty:
            return ""
        reason = far.reason.iloc[0] if "reason" in far else ""
        if not reason or is_null(reason):
            return f"outside the box{self._as_others()}"
        said = str(reason).removeprefix(STAMP).split("; no interval")[0]
        return f"outside the box: {said}{self._as_others()}"

    def _as_others(self) -> str:
        """That most held-out rows lie outside: then it sets no run apart."""
        far = self.held_out.status == "extrapolated"
        return f" (as {far.sum()} of {len(far)} rows are)" if far.mean() > _MOST else ""

    def _drift(self) -> str:
        starts, runs = start_times(self.evidence.runs), self.evidence.runs
        if "group" not in self.rows or not np.isfinite(starts).any():
            return ""
        alike = self._alike()
        found = drift_test(
            starts[alike],
            runs[self.evidence.target].to_numpy(dtype=float)[alike],
            self.evidence.configuration[alike],
        )
        if not found.is_flagged or not found.drift > -1:
            return ""
        mine = alike & (runs.run_id == self.run_id).to_numpy() if "run_id" in runs else alike
        known = starts[alike][np.isfinite(starts[alike])]
        if not np.isfinite(starts[mine]).any():
            return ""
        place = (np.nanmean(starts[mine]) - known.mean()) / np.ptp(known)
        if not self._explains(place * math.log1p(found.drift)):
            return ""
        change = format_share(found.drift, signed=True)
        return f"drift: times changed by {change} from the first run to the last"

    def _alike(self) -> np.ndarray:
        """Whether each row of the runs is of a group of the run, by what tells groups apart."""
        runs = self.evidence.runs
        alike = np.ones(len(runs), dtype=bool)
        for name in (name for name in self.evidence.words if name in runs):
            if name in self.rows:
                alike &= runs[name].isin(self.rows[name].unique()).to_numpy()
        return alike


def start_times(runs: pd.DataFrame) -> np.ndarray:
    """Start of each row's run in seconds, or its place in the order; NaN where nobody says it."""
    if "started_at" in runs and runs.started_at.notna().any():
        starts = pd.to_datetime(runs.started_at, utc=True, errors="coerce")
        seconds = (starts - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        return seconds.to_numpy(dtype=float, na_value=np.nan)
    if "run_order" in runs:
        order = pd.to_numeric(runs.run_order, errors="coerce")
        return order.to_numpy(dtype=float, na_value=np.nan)
    return np.full(len(runs), np.nan)
