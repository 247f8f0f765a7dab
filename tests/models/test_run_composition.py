"""RunComposition: totals, shares and intervals by hand."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fitkit.errors import FitError
from fitkit.models.bootstrap import N_DRAWS
from fitkit.models.composition import StepComposition
from fitkit.models.estimator import NotFittedError
from fitkit.models.kinds import model_from_dict, model_to_dict
from fitkit.models.linear import LinearModel
from fitkit.models.run_composition import RunComposition


def composition():
    return RunComposition(
        once={"init": LinearModel(["fixed", "server_fan_in"])},
        each_epoch={"eval": LinearModel(["fixed"]), "checkpoint": LinearModel(["fixed"])},
        each_step={"step": LinearModel(["fixed", "per_sample"])},
    )


def runs():
    """Start 10 s and 5 s for each further worker; 2 s and 1 s an epoch; 0.1 s + 10 ms a sample."""
    frame = pd.DataFrame(
        {
            "n_workers": [1.0, 2, 4, 8],
            "local_batch": [8.0, 16, 32, 64],
            "n_epochs": [1, 2, 3, 4],
            "steps_per_epoch": [100, 50, 25, 10],
        }
    )
    return frame.assign(
        init_s=10 + 5 * (frame.n_workers - 1),
        eval_s=2.0,
        checkpoint_s=[1.0, None, 1.0, None],
        step_s=0.1 + 0.01 * frame.local_batch,
    )


ASKED = pd.DataFrame(
    {"n_workers": [16.0], "local_batch": [90.0], "n_epochs": [5], "steps_per_epoch": [20]}
)


def test_phases_give_the_epoch_and_epochs_the_run():
    model = composition().fit(runs())
    # 10 + 15·5 once; 5 epochs of 2 + 1 and of 20 steps of 0.1 + 0.9.
    assert model.predict(ASKED) == pytest.approx([85 + 5 * (2 + 1 + 20 * 1.0)])
    parts = model.part_seconds(ASKED)
    assert {k: v[0] for k, v in parts.items()} == pytest.approx(
        {"init": 85, "eval": 10, "checkpoint": 5, "step": 100}
    )
    shares = model.shares(ASKED)
    assert shares["init"] == pytest.approx([0.425])
    assert sum(share[0] for share in shares.values()) == pytest.approx(1)


def test_what_the_parts_do_not_explain_is_stated():
    frame = runs()
    sums = composition().fit(frame).predict(frame)
    model = composition().fit(frame, sums / 0.8)  # a fifth of each run is something else
    assert model.unexplained_ == pytest.approx(0.2)
    assert model.predict(frame) == pytest.approx(sums)
    assert np.isnan(composition().fit(frame).unexplained_)


class _Known(LinearModel):
    """A part with an interval of 10 % below and 20 % above."""

    def predict_interval(self, X, level=0.9):
        return 0.9 * self.predict(X), 1.2 * self.predict(X)


def test_parts_err_independently_and_occurrences_together():
    model = RunComposition(
        once={"init": _Known(["fixed"])}, each_step={"step": _Known(["fixed"])}
    ).fit(pd.DataFrame({"init_s": [30.0, 30], "step_s": [0.4, 0.4]}))
    low, high = model.predict_interval(ASKED)
    # 30 s and 100 steps of 0.4 s: a tenth of 30 and of 40 is 3 and 4, together 5.
    assert low == pytest.approx([70 - 5])
    assert high == pytest.approx([70 + 10])


def test_intervals_hold_what_they_say():
    held = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        frame = pd.concat([runs()] * 3, ignore_index=True)
        names = ["init_s", "eval_s", "checkpoint_s", "step_s"]
        frame[names] *= np.exp(0.05 * random.standard_normal((12, 4)))
        low, high = composition().fit(frame).predict_interval(ASKED)
        init, evals, saves, step = np.exp(0.05 * random.standard_normal(4))
        total = 85 * init + 10 * evals + 5 * saves + 100 * step
        held.append(low[0] <= total <= high[0])
    assert 0.82 <= np.mean(held) <= 1


def test_a_step_can_be_a_composition_itself():
    frame = pd.DataFrame(
        {
            "forward_s": [1.0, 2, 4],
            "backward_s": [2.0, 4, 8],
            "optimizer_s": 0.1,
            "comm_s": [3.0, 3, 3],
            "init_s": [5.0, 5, 5],
            "step_s": [6.1, 8.1, 13.1],
        }
    )
    model = RunComposition(
        once={"init": LinearModel(["fixed"])}, each_step={"step": StepComposition()}
    ).fit(frame)
    asked = frame.assign(n_epochs=2, steps_per_epoch=10)
    assert model.predict(asked) == pytest.approx([5 + 20 * s for s in frame.step_s])
    again = model_from_dict(json.loads(json.dumps(model_to_dict(model), allow_nan=False)))
    assert again.predict(asked).tolist() == model.predict(asked).tolist()
    assert {"comm_s", "n_epochs"} <= set(model.columns)


# -- parts that fall away ------------------------------------------------------------------


def dropping(**options):
    return RunComposition(
        once={"init": LinearModel(["fixed", "server_fan_in"])},
        each_epoch={"epoch": LinearModel(["fixed"]), "eval": LinearModel(["fixed"])},
        each_step={"step": LinearModel(["fixed", "per_sample"])},
        lacking="drop",
        **options,
    )


def test_a_part_that_was_never_measured_falls_away():
    model = dropping().fit(runs().drop(columns="checkpoint_s").assign(eval_s=np.nan))
    assert list(model.models_) == ["init", "step"]
    assert model.predict(ASKED) == pytest.approx([85 + 5 * 20 * 1.0])
    again = model_from_dict(json.loads(json.dumps(model_to_dict(model))))
    assert again.predict(ASKED) == pytest.approx(model.predict(ASKED))
    once = dropping().fit(runs()[["n_workers", "init_s"]])
    assert once.predict(ASKED[["n_workers"]]) == pytest.approx([85])
    with pytest.raises(FitError, match="no run measured any part"):
        dropping().fit(runs()[["n_workers"]])


def test_a_part_may_make_another_superfluous():
    frame = runs().assign(epoch_s=30.0)
    assert "epoch" not in dropping(unless={"epoch": "step"}).fit(frame).models_
    alone = dropping(unless={"epoch": "step"}).fit(frame.drop(columns="step_s"))
    assert alone.predict(ASKED.drop(columns="steps_per_epoch")) == pytest.approx([85 + 5 * 32])


def test_what_is_left_over_is_that_of_runs_whose_counts_are_known():
    frame = runs()
    sums = composition().fit(frame).predict(frame)
    counted = frame.assign(n_epochs=[1, 2, 3, None])
    assert composition().fit(counted, sums / 0.8).unexplained_ == pytest.approx(0.2)


# -- draws ---------------------------------------------------------------------------------


def test_draws_scatter_as_the_parts_do_and_occurrences_err_together():
    random = np.random.default_rng(0)
    frame = pd.concat([runs()] * 8, ignore_index=True)
    frame["step_s"] *= np.exp(0.05 * random.standard_normal(32))
    model = composition().fit(frame)
    drawn = model.drawn(ASKED)
    assert drawn.shape == (N_DRAWS, 1)
    once = model.models_["step"].drawn(ASKED)
    assert drawn.std() == pytest.approx(100 * once.std(), rel=1e-6)  # all others are exact
    assert drawn.mean() == pytest.approx(model.predict(ASKED)[0], rel=0.01)


def test_forms_that_disagree_do_so_by_their_share_of_the_run():
    class Torn(LinearModel):
        """Forms that disagree by a factor of 3."""

        def disagreement(self, X):
            return np.full(len(X), np.log(3))

    model = RunComposition(
        once={"init": Torn(["fixed"])}, each_step={"step": LinearModel(["fixed"])}
    ).fit(pd.DataFrame({"init_s": [20.0, 20], "step_s": [0.2, 0.2]}))
    # 20 s that could be 60, and 20 s of 100 steps.
    assert np.exp(model.disagreement(ASKED)) == pytest.approx([80 / 40])


# -- bad input -----------------------------------------------------------------------------


def test_a_part_that_was_never_measured_is_named():
    with pytest.raises(FitError, match="part eval: no rows"):
        composition().fit(runs().assign(eval_s=np.nan))


def test_bad_arguments():
    with pytest.raises(ValueError, match="without parts"):
        RunComposition().fit(runs())
    twice = RunComposition(
        once={"eval": LinearModel(["fixed"])}, each_epoch={"eval": LinearModel(["fixed"])}
    )
    with pytest.raises(ValueError, match="part eval is in once and in each_epoch"):
        twice.fit(runs())
    with pytest.raises(ValueError, match="no column 'init_s'"):
        composition().fit(runs().drop(columns="init_s"))
    with pytest.raises(ValueError, match="eval_s must be positive, or null"):
        composition().fit(runs().assign(eval_s=0.0))
    with pytest.raises(NotFittedError):
        composition().predict(ASKED)


@pytest.mark.parametrize("name", ["n_epochs", "steps_per_epoch"])
def test_counts_are_needed(name):
    model = composition().fit(runs())
    with pytest.raises(ValueError, match=f"no column '{name}'"):
        model.predict(ASKED.drop(columns=name))
    with pytest.raises(ValueError, match=f"{name} must be a count"):
        model.predict(ASKED.assign(**{name: -1}))
    assert np.isnan(model.predict(ASKED.assign(**{name: None}))).all()


def test_what_happens_once_needs_no_counts():
    model = RunComposition(once={"init": LinearModel(["fixed"])}).fit(runs())
    assert model.predict(ASKED[["n_workers"]]) == pytest.approx([23.75])  # the mean


# -- protocol ------------------------------------------------------------------------------


def test_parameters_are_those_of_the_parts():
    found = composition().fit(runs()).params_.set_index(["part", "term"]).estimate
    assert found["init", "server_fan_in"] == pytest.approx(5)
    assert found["step", "per_sample"] == pytest.approx(0.01)


def test_a_parameter_says_of_which_part_it_is():
    model = composition().fit(runs())
    terms = [p.term for p in model.parameters_]
    assert terms[:2] == ["init: fixed", "init: server_fan_in"]
    assert model.parameters_[1].estimate == pytest.approx(5)


def test_what_was_chosen_can_be_fitted_again():
    model = dropping(unless={"epoch": "step"}).fit(runs())
    again = model.settled().fit(runs())
    assert again.predict(ASKED) == pytest.approx(model.predict(ASKED))
    assert list(again.parts) == ["init", "eval", "step"]


def test_it_is_cloned_and_fits_leave_the_templates_alone():
    model = composition()
    model.fit(runs())
    assert not hasattr(model.each_step["step"], "parameters_")
    assert not hasattr(clone(model), "models_")


def test_it_survives_json_and_predicts_with_numpy_alone(tmp_path):
    model = composition().fit(runs())
    state = model_to_dict(model)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(state, allow_nan=False))
    again = model_from_dict(json.loads(path.read_text()))
    assert model_to_dict(again) == state
    assert again.shares(ASKED) == model.shares(ASKED)
    row = {name: float(value) for name, value in ASKED.iloc[0].items()}
    code = (
        "import json, sys; from types import SimpleNamespace as Row\n"
        "from fitkit.models.kinds import model_from_dict\n"
        f"model = model_from_dict(json.load(open({str(path)!r})))\n"
        f"print(model.predict(Row(**{row!r}))[0])\n"
        "print({'scipy', 'pandas', 'sklearn', 'statsmodels'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == [str(float(model.predict(ASKED)[0])), "set()"]


def test_a_part_that_occurs_otherwise_is_refused():
    state = composition().fit(runs()).to_dict()
    state["parts"][0]["occurs"] = "sometimes"
    with pytest.raises(ValueError, match="part init occurs 'sometimes'"):
        RunComposition.from_dict(state)
