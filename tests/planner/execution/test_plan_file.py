"""Reading plans, and matching them with networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import InputError, ParseError
from fitkit.planner.execution import plan_of, read_plan
from fitkit.planner.execution.plan_file import match_layers


def test_a_plan(plan_path: Any) -> None:
    plan = read_plan(plan_path([2, 2, 1], names=["conv", "relu", "fc"]))
    assert (plan.widths, plan.n_ranks, plan.global_batch) == ([2, 2, 1], 2, 8)
    assert (plan.iter_s, plan.gpu_s) == pytest.approx((0.003, 0.005))
    assert [(one.name, one.planned_s) for one in plan.layers] == [
        ("conv", 0.001), ("relu", 0.001), ("fc", pytest.approx(0.001)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"layers": []}, "a plan without layers"),
        ({"global_batch": 0}, "global_batch is 0"),
        ({"global_batch": 1.5}, "global_batch is 1.5"),
        ({"global_batch": 1}, "layer 0 is planned on 2 GPUs, but the global batch has 1"),
        ({"iter_s": None}, "the plan: iter_s is None, not a number"),
        ({"gpu_s": "1"}, "the plan: gpu_s is '1', not a number"),
    ],
)
def test_what_is_no_plan(document: Any, tmp_path: Path, change: dict[str, Any], what: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**document([2, 1]), **change}), encoding="utf-8")
    with pytest.raises(ParseError, match=what):
        read_plan(path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"n_gpus": 0}, "layer 1: n_gpus is 0"),
        ({"n_gpus": True}, "layer 1: n_gpus is True, not a number"),
        ({"start_s": 0.0}, "layer 1 begins before layer 0 ends"),
        ({"end_s": float("nan")}, "layer 1: end_s is nan"),
        ({"gpus": [1]}, r"layer 1 runs on GPUs \[1\]"),
    ],
)
def test_layers_that_cannot_be_run(document: Any, change: dict[str, Any], what: str) -> None:
    plan = document([2, 1])
    plan["layers"][1].update(change)
    with pytest.raises(InputError, match=what):
        plan_of(plan)


def test_files_that_are_no_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_plan(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text("{\n")
    with pytest.raises(ParseError, match=r"plan.json:2: not JSON"):
        read_plan(tmp_path / "plan.json")


def test_layers_of_the_network() -> None:
    match_layers(["a", "b"], ["a", "b"], by_position=False)
    match_layers(["conv2d", "ReLU2d"], ["a", "b"], by_position=True)
    with pytest.raises(InputError, match="layer 1 is c in the plan and b in the network"):
        match_layers(["a", "c"], ["a", "b"], by_position=False)
    for by_position in (True, False):
        with pytest.raises(InputError, match="the plan has 2 layers and the network 3") as error:
            match_layers(["a", "c"], ["a", "b", "c"], by_position=by_position)
        assert error.value.hint.endswith("c" if by_position else "b")
