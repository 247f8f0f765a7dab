"""Which runs may lie on one curve: of one kind, timed from the same start to the same end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.parts import START
from fitkit.fitting import Measurements
from fitkit.models.columns import keys, rows_by_key

# What recipes fit across, but what makes other steps of a network.
_APART = ("sync_method", "sequence_length", "gradient_bits")
_ENDS = ("total", "train", "epoch")


def told_apart(found: Measurements) -> Measurements:
    """Groups split by what else makes other steps, where it differs within one of them."""
    groups = list(found.recipe.groups)
    for name in _APART:
        if name in found.runs and name not in groups and _differs(found.runs, groups, name):
            groups.append(name)
    return replace(found, recipe=replace(found.recipe, groups=tuple(groups)))


def _differs(runs: pd.DataFrame, groups: list[str], name: str) -> bool:
    known = runs[runs[name].notna()]
    if name == "sync_method" and "n_workers" in known:
        # It follows from there being several workers: one alone belongs to the curve of the others.
        known = known[known.n_workers != 1]
    own = known[name].to_numpy()
    return any(len(set(own[rows])) > 1 for rows in rows_by_key(keys(known, groups)).values())


def same_wholes(found: Measurements, dataset: Dataset) -> Measurements:
    """Whole runs of each group that log the same parts of their time.

    A total, a start with the training behind it, a training alone, some steps: sums of other parts
    are other times. Of each group those stay that most runs log; of as many, the more complete.
    """
    if "run_id" not in found.runs:
        return found
    kinds = found.runs.run_id.map(_what_is_logged(dataset)).fillna(0).to_numpy(dtype=int)
    kept = np.zeros(len(kinds), dtype=bool)
    for rows in rows_by_key(keys(found.runs, found.recipe.groups)).values():
        counts = np.bincount(kinds[rows])
        kept[rows] = kinds[rows] == len(counts) - 1 - int(counts[::-1].argmax())
    if kept.all():
        return found
    said = (
        f"{len(kept) - kept.sum():.0f} of {len(kept)} runs log other parts of their time than most "
        "runs of their group: not compared with them"
    )
    return _rows(replace(found, notes=(*found.notes, said)), kept)


def _what_is_logged(dataset: Dataset) -> pd.Series:
    """How much of each run is logged, by ``run_id``: the more, the larger."""
    phases = dataset.read("phases", ["run_id", "phase", "parent", "step", "duration_s"])
    tops = phases[phases.step.isna() & phases.duration_s.notna()]
    of_run = tops[tops.parent.isna() | tops.parent.isin(_ENDS)]
    has_start = set(tops.run_id[tops.parent.isna() & tops.phase.isin(START)])
    has_training = set(of_run.run_id[of_run.phase.isin(["train", "epoch"])])
    has_total = set(tops.run_id[tops.parent.isna() & (tops.phase == "total")])
    names = dict.fromkeys(tops.run_id)
    amounts = [
        4 if name in has_total else 2 * (name in has_training) + (name in has_start)
        for name in names
    ]
    return pd.Series(amounts, index=[*names], dtype=int)


def _rows(found: Measurements, kept: np.ndarray) -> Measurements:
    """Some of the runs; the configurations stay, though some may have none left."""
    whole = np.isin(np.arange(len(found.pooled)), found.configuration[kept])
    runs = found.runs[kept].reset_index(drop=True)
    number = np.cumsum(whole) - 1
    return replace(
        found,
        runs=runs,
        configuration=number[found.configuration[kept]],
        pooled=found.pooled[whole].reset_index(drop=True),
    )
