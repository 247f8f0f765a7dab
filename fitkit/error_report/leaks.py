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
_EXACT = 12  # digits that no two runs share by chance
_WINDOWS = (1, 2, 3, 6, 12, 24)  # nearest runs, by which it is judged how densely they lie
_FEWEST = 3  # runs around, of fewer nothing is told
_AROUND = 24  # nearest runs that tell how other values vary
_MAX_PAIRS = 2_000  # agreeing pairs that are judged, those of most digits first
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
    in less than a hundredth of such reports. So a coarse clock proves nothing, while values of a
    dozen digits and more are never equal by chance.

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
    found = [copy for alike in _alike(runs[runs.run_id.notna()], present) for copy in alike.copies]
    return sorted(found)


def _alike(runs: pd.DataFrame, columns: Sequence[str]) -> Iterator[_Alike]:
    """Runs with as many rows as one another."""
    codes, names = pd.factorize(runs.run_id, sort=True)
    values = np.column_stack(
        [pd.to_numeric(runs[name], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
         for name in columns]
    )  # fmt: skip
    n_rows = np.bincount(codes, minlength=len(names))
    for n in np.unique(n_rows[n_rows > 0]):
        chosen = np.flatnonzero(n_rows == n)
        if len(chosen) < 2:
            continue
        own = np.isin(codes, chosen)
        order = np.argsort(codes[own], kind="stable")
        rows = np.nan_to_num(values[own][order]).reshape(len(chosen), n, len(columns))
        # The order of rows is no matter: the largest value of a column first.
        rows = -np.sort(-rows, axis=1).transpose(0, 2, 1).reshape(len(chosen), -1)
        yield _Alike.of([str(names[int(place)]) for place in chosen], rows, int(n))


class _Alike(NamedTuple):
    """Runs of as many rows, sorted by the total of the first column.

    Attributes
    ----------
    names
        The runs.
    values, rounding
        What was measured and what was rounded away from it, shape ``(runs, values)``.
    digits
        With which each value is written.
    n_rows
        Rows of each run.
    """

    names: list[str]
    values: np.ndarray
    rounding: np.ndarray
    digits: np.ndarray
    n_rows: int

    @classmethod
    def of(cls, names: list[str], values: np.ndarray, n_rows: int) -> _Alike:
        order = np.argsort(values[:, :n_rows].sum(axis=1), kind="stable")
        values = values[order]
        digits = np.vectorize(_significant_digits, otypes=[float])(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = np.floor(np.log10(np.abs(values)))
        rounding = np.nan_to_num(0.5 * 10.0 ** (exponent - digits + 1), posinf=0.0, neginf=0.0)
        return cls([names[place] for place in order], values, rounding, digits, n_rows)

    @property
    def copies(self) -> Iterator[Copy]:
        """Pairs that agree and would not by chance."""
        for one, other in self._agreeing():
            if self._by_chance(one, other) < _RARE:
                first, second = sorted([self.names[one], self.names[other]])
                yield Copy(first, second, SAME_FIGURES)

    def _agreeing(self) -> list[tuple[int, int]]:
        """Places of pairs all of whose values agree, those that tell most first."""
        total = self.values[:, : self.n_rows].sum(axis=1)
        margin = self.rounding[:, : self.n_rows].sum(axis=1)
        found: list[tuple[float, int, int]] = []
        for shift in range(1, min(_NEIGHBOURS, len(total) - 1) + 1):
            most = 2 * np.maximum(margin[:-shift], margin[shift:]) + 1e-14 * total[shift:]
            if not (total[shift:] - total[:-shift] <= most).any():
                break
            slack = np.maximum(self.rounding[:-shift], self.rounding[shift:])
            slack = slack * (1 + 1e-9) + 1e-14 * np.abs(self.values[:-shift])
            agree = (np.abs(self.values[:-shift] - self.values[shift:]) <= slack).all(axis=1)
            digits = np.minimum(self.digits[:-shift], self.digits[shift:]).max(axis=1)
            agree &= digits >= _MIN_DIGITS
            found += [(-digits[k], int(k), int(k) + shift) for k in np.flatnonzero(agree)]
        return [(one, other) for _, one, other in sorted(found)[:_MAX_PAIRS]]

    def _by_chance(self, one: int, other: int) -> float:
        """Pairs that agree as well, expected of as many unrelated runs.

        By how densely runs lie around the value that tells most; of other values, such as CPU time
        beside the wall clock, only what they do not follow from that one, and of the two that tell
        most: more are hardly independent.
        """
        both = [one, other]
        is_equal = np.array_equal(self.values[one], self.values[other])
        if is_equal and self.digits[one].max() >= _EXACT:
            return 0.0
        value = self.values[both].mean(axis=0)
        slack = self.rounding[both].max(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(value > 0, slack / value, np.inf)
        main = int(relative.argmin())
        others = np.delete(self.values, both, axis=0)
        away = np.abs(others[:, main] - value[main])
        usual = len(self.names) / (value[main] * math.log(10))
        density = max(_density(away), usual)
        chance = len(self.names) * slack[main] * density
        around = others[np.argsort(away, kind="stable")[:_AROUND]]
        shares = [
            self._share(around, value, slack, main, place)
            for place in range(len(value)) if place != main and value[place] > 0
        ]  # fmt: skip
        return float(chance * np.prod(sorted(shares)[:2]))

    def _share(
        self, around: np.ndarray, value: np.ndarray, slack: np.ndarray, main: int, place: int
    ) -> float:
        """Share of the runs around that agree in one more value, in proportion to the main one."""
        known = around[around[:, main] > 0]
        if len(known) < _FEWEST:
            return 1.0
        away = np.abs(known[:, place] / known[:, main] - value[place] / value[main])
        allowed = (slack[place] + slack[main] * value[place] / value[main]) / value[main]
        return float(min(2 * allowed * _density(away) / len(known), 1.0))


def _density(away: np.ndarray) -> float:
    """Most values for each unit around a place, by the nearest ones; how far each is away."""
    nearest = np.sort(away)
    with np.errstate(divide="ignore"):
        return max((n / (2 * nearest[n - 1]) for n in _WINDOWS if n <= len(nearest)), default=0.0)


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
