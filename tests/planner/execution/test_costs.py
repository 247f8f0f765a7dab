"""What ranks measured, put together; without any process."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.planner.execution.costs import Curve, costs_of
from fitkit.planner.execution.laps import Laps
from fitkit.planner.execution.measure import execution_of
from fitkit.planner.execution.plan_file import plan_of
from fitkit.planner.instances import problem_from_json


def profiled(slower: float = 0.0) -> dict:
    """Two layers at a global batch of 4 on one or two ranks, in (wall, processor) seconds."""
    layers = [
        {"name": "0", "layer_type": "Conv2d", "grad_bytes": 1000, "output_bytes": 100},
        {"name": "1", "layer_type": "Linear", "grad_bytes": 3000, "output_bytes": 8},
    ]
    one = [["forward", 0, 9, 1.0], ["backward", 0, 9, 2.0], ["forward", 1, 9, 0.5],
           ["backward", 1, 9, 1.5], ["other", -1, 9, 0.25]]  # fmt: skip
    two = [[part, layer, wall, cpu / 2 + slower] for part, layer, wall, cpu in one]
    two += [["sync", 0, 9, 0.01], ["sync", 1, 9, 0.02]]
    return {
        "layers": layers,
        "widths": [[1, one], [2, two]],
        "all_reduce": [[2, [[1024, 9, 0.1 + slower], [4096, 9, 0.4]]]],
        "exchange": [[1, 2, [[256, 9, 0.03], [512, 9, 0.05]]], [2, 1, [[512, 9, 0.07]]]],
    }


def test_a_problem_of_what_was_measured() -> None:
    costs = costs_of([profiled(), {**profiled(0.2), "exchange": []}], "net", 4, "cpu")
    problem = costs.problem()
    conv, linear = problem.layers
    assert conv.n_gpus.tolist() == [1, 2]
    assert conv.compute_s == pytest.approx([3.0, 1.7])  # the median of 1.5 and of 1.5 + 2 × 0.2
    assert conv.sync_s == pytest.approx([0.0, 0.01 + 0.3])  # as on the slower rank
    assert linear.sync_s == pytest.approx([0, 0.02 + 0.3 + 0.1 * (3000 - 1024) / 3072])
    assert conv.forward_s == pytest.approx([1.0, 0.6])
    assert problem.edges[0].transfer_s == pytest.approx(
        np.array([[0, 0.03 + 0.02 * (400 - 256) / 256], [0.07, 0]])
    )
    assert problem.step_s == pytest.approx((0.25 + 0.225) / 2)
    assert problem.evaluate([0, 0])[0] == pytest.approx(problem.step_s + 5.0)


def test_with_an_odd_batch_only_ranks_with_more_samples_count() -> None:
    costs = costs_of([profiled(), profiled(0.2)], "net", 5, "cpu")
    assert costs.problem().layers[0].compute_s == pytest.approx([3.0, 1.5])


def test_the_wall_clock() -> None:
    costs = costs_of([profiled(), profiled()], "net", 4, "wall")
    assert costs.problem().layers[0].compute_s.tolist() == [18, 18]
    with pytest.raises(ValueError, match="clock 'sun'"):
        costs_of([profiled()], "net", 4, "sun")


def test_the_instance_is_what_the_planner_reads() -> None:
    costs = costs_of([profiled(), profiled(0.2)], "net", 4, "cpu")
    ours, read = costs.problem(), problem_from_json(costs.instance())
    assert (read.name, read.global_batch, read.step_s) == ("net", 4, pytest.approx(ours.step_s))
    for one, other in zip(ours.layers, read.layers, strict=True):
        assert other.name == one.name
        for what in ("n_gpus", "compute_s", "sync_s", "reference_s", "forward_s"):
            assert getattr(other, what) == pytest.approx(getattr(one, what))
    assert read.edges[0].transfer_s == pytest.approx(ours.edges[0].transfer_s)


def test_curves_have_a_floor_and_no_message_is_free_of_charge() -> None:
    curve = Curve((10, 20), (1.0, 3.0))
    assert [curve.at(n) for n in (0, 1, 15, 20)] == [0, 1, 2, 3]


def test_laps_add_up_to_the_step() -> None:
    class Clock:
        now = 0.0

        def read(self) -> float:
            Clock.now += 1.0
            return Clock.now

        def seconds(self, begin: float, end: float) -> tuple[float, float]:
            return end - begin, 10 * (end - begin)

        def finish(self) -> None:
            pass

    laps = Laps(Clock())  # type: ignore[arg-type]
    for _ in range(2):  # the second step forgets the first one
        laps.begin()
        for part, layer in (("forward", 0), ("forward", 1), ("backward", 1), ("forward", 0)):
            laps.lap(part, layer)
        found = laps.end()
    assert found == {
        ("forward", 0): (2, 20), ("forward", 1): (1, 10), ("backward", 1): (1, 10),
    }  # fmt: skip


def test_the_busiest_rank_counts(document: object) -> None:
    def rank(cpu: float, loss: float) -> dict:
        parts = [["forward", 0, 0.5, cpu], ["backward", 0, 0.5, cpu], ["transfer", 1, 0.25, 0.125]]
        step = {"wall_s": 1 + cpu, "cpu_s": 2 * cpu, "loss": loss, "parts": parts}
        first = {**step, "wall_s": 99, "cpu_s": 99}
        return {"steps": [first, step, step], "apart": cpu}

    plan = plan_of(document([2, 1]))  # type: ignore[operator]
    done = execution_of([rank(1, 0.5), rank(3, 0.25)], plan, "net", "gloo", 1)
    assert (done.wall_s, done.cpu_s, done.cpu_sum_s, done.apart) == (4, 6, 8, 3)
    assert done.steps[0].is_warm_up
    assert done.steps[1].loss == 0.75
    assert done.ratios == pytest.approx({"cpu": 0.002 / 6, "wall": 0.002 / 4, "gpu": 0.003 / 8})
    conv, fc = done.layers
    assert (conv.cpu_s, conv.wall_s, conv.planned_s) == (6, 1, 0.001)
    assert conv.parts_cpu_s == {"transfer": 0, "forward": 3, "backward": 3, "sync": 0}
    assert (fc.cpu_s, fc.wall_s) == (0.125, 0.25)
    text = str(done.summary())
    assert "test" in text
    assert "busiest rank" in text


def test_a_loss_that_is_no_number_is_left_out(document: object) -> None:
    step = {"wall_s": 1.0, "cpu_s": 1.0, "loss": float("nan"), "parts": []}
    ranks = [{"steps": [step], "apart": float("nan")}]
    done = execution_of(ranks, plan_of(document([1])), "net", "gloo", 0)  # type: ignore[operator]
    assert done.to_json()["steps"][0]["loss"] is None
    assert done.to_json()["parameters_apart"] is None
