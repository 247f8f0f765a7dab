"""Layer models carried to a device: what is scaled, what is refused, what is kept."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.calibration.layer_design import suggest_layer_probes
from fitkit.calibration.operators import calibrate_layers
from fitkit.errors import FitError
from fitkit.models.performance import PerformanceModel

# Seconds a call, for 1 FLOP, and for a byte of the output, on each made-up device.
SLOW = {"fixed": 1e-5, "flop": 4e-13, "byte": 1e-11}
FAST = {"fixed": 1e-5, "flop": 1e-13, "byte": 8e-12}  # four times the FLOP/s, 1.25 the bandwidth
WIDTHS = (64, 128, 256, 512, 1024, 2048)
ROWS = (16, 256, 4096)


def layers(device: str, cost: dict[str, float], noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Products and activations of several sizes; the times follow the costs exactly but noise."""
    rows = []
    for width in WIDTHS:
        for n in ROWS:
            flop, out = 2.0 * n * width * width, 4.0 * n * width
            rows.append(("Linear", n, flop, 1.0 * width * width, out))
            rows.append(("ReLU", n, 0.0, 0.0, out))
    frame = pd.DataFrame(rows, columns=["layer_type", "local_batch", "flop", "n_params", "o"])
    seconds = cost["fixed"] + cost["flop"] * frame.flop + cost["byte"] * frame.o
    away = np.exp(np.random.default_rng(seed).normal(0.0, noise, len(frame)))
    return frame.drop(columns="o").assign(
        flop=frame.flop.where(frame.flop > 0),
        layer=[f"layer {k}" for k in range(len(frame))],
        phase="forward",
        input_bytes=frame.o,
        output_bytes=frame.o,
        input_grad_bytes=0.0,
        device=device,
        duration_s=seconds * away,
    )


def ask(model: PerformanceModel, rows: pd.DataFrame) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
        return model.predict(rows, allow_extrapolation=True)


@pytest.fixture(scope="module")
def source() -> PerformanceModel:
    return fitkit.fit(layers("slow", SLOW, 0.02), "layers", statistic="median")


@pytest.fixture(scope="module")
def target() -> pd.DataFrame:
    return layers("fast", FAST, 0.02, seed=1)


@pytest.fixture(scope="module")
def probes(target: pd.DataFrame) -> pd.DataFrame:
    return target.iloc[[0, 1, 4, 5, 14, 15, 28, 29, 34, 35]]


@pytest.fixture(scope="module")
def calibrated(source: PerformanceModel, probes: pd.DataFrame) -> PerformanceModel:
    return calibrate_layers(source, probes)


def test_a_tenth_of_the_error_of_the_source(
    source: PerformanceModel, calibrated: PerformanceModel, target: pd.DataFrame
) -> None:
    truth = layers("fast", FAST).duration_s
    ours = (ask(calibrated, target).predicted_s / truth - 1).abs()
    theirs = (ask(source, target.assign(device="slow")).predicted_s / truth - 1).abs()
    assert ours.mean() < 0.05
    assert theirs.mean() > 0.5  # products take four times as long there


def test_compute_and_memory_are_scaled_apart(calibrated: PerformanceModel) -> None:
    found = calibrated.params_.set_index(["group", "term"]).estimate
    linear = next(group for group in calibrated.params_.group if "Linear" in group)
    assert found[linear, "flops"] == pytest.approx(1e-13, rel=0.15)  # a quarter of the source's
    big = pd.DataFrame(layers("fast", FAST).query("layer_type == 'ReLU'").tail(1))
    assert ask(calibrated, big).predicted_s.iloc[0] == pytest.approx(
        big.duration_s.iloc[0], rel=0.06
    )


def test_where_a_parameter_comes_from(calibrated: PerformanceModel) -> None:
    models = {key[-2]: model for key, model in calibrated.estimator.groups_.items()}
    assert models["Linear"].origins_["flops"] == "probes"
    told = calibrated.params_.query("term == 'flops' and estimate > 0")
    assert told.origin.tolist() == ["probes"]
    assert set(models["ReLU"].origins_.values()) <= {"prior", "probes", "both"}
    assert all(model.description == "carried over from slow 100%" for model in models.values())


def test_most_new_times_are_in_the_interval(
    calibrated: PerformanceModel, target: pd.DataFrame
) -> None:
    found = ask(calibrated, target)
    inside = (found.low_s <= target.duration_s) & (target.duration_s <= found.high_s)
    assert inside.mean() >= 0.8
    assert (found.high_s / found.low_s).median() < 1.6


def test_few_probes_have_wider_intervals(
    source: PerformanceModel, calibrated: PerformanceModel, probes: pd.DataFrame
) -> None:
    few = ask(calibrate_layers(source, probes.iloc[[0, 8, 9]]), probes)
    many = ask(calibrated, probes)
    assert (few.high_s / few.low_s).median() > (many.high_s / many.low_s).median()


