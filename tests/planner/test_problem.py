"""The problem as plain numbers: what it refuses, what it keeps, what a choice costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fitkit.errors import InputError
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem


def layer(name: str = "a", **changed: object) -> LayerCosts:
    given = LayerCosts(name, "dense", np.array([1, 3]), np.array([6.0, 3.0]), np.zeros(2), 6.0)
    return replace(given, **changed)  # type: ignore[arg-type]


def edge(src: int = 0, dst: int = 1, **changed: object) -> EdgeCosts:
    return replace(EdgeCosts(src, dst, np.array([[0.0, 1.0], [2.0, 0.0]])), **changed)  # type: ignore[arg-type]


def test_a_choice_costs_layers_transfers_and_the_constant_part() -> None:
    problem = Problem("net", 3, (layer("a"), layer("b")), (edge(),), step_s=0.5)
    # a on 3 GPUs takes 3, moving to 1 GPU 2, b on it 6; transfers count on b's GPU.
    assert problem.evaluate([1, 0]) == pytest.approx((0.5 + 3 + 2 + 6, 0.5 * 3 + 9 + 8))
    assert problem.evaluate([0, 0]) == pytest.approx((0.5 + 12, 0.5 + 12))
    assert problem.is_chain
    assert problem.max_gpus == 3


def test_fewer_gpus_leave_fewer_options() -> None:
    costs = layer("b", memory_bytes=np.array([9.0, 4.0]), forward_s=np.array([2.0, 1.0]))
    apart = np.array([[5.0, 6.0], [7.0, 8.0]])
    problem = Problem("net", 3, (layer("a"), costs), (edge(transfer_apart_s=apart),))
    less = problem.with_at_most(2)
    assert [one.n_gpus.tolist() for one in less.layers] == [[1], [1]]
    assert less.edges[0].transfer_s.tolist() == [[0.0]]
    assert less.edges[0].transfer_apart_s.tolist() == [[5.0]]
    assert less.layers[1].memory_bytes.tolist() == [9.0]
    assert less.layers[1].forward_s.tolist() == [2.0]
    assert less.max_gpus == 1
    assert problem.max_gpus == 3
    assert problem.with_at_most(3) is problem


def test_a_layer_that_needs_more_gpus_is_named() -> None:
    wide = layer("wide", n_gpus=np.array([4, 8]))
    problem = Problem("net", 8, (layer("a"), wide), (edge(),))
    with pytest.raises(InputError, match=r"net: layer 1 \(wide\) needs 4 GPUs, of 3"):
        problem.with_at_most(3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n_gpus": np.array([], dtype=int)}, r"layer 0 \(a\) has no GPU count"),
        ({"n_gpus": np.array([3, 1])}, "must ascend"),
        ({"n_gpus": np.array([0, 1])}, "must ascend"),
        ({"compute_s": np.array([1.0])}, "compute_s has 1 values for 2"),
        ({"compute_s": np.array([1.0, -1.0])}, r"layer 0 \(a\): compute_s is -1"),
        ({"compute_s": np.array([1.0, np.nan])}, "compute_s is nan"),
        ({"compute_s": np.array([1.0, 0.0])}, "compute_s is 0"),
        ({"sync_s": np.array([np.inf, 0.0])}, "sync_s is inf"),
        ({"memory_bytes": np.array([-1.0, 0.0])}, "memory_bytes is -1"),
        ({"reference_s": -1.0}, "time on one GPU is -1"),
        ({"reference_s": np.nan}, "time on one GPU is nan"),
    ],
)
def test_costs_that_cannot_be_are_named(changed: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Problem("net", 3, (layer(**changed),), ())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (edge(1, 0), r"from layer 1 \(b\) to layer 0 \(a\) leads backwards"),
        (edge(0, 0), "leads backwards"),
        (edge(0, 2), "leads from 0 to 2, of 2 layers"),
        (edge(transfer_s=np.zeros((2, 3))), r"a table of \(2, 3\)"),
        (edge(transfer_s=np.full((2, 2), -1.0)), "transfer is -1"),
        (edge(transfer_apart_s=np.full((2, 2), np.nan)), "transfer is nan"),
    ],
)
def test_edges_that_cannot_be_are_named(wrong: EdgeCosts, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Problem("net", 3, (layer("a"), layer("b")), (wrong,))


def test_a_network_without_layers_is_refused() -> None:
    with pytest.raises(InputError, match="no layer"):
        Problem("net", 3, (), ())
