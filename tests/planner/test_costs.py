from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import ExtrapolationWarning, InputError
from fitkit.models.performance import PerformanceModel
from fitkit.planner.costs import CostSettings, problem_from_models
from fitkit.planner.layer_curves import MeasuredLayers
from fitkit.planner.layer_memory import MemoryRule
from fitkit.planner.layer_models import ModelledLayers
from fitkit.planner.network import Network, NetworkEdge, NetworkLayer
from fitkit.planner.problem import Problem
from fitkit.planner.profiles import chain_of, problem_from_profile
from fitkit.planner.transfers import RingLink

LINK = RingLink(1e-5, 1e9)
NET = Network(
    "net",
    (
        NetworkLayer("conv", "Conv2d", 1_000, output_bytes=4e3),
        NetworkLayer("relu", "ReLU", 0, output_bytes=4e3),
        NetworkLayer("fc", "Linear", 1_000_000, output_bytes=40.0),
    ),
    (NetworkEdge(0, 1, 4e3), NetworkEdge(1, 2, 4e3)),
)
BATCHES = (1, 2, 4, 8, 16, 32)


def profile() -> pd.DataFrame:
    """conv: 1e-4 a sample; relu: 1e-5 a sample; fc: 1e-3 whatever the batch. A third is forward."""
    each = {"conv": lambda b: 1e-4 * b, "relu": lambda b: 1e-5 * b, "fc": lambda b: 1e-3}
    return pd.DataFrame(
        [
            (name, phase, float(b), share * seconds(b))
            for name, seconds in each.items()
            for phase, share in (("forward", 1 / 3), ("backward", 2 / 3))
            for b in BATCHES
        ],
        columns=["layer", "phase", "local_batch", "duration_s"],
    )


def problem(**options: object) -> Problem:
    given = {"layer_model": profile(), "comm_model": LINK, "n_gpus": 8, "global_batch": 32}
    network = options.pop("network", NET)
    return problem_from_models(network, **{**given, **options})  # type: ignore[arg-type]


class TestCosts:
    def test_by_hand(self) -> None:
        found = problem(step_s=1e-3)
        conv, relu, fc = found.layers
        assert conv.n_gpus.tolist() == [1, 2, 4, 8]
        assert conv.compute_s == pytest.approx([32e-4, 16e-4, 8e-4, 4e-4])
        assert conv.forward_s == pytest.approx(conv.compute_s / 3)
        assert fc.compute_s == pytest.approx([1e-3] * 4)
        # 4 MB at 2 (g - 1) / g of 1 GB/s, and the latency; a layer without parameters has none.
        assert fc.sync_s == pytest.approx([0, 4.01e-3, 6.01e-3, 7.01e-3])
        assert relu.sync_s.tolist() == [0, 0, 0, 0]
        assert conv.reference_s == pytest.approx(32e-4)
        # From 8 GPUs to 1: GPU 0 has 4 of 32 samples and receives 28 of 4,000 bytes, and in
        # backward the gradients go the other way.
        moved = found.edges[1].transfer_s
        assert moved[3, 0] == pytest.approx(2 * (1e-5 + 28 * 4e3 / 1e9))
        assert np.diag(moved).tolist() == [0, 0, 0, 0]
        assert moved == pytest.approx(moved.T)
        apart = found.edges[1].transfer_apart_s
        assert apart is not None
        assert apart[3, 3] == pytest.approx(2 * (1e-5 + 4 * 4e3 / 1e9))
        time_s, gpu_s = found.evaluate([3, 3, 0])
        assert time_s == pytest.approx(
            1e-3 + 4e-4 + 1.75 * 4e3 / 1e9 + 1e-5 + 4e-5 + moved[3, 0] + 1e-3
        )
        assert gpu_s > time_s
        assert not found.warnings

    def test_memory(self) -> None:
        conv = problem().layers[0]
        assert conv.memory_bytes is not None
        assert conv.memory_bytes.tolist() == [12e3 + 4e3 * b for b in (32, 16, 8, 4)]
        adam = problem(memory=MemoryRule(optimizer_bytes=8.0, activation_copies=2.0)).layers[0]
        assert adam.memory_bytes is not None
        assert adam.memory_bytes.tolist() == [16e3 + 8e3 * b for b in (32, 16, 8, 4)]
        with pytest.raises(ValueError, match="0 or more"):
            MemoryRule(weight_bytes=-1.0)

    def test_half_gradients(self) -> None:
        assert problem(gradient_bytes=2.0).layers[2].sync_s[1] == pytest.approx(2.01e-3)

    def test_uneven_counts(self) -> None:
        conv = problem(n_gpus=6).layers[0]
        assert conv.n_gpus.tolist() == [1, 2, 4, 6]
        assert conv.compute_s[-1] == pytest.approx(6e-4)  # 32 samples on 6 GPUs: 6 on the fullest
        assert problem(gpu_counts=[5, 3]).layers[0].n_gpus.tolist() == [3, 5]

    def test_one_gpu_needs_no_link(self) -> None:
        lone = Network("net", (NetworkLayer("fc", "Linear"),), ())
        found = problem(network=lone, comm_model=None, n_gpus=1)
        assert found.layers[0].sync_s.tolist() == [0.0]

    def test_beyond_the_measured_batches(self) -> None:
        with pytest.warns(ExtrapolationWarning, match="on some GPU counts: conv, relu, fc"):
            found = problem(global_batch=64)
        flags = found.layers[0].is_extrapolated
        assert flags is not None
        assert flags.tolist() == [True, False, False, False]
        assert found.layers[0].compute_s[0] == pytest.approx(64e-4)
        assert "extrapolated" in found.warnings[0]

    def test_a_layer_that_was_not_measured(self) -> None:
        cat = NetworkLayer("cat", "Concat", 0, input_bytes=4e3, output_bytes=4e3)
        grown = Network("net", (*NET.layers, cat), (*NET.edges, NetworkEdge(2, 3, 4e3)))
        with pytest.raises(InputError, match=r"net: layer cat \(Concat\) has no measured time"):
            problem(network=grown)
        with pytest.warns(ExtrapolationWarning, match=r"not measured, estimated from .*: cat"):
            found = problem(network=grown, estimate_missing=True)
        flags = found.layers[3].is_extrapolated
        assert flags is not None
        assert flags.all()
        assert (found.layers[3].compute_s > 1e-5).all()


