"""Two reports side by side, and files that are no reports."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.error_report.comparison import compare
from fitkit.error_report.old_report import OldReport, read_report
from fitkit.errors import InputError

_NAMES = ("device", "n_workers")


def judged(errors, device="a", first=0):
    """Rows of one second each, with those errors."""
    errors = np.asarray(errors, dtype=float)
    frame = pd.DataFrame({"predicted_s": 1 + errors, "measured_s": 1.0, "device": device})
    numbers = np.arange(first, first + len(errors))
    return frame.assign(n_workers=numbers.astype(float), run_id=[f"r{i}" for i in numbers])


def before(rows, recipe="step"):
    return OldReport("old.json", recipe, "", "step_s", "median", _NAMES, rows)


def compared(new, old, **arguments):
    return compare(new, before(old, **arguments), _NAMES, {"recipe": "step", "target": "step_s"})


class TestPaired:
    def test_the_change_is_that_of_the_common_configurations(self):
        draw = np.random.default_rng(0)
        then = draw.uniform(0.1, 0.3, 30)
        found = compared(judged(then[5:] - 0.05, first=5), judged(then))
        assert (found.paired, found.n_common, found.n_old, found.n_new) == (True, 25, 30, 25)
        overall = found.overall
        assert overall["old"] == pytest.approx(then[5:].mean())
        assert overall["change"] == pytest.approx(-0.05)
        assert (overall["low"], overall["high"]) == pytest.approx((-0.05, -0.05))
        assert (overall["verdict"], overall["share_better"]) == ("better", 1.0)
        assert found.text == "Against old.json, on 25 common configurations: better"

    def test_what_scatters_is_no_change(self):
        draw = np.random.default_rng(1)
        found = compared(judged(draw.uniform(0, 0.2, 40)), judged(draw.uniform(0, 0.2, 40)))
        assert found.overall["verdict"] == "no change beyond noise"
        assert found.overall["low"] < found.overall["change"] < found.overall["high"]

    def test_a_group_that_got_worse_is_named_beside_one_that_did_not(self):
        errors = np.random.default_rng(2).uniform(0.1, 0.2, 40)
        device = np.repeat(["a", "b"], 20)
        found = compared(judged(errors + 0.1 * (device == "b"), device), judged(errors, device))
        by_device = found.groups[found.groups.by == "device"].set_index("value")
        assert by_device.verdict.to_dict() == {"a": "no change beyond noise", "b": "worse"}
        assert by_device.change.to_dict() == pytest.approx({"a": 0.0, "b": 0.1})
        assert found.text.endswith("worse; device b worse")

    def test_rows_that_are_there_twice_are_no_pair(self):
        twice = pd.concat([judged([0.1] * 20)] * 2)
        assert compared(judged([0.1] * 20), twice).n_common == 0

    def test_that_the_data_changed_is_said(self):
        then = judged([0.1] * 10)
        now = then.assign(measured_s=[1.5] * 4 + [1.0] * 6)
        (note,) = compared(now, then).notes
        assert note == "4 of 10 common configurations have other measured times than then"

    @pytest.mark.parametrize("n", [5, 20])
    def test_two_reports_of_the_same_model_seldom_differ(self, n):
        """Fresh noise in five groups: one of twenty may be named, by its level."""
        draw = np.random.default_rng(4)
        device, named = np.repeat(list("abcde"), n), 0
        for _ in range(40):
            pair = [judged(draw.uniform(0.0, 0.2, 5 * n), device) for _ in range(2)]
            named += compared(*pair).groups.verdict.isin(["better", "worse"]).any()
        assert named <= 6  # 2 expected; more than 6 in less than one of a hundred

    def test_few_pairs_on_one_side_are_not_determined(self):
        found = compared(judged([0.2] * 20, list("abcd") * 5), judged([0.1] * 20, list("abcd") * 5))
        assert found.overall["verdict"] == "worse"
        assert set(found.groups.verdict) == {"not determined"}

    def test_what_changed_most_is_named_first(self):
        errors = np.random.default_rng(5).uniform(0.1, 0.12, 80)
        device = np.repeat(list("abcd"), 20)
        more = np.select([device == letter for letter in "abcd"], [0.01, 0.02, 0.5, 0.03])
        found = compared(judged(errors + more, device), judged(errors, device))
        assert "worse; device c worse, device d worse" in found.text

    def test_that_something_else_was_asked_is_said(self):
        how = {"recipe": "step", "target": "step_s", "split": "4 folds", "statistic": "min"}
        rows = judged([0.1] * 10)
        old = OldReport("old.json", "step", "hold out x", "step_s", "median", _NAMES, rows)
        notes = compare(rows, old, _NAMES, how).notes
        assert [note.split(" was ")[0] for note in notes] == ["the split", "the statistic"]


class TestUnpaired:
    def test_other_configurations_are_drawn_on_their_own(self):
        draw = np.random.default_rng(3)
        found = compared(
            judged(draw.uniform(0, 0.1, 30)), judged(draw.uniform(0.3, 0.4, 20), first=99)
        )
        assert (found.paired, found.n_common) == (False, 0)
        assert found.overall["verdict"] == "better"
        assert "on different configurations, 20 then and 30 now" in found.text

    def test_few_rows_determine_nothing(self):
        found = compared(judged([0.1] * 3), judged([0.5] * 3))
        assert (found.paired, found.overall["verdict"]) == (False, "not determined")


def test_another_recipe_is_refused():
    with pytest.raises(InputError, match="its recipe is run, not step"):
        compared(judged([0.1] * 9), judged([0.1] * 9), recipe="run")


def test_a_report_compares_with_itself_by_its_file(tmp_path):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"phase": "comm", "local_batch": 2.0 ** np.arange(10)})
    frame["duration_s"] = (0.01 + 1e-3 * frame.local_batch) * draw.uniform(0.95, 1.05, 10)
    frame["started_at"] = pd.Timestamp("2026-11-30", tz="UTC")
    report = fitkit.validate(frame, "phases", folds=5)
    report.save(tmp_path / "old.json")
    found = report.compare_with(tmp_path / "old.json")
    assert (found.paired, found.n_common) == (True, 10)
    assert found.overall["change"] == 0.0
    assert found.overall["share_better"] == 0.5
    assert found.overall["verdict"] == "no change beyond noise"
    assert report.to_dict()["comparison"]["overall"]["verdict"] == "no change beyond noise"
    assert "Against old.json" in str(report.summary())


GOOD = {"recipe": "step", "rows": [{"measured_s": 1.0, "predicted_s": 1.1}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"old\.json:1: no JSON"),
        (b'{"recipe":\n "step",}', r"old\.json:2: no JSON"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "it is no JSON object"),
        (b'{"rows": [{"measured_s": NaN}]}', "NaN is no number"),
        (json.dumps({**GOOD, "recipe": ["step"]}).encode(), "recipe is no text"),
        (b'{"recipe": "step"}', "it has no list of rows"),
        (b'{"rows": {}}', "it has no list of rows"),
        (b'{"rows": []}', "no row has a prediction"),
        (b'{"rows": [1]}', "row 1 is no object"),
        (b'{"rows": [{"predicted_s": 1}]}', "row 1: measured_s is no time in seconds"),
        (b'{"rows": [{"predicted_s": "1", "measured_s": 1}]}', "row 1: predicted_s is no time"),
        (b'{"rows": [{"predicted_s": true, "measured_s": 1}]}', "row 1: predicted_s is no time"),
        (b'{"rows": [{"predicted_s": 1, "measured_s": 0}]}', "row 1: measured_s is not positive"),
        (b'{"rows": [{"predicted_s": -1, "measured_s": 1}]}', "row 1: predicted_s is no time"),
        (b'{"rows": [{"predicted_s": 1e999, "measured_s": 1}]}', "row 1: predicted_s is no time"),
        (b'{"rows": [{"predicted_s": 1' + b"0" * 400 + b', "measured_s": 1}]}', "row 1: predicted"),
        (b'{"rows": [{"predicted_s": 1' + b"0" * 9000 + b', "measured_s": 1}]}', "no JSON"),
        (json.dumps({**GOOD, "configuration_columns": 3}).encode(), "configuration_columns is no"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_report_is_refused_and_named(tmp_path, content, message):
    path = tmp_path / "old.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_report(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_or_a_folder_is_named(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="no file here"):
            read_report(path)


def test_odd_values_in_rows_do_not_stop_it(tmp_path):
    row = {**GOOD["rows"][0], "device": {"a": [1]}, "network": ["x"], "n_workers": None, "": 3}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"rows": [row, {"predicted_s": None}] * 9}), encoding="utf-8")
    old = read_report(path)
    assert len(old.rows) == 9
    found = compare(judged([0.1] * 9), old, _NAMES, {"recipe": "step", "target": "step_s"})
    assert found.n_common == 0
