"""Runs that are one run under two names: found, told apart from chance, named."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.error_report.leaks import Copy, not_contradicted, same_bytes, same_figures, split_leaks
from fitkit.splits import Fold


def times(n=40, seed=0):
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {"run_id": [f"r{i}" for i in range(n)], "step_s": draw.uniform(0.1, 0.9, n)}
    )


class TestSameFigures:
    def test_a_copy_is_found_and_nothing_else(self):
        frame = times()
        frame.loc[7, "step_s"] = frame.step_s[3]
        assert same_figures(frame, ["step_s"]) == [Copy("r3", "r7", "same figures")]
        assert same_figures(times(), ["step_s"]) == []

    @pytest.mark.parametrize("digits", [8, 6])
    def test_rounding_does_not_hide_it(self, digits):
        frame = times()
        frame.loc[7, "step_s"] = round(frame.step_s[3], digits)
        assert [copy[:2] for copy in same_figures(frame, ["step_s"])] == [("r3", "r7")]

    def test_a_coarse_clock_proves_nothing(self):
        frame = times(400).round({"step_s": 3})
        assert frame.step_s.duplicated().any()
        assert same_figures(frame, ["step_s"]) == []

    def test_all_measured_columns_have_to_agree(self):
        frame = times().assign(cpu_s=lambda f: 0.9 * f.step_s)
        frame.loc[7, "step_s"] = frame.step_s[3]
        assert same_figures(frame, ["step_s", "cpu_s"]) == []
        frame.loc[7, "cpu_s"] = frame.cpu_s[3]
        assert len(same_figures(frame, ["step_s", "cpu_s"])) == 1

    def test_a_run_of_several_rows_is_compared_as_a_whole(self):
        frame = pd.concat([times(20), times(20, seed=1)])
        frame.loc[frame.run_id == "r4", "step_s"] = frame[frame.run_id == "r2"].step_s.to_numpy()
        assert [copy[:2] for copy in same_figures(frame, ["step_s"])] == [("r2", "r4")]
        one = frame.assign(step_s=frame.step_s.where(frame.index != 4, frame.step_s + 0.01))
        assert same_figures(one, ["step_s"]) == []

    def test_two_of_few_runs_may_agree_in_few_digits(self):
        pair = pd.DataFrame({"run_id": ["a", "b"], "step_s": [0.12, 0.12]})
        assert same_figures(pair, ["step_s"]) == []
        assert len(same_figures(pair.assign(step_s=0.12345), ["step_s"])) == 1

    def test_times_that_lie_close_agree_by_chance(self):
        draw = np.random.default_rng(0)
        # 400 times of 7 digits in a range of 1 %: a pair agrees in every other such data set.
        close = pd.DataFrame({"run_id": [f"r{i}" for i in range(400)]})
        found = [
            same_figures(close.assign(step_s=draw.uniform(0.1, 0.101, 400).round(8)), ["step_s"])
            for _ in range(20)
        ]
        assert found == [[]] * 20


def test_runs_whose_phases_differ_are_not_one():
    phases = pd.DataFrame(
        [("a", "comm", "step", 0.0017), ("b", "comm", "step", 0.0011), ("a", "init", None, 2.0),
         ("c", "init", None, 2.0)],
        columns=["run_id", "phase", "parent", "duration_s"],
    )  # fmt: skip
    pairs = [Copy(one, other, "same figures") for one, other in ("ab", "ac", "bc", "bd")]
    assert not_contradicted(pairs, phases) == pairs[1:]


def test_the_same_bytes_are_known_by_their_content_not_by_their_names():
    files = {"a": "h1", "b": "h2", "c": "h1"}
    sources = pd.DataFrame(
        {"source_id": [*files], "files": [json.dumps([[k, h, 9]]) for k, h in files.items()]}
    )
    runs = pd.DataFrame({"run_id": ["ra", "rb", "rc"], "source_id": ["a", "b", "c"]})
    assert same_bytes(runs, sources) == [Copy("ra", "rc", "same bytes")]
    assert same_bytes(runs, sources.assign(files="{no json")) == []


def test_a_copy_leaks_only_across_the_split():
    train = np.array([True, True, False, False])
    folds = [Fold("last two", train, ~train)]
    where = {"a": [0], "b": [2], "c": [3], "d": [1], "e": [1]}
    copies = [Copy("a", "b", "same bytes"), Copy("b", "c", "same bytes"), Copy("d", "e", "x")]
    found = split_leaks(copies, where, folds)
    assert found[["kind", "run_id", "equals", "fold"]].to_numpy().tolist() == [
        ["leak", "b", "a", "last two"], ["copy", "e", "d", ""],
    ]  # fmt: skip


def runs():
    draw = np.random.default_rng(0)
    axes = np.meshgrid([1.0, 2, 4, 8], [8.0, 16, 32, 64], indexing="ij")
    frame = pd.DataFrame({"n_workers": axes[0].ravel(), "local_batch": axes[1].ravel()})
    exact = 0.01 + 1e-3 * frame.local_batch + 2e-3 * frame.n_workers
    frame["duration_s"] = exact * np.exp(0.02 * draw.standard_normal(16))
    return frame.assign(phase="comm", network="bert", run_id=[f"r{i}" for i in range(16)])


def test_a_planted_leak_is_named_and_no_limit_is_kept():
    frame = runs()
    planted = frame.iloc[-1:].assign(run_id="elsewhere", n_workers=4.0, local_batch=65.0)
    frame = pd.concat([frame, planted])
    report = fitkit.validate(frame, "phases", hold_out="n_workers == 8")
    assert report.n_leaks == 1
    (row,) = report.leaks.itertuples()
    assert (row.kind, row.how) == ("leak", "same figures")
    assert (row.run_id, row.equals) == ("r15", "elsewhere")
    assert report.verdict.startswith("The split leaks: 1 held-out run equals a training run, ")
    assert "r15 is elsewhere (same figures)" in report.notes[0]
    assert [g.gate for g in report.check(max_mape=9.0) if not g.passed] == ["no leak"]
    assert report.to_dict()["leaks"][0]["equals"] == "elsewhere"


def test_without_a_copy_nothing_is_said():
    report = fitkit.validate(runs(), "phases", hold_out="n_workers == 8")
    assert report.leaks.empty
    assert "leak" not in report.verdict
    assert all(gate.passed for gate in report.check(max_mape=9.0))


def test_a_copied_repetition_is_held_out_with_the_run_and_named():
    frame = pd.concat([runs(), runs().iloc[:1].assign(run_id="again")])
    report = fitkit.validate(frame, "phases", folds=4)
    assert report.n_leaks == 0
    assert report.leaks.kind.tolist() == ["copy"]
    assert report.notes[0].startswith("1 run is counted as repetitions of what they are copies of")


def test_a_model_that_was_fitted_on_these_runs_is_no_leak_of_a_split_but_told():
    model = fitkit.fit(runs().iloc[:12], "phases")
    report = fitkit.validate(runs(), "phases", model=model)
    assert set(report.leaks.how) == {"same run"}
    assert report.n_leaks == 12
    assert report.verdict.startswith("Not held out: the model was fitted on 12 of these runs.")
    assert all(gate.passed for gate in report.check(max_mape=9.0))


def test_a_model_knows_its_runs_under_another_name_by_their_times():
    model = fitkit.fit(runs().iloc[:12], "phases")
    model.provenance["run_seconds"] = runs().set_index("run_id").duration_s[
        model.provenance["run_ids"]
    ].tolist()  # fmt: skip
    other = runs().assign(run_id=lambda f: "new-" + f.run_id)
    report = fitkit.validate(other, "phases", model=model)
    assert report.n_leaks == 12
    pairs = report.leaks[["run_id", "equals"]].to_numpy().tolist()
    assert all(one == f"new-{other}" for one, other in pairs)


def test_the_same_log_under_another_name_is_found_in_a_dataset(tmp_path, data):
    for log in sorted((data / "cntk").glob("shape_mlpw_1024-256_mb*_rep1")):
        shutil.copytree(log, tmp_path / "logs" / log.name)
    original = tmp_path / "logs" / "shape_mlpw_1024-256_mb16_rep1"
    for file in original.iterdir():
        (tmp_path / "logs" / "elsewhere").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / "logs" / "elsewhere" / f"renamed_{file.name}")
    dataset = fitkit.ingest(tmp_path / "logs", tmp_path / "ds")
    report = fitkit.validate(dataset, "step", folds=2)
    assert set(report.leaks.how) == {"same bytes"}
    assert len(report.leaks) == 1
    sources = report.provenance["Sources"]
    assert sorted(sources.path)[0].startswith("elsewhere")