class TestOverlap:
    def test_a_share(self) -> None:
        assert problem(overlap=0.25).layers[2].sync_s == pytest.approx(
            0.75 * problem().layers[2].sync_s
        )

    def test_by_the_schedule_of_a_data_parallel_step(self) -> None:
        found = problem(overlap="schedule")
        # On 2 GPUs fc's 4.01 ms start after its own backward; conv's and relu's take 2/3 of 1.76
        # ms; conv's 14 us wait for fc's. So all but those 1.173 ms are left.
        whole = 4.01e-3 + 1.4e-5
        hidden = 2 / 3 * 1.76e-3 / whole
        assert found.layers[2].sync_s[1] == pytest.approx(4.01e-3 * (1 - hidden))
        assert sum(layer.sync_s[1] for layer in found.layers) == pytest.approx(
            whole - 2 / 3 * 1.76e-3
        )

    def test_needs_phases(self) -> None:
        both = profile().groupby(["layer", "local_batch"], sort=False).duration_s.sum()
        with pytest.raises(InputError, match="layer conv: forward and backward are not told apart"):
            problem(layer_model=both.reset_index(), overlap="schedule")

    @pytest.mark.parametrize("wrong", [-0.1, 1.1, "some"])
    def test_wrong(self, wrong: object) -> None:
        with pytest.raises(ValueError, match="a share from 0 to 1, or 'schedule'"):
            problem(overlap=wrong)

    def test_wrong_seconds(self) -> None:
        with pytest.raises(ValueError, match="seconds from 0"):
            CostSettings(step_s=-1.0)


class TestAsked:
    def test_a_batch_below_the_gpus(self) -> None:
        found = problem(n_gpus=64)
        assert found.layers[0].n_gpus.tolist() == [1, 2, 4, 8, 16, 32]
        assert found.warnings == (
            "a global batch of 32 keeps at most 32 of 64 GPUs busy: larger counts are left out",
        )
        with pytest.raises(InputError, match=r"a global batch of 3 is too small: .* count is 4"):
            problem(global_batch=3, gpu_counts=[4, 8])

    @pytest.mark.parametrize(
        "wrong", [{"n_gpus": 0}, {"global_batch": 2.5}, {"gpu_counts": [16]}, {"gpu_counts": [0]}]
    )
    def test_numbers(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"whole number|of 8 GPUs"):
            problem(**wrong)

    def test_no_link(self) -> None:
        with pytest.raises(ValueError, match="net: no comm_model, and synchronisation is not free"):
            problem(comm_model=None)

    def test_unknown_parameters(self) -> None:
        unknown = replace(NET, layers=(NET.layers[0], NetworkLayer("relu", "ReLU"), NET.layers[2]))
        with pytest.raises(InputError, match="layer relu: its parameters are not known"):
            problem(network=unknown)

    def test_unknown_bytes(self) -> None:
        bare = (NetworkLayer("conv", "Conv2d", 10), *NET.layers[1:])
        edges = (NetworkEdge(0, 1), NetworkEdge(1, 2))
        with pytest.raises(InputError, match="bytes from layer conv to layer relu are not known"):
            problem(network=Network("net", bare, edges))
        # The second edge has none of its own, but the layer tells what it makes.
        found = problem(network=Network("net", NET.layers, edges))
        assert found.edges[1].transfer_s == pytest.approx(problem().edges[1].transfer_s)


