"""Ways to use a cluster side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fitkit.errors import InputError
from fitkit.planner.plan import Plan
from fitkit.planner.sharing import (
    BackgroundJob,
    Cluster,
    Interference,
    Rules,
    compare,
    summarise,
    sweep,
)

RULES = Rules(target=1.0, receive_s=0.0, react_at=1.0, hold_target=False)
SETTING = {"n_steps": 10, "warm_up": 2, "lanes": 1}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    background = BackgroundJob.of_step("small", 10, 10e-3, piece_s=1e-3)  # 1,000 samples a second
    return Cluster(4, (), [(background, None)], Interference(0.5, 0.5), replace(RULES, target=0.0))


def test_every_way_is_counted_by_hand(narrow_plan: Plan, cluster: Cluster) -> None:
    found = {one.name: one for one in compare(cluster, [(narrow_plan, 1)], **SETTING)}
    per_s = {name: one.result.cluster_per_s for name, one in found.items()}
    alone = 32 / 11e-3
    assert per_s == pytest.approx(
        {
            "data_parallel": alone,
            "data_parallel_shared": alone,  # nothing waits, and nothing is let in elsewhere
            "partition": 32 / 13e-3 + 2 * 1000,
            "plan": 32 / 10e-3,
            "plan_shared": 32 / 10e-3 + 3 * 400,
        }
    )
    assert found["plan_shared"].gain == pytest.approx(4400 / alone)
    assert found["plan_shared"].gain_gpus == pytest.approx((2.6 + 1.2) / (26 / 11))


def test_copies_fill_a_cluster_and_the_rest_is_background(
    narrow_plan: Plan, cluster: Cluster
) -> None:
    found = sweep(cluster, [narrow_plan], [4, 4098], fills=True, **SETTING)
    shared = [one.result for one in found if one.name == "plan_shared"]
    assert [one.n_gpus for one in shared] == [4, 4098]
    assert shared[0].cluster_per_s == pytest.approx(4400)
    assert shared[1].cluster_per_s == pytest.approx(1024 * 4400 + 2 * 1000)
    single = sweep(cluster, [narrow_plan], [4098], **SETTING)
    assert single[-1].result.cluster_per_s == pytest.approx(4400 + 4094 * 1000)
    basis = 32 / 11e-3 + 4094 * 1000  # free GPUs have background jobs in every way
    assert single[0].result.cluster_per_s == pytest.approx(basis)
    assert single[-1].gain == pytest.approx((4400 + 4094 * 1000) / basis)


def test_several_plans_share_a_cluster(narrow_plan: Plan, cluster: Cluster) -> None:
    other = replace(narrow_plan, instance="other", global_batch=64)
    found = sweep(cluster, [narrow_plan, other], [8], **SETTING)[-1].result
    assert [job.name for job in found.foregrounds] == ["net, plan", "other, plan"]
    assert found.foreground_per_s == pytest.approx(3 * 3200)
    assert found.background_per_s == pytest.approx(6 * 400)


def test_without_a_smaller_baseline_there_is_no_partition(
    narrow_plan: Plan, cluster: Cluster
) -> None:
    baselines = {"data_parallel": narrow_plan.baselines["data_parallel"]}
    found = compare(cluster, [(replace(narrow_plan, baselines=baselines), 1)], **SETTING)
    assert "partition" not in [one.name for one in found]
    assert found[-1].gain_gpus is None
    with pytest.raises(InputError, match="no baseline data_parallel"):
        compare(cluster, [(replace(narrow_plan, baselines={}), 1)], **SETTING)


def test_a_summary_has_a_row_for_each_way(narrow_plan: Plan, cluster: Cluster) -> None:
    text = str(summarise(compare(cluster, [(narrow_plan, 1)], **SETTING), "shared"))
    for words in ("data parallel shared", "partition", "plan shared", "1.51"):
        assert words in text
