"""Groups of steps: from marks, epochs or blocks; stated throughputs beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Read = Callable[..., Any]
Line = Callable[..., str]


@pytest.fixture
def log(record: Line) -> Callable[..., list[str]]:
    """A run with these records in it."""

    def make(
        benchmark: str, *records: str, batch: Any = 100, samples: Any = 1000, until: float = 100
    ) -> list[str]:  # fmt: skip
        return [
            record(0, "submission_benchmark", benchmark),
            record(0, "global_batch_size", batch),
            record(0, "train_samples", samples),
            record(0, "run_start"),
            *records,
            record(until, "run_stop", status="success"),
        ]

    return make


def groups(found: Any) -> list[tuple[int, int, float]]:
    return [(step.n_steps, step.n_samples, step.duration_s) for step in found.steps]


def test_marks_with_means_over_all_iterations(read: Read, record: Line, log: Any) -> None:
    """The mean wait was 0.02 s over 50 iterations: 1 s; from 3 s to 4.5 s in the last 50."""
    marks = ((50, 15.0, 0.02), (100, 28.0, 0.03), (150, 39.0, 0.03))
    records = [
        record(10, "epoch_start", epoch_num=1),
        *(
            record(at, "tracked_stats", {"time": 0.1, "data": data, "loss": 2.5}, step=step)
            for step, at, data in marks
        ),
        record(20, "epoch_stop", epoch_num=1),
        record(20, "eval_start", epoch_num=1),
        record(22, "epoch_start", epoch_num=2),
        record(30, "eval_stop", epoch_num=1),
    ]
    found = read(log("maskrcnn", *records, samples=40_000))
    # Between the second and the third epoch lie 2 s; the last epoch has no stop.
    assert groups(found) == [(50, 5000, 5.0), (50, 5000, 11.0), (50, 5000, 11.0)]
    assert [step.first_step for step in found.steps] == [0, 50, 100]
    assert [step.epoch for step in found.steps] == [1, 1, 2]
    waits = [(phase.n, phase.duration_s) for phase in found.phases("io", "step")]
    # In the group with the pause the log counts that as a wait, too.
    assert waits == [(50, pytest.approx(1.0)), (50, pytest.approx(1.5))]
    assert found.said("eval_in_steps") == []


def test_marks_of_a_run_without_an_end(read: Read, record: Line, log: Any) -> None:
    marks = [record(at, "tracked_stats", {"time": 0.5}, step=10 * at) for at in (5, 10)]
    assert groups(read(log("maskrcnn", *marks)[:-1])) == [(50, 5000, 5.0), (50, 5000, 5.0)]


def test_waits_that_cannot_be_are_left_out(read: Read, record: Line, log: Any) -> None:
    stats = [(10, 1.0, 0.05), (20, 2.0, 0.02), (30, 3.0, 9.0)]
    records = [
        record(at, "tracked_stats", {"time": 0.1, "data": data}, step=step)
        for step, at, data in stats
    ]
    found = read(log("maskrcnn", *records))
    assert groups(found) == [(10, 1000, 1.0)] * 3
    assert [phase.duration_s for phase in found.phases("io", "step")] == [0.5]
    assert found.said("bad_value") == ["input waits of 2 groups cannot be: left out"]


def test_bert_counts_samples_at_its_evaluations(read: Read, record: Line, log: Any) -> None:
    records = [
        record(2, "epoch_start", epoch_num=0),
        *(record(10.0 * i, "eval_accuracy", 0.5, epoch_num=1000 * i) for i in (1, 2, 2, 3)),
        record(32, "epoch_stop", epoch_num=0),
    ]
    found = read(log("bert", *records, samples=3000))
    assert groups(found) == [(10, 1000, 8.0), (10, 1000, 10.0), (10, 1000, 10.0)]
    assert found.said("eval_in_steps") == ["3 of 3 groups of steps hold an untimed evaluation"]


def test_evaluations_of_bert_that_have_a_time_are_no_steps(
    read: Read, record: Line, log: Any
) -> None:
    records = [record(0, "epoch_start", epoch_num=0)]
    for i in (1, 2):
        records += [
            record(10.0 * i, "eval_start"),
            record(10.0 * i + 1, "eval_accuracy", 0.5, epoch_num=1000 * i),
            record(10.0 * i + 2, "eval_stop"),
        ]
    records += [record(22, "epoch_stop", epoch_num=0)]
    found = read(log("bert", *records, samples=2000))
    assert groups(found) == [(10, 1000, 10.0), (10, 1000, 8.0)]
    assert found.said("eval_in_steps") == []


def test_bert_that_counts_evaluations_is_one_group(read: Read, record: Line, log: Any) -> None:
    records = [
        record(5, "epoch_start", epoch_num=1),
        *(record(10.0 * i, "eval_accuracy", 0.5, epoch_num=1) for i in (1, 2, 3)),
        record(35, "epoch_stop", epoch_num=1),
    ]
    assert groups(read(log("bert", *records, samples=3000))) == [(30, 3000, 30.0)]


def test_dlrm_counts_fractions_of_its_epoch(read: Read, record: Line, log: Any) -> None:
    records = [record(0, "epoch_start", epoch_num=1)]
    records += [record(10.0 * i, "eval_accuracy", 0.8, epoch_num=1 + 0.4 * i) for i in (1, 2)]
    records += [record(30, "epoch_stop")]
    found = read(log("dlrm", *records, batch=1_000_000))
    n = 4_195_197_692 * 0.4
    assert groups(found) == [(1678, round(n), 10.0), (1678, round(n), 10.0)]


def test_steps_and_samples_that_an_interval_states(read: Read, record: Line, log: Any) -> None:
    epochs = [
        record(1, "epoch_start", epoch_num=1, step_num=0),
        record(41, "epoch_stop", epoch_num=1, step_num=117),
        record(41, "epoch_start", epoch_num=2, step_num=117),
        record(61, "epoch_stop", epoch_num=2, step_num=234),
    ]
    assert groups(read(log("deepcam", *epochs))) == [(117, 11700, 40.0), (117, 11700, 20.0)]
    blocks = [
        record(1, "block_start", samples_count=0),
        record(41, "block_stop", samples_count=1536),
        record(50, "block_start", samples_count=1536),
        record(60, "block_stop", samples_count=1920),
    ]
    found = read(log("llama2_70b_lora", *blocks, batch=8, samples=3901))
    assert groups(found) == [(192, 1536, 40.0), (48, 384, 10.0)]


def test_blocks_of_several_epochs(read: Read, record: Line, log: Any) -> None:
    blocks = [
        record(1, "block_start", first_epoch_num=1, epoch_count=4),
        record(41, "block_stop", first_epoch_num=1),
        record(41, "block_start", first_epoch_num=5, epoch_count=2),
        record(61, "block_stop", first_epoch_num=5),
    ]
    found = read(log("resnet", *blocks))
    assert groups(found) == [(40, 4000, 40.0), (20, 2000, 20.0)]
    assert [step.epoch for step in found.steps] == [1, 5]


def test_retinanet_states_iterations(read: Read, record: Line, log: Any) -> None:
    epochs = [record(1, "epoch_start", 0, epoch_num=0), record(93, "epoch_stop", 0, epoch_num=0)]
    found = read(log("ssd", *epochs, batch=256, samples=4572))
    assert groups(found) == [(4572, 4572 * 256, 92.0)]
    assert groups(read(log("ssd", *epochs, batch=960, samples=117_266))) == [(122, 117_266, 92.0)]


@pytest.mark.parametrize("benchmark", ["transformer", "maskrcnn", "gpt3", "unheard_of"])
def test_what_a_benchmark_does_not_count_is_not_guessed(
    read: Read, record: Line, log: Any, benchmark: str
) -> None:
    epochs = [record(1, "epoch_start", epoch_num=1), record(60, "epoch_stop", epoch_num=1)]
    found = read(log(benchmark, *epochs))
    assert found.steps == []
    assert found.said("no_step_counts") == ["no record says what was trained in which time"]


def test_asynchronous_epochs_are_not_used(read: Read, record: Line, log: Any) -> None:
    records = [record(1, "block_start", first_epoch_num=1, epoch_count=4)]
    for epoch in range(1, 5):
        records += [
            record(epoch, "epoch_start", epoch_num=epoch),
            record(epoch + 0.1, "epoch_stop", epoch_num=epoch),
        ]
    records += [record(91, "block_stop", first_epoch_num=1)]
    found = read(log("resnet", *records))
    assert groups(found) == [(40, 4000, 90.0)]
    assert len(found.said("odd_epochs")) == 1


def test_evaluations_on_devices_of_their_own(read: Read, record: Line, log: Any) -> None:
    """Blocks with and without an evaluation take 10 s: it runs beside them."""
    records = []
    for i in range(8):
        records += [record(10 * i, "block_start", first_epoch_num=i + 1, epoch_count=1)]
        if i % 2:
            records += [record(10 * i + 1, "eval_start"), record(10 * i + 9, "eval_stop")]
        records += [record(10 * i + 10, "block_stop", first_epoch_num=i + 1)]
    assert groups(read(log("unet3d", *records))) == [(10, 1000, 10.0)] * 8


# -- stated throughput -----------------------------------------------------------------------


def epochs_with(record: Line, rates: list[float], key: str = "throughput") -> list[str]:
    """Epochs of 10 s, each with a stated rate at the instant when the next begins."""
    lines = []
    for i, rate in enumerate(rates):
        value = rate if key == "throughput" else {key.partition(".")[2]: rate}
        lines += [
            record(10 * i, "epoch_start", epoch_num=i + 1),
            record(10 * i + 10, "epoch_stop", epoch_num=i + 1),
            record(10 * i + 10, key.partition(".")[0], value),
        ]
    return lines


@pytest.mark.parametrize(
    "key", ["throughput", "tracked_stats.throughput", "tracked_stats.imgs_sec"]
)
def test_a_throughput_that_disagrees_is_noted(read: Read, record: Line, log: Any, key: str) -> None:
    fine = read(log("resnet", *epochs_with(record, [104.0, 96.0, 100.0], key), until=31))
    assert fine.said("throughput_mismatch") == []
    odd = read(log("resnet", *epochs_with(record, [100.0, 106.0, 100.0], key), until=31))
    assert odd.said("throughput_mismatch") == [
        "1 of 3 stated throughputs: 106 a second, where 1000 samples in 10 s are 100 samples/s"
    ]


def test_a_throughput_of_one_worker_is_said_to_be(read: Read, record: Line, log: Any) -> None:
    ranks = [record(0, "init_start")] * 8
    found = read(log("resnet", *ranks, *epochs_with(record, [12.5, 12.4, 12.6]), until=31))
    (text,) = found.said("throughput_mismatch")
    assert text.startswith("3 of 3 stated throughputs: 12.5 a second")
    assert text.endswith("; it is that of one of 8 workers")


def test_a_throughput_of_the_whole_run(read: Read, record: Line, log: Any) -> None:
    records = [record(0, "epoch_start", epoch_num=0)]
    records += [record(10.0 * i, "eval_accuracy", 0.5, epoch_num=1000 * i) for i in (1, 2, 3, 4)]
    records += [record(40, "epoch_stop", epoch_num=0)]
    for rate, n_notes in ((100.0, 0), (400.0, 1)):
        stated = record(41, "tracked_stats", {"throughput": rate}, step=[2, 3516])
        found = read(log("bert", *records, stated, samples=4000))
        assert len(found.said("throughput_mismatch")) == n_notes


def test_of_two_throughputs_in_an_epoch_a_stated_one_is_named(
    read: Read, record: Line, log: Any
) -> None:
    lines = [*epochs_with(record, [100.0, 110.0]), record(20, "throughput", 150.0)]
    (text,) = read(log("resnet", *lines, until=21)).said("throughput_mismatch")
    assert text.startswith("1 of 2 stated throughputs: 110 a second")
