"""Steps that their log calls disturbed: left out of frames, unless a rank has no others."""

from __future__ import annotations

import pytest

from fitkit.dataset import Dataset
from fitkit.diagnosis import stragglers
from fitkit.features import phase_notes, phase_times, step_notes, step_times
from fitkit.records import Phase, Run, SourceRow, Step

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
