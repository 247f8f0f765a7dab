"""Phases of a job: they add up to the whole, and what is not known is said."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.dataset import Dataset
from fitkit.diagnosis.job_phases import (
    INSTANTS,
    JOB_PHASES,
    job_phase_summary,
    job_phases,
    phases_between,
)
from fitkit.linking import find_links
from fitkit.records import Job, Launch, Phase, Record, Run, SourceRow, Step

T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)
WHOLE = {
    "hold": 100.0, "queue": 30.0, "prologue": 5.0, "launch": 2.0, "init": 20.0, "train": 300.0,
    "teardown": 4.0,
}  # fmt: skip


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def stored(folder: Path, *sources: tuple[str, list[Any]]) -> Dataset:
    """A dataset of sources: their format and their records."""
    store = Dataset(folder / "ds")
    with store.writing():
        for number, (format_, records) in enumerate(sources):
            row = SourceRow(f"s{number}", "log", format_, 1, 1, 0, json.dumps([]), "{}")
            store.write(row, records)
        store.rewrite("links", find_links(store))
    return store


def job(**columns: Any) -> Job:
    known: dict[str, Any] = {
        "submitted_at": at(0), "queued_at": at(0), "eligible_at": at(100), "started_at": at(130),
        "ended_at": at(461),
    }  # fmt: skip
    return Job("s0", "7.bw", 1, "torque", **known | columns)


def log(**columns: Any) -> list[Record]:
    """A run that is logged from 137 s on, trains at 157 s and for 300 s."""
    run = Run("run", "s1", job_id="7.bw", started_at=at(137), **columns)
    times = (("init", 20.0), ("train", 300.0))
    return [run, *(Phase("run", name, s, rank) for name, s in times for rank in (0, 1))]


def placed(seconds: float = 135, apid: str = "1", **columns: Any) -> Launch:
    return Launch("s2", apid, **{"job_id": "7", "started_at": at(seconds)} | columns)


def durations(store: Dataset) -> dict[str, float]:
    frame = job_phases(store)
    assert not frame.is_negative.any()
    return dict(zip(frame.phase, frame.duration_s, strict=True))


def test_all_instants_are_known(tmp_path: Path) -> None:
    store = stored(tmp_path, ("torque", [job()]), ("cntk", log()), ("alps", [placed()]))
    frame = job_phases(store)
    assert dict(zip(frame.phase, frame.duration_s, strict=True)) == WHOLE
    assert tuple(frame.phase) == JOB_PHASES
    assert frame.started_at.tolist() == [at(s) for s in (0, 100, 130, 135, 137, 157, 457)]
    assert set(frame.n_runs) == {1}
    assert frame.clock_skew_s.isna().all()


def test_without_a_run_all_of_it_is_one_phase(tmp_path: Path) -> None:
    store = stored(tmp_path, ("torque", [job()]))
    assert durations(store) == {"hold": 100.0, "queue": 30.0, "run": 331.0}


def test_what_is_missing_merges_two_phases(tmp_path: Path) -> None:
    accounting, training = ("torque", [job()]), ("cntk", log())
    assert durations(stored(tmp_path / "a", accounting, training)) == {
        "hold": 100.0, "queue": 30.0, "prologue+launch": 7.0, "init": 20.0, "train": 300.0,
        "teardown": 4.0,
    }  # fmt: skip
    assert durations(stored(tmp_path / "b", accounting, ("alps", [placed()]))) == {
        "hold": 100.0, "queue": 30.0, "prologue": 5.0, "launch+init+train+teardown": 326.0,
    }  # fmt: skip
    undated = ("cntk", [Run("run", "s1", job_id="7.bw"), Phase("run", "train", 300.0)])
    assert durations(stored(tmp_path / "c", accounting, undated))["run"] == 331.0
    no_init = ("cntk", [record for record in log() if getattr(record, "phase", "") != "init"])
    assert durations(stored(tmp_path / "d", accounting, no_init)) == {
        "hold": 100.0, "queue": 30.0, "prologue+launch": 7.0, "init+train+teardown": 324.0,
    }  # fmt: skip


def test_a_job_that_never_ended_has_no_open_phase(tmp_path: Path) -> None:
    store = stored(tmp_path, ("torque", [job(ended_at=None)]))
    assert durations(store) == {"hold": 100.0, "queue": 30.0}
    store = stored(tmp_path / "b", ("torque", [job(submitted_at=None, eligible_at=None)]))
    assert durations(store) == {"hold+queue": 130.0, "run": 331.0}


def test_dated_steps_tell_when_it_trained(tmp_path: Path) -> None:
    run = Run("run", "s1", job_id="7.bw", started_at=at(137))
    steps = [Step("run", 0, 1, 10.0, started_at=at(157 + 10 * k)) for k in range(30)]
    store = stored(tmp_path, ("torque", [job()]), ("pytorch", [run, *steps]))
    assert durations(store) | {"prologue": 5.0, "launch": 2.0} == WHOLE | {"prologue+launch": 7.0}


def test_a_recorder_begins_with_its_first_step(tmp_path: Path) -> None:
    records = [
        Run("run", "s1", job_id="7.bw", started_at=at(157)),
        Step("run", 0, 30, 300.0, started_at=at(157)),
        Phase("run", "init", 20.0, 0),
    ]
    store = stored(tmp_path, ("torque", [job()]), ("pytorch", records))
    assert durations(store)["prologue+launch"] == 7.0
    assert durations(store)["init"] == 20.0


def test_the_prologue_stands_for_the_placement(tmp_path: Path) -> None:
    output = Job("s1", "7.bw", 1, "torque", started_at=at(131), prologue_s=0.25)
    run = Run("run", "s1", job_id="7.bw")
    store = stored(tmp_path, ("torque", [job()]), ("jobout", [output, run]))
    frame = job_phases(store)
    assert dict(zip(frame.phase, frame.duration_s, strict=True)) == {
        "hold": 100.0, "queue": 30.0, "prologue": 1.25, "launch+init+train+teardown": 329.75,
    }  # fmt: skip
    assert set(frame.clock_skew_s) == {1.0}


def test_of_several_programs_the_last_before_the_log_is_the_training(tmp_path: Path) -> None:
    programs = [placed(131, "1"), placed(135, "2"), placed(400, "3"), placed(9999, "4")]
    store = stored(tmp_path, ("torque", [job()]), ("cntk", log()), ("alps", programs))
    assert durations(store) == WHOLE
    store = stored(tmp_path / "b", ("torque", [job()]), ("alps", programs))
    assert durations(store)["prologue"] == 1.0


def test_the_output_tells_which_job_a_program_is_of(tmp_path: Path) -> None:
    alps = ("alps", [placed(135, "5", job_id=None)])
    output = ("jobout", [Launch("s2", "5", "7.bw", exit_code=0)])
    assert durations(stored(tmp_path, ("torque", [job()]), alps, output))["prologue"] == 5.0


def test_a_negative_phase_is_reported_as_it_is(tmp_path: Path) -> None:
    late = [Run("run", "s1", job_id="7.bw", started_at=at(137 - 3600)), *log()[1:]]
    store = stored(tmp_path, ("torque", [job()]), ("cntk", late))
    frame = job_phases(store).set_index("phase")
    assert frame.duration_s["prologue+launch"] == 7.0 - 3600
    assert frame.is_negative[frame.is_negative].index.tolist() == ["prologue+launch"]
    assert frame.duration_s.sum() == 461.0
    summary = job_phase_summary(job_phases(store)).set_index("phase")
    assert summary.n_negative["prologue+launch"] == 1


def test_less_than_the_second_of_a_stamp_is_no_error(tmp_path: Path) -> None:
    store = stored(tmp_path, ("torque", [job()]), ("cntk", log()), ("alps", [placed(137.75)]))
    frame = job_phases(store).set_index("phase")
    assert (frame.duration_s["launch"], frame.is_negative.any()) == (-0.75, False)


def test_two_runs_of_a_job(tmp_path: Path) -> None:
    again = Run("again", "s1", job_id="7.bw", started_at=at(300))
    more = [again, Phase("again", "init", 1.0), Phase("again", "train", 159.0)]
    store = stored(tmp_path, ("torque", [job()]), ("cntk", [*log(), *more]))
    frame = job_phases(store).set_index("phase")
    assert set(frame.n_runs) == {2}
    assert (frame.duration_s["train"], frame.duration_s["teardown"]) == (303.0, 1.0)


def test_a_run_is_in_one_of_two_jobs_of_the_same_number(tmp_path: Path) -> None:
    years = 1e8
    again = {f"{name}_at": at(years + s) for name, s in
             (("submitted", 0), ("queued", 0), ("eligible", 100), ("started", 130),
              ("ended", 461))}  # fmt: skip
    store = stored(tmp_path, ("torque", [job(), job(**again)]), ("cntk", log()))
    frame = job_phases(store)
    n_runs = frame.groupby(frame.started_at < at(years)).n_runs.max()
    assert n_runs.to_dict() == {True: 1, False: 0}


def test_jobs_of_two_machines_with_one_number(tmp_path: Path) -> None:
    seconds = {"submitted": 1000, "queued": 1000, "eligible": 1010, "started": 1030, "ended": 1040}
    later = {f"{name}_at": at(second) for name, second in seconds.items()}
    jobs = [
        replace(job(**instants), job_id=number, system=system)
        for system, instants in (("a", {}), ("b", later)) for number in ("5", "6")
    ]  # fmt: skip
    programs = [
        Launch("s2", "5.0", "5", "a", started_at=at(135)),
        Launch("s2", "5.0", "5", "b", started_at=at(1032)),
    ]
    frame = job_phases(stored(tmp_path, ("sacct", [*jobs, *programs])))
    found = {
        (system, job_id): dict(zip(rows.phase, rows.duration_s, strict=True))
        for (system, job_id), rows in frame.groupby(["system", "job_id"])
    }
    rest = "launch+init+train+teardown"
    assert found == {
        ("a", "5"): {"hold": 100.0, "queue": 30.0, "prologue": 5.0, rest: 326.0},
        ("a", "6"): {"hold": 100.0, "queue": 30.0, "run": 331.0},
        ("b", "5"): {"hold": 10.0, "queue": 20.0, "prologue": 2.0, rest: 8.0},
        ("b", "6"): {"hold": 10.0, "queue": 20.0, "run": 10.0},
    }


def test_each_attempt_of_a_requeued_job_has_its_own_steps(tmp_path: Path) -> None:
    again = {"submitted_at": at(461), "queued_at": at(461), "eligible_at": at(561),
             "started_at": at(600), "ended_at": at(900)}  # fmt: skip
    jobs = [job(), replace(job(**again), attempt=2)]
    programs = [placed(135, "7.0"), placed(603, "7.0")]
    frame = job_phases(stored(tmp_path, ("sacct", [*jobs, *programs])))
    prologues = frame[frame.phase == "prologue"]
    assert prologues[["attempt", "duration_s"]].to_numpy().tolist() == [[1, 5.0], [2, 3.0]]
    # An attempt that waits has not placed what another one has.
    waits = {"started_at": None, "ended_at": None}
    jobs = [job(), replace(job(**again | waits), attempt=2)]
    frame = job_phases(stored(tmp_path / "b", ("sacct", [*jobs, programs[0]])))
    assert frame[frame.attempt == 2].phase.tolist() == ["hold"]


def test_the_summary_is_over_all_jobs(tmp_path: Path) -> None:
    other = Job("s0", "8.bw", 1, "torque", submitted_at=at(0), started_at=at(130), ended_at=at(161))
    summary = job_phase_summary(job_phases(stored(tmp_path, ("torque", [job(), other]))))
    assert summary.to_dict("list") == {
        "phase": ["run", "hold+queue", "hold", "queue"], "n_jobs": [2, 1, 1, 1],
        "median_s": [181.0, 130.0, 100.0, 30.0], "total_s": [362.0, 130.0, 100.0, 30.0],
        "share": [362 / 622, 130 / 622, 100 / 622, 30 / 622], "n_negative": [0, 0, 0, 0],
    }  # fmt: skip


def test_a_dataset_without_jobs(tmp_path: Path) -> None:
    frame = job_phases(stored(tmp_path, ("cntk", log())))
    assert frame.empty
    assert list(frame.columns) == [
        "system", "job_id", "attempt", "phase", "started_at", "duration_s", "is_negative", "n_runs",
        "clock_skew_s",
    ]  # fmt: skip
    assert job_phase_summary(frame).empty


ROW = st.lists(st.one_of(st.none(), st.integers(-5000, 5000)), min_size=8, max_size=8)


@settings(max_examples=10, deadline=None)
@given(rows=st.lists(ROW, max_size=6))
def test_phases_add_up_to_the_whole(rows: list[list[int | None]]) -> None:
    instants = [[pd.NaT if s is None else at(s) for s in row] for row in rows]
    frame = pd.DataFrame(instants, columns=INSTANTS).apply(pd.to_datetime, utc=True)
    keys = {"job_id": list(map(str, range(len(rows)))), "attempt": 1, "n_runs": 0, "system": None}
    phases = phases_between(frame.assign(**keys, clock_skew_s=0.0))
    for job_id, row in enumerate(rows):
        of_job = phases[phases.job_id == str(job_id)]
        known = [s for s in row if s is not None]
        assert of_job.duration_s.sum() == (known[-1] - known[0] if known else 0.0)
        assert of_job.started_at.tolist() == [at(s) for s in known[:-1]]
        assert of_job.is_negative.tolist() == [b - a < -1 for a, b in pairwise(known)]
        named = [part for phase in of_job.phase for part in
                 (JOB_PHASES[2:] if phase == "run" else phase.split("+"))]  # fmt: skip
        places = [k for k, s in enumerate(row) if s is not None]
        assert named == list(JOB_PHASES[places[0] : places[-1]] if places else ())
