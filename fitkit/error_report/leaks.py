"""Runs that are the same run under another name: held out and trained on at once, or repeated."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd

from fitkit.splits import Fold

COLUMNS = ["kind", "how", "run_id", "equals", "fold", "configuration"]
SAME_BYTES, SAME_FIGURES = "same bytes", "same figures"
_DIGITS = 15  # that a float holds
_MIN_DIGITS = 3  # of fewer, a value says nothing
_NEIGHBOURS = 20  # in the order of their times, that a run is compared with
_RARE = 0.01  # pairs of unrelated runs that chance may name in a report
_COARSE = 2  # values that three runs share, from which on the clock is too coarse to tell
_ALIKE = 1e-3  # difference of a phase that rounding may make
_SHOWN = 3
_WORDS = {
    "leak": "held out and trained on under another name",
    "copy": "counted as repetitions of what they are copies of, so the noise floor is too low",
}


class Copy(NamedTuple):
    """Two runs that are one."""

    one: str
    other: str
    how: str


# -- the same figures ----------------------------------------------------------------------


def same_figures(runs: pd.DataFrame, columns: Sequence[str]) -> list[Copy]:
    """Runs all of whose measured values agree within the rounding of the coarser one.

    Two unrelated runs agree by chance, the more so the fewer digits were written and the closer
    times lie: a pair counts where the runs around it, spread as they are, would give such a pair
    in less than a hundredth of such reports. Where several times are shared by three runs and
    more, the clock is too coarse to tell.

    Parameters
    ----------
    runs
        ``run_id`` and measured values, a row for each thing measured in a run.
    columns
        The measured ones; nulls count as such.
    """
    present = [name for name in columns if name in runs]
    if "run_id" not in runs or not present:
        return []
    sums = _Sums.of(runs[runs.run_id.notna()], present)
    n_runs = len(sums.names)
    if n_runs < 2 or sums.is_coarse:
        return []
    found = []
    for shift in range(1, min(_NEIGHBOURS, n_runs - 1) + 1):
        agree, near = sums.agree(shift)
        for place in np.flatnonzero(agree):
            one, other = sorted([sums.names[place], sums.names[place + shift]])
            found.append(Copy(one, other, SAME_FIGURES))
        if not near:
            break
    return found


class _Sums(NamedTuple):
    """Totals of the measured values of each run, sorted by the first of them.

    Attributes
    ----------
    names
        The runs.
    totals, rounding
        Seconds and what was rounded away from them, shape ``(runs, columns)``.
    is_told
        Whether any value of each run has digits enough to tell it from others.
    n_rows
        Rows of each run.
    """

    names: list[str]
    totals: np.ndarray
    rounding: np.ndarray
    is_told: np.ndarray
    n_rows: np.ndarray

    @classmethod
    def of(cls, runs: pd.DataFrame, columns: Sequence[str]) -> _Sums:
        codes, names = pd.factorize(runs.run_id, sort=True)
        values = np.column_stack(
            [pd.to_numeric(runs[name], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
             for name in columns]
        )  # fmt: skip
        digits = np.vectorize(_significant_digits, otypes=[float])(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = np.floor(np.log10(np.abs(values)))
        half = np.nan_to_num(0.5 * 10.0 ** (exponent - digits + 1), posinf=0.0, neginf=0.0)
        totals, rounding = (np.zeros((len(names), len(columns))) for _ in range(2))
        np.add.at(totals, codes, np.nan_to_num(values))
        np.add.at(rounding, codes, half)
        is_told = np.bincount(codes, (digits >= _MIN_DIGITS).any(axis=1), len(names)) > 0
        order = np.argsort(totals[:, 0], kind="stable")
        n_rows = np.bincount(codes, minlength=len(names))
        return cls(
            [str(names[place]) for place in order], totals[order], rounding[order],
            is_told[order], n_rows[order],
        )  # fmt: skip

    @property
    def is_coarse(self) -> bool:
        _, counts = np.unique(self.totals, axis=0, return_counts=True)
        return int((counts >= 3).sum()) >= _COARSE

    def agree(self, shift: int) -> tuple[np.ndarray, bool]:
        """Which runs agree with that so many places further on; whether farther ones might."""
        one, other = self.totals[:-shift], self.totals[shift:]
        slack = np.maximum(self.rounding[:-shift], self.rounding[shift:]) + 1e-14 * np.abs(one)
        near = np.abs(one - other) <= slack * (1 + 1e-9)
        same = near.all(axis=1) & (self.n_rows[:-shift] == self.n_rows[shift:])
        same &= self.is_told[:-shift] & self.is_told[shift:]
        for place in np.flatnonzero(same):
            same[place] = self.by_chance(int(place), slack[place]) < _RARE
        return same, bool(near[:, 0].any())

    def by_chance(self, place: int, slack: np.ndarray) -> float:
        """Pairs that agree within the slack, expected of as many unrelated runs.

        In each column values are taken to lie as densely everywhere as around that run, and no
        less so than spread over a factor of ten.
        """
        around = self.totals[max(place - _NEIGHBOURS, 0) : place + _NEIGHBOURS + 2]
        # The first column is sorted, so that its neighbours are the nearest; a pair has no order.
        usual = np.abs(self.totals[place]) * math.log(10)
        # Of two runs alone nothing tells how others would lie.
        spread = np.minimum(np.ptp(around, axis=0), usual) if len(around) > 2 else usual
        n_pairs = len(self.names) / 2 * (len(around) - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(usual > 0, np.minimum(2 * slack / spread, 1.0), 1.0)
        return float(n_pairs * np.prod(shares))


def _significant_digits(value: float) -> float:
    """Digits with which a float is written; 0 for null and zero."""
    if not math.isfinite(value) or value == 0:
        return 0.0
    mantissa = f"{abs(value):.{_DIGITS - 1}e}".split("e")[0]
    return float(len(mantissa.replace(".", "").rstrip("0")))


def not_contradicted(copies: Sequence[Copy], phases: pd.DataFrame) -> list[Copy]:
    """Pairs of the same figures that agree in whatever else was measured of both.

    Parameters
    ----------
    phases
        ``run_id, phase, parent, duration_s``: of two runs that are one, a phase that was timed in
        both took as long.
    """
    names = {name for copy in copies for name in (copy.one, copy.other)}
    parts = phases[phases.run_id.isin(names)]
    seconds = parts.groupby(["run_id", "phase", parts.parent.fillna("")]).duration_s.sum()
    by_run = {str(name): part.droplevel(0) for name, part in seconds.groupby(level=0)}
    kept = []
    for copy in copies:
        one, other = (by_run.get(name) for name in (copy.one, copy.other))
        if one is not None and other is not None:
            both = one.index.intersection(other.index)
            if not np.allclose(one[both], other[both], rtol=_ALIKE, atol=0):
                continue
        kept.append(copy)
    return kept


# -- the same bytes ------------------------------------------------------------------------


def same_bytes(runs: pd.DataFrame, sources: pd.DataFrame) -> list[Copy]:
    """Runs whose sources hold the same files under other names.

    Parameters
    ----------
    runs
        ``run_id, source_id``, a row for each run of a dataset.
    sources
        ``source_id, files``, the latter as `fitkit.records.SourceRow` has it.
    """
    content = {row.source_id: _contents(row.files) for row in sources.itertuples()}
    keys = runs.source_id.map(content)
    known = runs[keys.notna() & (keys != "")]
    found = []
    for _, same in known.groupby(keys[known.index], sort=True):
        by_source = [part.run_id.tolist() for _, part in same.groupby("source_id", sort=True)]
        for one, other in combinations(by_source, 2):
            # Runs of one source come in the order of its lines, whatever it is called; where its
            # name decides what is read, any may be any.
            alike = len(one) == len(other)
            pairs = zip(one, other, strict=True) if alike else product(one, other)
            found += [Copy(str(a), str(b), SAME_BYTES) for a, b in pairs if a != b]
    return found


def _contents(files: object) -> str:
    """Hashes of the files of a source, in an order that their names do not decide."""
    try:
        listed = json.loads(str(files))
        return "\n".join(sorted(str(entry[1]) for entry in listed))
    except (ValueError, TypeError, IndexError, KeyError):
        return ""


# -- what they mean for a split ------------------------------------------------------------


def split_leaks(
    copies: Sequence[Copy], configuration_of: Mapping[str, Sequence[int]], folds: Sequence[Fold]
) -> pd.DataFrame:
    """What copies do to a split.

    Parameters
    ----------
    configuration_of
        Configurations that each run belongs to.
    folds
        Masks over configurations.

    Returns
    -------
    DataFrame
        ``kind``: ``leak``, if ``run_id`` was held out while ``equals`` was trained on, or
        ``copy``, if both are taken for repetitions of one ``configuration``; ``how``; ``fold``.
    """
    found: dict[tuple[str, str], dict[str, object]] = {}
    for copy in copies:
        for row in _meaning(copy, configuration_of, folds):
            found.setdefault((str(row["run_id"]), str(row["equals"])), row)
    frame = pd.DataFrame([*found.values()], columns=COLUMNS)
    return frame.sort_values(["kind", "run_id", "equals"], ascending=[False, True, True],
                             ignore_index=True)  # fmt: skip


def _meaning(
    copy: Copy, configuration_of: Mapping[str, Sequence[int]], folds: Sequence[Fold]
) -> Iterator[dict[str, object]]:
    here = np.asarray(configuration_of.get(copy.one, ()), dtype=int)
    there = np.asarray(configuration_of.get(copy.other, ()), dtype=int)
    shared = np.intersect1d(here, there)
    if len(shared):
        yield {
            "kind": "copy", "how": copy.how, "run_id": copy.other, "equals": copy.one,
            "fold": "", "configuration": int(shared[0]),
        }  # fmt: skip
    for fold in folds:
        for one, other, own, foreign in (
            (copy.one, copy.other, here, there), (copy.other, copy.one, there, here),
        ):  # fmt: skip
            own, foreign = np.setdiff1d(own, shared), np.setdiff1d(foreign, shared)
            if fold.test[own].any() and fold.train[foreign].any():
                yield {
                    "kind": "leak", "how": copy.how, "run_id": one, "equals": other,
                    "fold": fold.label, "configuration": int(own[fold.test[own]][0]),
                }  # fmt: skip


def leak_notes(found: pd.DataFrame) -> list[str]:
    """Leaks and copies in words."""
    notes = []
    # That a model was fitted on a run of that name is said elsewhere.
    found = found[found["run_id"] != found["equals"]]
    for kind, what in _WORDS.items():
        rows = found[found.kind == kind]
        if rows.empty:
            continue
        named = [f"{row.run_id} is {row.equals} ({row.how})" for row in rows.itertuples()]
        more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
        n_runs = rows.run_id.nunique()
        subject = "1 run is" if n_runs == 1 else f"{n_runs} runs are"
        notes.append(f"{subject} {what}: {', '.join(named[:_SHOWN])}{more}")
    return notes
