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
_RARE = 1.0  # logarithm of how rarely reports of unrelated runs may name one
_COARSE = 2  # values that three runs share, from which on the clock is too coarse to tell
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

    Two unrelated runs agree by chance, the more so the fewer digits were written: a pair
    counts where so many digits agree that chance gives one in less than a tenth of such reports.
    Where several times are shared by three runs and more, the clock is too coarse to tell.

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
    needed = _RARE + math.log10(n_runs * (n_runs - 1) / 2)
    found = []
    for shift in range(1, min(_NEIGHBOURS, n_runs - 1) + 1):
        agree, near = sums.agree(shift, needed)
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
    digits
        Digits that are told by the values of each run, all together, but the first of each.
    n_rows
        Rows of each run.
    """

    names: list[str]
    totals: np.ndarray
    rounding: np.ndarray
    digits: np.ndarray
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
        told = np.where(digits >= _MIN_DIGITS, digits - 1, 0.0)
        totals, rounding = (np.zeros((len(names), len(columns))) for _ in range(2))
        np.add.at(totals, codes, np.nan_to_num(values))
        np.add.at(rounding, codes, half)
        evidence = np.bincount(codes, told.sum(axis=1), len(names))
        order = np.argsort(totals[:, 0], kind="stable")
        n_rows = np.bincount(codes, minlength=len(names))
        return cls(
            [str(names[place]) for place in order], totals[order], rounding[order],
            evidence[order], n_rows[order],
        )  # fmt: skip

    @property
    def is_coarse(self) -> bool:
        _, counts = np.unique(self.totals, axis=0, return_counts=True)
        return int((counts >= 3).sum()) >= _COARSE

    def agree(self, shift: int, needed: float) -> tuple[np.ndarray, bool]:
        """Which runs agree with that so many places further on; whether farther ones might."""
        one, other = self.totals[:-shift], self.totals[shift:]
        slack = np.maximum(self.rounding[:-shift], self.rounding[shift:]) + 1e-14 * np.abs(one)
        near = np.abs(one - other) <= slack * (1 + 1e-9)
        told = np.minimum(self.digits[:-shift], self.digits[shift:]) >= needed
        same = near.all(axis=1) & told & (self.n_rows[:-shift] == self.n_rows[shift:])
        return same, bool(near[:, 0].any())


def _significant_digits(value: float) -> float:
    """Digits with which a float is written; 0 for null and zero."""
    if not math.isfinite(value) or value == 0:
        return 0.0
    mantissa = f"{abs(value):.{_DIGITS - 1}e}".split("e")[0]
    return float(len(mantissa.replace(".", "").rstrip("0")))


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
