"""Megatron-LM: iteration lines, timers, options. Groups of steps must not overlap."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.records import Run

Read = Callable[..., Any]


def iteration(at: int, ms: float, of: int = 1000, batch: int = 4, rest: str = "") -> str:
    return (
        f" iteration {at:8d}/{of:8d} | consumed samples: {at * batch:12d} | elapsed time per "
        f"iteration (ms): {ms:.1f} | learning rate: 1.5E-04 | global batch size: {batch:5d} |"
        f" lm loss: 6.0E+00 |{rest} number of nan iterations:   0 |\n"
    )


def option(name: str, value: object) -> str:
    return f"  {name} {'.' * (48 - len(name))} {value}\n"


def test_iterations_are_counted_once(read: Read) -> None:
    found = read(iteration(10, 123.4) + iteration(20, 100.0) + iteration(30, 110.0))
    assert found.groups == [(0, 10, 1.234), (10, 10, 1.0), (20, 10, 1.1)]
    assert [step.n_samples for step in found.steps] == [40, 40, 40]
    assert (found.run.global_batch, found.run.state) == (4, "incomplete")
    assert found.codes == [(None, "incomplete")]
    assert found.phases() == []


def test_the_line_of_the_first_iteration_is_not_counted_again(read: Read) -> None:
    # Ten iterations took 4 s, 2.5 s of it the first one.
    log = iteration(1, 2500.0) + iteration(10, 400.0) + iteration(20, 160.0)
    assert read(log).groups == [(0, 1, 2.5), (1, 9, 1.5), (10, 10, 1.6)]
    assert [step.n_samples for step in read(log).steps] == [4, 36, 40]
    # After a checkpoint at iteration 5000 the same.
    log = iteration(5001, 2500.0) + iteration(5010, 400.0) + iteration(5020, 160.0)
    assert read(log).groups == [(5000, 1, 2.5), (5001, 9, 1.5), (5010, 10, 1.6)]


def test_a_checkpoint_tells_what_the_first_line_covers(read: Read) -> None:
    loaded = "  successfully loaded checkpoint from /c/x [ t 1/1, p 1/1 ] at iteration 5003\n"
    log = iteration(5010, 100.0) + iteration(5020, 100.0) + iteration(5030, 100.0)
    labelled = "".join(f"7: {line}" for line in log.splitlines(keepends=True))
    assert read("0: " + loaded + labelled).groups[0] == (5003, 7, 0.7)
    assert read(log).groups[0] == (5000, 10, 1.0)


def test_every_iteration_has_its_line(read: Read) -> None:
    log = "".join(iteration(at, 100.0 + at) for at in range(1, 5))
    assert read(log).groups == [(0, 1, 0.101), (1, 1, 0.102), (2, 1, 0.103), (3, 1, 0.104)]
    assert read(iteration(1, 100.0)).groups == [(0, 1, 0.1)]


def test_a_line_that_is_missing_takes_nothing_with_it(read: Read) -> None:
    log = iteration(10, 100.0) + iteration(20, 100.0) + iteration(40, 100.0) + iteration(50, 100.0)
    assert read(log).groups == [(0, 10, 1.0), (10, 10, 1.0), (30, 10, 1.0), (40, 10, 1.0)]
    log = option("log_interval", 10) + iteration(1, 2500.0) + iteration(20, 100.0)
    assert read(log).groups == [(0, 1, 2.5), (10, 10, 1.0)]


def test_a_restart_repeats_iterations(read: Read) -> None:
    log = iteration(10, 100.0) + iteration(20, 100.0) + iteration(20, 120.0) + iteration(30, 110.0)
    found = read(log)
    assert found.groups == [(0, 10, 1.0), (10, 10, 1.0), (10, 10, 1.2), (20, 10, 1.1)]
    assert (3, "restarted") in found.codes


def test_timers_are_sums_over_the_interval_divided_by_it(read: Read) -> None:
    timers = (
        "time (ms) | forward-compute: 31.57 | backward-compute: 41.76 | "
        "backward-params-all-reduce: 21.15 | optimizer: 11.5 | batch-generator: 1.5\n"
    )
    found = read(iteration(10, 120.0) + timers + iteration(20, 120.0) + timers)
    assert [phase.n for phase in found.phases(phase="forward")] == [10, 10]
    first = found.phases()[:7]
    assert {p.phase: round(p.duration_s, 6) for p in first} == {
        "step": 1.2, "forward": 0.3007, "backward": 0.4176, "comm": 0.2115, "optimizer": 0.115,
        "io": 0.015, "other": pytest.approx(1.2 - 0.3157 - 0.4176 - 0.2115 - 0.115),
    }  # fmt: skip
    assert {(p.step, p.rank) for p in first} == {(None, 0)}
    each = read(iteration(1, 120.0) + timers + iteration(2, 120.0) + timers)
    assert [p.step for p in each.phases(phase="forward", parent="step")] == [0, 1]


def test_timers_of_the_first_iteration_are_taken_off(read: Read) -> None:
    # Printed are sums divided by ten: of one iteration, then of ten.
    head = "max time across ranks (ms):\n"
    log = (
        iteration(1, 2500.0) + head + "    forward-compute ....: 200.00\n"
        + iteration(10, 400.0) + head + "    forward-compute ....: 350.00\n"
        + iteration(20, 160.0) + head + "    forward-compute ....: 150.00\n"
    )  # fmt: skip
    found = read(log)
    assert [step.disturbed_by for step in found.steps] == ["first iteration", None, None]
    # It is no sample of training, and in a sum over steps it could not be told apart any more.
    forward = found.phases(phase="forward")
    assert [(p.step, p.n, round(p.duration_s, 6)) for p in forward] == [
        (None, 9, 1.5), (None, 10, 1.5),
    ]  # fmt: skip
    assert forward[0].rank is None


def test_extremes_over_ranks_are_kept(read: Read) -> None:
    log = (
        iteration(1, 100.0) + "(min, max) time across ranks (ms):\n"
        "    forward-compute ................................: (31.20, 33.40)\n"
        "    all-grads-sync .................................: (4.00, 20.00)\n"
    )
    found = read(log)
    (forward,), (comm,) = found.phases(phase="forward"), found.phases(phase="comm")
    assert (forward.duration_s, forward.min_s, forward.max_s) == (0.0334, 0.0312, 0.0334)
    assert (comm.duration_s, comm.min_s, comm.max_s) == (0.004, 0.004, 0.02)
    assert found.parts()["other"] == pytest.approx(0.1 - 0.0334 - 0.004)


def test_times_of_all_ranks(read: Read) -> None:
    log = iteration(1, 100.0) + "times across ranks (ms):\n  forward-compute:\n"
    found = read(log + "     rank  0: 31.50\n     rank  1: 33.25\n")
    assert [(p.rank, p.duration_s) for p in found.phases(phase="forward")] == [
        (0, 0.0315), (1, 0.03325),
    ]  # fmt: skip


def test_what_runs_between_the_iterations(read: Read) -> None:
    log = (
        "time (ms) | load-checkpoint: 250.00\n"
        "(min, max) time across ranks (ms):\n"
        "    model-and-optimizer-setup ......................: (4000.00, 4500.00)\n"
        "    train/valid/test-data-iterators-setup ..........: (500.00, 700.00)\n"
        + iteration(1, 100.0)
        + "(min, max) time across ranks (ms):\n"
        "    evaluate .......................................: (1500.00, 1520.00)\n"
        "time (ms) | save-checkpoint: 5113.52 | interval-time: 1.0\n"
    )
    found = read(log)
    spans = {(p.phase, p.parent): p.duration_s for p in found.phases()}
    assert spans == {
        ("checkpoint", "init"): 0.25, ("init", None): pytest.approx(5.2), ("eval", None): 1.52,
        ("checkpoint", None): 5.11352,
    }  # fmt: skip
    assert [(p.min_s, p.max_s) for p in found.phases(phase="eval")] == [(1.5, 1.52)]


def test_options_tell_the_run(read: Read) -> None:
    log = "".join(
        option(name, value)
        for name, value in {
            "world_size": 16, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
            "context_parallel_size": 2, "micro_batch_size": 4, "global_batch_size": 64,
            "seq_length": 2048, "hidden_size": 1024, "num_layers": 24, "num_attention_heads": 16,
            "params_dtype": "torch.bfloat16", "train_iters": "None", "rampup_batch_size": "None",
        }.items()
    )  # fmt: skip
    ranks = [
        f" > number of parameters on (tensor, pipeline) model parallel rank ({t}, {p}): 100\n"
        for t in range(2)
        for p in range(2)
    ]
    run = read(log + "".join(ranks) + iteration(1, 100.0, batch=64)).run
    assert (run.n_devices, run.n_workers, run.global_batch, run.local_batch) == (16, 2, 64, 32.0)
    assert (run.tensor_parallel, run.pipeline_parallel, run.micro_batch) == (2, 2, 4)
    assert (run.sequence_length, run.hidden_size, run.n_layers, run.n_heads) == (2048, 1024, 24, 16)
    assert (run.precision, run.n_params, run.sync_method) == ("bfloat16", 400, "data_parallel")
    assert read(log + ranks[0] + iteration(1, 100.0)).run.n_params is None
    assert read(log + iteration(1, 100.0), n_workers=4).run.n_workers == 4


def test_other_spellings_of_the_line(read: Read) -> None:
    deepspeed = (
        " iteration        3/  159576 | consumed samples:           48 | consumed tokens:        "
        "98304 | elapsed time per iteration (s): 0.35 | learning rate: 7E-07 | global batch size:"
        "    16 | lm loss: 1.2E+01 | samples per second: 45.71 | TFLOPs: 1.2 |\n"
    )
    assert read(deepspeed).groups == [(2, 1, 0.35)]
    assert read(deepspeed).codes == [(None, "incomplete")]
    neox = (
        " samples/sec: 39.7 | iteration       30/  320000 | "
        "elapsed time per iteration (ms): 100.7 |\n"
    )
    assert read(neox).groups == [(29, 1, 0.1007)]
    stamped = f" [2026-03-01 12:00:01.5]{iteration(1, 100.0)}"
    assert read(stamped, tz="UTC").run.started_at == datetime(2026, 3, 1, 12, 0, 1, 500000, UTC)
    assert read(stamped).run.started_at is None


def test_a_rate_that_contradicts_the_time(read: Read) -> None:
    # 4 samples in 0.1 s are 40 a second.
    for rate, is_odd in (("40.0", False), ("41.9", False), ("42.5", True), ("4.0", True)):
        log = iteration(1, 100.0, rest=f" samples per second: {rate} |")
        assert ("throughput_mismatch" in [code for _, code in read(log).codes]) is is_odd
    text = read(iteration(1, 100.0, rest=" samples/sec: 80 |")).said("throughput_mismatch")
    assert text.endswith("worst at line 1: 2 times of it")


def test_phases_that_overlap_are_noted(read: Read) -> None:
    timers = "time (ms) | forward-compute: 60.0 | backward-compute: {}\n"
    assert read(iteration(1, 100.0) + timers.format("44.9")).codes == [(None, "incomplete")]
    found = read(iteration(1, 100.0) + timers.format("46.0"))
    assert (1, "phases_exceed_step") in found.codes
    assert found.parts()["other"] == pytest.approx(-0.006)


def test_a_batch_that_grows_is_noted(read: Read) -> None:
    found = read(iteration(10, 100.0, batch=4) + iteration(20, 100.0, batch=8))
    assert "batch_varies" in [code for _, code in found.codes]
    assert [step.n_samples for step in found.steps] == [40, 120]


def test_unknown_timers_are_noted_once(read: Read) -> None:
    timers = "time (ms) | forward-compute: 60.0 | rl-rollout: 5.0\n"
    found = read(iteration(1, 100.0) + timers + iteration(2, 100.0) + timers)
    assert found.said("unknown_timer").endswith("as other: rl-rollout (2 times, first here)")
    assert found.parts(step=1) == {"forward": 0.06, "other": 0.04}


def test_timers_without_a_step_are_noted(read: Read) -> None:
    found = read("time (ms) | forward-compute: 60.0 | optimizer: 5.0\n" + iteration(1, 100.0))
    assert found.said("unread_line") == "timers before the first step (2 times, first here)"
    assert found.phases() == []


def test_the_end_is_reached(read: Read) -> None:
    found = read(iteration(10, 100.0, of=20) + iteration(20, 100.0, of=20))
    assert (found.run.state, found.codes) == ("completed", [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(ms): 100.0", "(ms): 1x0.0"), ("(ms): 100.0", "(ms): 0.0"), ("(ms): 100.0", "(ms): nan"),
        ("(ms): 100.0", "(ms): -5.0"), ("/    1000 |", "|"), ("samples:            8", "samples:"),
        ("       2/", "2" * 20 + "/"), ("size:     4", "size: 4.5"), ("(ms):", "(min):"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_read(read: Read, old: str, new: str) -> None:
    assert old in iteration(2, 100.0)
    log = option("log_interval", 1) + iteration(1, 100.0)
    log += iteration(2, 100.0).replace(old, new) + iteration(3, 100.0)
    with pytest.raises(ParseError, match=r"^job\.log:3: cannot read: "):
        read(log)
    found = read(log, skip_bad_lines=True)
    assert (3, "bad_line") in found.codes
    assert [first for first, *_ in found.groups] == [0, 2]


def test_an_iteration_without_its_time_is_noted(read: Read) -> None:
    log = iteration(1, 100.0) + " iteration        2/    1000 | lm loss: 6.0 |\n"
    assert (2, "unread_line") in read(log).codes


@pytest.mark.parametrize("kept", [-1, -30, -100, 20])
def test_a_last_line_that_may_be_cut_is_not_believed(read: Read, kept: int) -> None:
    found = read(iteration(1, 100.0) + iteration(2, 100.0).rstrip("\n")[:kept])
    if kept != 20:  # nothing there that tells what it is
        assert (2, "truncated") in found.codes
    assert found.groups == [(0, 1, 0.1)]
    block = "(min, max) time across ranks (ms):\n    forward-compute ....: (31.20, 3"
    assert (3, "truncated") in read(iteration(1, 100.0) + block).codes


def test_the_sample_of_megatron_core(sample: Callable[[str], Any]) -> None:
    found = sample("synthetic_megatron_core")
    assert [(first, n) for first, n, _ in found.groups] == [
        (0, 1), (1, 9), (10, 10), (20, 10), (30, 10), (40, 10), (50, 10),
    ]  # fmt: skip
    assert found.run.state == "completed"
    assert found.codes == []
    # The generator's shares of a step, the slowest rank's, without what runs inside.
    step, phases = found.steps[2].duration_s, found.phases()[7:14]
    shares = {phase.phase: round(phase.duration_s / step, 3) for phase in phases}
    assert shares == {
        "step": 1.0, "forward": 0.26, "backward": 0.52, "io": 0.02, "optimizer": 0.05,
        "comm": pytest.approx(0.02 + 0.01 + 0.03 + 0.01), "other": pytest.approx(0.08),
    }  # fmt: skip


def test_options_that_contradict_earlier_ones_begin_another_run(read: Read) -> None:
    def block(world: int) -> str:
        options = {"data_parallel_size": world, "log_interval": 10, "world_size": world}
        return "".join(option(name, value) for name, value in options.items())

    log = block(16) + iteration(10, 100.0) + block(32) + iteration(20, 50.0)
    runs = [one for one in read(log).records if isinstance(one, Run)]
    assert [(run.n_workers, run.n_devices) for run in runs] == [
        (16, 16), (32, 32),
    ]  # fmt: skip
    assert runs[1].run_id == f"{runs[0].run_id}-2"
    found = read(log)
    assert "data_parallel is 16, then 32" in found.said("several_runs")
    assert [(step.run_id, step.duration_s) for step in found.steps] == [
        (runs[0].run_id, 1.0), (runs[1].run_id, 0.5),
    ]  # fmt: skip
    same = read(block(16) + iteration(10, 100.0) + block(16) + iteration(20, 100.0))
    assert (same.run.n_workers, len(same.steps)) == (16, 2)
    before = read(block(16) + block(32) + iteration(10, 100.0))
    assert before.run.n_workers == 32
    assert "contradictory_facts" in [code for _, code in before.codes]


def test_a_line_of_two_processes_is_two(read: Read) -> None:
    log = (
        option("log_interval", 10)
        + iteration(10, 100.0).rstrip("\n")
        + "time (ms) | optimizer: 10.00\n"
    )
    found = read(log)
    assert (len(found.steps), found.parts()["optimizer"]) == (1, 0.1)