def test_saved_and_loaded(
    calibrated: PerformanceModel, target: pd.DataFrame, tmp_path: Path
) -> None:
    calibrated.save(tmp_path / "new.json")
    again = fitkit.load_model(tmp_path / "new.json")
    pd.testing.assert_frame_equal(ask(again, target), ask(calibrated, target))
    assert "carried over from slow" in str(again.summary())


def test_a_kind_that_was_not_probed_follows_the_others(
    source: PerformanceModel, target: pd.DataFrame
) -> None:
    products = target[target.layer_type == "Linear"].iloc[[0, 5, 10, 17]]
    model = calibrate_layers(source, products)
    asked = target[target.layer_type == "ReLU"]
    found = ask(model, asked)
    assert found.predicted_s.notna().all()
    assert (found.high_s / found.low_s).min() > 1.3  # nothing was measured of it
    assert any(note.startswith("not probed") and "ReLU" in note for note in model.notes)


def test_the_device_that_is_most_alike_counts_most(target: pd.DataFrame) -> None:
    half = {name: cost / 2 for name, cost in FAST.items()}
    odd = {"fixed": 1e-3, "flop": 1e-13, "byte": 1e-9}  # all launch and memory
    both = pd.concat([layers("half", half, 0.02, 2), layers("odd", odd, 0.02, 3)])
    model = fitkit.fit(both, "layers", statistic="median")
    found = calibrate_layers(model, target.iloc[::5])
    weights = {s.name: s.weight for s in next(iter(found.estimator.groups_.values())).sources_}
    assert max(weights, key=lambda name: weights[name]) == "half"
    assert weights["half"] > 0.5 > 0.1 > weights.get("odd", 0.0)


def test_a_probe_that_something_disturbed_is_named(
    source: PerformanceModel, probes: pd.DataFrame, target: pd.DataFrame
) -> None:
    times = probes.duration_s.to_numpy().copy()
    times[4] *= 5
    model = calibrate_layers(source, probes.assign(duration_s=times))
    (note,) = [note for note in model.notes if "not used" in note]
    assert note.startswith("1 of 10 probes not used: layer layer 14")
    assert (ask(model, target).predicted_s / target.duration_s - 1).abs().mean() < 0.08


def test_refused_probes(source: PerformanceModel, probes: pd.DataFrame) -> None:
    mixed = probes.assign(device=["fast"] * 5 + ["faster"] * 5)
    with pytest.raises(FitError, match="more than one device: fast, faster"):
        calibrate_layers(source, mixed)
    with pytest.raises(FitError, match="all of one size"):
        calibrate_layers(source, probes.iloc[[0]])
    with pytest.raises(FitError, match="milliseconds"):
        calibrate_layers(source, probes.assign(duration_s=probes.duration_s * 1e3))
    with pytest.raises(FitError, match="no probe is of a kind"):
        calibrate_layers(source, probes.assign(layer_type="Conv2d"))
    again = pd.concat([probes, probes.assign(duration_s=probes.duration_s * 3)])
    with pytest.raises(FitError, match="contradictory probes"):
        calibrate_layers(source, again)


def test_only_models_of_layers(probes: pd.DataFrame) -> None:
    steps = pd.DataFrame({"local_batch": [1.0, 2, 4, 8], "step_s": [1.0, 2, 4, 8]})
    model = fitkit.fit(steps.assign(network="n", n_workers=1.0, n_nodes=1.0), "step")
    with pytest.raises(ValueError, match="not layers"):
        calibrate_layers(model, probes)
    with pytest.raises(ValueError, match="recipe layers"):
        suggest_layer_probes(model, probes)


def test_suggested_probes(source: PerformanceModel, target: pd.DataFrame) -> None:
    without_times = target.drop(columns="duration_s").set_index(np.arange(100, 136))
    chosen = suggest_layer_probes(source, without_times, 6, weight="row")
    assert len(chosen) == chosen.index.nunique() == 6
    assert set(chosen.index) <= set(without_times.index)
    assert set(chosen.layer_type) == {"Linear", "ReLU"}
    assert (np.diff(chosen.expected_error) < 0).all()
    sizes = chosen.input_bytes
    assert sizes.max() >= 64 * sizes.min()
    on_source = layers("slow", SLOW).set_index(np.arange(100, 136)).duration_s
    assert chosen.source_s.to_numpy() == pytest.approx(on_source[chosen.index], rel=0.1)


def test_suggested_probes_calibrate(source: PerformanceModel, target: pd.DataFrame) -> None:
    chosen = suggest_layer_probes(source, target, 6, weight="row")
    truth = layers("fast", FAST).duration_s
    found = ask(calibrate_layers(source, chosen), target).predicted_s
    assert (found / truth - 1).abs().mean() < 0.08
