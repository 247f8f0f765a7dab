"""Steps that their log calls disturbed: left out of frames, unless a rank has no others."""

from __future__ import annotations

import pytest

from fitkit.dataset import Dataset
from fitkit.diagnosis import device_shares, stragglers
from fitkit.features import (
    collective_notes,
    phase_notes,
    phase_times,
    step_notes,
    step_times,
)
from fitkit.records import Comm, Phase, Run, SourceRow, Step

FIRST, LAST = "first profiled step", "last profiled step"


@pytest.fixture
def store(tmp_path):
    def write(*records):
        dataset = Dataset(tmp_path / "ds")
        with dataset.writing():
            dataset.write(SourceRow("s", "s", "f", 1, 1, 0, "[]", "{}"), [Run("r", "s"), *records])
        return dataset

    return write


def steps(*timed, rank=0):
    """A step and its phase for each ``(seconds, why it is disturbed)``."""
    for number, (seconds, why) in enumerate(timed):
        yield Step("r", rank, 1, seconds, first_step=number, disturbed_by=why)
        yield Phase("r", "forward", seconds / 2, rank, step=number, parent="step")


def test_disturbed_steps_and_their_phases_do_not_count(store):
    dataset = store(*steps((9.0, FIRST), (2.0, None), (4.0, None), (7.0, LAST)))
    assert step_times(dataset, "mean").step_s.tolist() == [3.0]
    assert phase_times(dataset, "mean").duration_s.tolist() == [1.5]
    told = [f"disturbed ({FIRST}, {LAST}): 2 of 4 steps in 1 runs left out"]
    assert step_notes(dataset, ["r"]) == phase_notes(dataset, ["r"]) == told


def test_a_rank_that_has_no_others_keeps_them(store):
    dataset = store(*steps((9.0, FIRST), (7.0, LAST)), *steps((9.0, FIRST), (2.0, None), rank=1))
    assert step_times(dataset, "mean").step_s.tolist() == [5.0]  # of 8 and 2
    assert phase_times(dataset, "mean").duration_s.tolist() == [2.5]
    left_out, kept = step_notes(dataset, ["r"])
    assert left_out == f"disturbed ({FIRST}): 1 of 4 steps in 1 runs left out"
    assert kept.startswith(f"disturbed ({FIRST}, {LAST}): 2 of 4 steps in 1 runs kept")


def test_what_a_device_does_is_no_part_of_a_step(store):
    device = [Phase("r", "comm", 1.0, 0, step=i, parent="device") for i in range(9)]
    plain = stragglers(store(*steps(*[(2.0, None)] * 9)))
    assert stragglers(store(*steps(*[(2.0, None)] * 9), *device)).equals(plain)


def test_the_device_has_phases_of_its_own(store):
    device = [
        Phase("r", name, seconds, 0, step=step, parent="device")
        for step in range(3)
        for name, seconds in (("compute", 3.0), ("idle", 1.0))
    ]
    dataset = store(*steps(*[(2.0, None)] * 3), *device)
    assert phase_times(dataset).phase.tolist() == ["forward"]
    shares = device_shares(dataset)
    assert shares.phase.tolist() == ["compute", "idle"]
    assert shares.share.tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    ("ranks", "wait", "notes"), [((0,), None, 1), ((0, 1), None, 0), ((0,), 0.5, 0)]
)
def test_waiting_that_no_log_tells_is_said(tmp_path, ranks, wait, notes):
    dataset = Dataset(tmp_path / "ds")
    comms = [Comm("r", rank, "all_reduce", 1.0, 2, wait_s=wait) for rank in ranks]
    with dataset.writing():
        source = SourceRow("s", "s", "f", 1, 1, 0, "[]", "{}")
        dataset.write(source, [Run("r", "s", instrument="profiler"), *comms])
    found = collective_notes(dataset, ["r"])
    assert len(found) == notes
    assert all(note.startswith("waiting: 1 of 1 collectives in 1 runs") for note in found)
