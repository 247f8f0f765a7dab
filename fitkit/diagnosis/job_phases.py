"""Where the time of jobs goes, from their submission to their end.

The resource manager dates four instants, the launcher one, the log of the training three:

============  ==================================================================================
hold          submission to when the job was allowed to run
queue         until its start: the wait for nodes
prologue      until the program was placed (ALPS, step of Slurm), else until the script began
launch        until the program's first sign of life
init          until the first iteration begins: data, network, first reads
train         until the last iteration ends
teardown      until the job ends
============  ==================================================================================

Where an instant is not known two phases are one, ``launch+init``; ``run`` is all from start to end.
So the phases of a job add up to all of its time. A negative one means that two clocks, or the zones
of two logs, differ: it is reported as it is.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.linking import (
    JOB_KEY,
    known_systems,
    read_attempts,
    same_job,
    short_id,
    told_systems,
)

JOB_PHASES = ("hold", "queue", "prologue", "launch", "init", "train", "teardown")
INSTANTS = [
    "submitted_at", "eligible_at", "started_at", "placed_at", "logged_at", "trains_at",
    "trained_at", "ended_at",
]  # fmt: skip
_START, _END = INSTANTS.index("started_at"), INSTANTS.index("ended_at")
_BEFORE_TRAINING = ("launch", "init", "staging", "precompute")
_RESOLUTION_S = 1.0  # of the stamps of a resource manager
_MARGIN = pd.Timedelta(seconds=5)


def job_phases(dataset: Dataset) -> pd.DataFrame:
    """Phases of each attempt of each job, in their order.

    Returns
    -------
    DataFrame
        ``system, job_id, attempt, phase, started_at, duration_s``; ``is_negative``: by more than
        the second to which stamps are written; ``n_runs`` that are linked to the job; and
        ``clock_skew_s``, by how much the clock of the job's output is ahead of that of the
        resource manager (null if there is no output; it is not corrected).
    """
    attempts = read_attempts(dataset)
    attempts["submitted_at"] = _either(attempts.submitted_at, attempts.queued_at)
    is_accounted = attempts.submitted_at.notna() | attempts.ended_at.notna()
    skew = (attempts.prologue_at - attempts.started_at).where(is_accounted)
    attempts["clock_skew_s"] = skew.dt.total_seconds()
    attempts = _with_runs(attempts, _run_instants(dataset))
    script_at = attempts.prologue_at + pd.to_timedelta(attempts.prologue_s.astype(float), unit="s")
    attempts["placed_at"] = _either(_placed(dataset, attempts), script_at)
    return phases_between(attempts)


def job_phase_summary(phases: pd.DataFrame) -> pd.DataFrame:
    """What `job_phases` found, over all jobs: which phase takes how much.

    Returns
    -------
    DataFrame
        ``phase, n_jobs, median_s, total_s, share`` of the time of all jobs, ``n_negative``; the
        largest share first.
    """
    groups = phases.groupby("phase", sort=False)
    summary = groups.agg(
        n_jobs=("duration_s", "size"),
        median_s=("duration_s", "median"),
        total_s=("duration_s", "sum"),
        n_negative=("is_negative", "sum"),
    ).reset_index()
    summary.insert(4, "share", summary.total_s / summary.total_s.sum())
    return summary.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def _with_runs(attempts: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    joined = attempts.merge(runs.reset_index(), how="left", on=JOB_KEY)
    # A link does not tell two jobs apart that have the same number, years after each other.
    at = joined.logged_at
    is_outside = (at < joined.started_at - _MARGIN) | (at > joined.ended_at + _MARGIN)
    is_other = joined.duplicated(JOB_KEY, keep=False) & is_outside
    for name in runs.columns:
        joined[name] = joined[name].mask(is_other)
    return joined.assign(n_runs=joined.n_runs.fillna(0).astype(int))


def phases_between(attempts: pd.DataFrame) -> pd.DataFrame:
    """A row for every two neighbours among the instants of an attempt that are known.

    Parameters
    ----------
    attempts
        ``system, job_id, attempt, n_runs, clock_skew_s``, and the columns of `INSTANTS`.
    """
    at = np.column_stack([_utc(attempts[name]) for name in INSTANTS])
    place = np.where(np.isnat(at), -1, np.arange(len(INSTANTS)))
    last = np.maximum.accumulate(place, axis=1)
    row, end = np.nonzero((place[:, 1:] >= 0) & (last[:, :-1] >= 0))
    begin, end = last[row, end], end + 1
    frame = attempts[[*JOB_KEY, "n_runs", "clock_skew_s"]].iloc[row].reset_index(drop=True)
    duration_s = (at[row, end] - at[row, begin]) / np.timedelta64(1, "s")
    names = [_name(*pair) for pair in zip(begin.tolist(), end.tolist(), strict=True)]
    frame.insert(3, "phase", np.array(names, dtype=object))
    frame.insert(4, "started_at", pd.to_datetime(at[row, begin], utc=True))
    frame.insert(5, "duration_s", duration_s)
    frame.insert(6, "is_negative", duration_s < -_RESOLUTION_S)
    return frame


def _name(begin: int, end: int) -> str:
    return "run" if (begin, end) == (_START, _END) else "+".join(JOB_PHASES[begin:end])


def _utc(instants: pd.Series) -> np.ndarray:
    whole = pd.to_datetime(instants, utc=True).dt.tz_localize(None)
    return whole.to_numpy(dtype="datetime64[us]")


def _placed(dataset: Dataset, attempts: pd.DataFrame) -> pd.Series:
    """When the program was placed; of several in a job, the last before the training's log."""
    launches = _dated_launches(dataset)
    columns = ["system", "job_id", "started_at", "ended_at", "logged_at"]
    jobs = attempts[columns].assign(system=told_systems(attempts)).reset_index()
    jobs["number"], launches["number"] = map(_numbers, (jobs, launches))
    pairs = jobs.merge(launches.reset_index(names="launch"), on="number", suffixes=("", "_placed"))
    pairs = pairs[_may_be_of(pairs)].sort_values("started_at_placed")
    early = pairs[pairs.started_at_placed <= pairs.logged_at + _MARGIN]
    first, last = (rows.groupby("index").started_at_placed for rows in (pairs, early))
    return _either(last.last().reindex(attempts.index), first.first().reindex(attempts.index))