class TestProfile:
    def test_is_a_chain(self) -> None:
        sizes = {"conv": (1_000, 4e3), "relu": (0, 4e3), "fc": (1_000_000, 40.0)}
        rows = profile().assign(device="A100", layer_type="x")
        rows["n_params"] = [sizes[name][0] for name in rows.layer]
        rows["output_bytes"] = [
            sizes[n][1] * b for n, b in zip(rows.layer, rows.local_batch, strict=True)
        ]
        other = rows.assign(device="V100", duration_s=1.0)
        found = problem_from_profile(
            pd.concat([rows, other]), device="A100", comm_model=LINK, n_gpus=8, global_batch=32
        )
        expected = problem()
        assert found.is_chain
        for mine, theirs in zip(found.layers, expected.layers, strict=True):
            assert mine.time_s == pytest.approx(theirs.time_s)
        assert found.edges[0].transfer_s == pytest.approx(expected.edges[0].transfer_s)

    def test_with_a_graph(self) -> None:
        found = problem_from_profile(
            profile(), network=NET, comm_model=LINK, n_gpus=8, global_batch=32
        )
        assert found.layers[0].time_s == pytest.approx(problem().layers[0].time_s)

    def test_order(self) -> None:
        rows = pd.DataFrame({"layer": ["b", "a"], "layer_index": [1, 0], "network": "n"})
        found = chain_of(rows)
        assert [layer.name for layer in found.layers] == ["a", "b"]
        assert found.name == "n"
        assert found.layers[0].n_params is None


class TestModelled:
    def test_is_the_model(self, recipe_model: Callable[[str], PerformanceModel]) -> None:
        width = 256.0
        layer = NetworkLayer(
            "fc", "Linear", int(width**2), 2 * width**2, 4 * width, 4 * width, n_calls=3.0
        )
        network = Network("mlp", (layer,), ())
        batches = np.array([8.0, 32.0, 128.0])
        times, said = ModelledLayers(recipe_model("layers")).times(network, batches)
        asked = pd.DataFrame({"local_batch": batches, "n_params": width**2}).assign(
            layer="fc", layer_type="Linear", network="mlp", phase="forward", input_grad_bytes=0.0,
            flop=2 * batches * width**2, input_bytes=4 * batches * width,
            output_bytes=4 * batches * width,
        )  # fmt: skip
        expected = recipe_model("layers").predict(asked)
        assert times[0].seconds == pytest.approx(3 * expected.predicted_s.to_numpy())
        assert not times[0].is_extrapolated.any()
        assert times[0].loadings[0] == pytest.approx(
            np.log(expected.high_s / expected.predicted_s).to_numpy() / 1.6449, rel=1e-3
        )
        assert not said

    def test_refuses_what_the_model_refuses(
        self, recipe_model: Callable[[str], PerformanceModel]
    ) -> None:
        width = 2.0**14
        layer = NetworkLayer("fc", "Linear", int(width**2), 2 * width**2, 4 * width, 4 * width)
        network = Network("mlp", (layer,), ())
        layers = ModelledLayers(recipe_model("layers"))
        with pytest.raises(InputError, match=r"mlp: layer fc, forward at batch 8: .* doublings"):
            layers.times(network, np.array([8.0]))
        found, _ = layers.times(network, np.array([8.0]), estimate_missing=True)
        assert found[0].is_extrapolated.all()

    def test_another_recipe(self, recipe_model: Callable[[str], PerformanceModel]) -> None:
        with pytest.raises(ValueError, match="recipe 'comms': times of layers need"):
            ModelledLayers(recipe_model("comms"))

    def test_both_models_make_a_problem(
        self, recipe_model: Callable[[str], PerformanceModel]
    ) -> None:
        width = 256.0
        layer = NetworkLayer("fc", "Linear", int(width**2), 2 * width**2, 4 * width, 4 * width)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = problem_from_models(
                Network("mlp", (layer,), ()),
                layer_model=recipe_model("layers"), comm_model=recipe_model("comms"),
                n_gpus=8, global_batch=64,
            )  # fmt: skip
        # The all-reduces behind the fixture: 10 us a rank and 1 GB/s, with 2 % of noise.
        n_bytes = 4 * width**2
        expected = [0, *(1e-5 * g + n_bytes / 1e9 for g in (2, 4, 8))]
        assert found.layers[0].sync_s == pytest.approx(expected, rel=0.1)
        assert (np.diff(found.layers[0].compute_s) < 0).all()


def test_measured_layers_can_be_given(shared: object) -> None:
    fitted = MeasuredLayers.fit(profile())
    assert problem(layer_model=fitted).layers[0].time_s == pytest.approx(problem().layers[0].time_s)
