"""The pipelined transformer: by hand, and against a pipeline that is played through."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.models.columns import Columns
from fitkit.models.forms import FORMS, amount_of
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.pipeline_forms import micro_batches, pipeline_slots
from fitkit.models.residual import BoostedModel

FORM = FORMS["pipelined_transformer"]
NAMES = [c.name for c in FORM.coefficients]
# 2 data-parallel copies x 4 shards x 2 stages; 16 / (2 * 2) = 4 micro-batches, 5 slots.
RUN = {
    "n_workers": 2, "tensor_parallel": 4, "pipeline_parallel": 2, "global_batch": 16,
    "micro_batch": 2, "sequence_length": 8, "hidden_size": 32, "n_layers": 6,
}  # fmt: skip
# Three layers a stage, so 15 layers pass. A micro-batch has 16 tokens of 32 numbers: 512, which
# are 1,024 bytes; a layer 12 * 32^2 = 12,288 parameters.
AMOUNTS = {
    "per_flop": 15 * 16 * (72 * 1024 + 12 * 8 * 32) / 4,
    "activations": 15 * 1024,
    "launch": 15,
    "tensor_hop": 15 * 3,
    "tensor_ring": 15 * 4 * (2 * 3 / 4) * 1024,
    "stage_link": 5 * 2 * 1024,
    "output": 4 * 512 / 4,
    "gradient_ring": 2 * (1 / 2) * 2 * 12_288 * 6 / 8,
    "optimizer": 12_288 * 6 / 8,
    "fixed": 1,
}


def seconds(run, **prices):
    given = SimpleNamespace(**{name: prices.get(name, 0.0) for name in NAMES})
    return np.atleast_1d(FORM.seconds(Columns(pd.DataFrame([run])), given))[0]


def test_the_columns_are_those_of_the_table_of_runs():
    assert set(FORM.columns) == set(RUN)


@pytest.mark.parametrize("coefficient", FORM.coefficients, ids=NAMES)
def test_what_each_price_is_paid_for_is_worked_out_by_hand(coefficient):
    found = amount_of(coefficient, pd.DataFrame([RUN]), 1)
    assert found.tolist() == [pytest.approx(AMOUNTS[coefficient.name])]


@pytest.mark.parametrize("name", NAMES)
def test_a_price_alone_costs_its_amount(name):
    assert seconds(RUN, **{name: 1e-3}) == pytest.approx(1e-3 * AMOUNTS[name])


def test_kernels_and_launches_of_a_layer_overlap():
    # 3 ms of kernels beside 4 ms of launches are 5 ms in each of the 15 layers.
    per_flop = 3e-3 * 15 / AMOUNTS["per_flop"]
    assert seconds(RUN, per_flop=per_flop, launch=4e-3) == pytest.approx(15 * 5e-3)


@given(
    n_micro=st.integers(1, 12), n_stages=st.integers(1, 6),
    stage=st.floats(0.01, 10), output=st.floats(0, 10),
)  # fmt: skip
def test_a_pipeline_that_is_played_through_takes_as_long(n_micro, n_stages, stage, output):
    # Each stage starts a micro-batch once the stage before has passed it on and the one before
    # it is done here; the last stage has the output layer besides.
    done = np.zeros((n_micro + 1, n_stages + 1))
    for i in range(1, n_micro + 1):
        for k in range(1, n_stages + 1):
            own = stage + (output if k == n_stages else 0.0)
            done[i, k] = max(done[i - 1, k], done[i, k - 1]) + own
    run = RUN | {
        "n_workers": 1, "tensor_parallel": 1, "pipeline_parallel": n_stages,
        "n_layers": n_stages, "global_batch": 2 * n_micro,
    }  # fmt: skip
    found = seconds(run, launch=stage, output=output / 512)
    assert found == pytest.approx(done[-1, -1])


@given(n_micro=st.integers(1, 64), n_stages=st.integers(1, 16))
def test_the_bubble_is_the_one_of_the_paper(n_micro, n_stages):
    run = RUN | {"n_workers": 1, "micro_batch": 1, "global_batch": n_micro}
    x = Columns(pd.DataFrame([run | {"pipeline_parallel": n_stages}]))
    assert micro_batches(x).tolist() == [n_micro]
    assert pipeline_slots(x)[0] / n_micro == pytest.approx(1 + (n_stages - 1) / n_micro)


def test_one_device_sends_nothing():
    alone = RUN | {"n_workers": 1, "tensor_parallel": 1, "pipeline_parallel": 1}
    links = ("tensor_hop", "tensor_ring", "stage_link", "gradient_ring")
    assert seconds(alone, **dict.fromkeys(links, 1.0)) == 0


def test_a_fit_returns_the_prices_that_the_times_were_made_with():
    prices = {
        "per_flop": 4e-15, "activations": 1e-10, "launch": 3e-3, "tensor_hop": 2e-4,
        "tensor_ring": 2e-11, "stage_link": 5e-11, "output": 5e-9, "gradient_ring": 1e-11,
        "optimizer": 2e-11, "fixed": 5e-3,
    }  # fmt: skip
    degrees = [(1, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2), (8, 1, 1), (4, 2, 1), (1, 2, 4)]
    runs = pd.DataFrame(
        [
            {"n_workers": d, "tensor_parallel": t, "pipeline_parallel": p, "micro_batch": b,
             "global_batch": d * b * m, "sequence_length": 1024, "hidden_size": h, "n_layers": n}
            for (d, t, p), b, m, h, n in itertools.product(
                degrees, (1, 4, 16), (1, 8), (1024, 4096), (16, 32))
        ]
    )  # fmt: skip
    times = FORM.seconds(Columns(runs), SimpleNamespace(**prices))
    model = NonlinearModel("pipelined_transformer", ridge=1e-5).fit(runs, times)
    np.testing.assert_allclose(model.predict(runs), times, rtol=1e-3)
    found = model.params_.set_index("term").estimate
    assert found.to_dict() == pytest.approx(prices, rel=0.02)


COLUMNS = [
    "n_devices", "global_batch", "micro_batch", "hidden_size", "n_heads", "n_layers",
    "sequence_length", "tensor_parallel", "n_workers", "pipeline_parallel", "step_ms",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("n_train", "bar"), [(100, 0.065), (300, 0.025)])
def test_held_out_steps_of_megatron_are_within_the_bars(shared, n_train, bar):
    file = shared / "public_tables/vtrain/ground_truth_single.csv"
    runs = pd.read_csv(file, header=0, names=COLUMNS, encoding="utf-8-sig")
    features = ["hidden_size", "micro_batch", "tensor_parallel"]  # what decides a layer's kernels
    errors = []
    for seed in range(3):
        order = np.random.RandomState(seed).permutation(len(runs))
        train, test = runs.iloc[order[:n_train]], runs.iloc[order[n_train:]]
        form = NonlinearModel("pipelined_transformer")
        model = BoostedModel(form, features).fit(train, train.step_ms / 1e3)
        found = [each.predict(test) for each in (model, model.model_)]
        errors.append([np.abs(guess / (test.step_ms / 1e3) - 1).mean() for guess in found])
    mape, of_form = np.mean(errors, axis=0)
    assert mape < bar
    assert of_form < 0.07
