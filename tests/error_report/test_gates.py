"""Limits for continuous integration, and how it reads them."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.error_report.figures import error_figures
from fitkit.error_report.gates import failure, judge_gates


def gates(frame, by=None, n_leaks=0, **limits):
    return judge_gates(frame, error_figures(frame), limits, by=by, n_leaks=n_leaks)


def test_each_limit_is_held_against_its_figure(rows):
    frame = rows([1.1, 0.8], low_s=0.9, high_s=[1.2, 0.9])
    found = {
        gate.gate: gate for gate in gates(frame, max_mape=0.2, max_bias=0.04, min_coverage=0.5)
    }
    assert found["max_mape"].figure == pytest.approx(0.15)
    assert found["max_bias"].figure == pytest.approx(-0.05)
    assert found["min_coverage"].figure == pytest.approx(0.5)
    assert [gate.passed for gate in found.values()] == [True, False, True, True]
    assert failure([*found.values()]) == "bias −5.0 %, not within the limit of 4.0 %"


def test_the_group_that_fails_is_named(rows):
    frame = rows([1.1, 1.1, 1.5], device=["a", "a", "b"], n_workers=[1.0, 1, 2])
    assert failure(gates(frame, by="device", max_mape=0.3)) == (
        "device = b: MAPE 50.0 %, not within the limit of 30.0 %"
    )
    assert "n_workers = 2: " in failure(gates(frame, by="n_workers", max_mape=0.3))
    with pytest.raises(ValueError, match="no column 'devise'; there are "):
        gates(frame, by="devise", max_mape=0.3)
    with pytest.raises(ValueError, match="give a limit"):
        gates(frame, by="device")


def test_what_is_not_known_and_what_leaks_keeps_no_limit(rows):
    frame = rows([1.1, np.nan], device=["a", "b"])
    said = failure(gates(frame, by="device", max_mape=0.3, min_coverage=0.1, n_leaks=2))
    assert said == (
        "coverage –, not within the limit of 10.0 %; device = a: coverage –, not within the limit "
        "of 10.0 %; device = b: MAPE –, not within the limit of 30.0 %; and 2 more"
    )
    assert failure(gates(frame, max_mape=0.3, n_leaks=2)) == ("2 held-out runs equal training runs")
    assert gates(frame) == []


@pytest.fixture
def report():
    """A report whose device is called something that no XML may hold."""
    frame = pd.DataFrame({"phase": "comm", "local_batch": np.tile(2.0 ** np.arange(8), 2)})
    noise = np.random.default_rng(0).uniform(0.9, 1.1, 16)
    frame["duration_s"] = (0.01 + 1e-3 * frame.local_batch) * noise
    frame["device"] = np.repeat(["a", 'b"><failure/>\x00\x1b\ufffe&' + "x" * 5000], 8)
    return fitkit.validate(frame, "phases", folds=4)


def test_junit_has_a_test_for_each_limit(report, tmp_path):
    report.check(max_mape=1e-6, max_bias=1.0, by="device")
    report.to_junit(tmp_path / "out" / "r.xml")
    (suite,) = ElementTree.parse(tmp_path / "out" / "r.xml").getroot()  # noqa: S314 - our own
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases) == 8
    failed = [case for case in cases if case.find("failure") is not None]
    assert int(suite.get("failures")) == len(failed) == 3
    assert failed[0].find("failure").get("message").startswith("MAPE ")
    assert [case.get("name") for case in cases][:2] == ["max_mape", "max_bias"]
    assert cases[-2].get("name") == "no leak"
    assert all(len(case.get("name")) <= 1000 for case in cases)
    values = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert float(values["mape"]) == report.overall["mape"]
    assert values["verdict"] == report.verdict[:1000]


def test_junit_without_limits_tells_leaks_and_narrow_intervals(report, tmp_path):
    report.rows = report.rows.assign(low_s=99.0, high_s=100.0)
    report.to_junit(tmp_path / "r.xml")
    (suite,) = ElementTree.parse(tmp_path / "r.xml").getroot()  # noqa: S314 - our own
    leak, narrow = suite.findall("testcase")
    assert (leak.get("name"), leak.find("failure")) == ("no leak", None)
    assert narrow.find("skipped").get("message").startswith("under-covering: 0 % of the ")
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
