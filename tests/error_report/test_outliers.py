"""The worst runs, each with a reason that was planted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.display import format_share
from fitkit.error_report.evidence import Evidence, straggler_costs
from fitkit.error_report.outliers import run_totals, worst_runs
from fitkit.splits import Fold

_FOLD = "held out"


def case(measured, predicted, **columns):
    """Configurations measured once or more, predicted; the last two are held out."""
    times = [np.atleast_1d(value).astype(float) for value in measured]
    number = np.repeat(np.arange(len(times)), [len(value) for value in times])
    runs = pd.DataFrame({"step_s": np.concatenate(times)})
    runs["run_id"] = [f"r{i}" for i in runs.index]
    for name, values in columns.items():
        runs[name] = np.asarray(values, dtype=object)[number]
    rows = runs.groupby(number).first()
    rows["measured_s"] = [np.median(value) for value in times]
    rows["n_repeats"] = [len(value) for value in times]
    rows["repeat_difference"] = 0.02
    rows = rows.assign(predicted_s=predicted, fold=_FOLD, group="g", status="inside", reason="")
    test = np.arange(len(times)) >= len(times) - 2
    words = [name for name in columns if name not in ("framework_version", "started_at")]
    evidence = Evidence(runs, number, "step_s", words, [Fold(_FOLD, ~test, test)])
    return rows[test], evidence


def reason(rows, evidence, place=0):
    return worst_runs(rows, evidence).reason[place]


def test_the_worst_come_first_and_twice_too_long_is_as_bad_as_half_as_long():
    rows, evidence = case([1, 1, 1, 1], [1, 1, 1.9, 0.5])
    found = worst_runs(rows, evidence)
    assert found.run_id.tolist() == ["r3", "r2"]
    assert found.error.tolist() == pytest.approx([-0.5, 0.9])
    assert found.reason.tolist() == ["none found", "none found"]
    assert len(worst_runs(rows, evidence, 1)) == 1


def test_a_straggler_is_slower_than_its_own_repetitions():
    rows, evidence = case([1, 1, [1, 1.01, 2], 1], [1, 1, 1, 1])
    found = worst_runs(rows, evidence)
    assert found.run_id[0] == "r4"
    assert found.reason[0] == "straggler: 99.0 % longer than its 2 other repetitions"  # 2 / 1.005
    # All three are slow: it is not the run.
    rows, evidence = case([1, 1, [2, 2.01, 2.02], 1], [1, 1, 1, 1])
    assert reason(rows, evidence) == "none found"


@pytest.mark.parametrize("factor", [1.2, 2.0, 10.0])
def test_of_two_repetitions_one_may_stray_to_either_side(factor):
    rows, evidence = case([1, 1, [1, factor], 1], [1, 1, 1, 1])
    found = worst_runs(rows, evidence, 1)
    assert found.run_id[0] == "r3"
    longer = format_share(factor - 1)
    assert found.reason[0] == f"straggler: {longer} longer than its repetition"
    rows, evidence = case([1, 1, [1, 1 / factor], 1], [1, 1, 1, 1])
    shorter = format_share(1 - 1 / factor)
    assert (
        reason(rows, evidence) == f"unlike its repetitions: {shorter} shorter than its repetition"
    )


def test_a_class_that_no_training_row_has():
    rows, evidence = case([1, 1, 3, 1], [1] * 4, device=["a", "b", "c", "a"])
    assert reason(rows, evidence) == "unseen class: device c, fitted to a, b"
    assert reason(rows, evidence, 1) == "none found"


def test_software_that_no_training_row_has():
    rows, evidence = case([1, 1, 3, 1], [1] * 4, framework_version=["1", "1", "2", "1"])
    assert reason(rows, evidence) == "different software: framework_version 2, fitted to 1"


def test_outside_the_box_quotes_the_model():
    rows, evidence = case([1, 1, 3, 1], [1] * 4)
    rows = rows.assign(status=["extrapolated", "inside"], reason=["n_workers is far", ""])
    assert reason(rows, evidence) == "outside the box: n_workers is far"
    assert reason(rows, evidence, 1) == "none found"
    # What all rows have in common sets none of them apart.
    rows = rows.assign(status="extrapolated", reason="n_workers is far")
    assert reason(rows, evidence) == "outside the box: n_workers is far (as 2 of 2 rows are)"


def test_all_reasons_are_kept_the_first_stands_for_them():
    rows, evidence = case(
        [1, 1, 3, 1], [1] * 4, device=["a", "b", "c", "a"], framework_version=["1", "1", "2", "1"]
    )
    rows = rows.assign(status="extrapolated", reason="far")
    assert [text.split(":")[0] for text in worst_runs(rows, evidence).reasons[0]] == [
        "unseen class", "different software", "outside the box",
    ]  # fmt: skip


def test_a_machine_that_drifts_is_told_by_the_repetitions():
    # Every configuration is measured early, in the middle and late, 60 % slower in the end.
    sizes = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    times, starts = [], []
    for place, size in enumerate(sizes):
        begun = np.array([0.0, 40.0, 80.0]) + place
        times.append(size * (1 + 0.6 * begun / 85))
        starts.append(begun)
    rows, evidence = case(times, [np.median(value) for value in times])
    day = pd.Timestamp("2026-11-30", tz="UTC")
    started = day + pd.to_timedelta(np.concatenate(starts), unit="h")
    evidence = Evidence(
        evidence.runs.assign(started_at=started), evidence.configuration, "step_s", (),
        evidence.folds,
    )  # fmt: skip
    rows = rows.assign(repeat_difference=0.3)
    last = worst_runs(rows, evidence).set_index("run_id")
    assert last.reason["r17"].startswith("drift: times changed by +")
    assert last.reason["r12"].startswith("drift: times changed by +")  # early, so faster


def test_totals_are_those_of_the_runs_not_of_the_configurations():
    rows, evidence = case([1, 1, [1, 3], 2], [1, 1, 2, 2])
    found = run_totals(rows, evidence).set_index("run_id")
    assert found.measured_s.to_dict() == {"r2": 1.0, "r3": 3.0, "r4": 2.0}
    assert found.predicted_s.tolist() == [2.0, 2.0, 2.0]
    assert found.error.tolist() == pytest.approx([1.0, -1 / 3, 0.0])
    assert found.mape.tolist() == pytest.approx([1.0, 1 / 3, 0.0])


def test_without_names_the_rows_stand_for_runs():
    rows, evidence = case([1, 1, 3, 1], [1] * 4)
    nameless = Evidence(evidence.runs.drop(columns="run_id"), evidence.configuration, "step_s")
    assert worst_runs(rows, nameless).run_id.tolist() == ["row 2", "row 3"]
    assert run_totals(rows, nameless).empty


def test_slow_steps_cost_what_they_exceed_the_others_by(sample_dataset):
    dataset = fitkit.Dataset(sample_dataset)
    steps = dataset.read("steps", ["run_id"])
    found = straggler_costs(dataset, steps.run_id.unique()[:5].tolist())
    assert all(0 <= cost < 1 for cost in found.values())
    assert len(found) == 5
    assert straggler_costs(dataset, []) == {}
