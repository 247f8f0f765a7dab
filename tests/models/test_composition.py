"""StepComposition: planted overlaps, hand-worked bounds, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from fitkit.errors import FitError
from fitkit.models.composition import StepComposition
from fitkit.models.estimator import NotFittedError
from fitkit.models.kinds import model_from_dict, model_to_dict


def runs(n=24, seed=0):
    """Parts of steps of several batches on several workers, in seconds."""
    random = np.random.default_rng(seed)
    batch, workers = 2.0 ** random.integers(0, 7, n), 2.0 ** random.integers(0, 5, n)
    return pd.DataFrame(
        {
            "forward_s": 0.01 * batch,
            "backward_s": 0.02 * batch,
            "optimizer_s": 0.004,
            "comm_s": 0.3 * (workers - 1) / workers,
        }
    )


def steps(frame, constant, share=None, exponent=None):
    """Steps of the two forms, as the equations stand in the docstring."""
    b, s = frame.backward_s.to_numpy(), frame.comm_s.to_numpy()
    if share is not None:
        together = b + np.maximum(0, s - share * b)
    else:
        together = (b**exponent + s**exponent) ** (1 / exponent)
    return (constant + frame.forward_s + frame.optimizer_s + together).to_numpy()


def noisy(times, seed, noise=0.05):
    return times * np.exp(noise * np.random.default_rng(1000 + seed).standard_normal(len(times)))


# -- what was planted ----------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    share=st.integers(10, 190).map(lambda k: k / 200),
    constant=st.floats(0.0, 0.1),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_a_planted_share_is_found(share, constant, scale):
    frame = runs()
    model = StepComposition().fit(frame * scale, steps(frame, constant, share=share) * scale)
    assert model.form_ == "share"
    found = {p.term: p.estimate for p in model.parameters_}
    assert found["overlapped_share"] == pytest.approx(share, abs=1e-9)
    assert found["constant"] == pytest.approx(constant * scale, rel=1e-6, abs=1e-9 * scale)


@pytest.mark.parametrize("exponent", [1.25, 2.0, 5.0])
def test_a_planted_exponent_is_found(exponent):
    frame = runs()
    model = StepComposition().fit(frame, steps(frame, 0.02, exponent=exponent))
    found = {p.term: p.estimate for p in model.parameters_}
    assert model.form_ == "exponent"
    assert found["overlap_exponent"] == pytest.approx(exponent)  # all three are on the grid
    assert found["constant"] == pytest.approx(0.02)
    assert "share" in model.reason_
    assert "exponent 0.00%" in model.description


@pytest.mark.parametrize(("truth", "status"), [(0.0, "zero"), (1.0, "positive")])
def test_none_and_full_overlap_are_found(truth, status):
    frame = runs()
    parameter = StepComposition("share").fit(frame, steps(frame, 0.02, share=truth)).parameters_[1]
    assert (parameter.estimate, parameter.status) == (truth, status)


@pytest.mark.parametrize("truth", [{"share": 0.5}, {"exponent": 2.0}, {"share": 0.0}])
def test_intervals_hold_what_they_say(truth):
    (form,), (value,) = truth.keys(), truth.values()
    of_constant, of_overlap, of_steps = [], [], []
    for seed in range(60):
        frame, new = runs(12, seed), runs(30, 5000 + seed)
        model = StepComposition(form).fit(frame, noisy(steps(frame, 0.02, **truth), seed))
        constant, overlap = model.parameters_
        of_constant.append(constant.ci_low <= 0.02 <= constant.ci_high)
        of_overlap.append(overlap.ci_low - 1e-9 <= value <= overlap.ci_high + 1e-9)
        low, high = model.predict_interval(new)
        measured = noisy(steps(new, 0.02, **truth), 7000 + seed)
        of_steps.append(((low <= measured) & (measured <= high)).mean())
    assert np.mean(of_constant) >= 0.82  # 0.9 less two standard errors of 60 draws
    assert np.mean(of_overlap) >= 0.82
    assert 0.86 <= np.mean(of_steps) <= 0.95


def test_the_form_that_predicts_better_is_kept():
    frame = runs(40)
    for truth in ({"share": 0.5}, {"exponent": 2.0}):
        right = [
            StepComposition().fit(frame, noisy(steps(frame, 0.02, **truth), seed)).form_ in truth
            for seed in range(5)
        ]
        assert sum(right) >= 4


# -- what the data cannot tell -------------------------------------------------------------


def test_without_communication_the_overlap_is_undetermined():
    alone = runs(8).assign(comm_s=0.0)
    model = StepComposition().fit(alone, steps(alone, 0.05, share=0.0))
    constant, overlap = model.parameters_
    assert constant.estimate == pytest.approx(0.05)
    assert overlap.status == "undetermined"
    assert np.isnan(overlap.estimate)
    assert (overlap.ci_low, overlap.ci_high) == (0.0, 1.0)
    assert not model.is_determined
    assert "none to full" in model.reason_
    # 0.05 + 1 + 0.1 + (2 and 3 one after the other, or beside each other): 6.15 to 4.15.
    asked = pd.DataFrame({"forward_s": [1.0], "backward_s": 2.0, "optimizer_s": 0.1, "comm_s": 3.0})
    assert model.predict(asked) == pytest.approx([5.15])
    low, high = model.predict_interval(asked)
    assert low == pytest.approx([4.15], abs=1e-6)
    assert high == pytest.approx([6.15], abs=1e-6)


def test_noise_comes_on_top_of_what_the_overlap_may_be():
    alone = runs(8).assign(comm_s=0.0)
    model = StepComposition().fit(alone, noisy(steps(alone, 0.05, share=0.0), 0))
    asked = runs(1).assign(backward_s=2.0, comm_s=3.0)
    low, high = model.predict_interval(asked)
    assert high - low > 2.0
    wide_low, wide_high = model.predict_interval(asked, 0.99)
    assert wide_low < low
    assert wide_high > high


@pytest.mark.parametrize("n", [1, 2])
def test_two_configurations_leave_the_overlap_open(n):
    frame = pd.DataFrame(
        {"forward_s": 1.0, "backward_s": [2.0, 4.0], "optimizer_s": 0.5, "comm_s": [3.0, 3.0]}
    )[:n]
    times = steps(frame, 0.5, share=0.5)
    model = StepComposition().fit(frame, times)
    assert not model.is_determined
    low, high = model.predict_interval(frame)
    assert np.all((low <= times) & (times <= high))
    if n == 1:  # 6.0 s are full overlap and 1.5 s of constant, or none: 0 s, as 6.5 s exceed them
        bounds = model.parameters_[0]
        assert (bounds.ci_low, bounds.ci_high) == (0.0, 1.5)
        assert low.tolist() == [6.0]
        assert high.tolist() == [6.5]


def test_repetitions_do_not_make_a_third_configuration():
    frame = pd.concat([runs(2, seed=3)] * 4, ignore_index=True)
    assert not StepComposition().fit(frame, noisy(steps(frame, 0.1, share=0.5), 0)).is_determined


def test_a_single_step_without_communication_has_no_interval():
    model = StepComposition().fit(runs(1).assign(comm_s=0.0), [1.0])
    assert np.isnan(model.predict_interval(runs(1).assign(comm_s=0.0))).all()
    assert np.isfinite(model.predict_interval(runs(1).assign(comm_s=1.0))).all()


# -- protocol ------------------------------------------------------------------------------


def test_order_of_rows_does_not_matter():
    frame = runs(15)
    times = noisy(steps(frame, 0.02, share=0.5), 0)
    order = np.random.default_rng(0).permutation(15)
    model = StepComposition().fit(frame, times)
    other = StepComposition().fit(frame.iloc[order], times[order])
    assert other.to_dict() == model.to_dict()


def test_a_null_part_has_no_prediction():
    frame = runs(6)
    model = StepComposition().fit(frame, steps(frame, 0.02, share=0.5))
    assert np.isnan(model.predict(frame.assign(comm_s=None))).all()
    assert np.isnan(model.predict_interval(frame.assign(comm_s=None))).all()


@pytest.mark.parametrize("name", ["forward_s", "backward_s", "optimizer_s", "comm_s"])
def test_a_part_must_be_there_and_be_a_time(name):
    frame = runs(6)
    times = steps(frame, 0.02, share=0.5)
    with pytest.raises(ValueError, match=f"no column '{name}'"):
        StepComposition().fit(frame.drop(columns=name), times)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"{name} must be seconds from 0"):
            StepComposition().fit(frame.assign(**{name: bad}), times)


def test_bad_arguments():
    frame = runs(6)
    times = steps(frame, 0.02, share=0.5)
    with pytest.raises(ValueError, match="no form 'half'; known: share, exponent"):
        StepComposition("half").fit(frame, times)
    with pytest.raises(ValueError, match="positive"):
        StepComposition().fit(frame, -times)
    with pytest.raises(ValueError, match="6 rows but 5 times"):
        StepComposition().fit(frame, times[:5])
    with pytest.raises(FitError, match="no rows"):
        StepComposition().fit(frame[:0], [])
    with pytest.raises(NotFittedError):
        StepComposition().predict(frame)
    for level in (0, 1, 90):
        with pytest.raises(ValueError, match="between 0 and 1"):
            StepComposition().fit(frame, times).predict_interval(frame, level)


def test_it_is_cloned_by_scikit_learn():
    model = StepComposition("exponent", level=0.8)
    assert clone(model).get_params() == {"form": "exponent", "level": 0.8}


@pytest.mark.parametrize("comm", [None, 0.0])
def test_it_survives_json_and_predicts_with_numpy_alone(comm, tmp_path):
    frame = runs(8) if comm is None else runs(8).assign(comm_s=comm)
    model = StepComposition().fit(frame, noisy(steps(frame, 0.02, share=0.5), 0))
    text = json.dumps(model_to_dict(model), allow_nan=False)
    again = model_from_dict(json.loads(text))
    assert again.to_dict() == model.to_dict()
    assert again.description == model.description
    asked = runs(5, seed=1)
    assert again.predict(asked).tolist() == model.predict(asked).tolist()
    assert np.array_equal(again.predict_interval(asked), model.predict_interval(asked))
    path = tmp_path / "model.json"
    path.write_text(text)
    row = {name: float(value) for name, value in asked.iloc[0].items()}
    code = (
        "import json, sys; from types import SimpleNamespace as Row\n"
        "from fitkit.models.kinds import model_from_dict\n"
        f"model = model_from_dict(json.load(open({str(path)!r})))\n"
        f"print(model.predict(Row(**{row!r}))[0])\n"
        "print({'scipy', 'pandas', 'sklearn', 'statsmodels'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, imported = ran.stdout.splitlines()
    assert float(seconds) == pytest.approx(model.predict(SimpleNamespace(**row))[0])
    assert imported == "set()"


@pytest.mark.parametrize(
    "change",
    [
        {"form": "half"},
        {"pairs": [[0.0, 1.0]]},
        {"pairs": [[0.0, 1.0], [0.5, -1.0], [1.0, 1.0]]},
        {"pairs": [[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]]},
        {"parameters": []},
        {"dof": -1},
        {"dof": 8},
        {"precision": 0.0},
        {"noise": -0.1},
    ],
)
def test_a_damaged_state_is_refused(change):
    frame = runs(8)
    state = StepComposition("share").fit(frame, steps(frame, 0.02, share=0.5)).to_dict()
    with pytest.raises(ValueError, match=r"form|out of range"):
        StepComposition.from_dict(state | change)
