"""Plans read from JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import InputError, ParseError
from fitkit.planner.plan import Plan
from fitkit.planner.sharing import read_plan


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def call(document: Any) -> Path:
        path = tmp_path / "plan.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return call


def test_a_plan_comes_back_as_it_was(narrow_plan: Plan, write: Callable[[Any], Path]) -> None:
    found = read_plan(write(asdict(narrow_plan)))
    assert (found.iter_s, found.n_gpus, found.global_batch) == (narrow_plan.iter_s, 4, 32)
    assert [one.gpus for one in found.layers] == [(0, 1, 2, 3), (0,)]
    assert [one.compute_s for one in found.layers] == pytest.approx([6e-3, 4e-3])
    assert found.baselines.keys() == narrow_plan.baselines.keys()
    assert found.baselines["data_parallel"].layers[0].sync_s == pytest.approx(3e-3)


def test_the_keys_of_the_interface_are_enough(write: Callable[[Any], Path]) -> None:
    document = {
        "instance": "net", "n_gpus": 4, "global_batch": 32, "iter_s": 2.0, "gpu_s": 5.0,
        "layers": [
            {"id": 0, "name": "a", "n_gpus": 4, "start_s": 0.0, "end_s": 1.0},
            {"id": 1, "name": "b", "n_gpus": 1, "start_s": 1.0, "end_s": 2.0},
        ],
        "frontier": [],
        "baselines": {"data_parallel": {"iter_s": 3.0, "gpu_s": 12.0, "n_gpus": 4}},
    }  # fmt: skip
    found = read_plan(write(document))
    assert [one.gpus for one in found.layers] == [(0, 1, 2, 3), (0,)]
    assert [one.name for one in found.baselines["data_parallel"].layers] == ["whole step"]
    assert found.baselines["data_parallel"].layers[0].end_s == 3.0


LAYER = {"name": "a", "n_gpus": 2, "start_s": 0.0, "end_s": 1.0}
PLAN = {"global_batch": 32, "iter_s": 1.0, "layers": [LAYER]}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "not JSON"),
        ([], "a plan without layers"),
        (PLAN | {"layers": []}, "a plan without layers"),
        (PLAN | {"layers": "ab"}, "layers is not a list"),
        (PLAN | {"layers": [1]}, "layer 0 is not an object"),
        (PLAN | {"iter_s": 0}, "iter_s is 0"),
        (PLAN | {"iter_s": None}, "iter_s is None, not a number"),
        (PLAN | {"iter_s": 0.5}, "layer a ends at 1 s, after the step of 0.5 s"),
        (PLAN | {"global_batch": 1.5}, "global_batch is 1.5"),
        (PLAN | {"baselines": [1]}, "baselines is not an object"),
        (PLAN | {"baselines": {"x": [1]}}, "baseline x is not an object"),
        (PLAN | {"layers": [LAYER | {"n_gpus": 0}]}, "layer a: n_gpus is 0"),
        (PLAN | {"layers": [LAYER | {"start_s": 2}]}, "layer a runs from 2 to 1 s"),
        (PLAN | {"layers": [LAYER | {"sync_s": -1}]}, "layer a has a negative time"),
        (PLAN | {"layers": [LAYER | {"gpus": [0]}]}, r"layer a has 2 GPUs and runs on \[0\]"),
    ],
)
def test_what_is_wrong_is_named(write: Callable[[Any], Path], document: Any, said: str) -> None:
    with pytest.raises(ParseError, match=said) as error:
        read_plan(write(document))
    assert error.value.hint == "fitkit plan -o plan.json writes one"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_plan(tmp_path / "none.json")