def _may_be_of(pairs: pd.DataFrame) -> pd.Series:
    """Whether a launch may be of an attempt: by number and machine, and no time contradicts.

    Of several attempts the one that is known to have run has it.
    """
    at, system = pairs.started_at_placed, pairs.system_placed
    is_same = pd.Series(map(same_job, pairs.job_id, pairs.job_id_placed), pairs.index, dtype=bool)
    is_same &= pairs.system.isna() | system.isna() | (pairs.system == system)
    is_outside = (at < pairs.started_at - _MARGIN) | (at > pairs.ended_at + _MARGIN)
    is_inside = is_same & pairs.started_at.notna() & ~is_outside
    is_taken = is_inside.groupby(pairs.launch).transform("any")
    return is_inside | (is_same & ~is_outside & ~is_taken)


def _dated_launches(dataset: Dataset) -> pd.DataFrame:
    """Launches whose job and instant are known, from one log or from two.

    An identifier may occur again: a step of a job that was requeued, or of another machine.
    """
    launches = dataset.read("launches", ["launch_id", "job_id", "system", "started_at"])
    is_whole = launches.job_id.notna() & launches.started_at.notna()
    # The launcher's log has the instant, the job's output the job.
    parts = launches[~is_whole]
    parts = parts.assign(system=known_systems(parts, ["launch_id"]))
    parts = parts.groupby(["launch_id", "system"], dropna=False).first().reset_index()
    parts = parts.dropna(subset=["job_id", "started_at"])
    return pd.concat([launches[is_whole], parts], ignore_index=True)


def _either(instants: pd.Series, others: pd.Series) -> pd.Series:
    """Instants, and others where there is none; pandas wants the same resolution of both."""
    return instants.where(instants.notna(), others.astype(instants.dtype))


def _numbers(rows: pd.DataFrame) -> pd.Series:
    return rows.job_id.map(short_id).astype(str)


def _run_instants(dataset: Dataset) -> pd.DataFrame:
    """``logged_at, trains_at, trained_at, n_runs`` of the runs of each attempt."""
    runs = dataset.read("runs", ["run_id", "started_at"]).set_index("run_id")
    steps, phases = _step_instants(dataset), _phase_seconds(dataset)
    runs = runs.join(steps).join(phases)
    trains_at = _either(runs.trains_at, runs.started_at + runs.init)
    # What begins the log of a recorder is the first step, and not the program.
    logged_at = pd.concat([runs.started_at, trains_at - runs.init], axis=1).min(axis=1)
    runs["logged_at"] = logged_at.where(runs.started_at.notna())
    runs["trained_at"] = _either(runs.trained_at, trains_at + runs.train)
    runs["trains_at"] = trains_at
    links = dataset.read("links", [*JOB_KEY, "run_id"])
    # Not join: pandas 3 cannot join two empty columns of text.
    of_links = runs[~runs.index.duplicated()].reindex(links.run_id.array).reset_index(drop=True)
    return (
        pd.concat([links, of_links], axis=1)
        .groupby(JOB_KEY, dropna=False)
        .agg(
            logged_at=("logged_at", "min"),
            trains_at=("trains_at", "min"),
            trained_at=("trained_at", "max"),
            n_runs=("run_id", "size"),
        )
    )


def _step_instants(dataset: Dataset) -> pd.DataFrame:
    steps = dataset.read("steps", ["run_id", "started_at", "duration_s"])
    steps = steps[steps.started_at.notna() & steps.duration_s.notna()]
    ends = steps.started_at + pd.to_timedelta(steps.duration_s.astype(float), unit="s")
    return (
        steps.assign(ended_at=ends).groupby("run_id")
        .agg(trains_at=("started_at", "min"), trained_at=("ended_at", "max"))
    )  # fmt: skip


def _phase_seconds(dataset: Dataset) -> pd.DataFrame:
    """What precedes the training, and the training or its epochs, of the slowest rank."""
    phases = dataset.read("phases", ["run_id", "rank", "phase", "parent", "duration_s"])
    phases = phases[phases.parent.isna()]
    chosen = {
        "init": phases.phase.isin(_BEFORE_TRAINING),
        "train": phases.phase == "train",
        "epochs": phases.phase == "epoch",
    }
    frame = pd.DataFrame({name: _slowest(phases[rows]) for name, rows in chosen.items()})
    frame["train"] = frame.train.fillna(frame.pop("epochs"))
    return frame


def _slowest(phases: pd.DataFrame) -> pd.Series:
    ranks = phases.groupby(["run_id", "rank"], dropna=False).duration_s.sum()
    seconds = ranks.groupby("run_id").max().astype(float)
    return pd.to_timedelta(seconds, unit="s")
