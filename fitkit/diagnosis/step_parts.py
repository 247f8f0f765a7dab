"""What the steps of each run were spent on, as mean seconds that add up."""

from __future__ import annotations

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.parts import COMMUNICATION, COMPUTE, IO, TRAINING, WAIT, moved, of_a_rank
from fitkit.diagnosis.selected import once
from fitkit.features import noise_of_steps, timed_steps
from fitkit.features.steps import left_out

_RANK = ["run_id", "rank"]
_STEP = [*_RANK, "step"]
# A device computes although it communicates meanwhile; a launch gap waits for the host.
_DEVICE = {
    "compute": COMPUTE, "overlap": COMPUTE, "comm": COMMUNICATION, "copy": IO, "idle": WAIT,
    "launch_gap": WAIT,
}  # fmt: skip


def step_parts(dataset: Dataset) -> pd.DataFrame:
    """Mean seconds of the step of each run, and of its parts, by ``run_id``.

    Means over steps, since medians do not add up; over those that were timed phase by phase, but
    for disturbed ones and warm-up. Stragglers count, for their time was spent. Ranks are averaged.
    Summaries over the steps are taken as they are. Where devices were traced, their time counts:
    computing, communication that nothing hides, copies as I/O, and waiting for the host, which is
    for I/O as far as the host reads in a step.

    Returns
    -------
    DataFrame
        ``whole_s``, and a column for each part, null where no log times it. Where no log times the
        computing of a step, ``training`` is what its other parts leave.
    """
    return once(dataset, "step parts", lambda: _step_parts(dataset))


def _step_parts(dataset: Dataset) -> pd.DataFrame:
    rows, steps = _phases(dataset), _steps(dataset)
    each = _undisturbed(dataset, rows[rows.step.notna()])
    each, counts, wholes = _kept(each, steps)
    n = counts.reindex(pd.MultiIndex.from_frame(each[_RANK])).to_numpy()
    each = seconds_by_part(each.assign(duration_s=each.duration_s / n))
    summaries = rows[rows.step.isna()]
    summaries = summaries[~pd.MultiIndex.from_frame(summaries[_RANK]).isin(counts.index)]
    parts, means = _of_summaries(summaries, steps)
    wholes = pd.concat([wholes, means])
    n_ranks = wholes.groupby("run_id")["rank"].nunique()
    found = of_a_rank(pd.concat([each, parts]), n_ranks)
    whole = of_a_rank(wholes.assign(part="whole_s"), n_ranks)
    return _completed(pd.concat([found, whole], axis="columns"))


def seconds_by_part(each: pd.DataFrame) -> pd.DataFrame:
    """Seconds of the parts of steps on each rank: ``run_id, rank, part, duration_s``.

    Parameters
    ----------
    each
        ``run_id, rank, phase, parent, duration_s`` of phases inside of steps.
    """
    is_device = each.parent == "device"
    found = moved(each[~is_device], ["step"])
    if is_device.any():
        device = each[is_device].assign(part=each.phase.map(_DEVICE)).dropna(subset="part")
        ranks = pd.MultiIndex.from_frame(device[_RANK]).unique()
        is_traced = pd.MultiIndex.from_frame(found[_RANK]).isin(ranks)
        found = pd.concat([found[~is_traced], device, _fed(device, found[is_traced])])
    return found.groupby([*_RANK, "part"]).duration_s.sum().reset_index()


def _fed(device: pd.DataFrame, host: pd.DataFrame) -> pd.DataFrame:
    """What to move from waiting to I/O: a device waits for it as long as its host reads."""
    waits = device[device.part == WAIT].groupby(_RANK).duration_s.sum()
    reads = host[host.part == IO].groupby(_RANK).duration_s.sum()
    fed = waits.clip(upper=reads.reindex(waits.index).fillna(0.0)).reset_index()
    return pd.concat([fed.assign(part=IO), fed.assign(part=WAIT, duration_s=-fed.duration_s)])


def _completed(parts: pd.DataFrame) -> pd.DataFrame:
    """With the whole where phases alone are known, and with what is not divided further."""
    if parts.empty:
        return pd.DataFrame(columns=["whole_s"])
    told = parts.drop(columns="whole_s", errors="ignore").sum(axis="columns", min_count=1)
    parts = parts.assign(whole_s=parts.get("whole_s", told).fillna(told))
    is_timed = parts.reindex(columns=[COMPUTE])[COMPUTE].notna()
    parts[TRAINING] = (parts.whole_s - told.fillna(0.0)).mask(is_timed)
    return parts[parts.whole_s > 0]


