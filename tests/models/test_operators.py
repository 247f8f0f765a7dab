"""OperatorModel: its terms by hand, planted efficiencies, and published layer times."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict

from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel
from fitkit.models.operators import OperatorModel
from fitkit.models.terms import TERMS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DENSE = ("fixed", "flops", "unfolded_input", "weights", "input_activations", "output_activations")


def convolution(batch, channels, filters, size, kernel=3, stride=1, phase="forward", first=False):
    """A convolution with the columns of the recipe, 4-byte numbers, padded to keep its size."""
    outputs = batch * filters * (size // stride) ** 2
    products = 2 if phase == "backward" and not first else 1
    return {
        "phase": phase,
        "local_batch": float(batch),
        "flop": 2.0 * outputs * channels * kernel**2 * products,
        "n_params": float(filters * channels * kernel**2),
        "input_bytes": 4.0 * batch * channels * size**2,
        "output_bytes": 4.0 * outputs,
        "input_grad_bytes": 4.0 * batch * channels * size**2 * (products - 1),
    }


def dense(rows, width, depth):
    return convolution(rows, depth, width, size=1, kernel=1)


def grid(seed=0, n=80):
    """Dense layers of many shapes, in no order."""
    random = np.random.default_rng(seed)
    shapes = 2 ** random.integers(5, 13, (n, 3))
    return pd.DataFrame([dense(*map(int, shape)) for shape in shapes])


def times(frame, seed=0, noise=0.02):
    """A launch, and operations at a share of the peak that grows with the width."""
    width = frame.n_params / (frame.flop / frame.output_bytes * 2)
    share = np.minimum(1.0, (width / 1024) ** 0.5)
    random = np.random.default_rng(seed)
    return (1e-5 + 1e-12 * frame.flop / share).to_numpy() * np.exp(
        noise * random.standard_normal(len(frame))
    )


def mape(model, frame, seconds):
    return np.abs(model.predict(frame) / seconds - 1).mean()


# -- terms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("first", [False, True])
def test_a_convolution_takes_an_input_once_for_each_kernel_position(phase, first):
    row = convolution(2, channels=16, filters=32, size=7, kernel=5, phase=phase, first=first)
    # 2 samples of 7×7 positions, of 16 channels under a 5×5 kernel each, of 4 bytes.
    expected = 4 * 2 * 7 * 7 * 16 * 5 * 5
    amount = TERMS["unfolded_input"].amount(SimpleNamespace(**row), 1)
    assert amount == pytest.approx(expected)


def test_a_dense_layer_takes_its_input_once():
    row = SimpleNamespace(**dense(rows=64, width=10, depth=784))
    assert TERMS["unfolded_input"].amount(row, 1) == pytest.approx(row.input_bytes)


def test_without_weights_there_is_no_product():
    row = SimpleNamespace(**dense(64, 10, 784) | {"n_params": 0.0})
    assert np.isnan(TERMS["unfolded_input"].amount(row, 1)).all()


def test_gradients_and_samples_are_columns():
    row = SimpleNamespace(output_grad_bytes=12.0, data_bytes=7.0)
    assert TERMS["output_gradients"].amount(row, 1).tolist() == [12.0]
    assert TERMS["data_input"].amount(row, 1).tolist() == [7.0]


# -- planted truths ------------------------------------------------------------------------


def test_an_efficiency_that_depends_on_the_shape_is_followed():
    train, test = grid(0), grid(1)
    seconds, truth = times(train), times(test, noise=0.0)
    model = OperatorModel(DENSE).fit(train, seconds)
    assert model.shape_ == "matrix"
    terms = LinearModel(DENSE, undetermined="drop").fit(train, seconds)
    assert mape(model, test, truth) < min(0.05, mape(terms, test, truth) / 2)


def test_where_the_terms_suffice_it_is_the_linear_model():
    frame = grid()
    seconds = (1e-5 + 1e-12 * frame.flop + 1e-10 * frame.input_bytes).to_numpy()
    linear = LinearModel(["fixed", "flops", "input_activations"]).fit(frame, seconds)
    model = OperatorModel(["fixed", "flops", "input_activations"]).fit(frame, seconds)
    assert model.predict(frame) == pytest.approx(linear.predict(frame), rel=1e-6)
    assert model.parameters_ == linear.parameters_


def test_far_from_every_shape_the_terms_tell():
    frame = grid()
    model = OperatorModel(DENSE).fit(frame, times(frame))
    far = pd.DataFrame([dense(2**40, 2**40, 2**40)])
    assert model.predict(far) == pytest.approx(LinearModel.predict(model, far))
    near, away = (np.log(np.divide(*model.predict_interval(x)[::-1])) for x in (frame[:1], far))
    assert away > near


def test_what_the_kernel_and_the_stride_change_is_learnt():
    random = np.random.default_rng(0)
    rows, factor = [], []
    for _ in range(80):
        kernel, stride = ((1, 1), (3, 1), (3, 2))[random.integers(3)]
        channels, filters = (int(2 ** random.integers(4, 9)) for _ in range(2))
        rows.append(convolution(32, channels, filters, 28, kernel, stride))
        factor.append({(1, 1): 1.0, (3, 1): 0.45, (3, 2): 1.3}[kernel, stride])
    frame = pd.DataFrame(rows)
    seconds = 1e-5 + 1e-12 * frame.flop.to_numpy() * factor
    model = OperatorModel(DENSE).fit(frame[:60], seconds[:60])
    assert mape(model, frame[60:], seconds[60:]) < 0.1


def test_a_layer_without_products_follows_its_outputs():
    size = 4.0 * 2 ** np.linspace(6, 22, 40)
    frame = pd.DataFrame(
        {"n_params": 0.0, "input_bytes": size, "output_bytes": size, "flop": np.nan}
    )
    # Beyond the cache every byte costs three times as much.
    seconds = (2e-6 + 1e-10 * size * np.where(size > 2**16, 3, 1)).clip(0)
    terms = ["fixed", "output_activations"]
    model = OperatorModel(terms).fit(frame[::2], seconds[::2])
    assert model.shape_ == "elementwise"
    linear = LinearModel(terms).fit(frame[::2], seconds[::2])
    assert mape(model, frame[1::2], seconds[1::2]) < mape(linear, frame[1::2], seconds[1::2]) / 2


def test_a_layer_of_unknown_sizes_follows_the_batch():
    frame = pd.DataFrame({"local_batch": 2.0 ** np.arange(12), "flop": np.nan})
    seconds = 1e-5 + 1e-6 * frame.local_batch.to_numpy() ** 0.8
    model = OperatorModel(["fixed", "per_sample"]).fit(frame, seconds)
    assert model.shape_ == "batch"
    assert mape(model, frame, seconds) < 0.05


def test_nothing_but_terms_where_no_shape_is_known():
    frame = pd.DataFrame({"n_workers": 2.0 ** np.arange(8)})
    seconds = 1e-3 * np.array([1.0, 1.2, 1.1, 1.6, 1.5, 2.4, 2.1, 3.0])
    model = OperatorModel(["fixed", "log_workers"]).fit(frame, seconds)
    linear = LinearModel(["fixed", "log_workers"]).fit(frame, seconds)
    assert model.shape_ is None
    assert model.predict(frame).tolist() == linear.predict(frame).tolist()
    assert np.array_equal(model.predict_interval(frame), linear.predict_interval(frame))


def test_intervals_hold_what_they_say():
    held = []
    for seed in range(15):
        train, test = grid(2 * seed), grid(2 * seed + 1)
        model = OperatorModel(DENSE).fit(train, times(train, seed, 0.05))
        low, high = model.predict_interval(test, 0.9)
        measured = times(test, 100 + seed, 0.05)
        held.append(((low <= measured) & (measured <= high)).mean())
    assert 0.86 <= np.mean(held) <= 0.97


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_a_level_is_a_share(level):
    frame = grid(n=20)
    with pytest.raises(ValueError, match="between 0 and 1"):
        OperatorModel(DENSE).fit(frame, times(frame)).predict_interval(frame, level)


# -- protocol ------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100), factor=st.floats(1e-3, 1e3))
def test_order_of_rows_and_unit_of_time_do_not_matter(seed, factor):
    frame = grid(seed, n=30)
    seconds = times(frame, seed)
    predicted = OperatorModel(DENSE).fit(frame, seconds).predict(frame)
    order = np.random.default_rng(seed).permutation(30)
    other = OperatorModel(DENSE).fit(frame.iloc[order], seconds[order] * factor)
    assert other.predict(frame) == pytest.approx(predicted * factor, rel=1e-4)


def test_it_serves_scikit_learn():
    frame = grid()
    seconds = times(frame)
    model = OperatorModel(DENSE, level=0.8)
    assert clone(model).get_params() == model.get_params()
    predicted = cross_val_predict(model, frame, seconds, cv=5)
    assert np.abs(predicted / seconds - 1).mean() < 0.1


def test_it_serves_groups_and_refuses_a_type_that_it_never_saw():
    frame = pd.concat(
        [grid(0).assign(layer_type="Times"), grid(1).assign(layer_type="Other")],
        ignore_index=True,
    )
    seconds = times(frame)
    grouped = GroupedModel("layer_type", OperatorModel(DENSE)).fit(frame[:80], seconds[:80])
    alone = OperatorModel(DENSE).fit(frame[:80], seconds[:80])
    predicted = grouped.predict(frame)
    assert predicted[:80].tolist() == alone.predict(frame[:80]).tolist()
    assert np.isnan(predicted[80:]).all()


@pytest.mark.parametrize("columns", [["flop"], ["local_batch"]])
def test_it_survives_json_and_predicts_with_numpy_alone(columns, tmp_path):
    frame = grid(n=20)
    if columns == ["local_batch"]:
        frame = pd.DataFrame({"local_batch": np.arange(1.0, 21)})
    seconds = 1e-5 * np.random.default_rng(0).uniform(1, 2, 20)
    terms = DENSE if "flop" in columns else ["fixed", "per_sample"]
    model = OperatorModel(terms).fit(frame, seconds)
    state = json.dumps(model.to_dict(), allow_nan=False)
    again = OperatorModel.from_dict(json.loads(state))
    assert again.to_dict() == model.to_dict()
    assert again.predict(frame).tolist() == model.predict(frame).tolist()
    assert np.array_equal(again.predict_interval(frame), model.predict_interval(frame))
    (tmp_path / "model.json").write_text(state)
    row = {name: float(value) for name, value in frame.iloc[3].items() if name != "phase"}
    code = (
        "import json, sys; from types import SimpleNamespace as Row\n"
        "from fitkit.models.operators import OperatorModel\n"
        f"model = OperatorModel.from_dict(json.load(open({str(tmp_path / 'model.json')!r})))\n"
        f"row = Row(**{row!r})\n"
        "print(model.predict(row)[0], *(end[0] for end in model.predict_interval(row)))\n"
        "print({'scipy', 'pandas', 'sklearn', 'statsmodels'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    numbers, imported = ran.stdout.splitlines()
    expected = [v[3] for v in (model.predict(frame), *model.predict_interval(frame))]
    assert list(map(float, numbers.split())) == pytest.approx(expected)
    assert imported == "set()"


def test_a_state_of_another_shape_is_refused():
    frame = grid(n=20)
    state = OperatorModel(DENSE).fit(frame, times(frame)).to_dict()
    with pytest.raises(ValueError, match="another kind"):
        OperatorModel.from_dict(state | {"shape": "batch"})


# -- published measurements ----------------------------------------------------------------


def benchmark(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_ten_shapes_of_a_gpu_tell_its_dense_layers(shared):
    neusight = benchmark("neusight")
    layers = neusight.load(shared / "public_tables" / "neusight_ops" / "linear.csv.gz")
    bars = {"A100": 8, "V100": 8, "T4": 10, "L4": 13, "P4": 16}
    judged = 0
    for device, rows in layers.groupby("device"):
        bar = next(bar for name, bar in bars.items() if name in device)
        error, held = neusight.error(rows, OperatorModel(neusight.TERMS))
        assert error < bar, device
        assert 80 <= held <= 97, device
        judged += 1
    assert judged == 6


def test_seven_networks_tell_the_layers_of_the_eighth(shared):
    pipedream = benchmark("pipedream")
    layers = pipedream.load(shared / "public_tables" / "pipedream_profiles")
    model = GroupedModel(["layer_type", "phase"], OperatorModel(pipedream.TERMS))
    figures = pipedream.figures(pipedream.leave_one_network_out(layers, model))
    assert figures["layers"] == 1159
    assert figures["refused"] == 0
    assert figures["median APE, mean of networks"] < 14.5
    assert figures["median APE, all layers"] < 12
    assert figures["sum of a network, mean"] < 12
    assert figures["sum of a network, worst"] < 40


def test_a_profile_is_read_with_its_edges(shared):
    pipedream = benchmark("pipedream")
    folder = shared / "public_tables" / "pipedream_profiles"
    table = pd.read_csv(folder / "layers.csv")
    layers = pipedream.load(folder)
    whole = table[table.model.isin(pipedream.NETWORKS) & (table.op != "Input")]
    timed = whole[whole.forward_ms + whole.backward_ms > 0.02]
    assert layers.duration_s.sum() == pytest.approx(
        1e-3 * (timed.forward_ms + timed.backward_ms).sum()
    )
    row = layers[(layers.network == "resnet18") & (layers.layer_type == "Conv2d")].iloc[0]
    outputs, inputs, height, width = map(int, row.weight_shape.split("x"))
    assert row.n_params == outputs * inputs * height * width
    first = layers[layers.data_bytes > 0]
    assert sorted(first.network) == sorted(pipedream.NETWORKS)  # forward, once a network


@pytest.mark.parametrize(
    ("text", "message"),
    [("node1 - Conv\n", ":1: neither a node nor an edge"), ("\tnode1 -- node2\n", ":1: an edge")],
)
def test_a_damaged_profile_is_refused(text, message, tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        benchmark("pipedream").read_graph(path)


@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_the_factor_does_not_follow_what_is_absurd(factor):
    frame = grid()
    spoilt = times(frame)
    spoilt[11] *= factor
    model = OperatorModel(DENSE).fit(frame, spoilt)
    assert np.flatnonzero(model.outliers_).tolist() == [11]
    assert np.abs(model.predict(frame) / times(frame, noise=0.0) - 1).max() < 0.3
