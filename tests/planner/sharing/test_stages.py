"""Schedules cut into stages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fitkit.errors import InputError
from fitkit.planner.plan import PlannedLayer, Schedule
from fitkit.planner.sharing.stages import stages_of, two_passes

Chain = Callable[..., Schedule]


def placed(number: int, gpus: tuple[int, ...], start_s: float, end_s: float) -> PlannedLayer:
    return PlannedLayer(
        number, f"l{number}", "layer", len(gpus), start_s, end_s, 0.0, end_s - start_s, 0.0, 1.0,
        gpus,
    )  # fmt: skip


def works_ms(schedule: Schedule, merge_s: float) -> list[list[tuple[str, float]]]:
    return [
        [(one.kind, round(one.work_s * 1e3, 9)) for one in stage.tasklets]
        for stage in stages_of(schedule, merge_s)
    ]


def test_neighbours_on_the_same_gpus_are_one_stage_with_its_gradients_last(chain: Chain) -> None:
    schedule = chain((4, 0, 0.1, 0.02), (4, 0, 0.2, 0.03), (4, 0, 0.4, 0), (4, 0, 0.1, 0))
    assert works_ms(schedule, 0.25e-3) == [[("compute", 0.3), ("compute", 0.5), ("sync", 0.05)]]
    assert works_ms(schedule, 0.0)[0][:-1] == [("compute", ms) for ms in (0.1, 0.2, 0.4, 0.1)]


def test_a_change_of_gpus_and_a_transfer_begin_a_stage(chain: Chain) -> None:
    schedule = chain((4, 0, 1, 0.5), (1, 0.25, 2, 0), (1, 0, 3, 0), (1, 0.5, 4, 0))
    assert works_ms(schedule, 0.25e-3) == [
        [("compute", 1), ("sync", 0.5)],
        [("transfer", 0.25), ("compute", 2), ("compute", 3)],
        [("transfer", 0.5), ("compute", 4)],
    ]
    assert [stage.after for stage in stages_of(schedule)] == [(), (0,), (1,)]
    assert [stage.lag_s for stage in stages_of(schedule)] == [0, 0, 0]


def test_the_constant_of_a_step_is_a_stage_on_all_gpus(chain: Chain) -> None:
    stages = stages_of(chain((4, 0, 1, 0), (1, 0, 2, 0), step_ms=0.5))
    assert stages[-1].gpus == (0, 1, 2, 3)
    assert stages[-1].tasklets[0].work_s == pytest.approx(0.5e-3)


def test_branches_wait_for_what_the_plan_has_finished_before() -> None:
    #  l0 on all, then l1 beside l2 and l3, then l4; l3 begins a while after l2.
    both = (0, 1)
    layers = (
        placed(0, both, 0.0, 1.0), placed(1, (0,), 1.0, 4.0), placed(2, (1,), 1.0, 2.0),
        placed(3, (1,), 2.5, 3.5), placed(4, both, 4.0, 5.0),
    )  # fmt: skip
    stages = stages_of(Schedule(5.0, 0.0, layers))
    assert [stage.after for stage in stages] == [(), (0,), (0,), (1,), (2, 3)]  # l0, l2, l1, l3, l4
    assert [stage.lag_s for stage in stages] == [0, 0, 0, 0.5, 0]


def test_layers_without_length_follow_each_other() -> None:
    layers = (placed(0, (0,), 0.0, 1.0), placed(1, (0,), 1.0, 1.0), placed(2, (0, 1), 1.0, 2.0))
    stages = stages_of(Schedule(2.0, 0.0, layers))
    assert [stage.after for stage in stages] == [(), (0,)]


def test_a_gpu_that_two_layers_use_at_once_is_named() -> None:
    layers = (placed(0, (0, 1), 0.0, 2.0), placed(1, (1,), 1.0, 3.0))
    with pytest.raises(InputError, match="layers l0 and l1 use GPU 1 at the same time"):
        stages_of(Schedule(3.0, 0.0, layers))


def test_parts_longer_than_the_layer_are_named(chain: Chain) -> None:
    good = chain((1, 0, 1, 0)).layers[0]
    bad = PlannedLayer(
        good.id, good.name, good.layer_type, 1, 0.0, 0.5e-3, 0.0, 1e-3, 0.0, 1.0, (0,)
    )
    with pytest.raises(InputError, match="layer l0: its parts take"):
        stages_of(Schedule(0.5e-3, 0.0, (bad,)))


def test_what_moves_before_a_join_is_no_work_of_its_gpus() -> None:
    join = PlannedLayer(1, "l1", "concat", 1, 3.0, 4.5, 2.0, 1.0, 0.0, 1.0, (0,))
    last = stages_of(Schedule(4.5, 0.0, (placed(0, (0, 1), 0.0, 1.0), join)))[-1]
    assert last.lag_s == 2
    assert [(one.kind, one.work_s) for one in last.tasklets] == [("transfer", 0.5), ("compute", 1)]


def test_two_passes_keep_the_time_of_the_step_and_of_each_gpu(chain: Chain) -> None:
    whole = chain((4, 0, 3, 0.5), (1, 0.4, 6, 0), (2, 0.2, 3, 0.3))
    split = two_passes(whole, forward_share=1 / 3)

    def busy_ms(schedule: Schedule, gpu: int) -> float:
        return sum(one.end_s - one.start_s for one in schedule.layers if gpu in one.gpus) * 1e3

    assert split.layers[-1].end_s == pytest.approx(whole.iter_s)
    for gpu in range(4):
        assert busy_ms(split, gpu) == pytest.approx(busy_ms(whole, gpu))
    assert [one.name for one in split.layers] == ["l0", "l1", "l2", "l2", "l1", "l0"]
    assert [round(one.compute_s * 1e3, 6) for one in split.layers] == [1, 2, 1, 2, 4, 2]


def test_two_passes_of_branches_are_refused() -> None:
    layers = (placed(0, (0,), 0.0, 2.0), placed(1, (1,), 1.0, 3.0))
    with pytest.raises(InputError, match="l0 and l1 run side by side"):
        two_passes(Schedule(3.0, 0.0, layers))