def _phases(dataset: Dataset) -> pd.DataFrame:
    """Phases inside of steps, and the steps themselves."""
    phases = dataset.read("phases", [*_STEP, "phase", "parent", "duration_s", "n"])
    inside = phases.step.notna() | (phases.phase == "step") | (phases.parent == "step")
    return _with_ranks(phases[inside & phases.duration_s.notna()])


def _with_ranks(rows: pd.DataFrame) -> pd.DataFrame:
    """A log of one process need not number it."""
    return rows.assign(rank=rows["rank"].fillna(0).astype(int))


def _undisturbed(dataset: Dataset, each: pd.DataFrame) -> pd.DataFrame:
    steps = dataset.read("steps", [*_RANK, "first_step", "disturbed_by"])
    odd = _with_ranks(steps[left_out(steps)]).rename(columns={"first_step": "step"})
    if odd.empty:
        return each
    here, there = (pd.MultiIndex.from_frame(frame[_STEP]) for frame in (each, odd))
    return each[~here.isin(there)]


def _steps(dataset: Dataset) -> pd.DataFrame:
    """Timed steps: ``run_id, rank, step, n_steps, step_s, warm_up``."""
    steps = timed_steps(dataset)
    steps = _with_ranks(steps.assign(warm_up=noise_of_steps(steps).warm_up))
    return steps.rename(columns={"first_step": "step"})[[*_STEP, "n_steps", "step_s", "warm_up"]]


def _kept(each: pd.DataFrame, steps: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series, pd.DataFrame]:
    """Phases of the steps that count, how many these are by rank, and the mean whole of each.

    Seconds of the whole are those of the same steps, as their table or their phase says it; where
    neither does, those of all steps of the rank.
    """
    single = steps[(steps.n_steps == 1) & steps.step.notna()]
    warm = pd.MultiIndex.from_frame(single[single.warm_up][_STEP])
    each = each[~pd.MultiIndex.from_frame(each[_STEP]).isin(warm)]
    known = each[_STEP].drop_duplicates()
    counts = known.groupby(_RANK, dropna=False).step.size()
    by_phase = each[each.phase == "step"].rename(columns={"duration_s": "step_s"})
    said = pd.concat([single[[*_STEP, "step_s"]], by_phase[[*_STEP, "step_s"]]])
    matched = known.merge(said.drop_duplicates(_STEP), on=_STEP)
    found = matched.groupby(_RANK, dropna=False).step_s.agg(["mean", "size"]).reindex(counts.index)
    whole = found["mean"].where(found["size"] == counts)
    whole = whole.fillna(_mean_step(steps).reindex(counts.index))
    return each, counts, whole.dropna().rename("duration_s").reset_index()


def _mean_step(steps: pd.DataFrame) -> pd.Series:
    """Mean of the steps of each rank after its warm-up."""
    steady = steps[~steps.warm_up]
    sums = steady.assign(total_s=steady.step_s * steady.n_steps).groupby(_RANK)
    return sums.total_s.sum() / sums.n_steps.sum()


def _of_summaries(rows: pd.DataFrame, steps: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Parts and wholes of ranks whose logs sum their steps up, in seconds of a step.

    A phase that not every step has is spread over all that were counted.
    """
    whole = rows[rows.phase == "step"].groupby(_RANK, dropna=False)[["duration_s", "n"]].sum()
    inner = rows[rows.phase != "step"]
    of_rank = pd.MultiIndex.from_frame(inner[_RANK])
    n_steps = pd.Series(whole.n.reindex(of_rank).to_numpy(), inner.index).fillna(inner.n)
    parts = seconds_by_part(inner.assign(duration_s=inner.duration_s / n_steps))
    means = whole.duration_s / whole.n
    every = _mean_step(steps)
    every = every[every.index.isin(of_rank.unique()) & ~every.index.isin(means.index)]
    wholes = pd.concat([each for each in (means, every) if len(each)] or [means])
    return parts, wholes.rename("duration_s").reset_index()
