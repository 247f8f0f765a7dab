"""What whole runs were spent on, as seconds that add up."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.parts import PART_OF, TRAINING, moved, of_a_rank
from fitkit.diagnosis.selected import once
from fitkit.diagnosis.step_parts import seconds_by_part

_RANK = ["run_id", "rank"]
_RUN = "run"  # the parent of what nothing contains
_TOPS = (_RUN, "total", "train", "epoch", "search")  # what of these is a part, is one of the run
_STEPS = "steps"
_ROUNDING = 1e-9
_FAIR = 0.5  # share of the training that steps timed in phases must cover to divide it


def run_parts(dataset: Dataset) -> pd.DataFrame:
    """Seconds of each run, and of its parts, by ``run_id``; ranks are averaged.

    The whole is the phase ``total``; without one, what lies side by side in the run: its start, its
    training, its teardown. The training is the phase ``train``, else its epochs, else the steps
    that were timed. What its log times in it are parts. Steps that were timed phase by phase divide
    it if they cover half of it (fewer are no fair sample), and no further than they go: nothing is
    scaled up. ``training`` is what remains of the epochs, or of a training without them.

    Returns
    -------
    DataFrame
        ``whole_s``, and a column for each part, null where no log times it. Runs of which a log
        tells nothing but steps are not there.
    """
    phases = dataset.read("phases", [*_RANK, "phase", "parent", "step", "duration_s"])
    phases = phases[phases.duration_s.notna()].assign(parent=phases.parent.fillna(_RUN))
    n_ranks = phases.groupby("run_id")["rank"].nunique()
    in_step = phases.step.notna() | (phases.phase == "step") | (phases.parent == "step")
    lasting = phases[~in_step]
    told = pd.Index(told_runs(dataset), name="run_id")
    if told.empty:
        return pd.DataFrame(columns=["whole_s"])
    wholes = _wholes(dataset, lasting, n_ranks).reindex(told)
    parts = of_a_rank(moved(lasting, _TOPS), n_ranks).reindex(told)
    divided = _divided(phases[in_step], wholes.open_s, n_ranks).reindex(told)
    rest = wholes.open_s - divided.pop(_STEPS).fillna(0.0)
    # What rounding leaves is no part; nor is a sum of steps that exceeds what contains them.
    parts[TRAINING] = rest.where(rest > _ROUNDING * wholes.whole_s)
    parts = parts.add(divided, fill_value=0.0) if len(divided.columns) else parts
    return parts.assign(whole_s=wholes.whole_s)[wholes.whole_s > 0]


def told_runs(dataset: Dataset) -> list[str]:
    """Runs of which a log tells more than their steps: a total, a start, a training."""
    return once(dataset, "told runs", lambda: _told(dataset))


def _told(dataset: Dataset) -> list[str]:
    phases = dataset.read("phases", ["run_id", "phase", "parent", "step", "duration_s"])
    is_told = phases.parent.isna() & phases.step.isna() & (phases.phase != "step")
    return sorted(phases.run_id[is_told & phases.duration_s.notna()].unique())


def _wholes(dataset: Dataset, lasting: pd.DataFrame, n_ranks: pd.Series) -> pd.DataFrame:
    """``whole_s`` of each run, and ``open_s``: what its log divides no further but by steps."""
    is_top, is_part = lasting.parent == _RUN, lasting.phase.isin(list(PART_OF))
    chosen = {
        "total": is_top & (lasting.phase == "total"),
        "train": is_top & (lasting.phase == "train"),
        "epochs": (lasting.phase == "epoch") & lasting.parent.isin([_RUN, "total", "train"]),
        "beside": is_top & is_part,
        "in_train": (lasting.parent == "train") & is_part,
        "in_epochs": (lasting.parent == "epoch") & is_part,
    }
    rows = [lasting[mask].assign(part=name) for name, mask in chosen.items()]
    found = of_a_rank(pd.concat([*rows, _timed(dataset)]), n_ranks)
    found = found.reindex(columns=[*chosen, "steps"])
    trained = found.train.fillna(found.epochs).fillna(found.steps)
    inside = found[["in_train", "in_epochs"]].fillna(0.0)
    # Epochs that do not fit in beside evaluations contain them.
    rest = trained - inside.sum(axis="columns")
    opened = np.fmin(found.epochs - inside.in_epochs, rest)
    whole = found.total.fillna(trained.add(found.beside, fill_value=0.0))
    return pd.DataFrame({"whole_s": whole, "open_s": opened})


def _timed(dataset: Dataset) -> pd.DataFrame:
    steps = dataset.read("steps", [*_RANK, "duration_s"])
    return steps[steps.duration_s.notna()].assign(part="steps")


def _divided(rows: pd.DataFrame, opened: pd.Series, n_ranks: pd.Series) -> pd.DataFrame:
    """Parts of the steps of runs whose steps are a fair sample, and ``steps``: all of them."""
    each, summed = rows[rows.step.notna()], rows[rows.step.isna()]
    # A log may sum up the same steps that it times.
    summed = summed[~summed.run_id.isin(each.run_id.unique())]
    rows = pd.concat([each, summed])
    is_step = rows.phase == "step"
    parts = of_a_rank(seconds_by_part(rows[~is_step]), n_ranks)
    steps = of_a_rank(rows[is_step].assign(part=_STEPS), n_ranks).reindex(columns=[_STEPS])
    found = pd.concat([parts, steps], axis="columns")
    found[_STEPS] = found[_STEPS].fillna(parts.sum(axis="columns"))
    return found[found[_STEPS] >= _FAIR * opened.reindex(found.index)]
