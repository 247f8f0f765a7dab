"""Recipe run from logs to answers: fit, validate, predict, and where scaling stops."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.cli import run as command
from fitkit.dataset import Dataset
from fitkit.diagnosis import run_scaling
from fitkit.fitting import measurements
from fitkit.records import Phase, Run, SourceRow, Step

SCALES = (1, 2, 4, 6, 8, 12, 16)
ASKED = {"n_workers": [16.0], "n_nodes": 16.0, "local_batch": 8.0, "n_epochs": 3.0,
         "steps_per_epoch": 50.0}  # fmt: skip


def frame(seed=0, scales=SCALES, repeats=2):
    """Strong scaling at 128: 5 + 0.5 N s of start, steps of 8 / N + 0.1 N s, 1 s an evaluation."""
    n = np.repeat(np.array(scales, dtype=float), repeats)
    random = np.random.default_rng(seed)
    noise = np.exp(0.02 * random.standard_normal((3, len(n))))
    parts = {"init_s": 5 + 0.5 * n, "step_s": 8 / n + 0.1 * n, "eval_s": np.ones_like(n)}
    measured = {name: t * f for (name, t), f in zip(parts.items(), noise, strict=True)}
    columns = {"n_workers": n, "n_nodes": n, "local_batch": 128 / n, "global_batch": 128.0}
    return pd.DataFrame({**columns, **measured, "n_epochs": 2.0, "steps_per_epoch": 50.0})


@pytest.fixture(scope="module")
def model():
    return fitkit.fit(frame(), "run")


def truth(n, epochs=2.0):
    return 5 + 0.5 * n + epochs * (50 * (8 / n + 0.1 * n) + 1)


def test_the_total_follows_from_the_parts_and_their_counts(model):
    found = model.predict(pd.DataFrame(ASKED)).iloc[0]
    assert found.predicted_s == pytest.approx(truth(16, epochs=3), rel=0.03)
    assert found.low_s < truth(16, epochs=3) < found.high_s
    assert found.status == "inside"  # three epochs are no extrapolation of two


def test_any_number_of_epochs_may_be_asked_for_but_must_be(model):
    many = pd.DataFrame(ASKED).assign(n_epochs=1000, steps_per_epoch=5000)
    assert model.predict(many).status.tolist() == ["inside"]
    # Epochs were two in every run, so that is what they are.
    fewer = model.predict(pd.DataFrame(ASKED).drop(columns="n_epochs")).iloc[0]
    assert fewer.predicted_s == pytest.approx(truth(16), rel=0.03)
    mixed = fitkit.fit(frame().assign(n_epochs=[2.0, 3] * 7), "run")
    asked = mixed.predict(pd.DataFrame(ASKED).drop(columns="n_epochs")).iloc[0]
    assert (asked.status, asked.reason) == ("refused", "give n_epochs")


def test_steps_may_be_counted_over_the_whole_run(model):
    whole = pd.DataFrame(ASKED).rename(columns={"steps_per_epoch": "n_steps"}).assign(n_steps=150)
    assert model.predict(whole).equals(model.predict(pd.DataFrame(ASKED)))
    counted = frame().rename(columns={"steps_per_epoch": "n_steps"}).assign(n_steps=100.0)
    again = fitkit.fit(counted, "run").predict(pd.DataFrame(ASKED))
    assert again.predicted_s.tolist() == pytest.approx([truth(16, 3)], rel=0.03)


@pytest.mark.parametrize(
    ("cost", "term"),
    [
        (lambda n, k: 0.3 * np.log2(n) / k, "synchronised_tree"),
        (lambda n, k: 0.5 * (1 - 1 / n) / k, "synchronised_ring"),
        (lambda n, k: 0.04 * (n - 1) / k, "synchronised_turns"),
        (lambda n, k: 2e-8 * 2 * (1 - 1 / n) * 1e7 / k, "gradient_ring"),
        (lambda n, k: 0.2 * np.sqrt(2 * np.log(n) / k), "slowest_worker"),
    ],
)
def test_planted_costs_of_synchronisation_are_found_with_blocks(cost, term):
    """Steps of 0.1 s and 10 ms a sample, synchronised once in one or in eight minibatches."""
    n, k, b = (x.ravel() for x in np.meshgrid([1.0, 2, 4, 8, 16], [1.0, 8], [8.0, 32, 64]))
    rows = pd.DataFrame({"n_workers": n, "local_batch": b, "block_samples": k * b})
    rows = rows.assign(n_nodes=1.0, gradient_bytes=1e7, steps_per_epoch=1000.0)
    model = fitkit.fit(rows.assign(step_s=0.1 + 0.01 * b + cost(n, k)), "run")
    found = model.params_[model.params_.part == "step"].set_index("term").estimate
    names = {"gradient_ring": "synchronised_ring"}  # with one size of gradient they are the same
    expected = {"synchronised_tree": 0.3, "synchronised_ring": 0.5, "synchronised_turns": 0.04,
                "gradient_ring": 0.4, "slowest_worker": 0.2}  # fmt: skip
    assert found["per_sample"] == pytest.approx(0.01, rel=1e-3)
    assert found[names.get(term, term)] == pytest.approx(expected[term], rel=1e-3)


def test_where_scaling_stops_comes_with_its_shares(model):
    answers = {answer.what: answer for answer in model.scaling}
    for what in ("total", "total by the model"):
        found = answers[what]
        assert (found.kind, found.batch, found.status, found.at) == (
            "strong", 128, "turning point", 8,
        )  # fmt: skip
        assert sum(found.shares.values()) == pytest.approx(1)
    assert "fastest at 8 nodes" in str(model.summary())
    assert run_scaling(frame()).query("what == 'total'").iloc[0]["at"] == 8


def test_it_is_saved_with_its_answers(model, tmp_path):
    model.save(tmp_path / "m.json")
    again = fitkit.load_model(tmp_path / "m.json")
    asked = pd.DataFrame(ASKED)
    pd.testing.assert_frame_equal(again.predict(asked), model.predict(asked))
    assert again.to_dict() == model.to_dict()
    state = json.loads((tmp_path / "m.json").read_text())
    state["scaling"][0]["n_max"] = "many"
    (tmp_path / "bad.json").write_text(json.dumps(state))
    with pytest.raises(fitkit.SchemaError, match="damaged model"):
        fitkit.load_model(tmp_path / "bad.json")


def test_a_part_can_be_the_target():
    model = fitkit.fit(frame(), "run", target="init_s")
    asked = pd.DataFrame({"n_nodes": [6.0], "n_workers": 6.0, "local_batch": 128 / 6})
    found = model.predict(asked)
    assert found.predicted_s.tolist() == pytest.approx([8], rel=0.03)
    assert set(model.params_.term) >= {"launch_tree", "launch_in_turn"}


def test_of_totals_alone_there_is_the_start_and_the_rest():
    known = frame()
    total = known.init_s + 2 * (50 * known.step_s + known.eval_s)
    plain = known[["n_workers", "n_nodes", "init_s", "n_epochs"]].assign(total_s=total)
    model = fitkit.fit(plain, "run")
    assert set(model.params_.part) == {"init", "epoch"}
    found = model.predict(pd.DataFrame(ASKED).drop(columns=["local_batch", "steps_per_epoch"]))
    assert found.predicted_s.tolist() == pytest.approx([truth(16, 3)], rel=0.05)


def test_every_parameter_is_judged_by_the_runs_of_its_part(model):
    found = model.params_.set_index(["part", "term"])
    assert (found.estimate.dropna() >= 0).all()
    fitted = found[found.status.isin(["positive", "zero"])]
    assert (fitted.determined != "").all()
    assert found.loc[("eval", "fixed"), "determined"].startswith("determined")
    # Without sizes of data and gradient their terms have no parameter, and a sentence says why.
    assert found.loc[("step", "gradient_ring"), "status"] == "unknown"
    assert any("term step: gradient_ring is left out" in line for line in model.left_out())


def test_larger_scales_are_held_out_by_whole_configurations():
    report = fitkit.validate(frame(), "run", hold_out="n_workers > 12")
    assert report.overall["mape"] < 0.1
    assert report.overall["mape"] < report.baselines["perfect_scaling"]["mape"]


def test_some_configurations_keep_the_runs_behind_them():
    found = measurements(frame(), "run", statistic="median")
    small = found.only(found.pooled.n_workers.to_numpy() <= 4)
    assert small.runs.n_workers.tolist() == [1, 1, 2, 2, 4, 4]
    assert small.pooled.n_workers.tolist() == [1, 2, 4]
    assert small.configuration.tolist() == [0, 0, 1, 1, 2, 2]
    assert small.is_whole


# -- knees -----------------------------------------------------------------------------------

SERVED = np.array([1.0, 2, 4, 8, 12, 16, 20, 24])


def served(seed, largest=24, *, has_knees=True, noise=0.05):
    """A file system and a server that 16 nodes keep busy; or one after the other, and a tree."""
    n = np.repeat(SERVED[largest >= SERVED], 3)
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal((2, len(n))))
    init = 2 + 16 * np.maximum(1, n / 16) if has_knees else 2 + 0.1 * n
    step = np.maximum(1.6, 0.1 * n) + 0.05 if has_knees else 2 + 0.6 * np.log2(n)
    columns = {"n_workers": n, "n_nodes": n, "local_batch": 32.0, "n_epochs": 2.0}
    counted = pd.DataFrame({**columns, "steps_per_epoch": 100.0})
    return counted.assign(init_s=init * scatter[0], step_s=step * scatter[1])


def knees(runs):
    found = run_scaling(runs)
    return found[found.what.str.startswith("knee")]


def test_planted_knees_are_found_and_none_beyond_the_data():
    for seed in (600, 601):
        found = knees(served(seed))
        assert found.status.tolist() == ["knee", "knee"]
        assert found["at"].tolist() == pytest.approx([16, 16], rel=0.2)
        assert "knee" not in set(knees(served(seed, largest=16)).status)
        assert "knee" not in set(knees(served(seed, has_knees=False)).status)


def test_a_proven_knee_is_what_the_prediction_follows():
    model = fitkit.fit(served(600, noise=0.02), "run")
    assert {part for part, term in model.params_[["part", "term"]].values if term == "knee"} == {
        "init"
    }
    assert any("step as serial_server, since it has a proven knee" in n for n in model.notes)
    asked = pd.DataFrame({"n_workers": [96.0], "n_nodes": 96.0, "local_batch": 32.0,
                          "n_epochs": 2.0, "steps_per_epoch": 100.0})  # fmt: skip
    with pytest.warns(fitkit.ExtrapolationWarning):
        found = model.predict(asked, allow_extrapolation=True)
    assert found.predicted_s.tolist() == pytest.approx([98 + 200 * 9.65], rel=0.05)


def test_held_out_runs_have_no_say_in_a_knee():
    found = measurements(served(600), "run", statistic="median")
    few = found.pooled.n_workers.to_numpy() <= 12
    without = fitkit.fitting.fit_measurements(found.only(few))
    assert not any("proven" in note for note in without.notes)


# -- logs ------------------------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path):
    """Runs of 1, 2, 4 and 8 workers as a log tells them."""
    store = Dataset(tmp_path / "ds")
    for n in (1, 2, 4, 8):
        source, run_id = SourceRow(f"s{n}", f"{n}.log", "made", 1, 1, 0, "[]", "{}"), f"r{n}"
        step_s = 0.4 / n + 0.01 * n
        rows = [
            Run(run_id, f"s{n}", n_workers=n, n_nodes=n, global_batch=64, local_batch=64 / n),
            Phase(run_id, "init", 4.0 + n, 0),
            *(Phase(run_id, "epoch", 20 * step_s, 0, epoch=k, parent="train") for k in (1, 2)),
            *(Step(run_id, 0, 1, step_s, epoch=k) for k in (1, 2) for _ in range(20)),
        ]
        with store.writing():
            store.write(source, rows)
    return tmp_path / "ds"


def test_logs_are_fitted_and_asked_on_the_command_line(dataset, tmp_path, capsys):
    saved = tmp_path / "m.json"
    assert command(["fit", str(dataset), "--recipe", "run", "-o", str(saved), "-q"]) == 0
    assert "Where scaling stops" in capsys.readouterr().out
    at = ["n_workers=4", "n_nodes=4", "local_batch=16", "n_epochs=10", "steps_per_epoch=20"]
    asked = [part for value in at for part in ("--at", value)]
    assert command(["predict", str(saved), *asked, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["predictions"]
    assert row["predicted_s"] == pytest.approx(8 + 200 * 0.14, rel=0.03)
    split = ["--hold-out", "n_workers == 2"]
    assert command(["validate", str(dataset), "--recipe", "run", *split, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["overall"]["mape"] < 0.1
    assert report["rows"][0]["measured_s"] == pytest.approx(6 + 40 * 0.22)
