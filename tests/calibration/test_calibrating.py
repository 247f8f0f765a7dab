"""calibrate(): a model carried to hardware whose step times are known."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.calibration import calibrate, suggest_probes
from fitkit.calibration.transfer_library import past_errors

Times = Callable[..., pd.DataFrame]
PROBES = [(1, 1, 8), (1, 1, 128), (4, 1, 32), (16, 4, 128), (16, 4, 8), (8, 2, 32)]


def some(frame: pd.DataFrame, places: list[tuple[int, int, int]]) -> pd.DataFrame:
    """Rows of those workers, nodes and batches."""
    columns = ["n_workers", "n_nodes", "local_batch"]
    return frame.set_index(columns).loc[places].reset_index()


def answers(model: fitkit.PerformanceModel, rows: pd.DataFrame) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
        return model.predict(rows, allow_extrapolation=True)


def errors(model: fitkit.PerformanceModel, rows: pd.DataFrame) -> pd.Series:
    return (answers(model, rows).predicted_s / rows.step_s - 1).abs()


def test_compute_and_links_change_by_factors_of_their_own(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    # Compute is four times as fast, links as before: one factor cannot say that.
    target = cluster("new", 0.25, 1.0)
    new = calibrate(source, some(target, PROBES))
    own = errors(new, target)
    (group,) = new.estimator.groups_.values()
    factor = pd.Series(group.rivals(target)["one_factor"], target.index)
    assert own.mean() < 0.03
    assert (factor / target.step_s - 1).abs().mean() > 0.15


def test_it_is_a_model_like_any_other(
    source: fitkit.PerformanceModel, cluster: Times, tmp_path: Path
) -> None:
    target = cluster("new", 0.25, 1.0, noise=0.02)
    new = calibrate(source, some(target, PROBES))
    new.save(tmp_path / "new.json")
    again = fitkit.load_model(tmp_path / "new.json")
    first, second = (answers(model, target) for model in (new, again))
    pd.testing.assert_frame_equal(first, second)
    assert (first.low_s < first.predicted_s).all()
    assert (first.predicted_s < first.high_s).all()
    assert str(again.summary()) == str(new.summary())
    report = fitkit.validate(target, model=again)
    assert report.overall["mape"] < 0.06
    assert report.overall["coverage"] > 0.8


def test_parameters_say_where_they_come_from(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    one_node = [(1, 1, 8), (1, 1, 32), (1, 1, 128), (2, 1, 32), (4, 1, 8), (4, 1, 128)]
    new = calibrate(source, some(cluster("new", 0.25, 1.0), one_node))
    origin = new.params_.set_index("term").origin
    assert origin["per_sample"] == "probes"
    assert origin["log_nodes"] == "prior"  # no probe had a second node
    assert set(origin) <= {"prior", "probes", "both"}
    said = new.params_.set_index("term").determined
    assert said["per_sample"].startswith("from the probes")
    assert said["log_nodes"].startswith("from the source")


def test_intervals_say_what_they_rest_on(source: fitkit.PerformanceModel, cluster: Times) -> None:
    target = cluster("new", 0.5, 1.0, noise=0.02)
    few = calibrate(source, some(target, PROBES))
    assert any("past transfers" in note for note in few.notes)
    more = calibrate(source, target.iloc[np.random.RandomState(0).permutation(len(target))[:12]])
    (said,) = [note for note in more.notes if "intervals" in note]
    assert "rest on the 12 errors of probes" in said
    assert "above level 0.92" in said


def test_a_level_that_own_errors_cannot_tell_takes_past_transfers(
    source: fitkit.PerformanceModel, cluster: Times, tmp_path: Path
) -> None:
    target = cluster("new", 0.5, 1.0, noise=0.02)
    new = calibrate(source, target.iloc[np.random.RandomState(0).permutation(len(target))[:12]])
    (group,) = new.estimator.groups_.values()
    own, past = np.sort(np.abs(group.errors_)), past_errors()
    # Of 12 errors the 12th tells level 12/13 = 0.923, of 200 the 191st tells 0.95.
    sizes = {0.9: own[11], 0.95: max(own[11], past[190]), 0.99: max(own[11], past[198])}
    new.save(tmp_path / "new.json")
    asked = target.iloc[[0]]
    for model in (new, fitkit.load_model(tmp_path / "new.json")):
        for level, size in sizes.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
                row = model.predict(asked, allow_extrapolation=True, level=level).iloc[0]
            half = float(np.log(row.high_s / row.predicted_s))
            assert half == pytest.approx(size * group.relative_width(asked)[0])


def test_of_several_devices_the_likeliest_counts(cluster: Times) -> None:
    links = {"slow link": 8.0, "fast link": 0.2}
    both = [cluster(name, 1.0, link, noise=0.02).iloc[::6] for name, link in links.items()]
    model = fitkit.fit(pd.concat(both), "step", statistic="median")
    new = calibrate(model, some(cluster("new", 0.5, 4.0), PROBES))
    (group,) = new.estimator.groups_.values()
    assert "slow link" in group.prior.source


def test_order_of_probes_is_no_matter(source: fitkit.PerformanceModel, cluster: Times) -> None:
    probes = some(cluster("new", 0.25, 1.0, noise=0.02), PROBES)
    asked = cluster("new", 0.25, 1.0).iloc[::7]
    one, other = (answers(calibrate(source, rows), asked) for rows in (probes, probes.iloc[::-1]))
    np.testing.assert_allclose(one.predicted_s, other.predicted_s, rtol=1e-4)


def test_a_damaged_calibration_is_refused(
    source: fitkit.PerformanceModel, cluster: Times, tmp_path: Path
) -> None:
    path = tmp_path / "new.json"
    calibrate(source, some(cluster("new", 0.25, 1.0), PROBES)).save(path)
    state = json.loads(path.read_text())
    for name, value in (("weight", 2.0), ("places", [1.0]), ("errors", ["x"]), ("terms", ["none"])):
        broken = json.loads(json.dumps(state))
        broken["estimator"]["groups"][0][name] = value
        path.write_text(json.dumps(broken))
        with pytest.raises(fitkit.SchemaError, match="damaged model"):
            fitkit.load_model(path)


# -- what is refused -----------------------------------------------------------------------


def test_probes_of_one_size_are_refused_by_naming_what_to_run(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    target = cluster("new", 0.5, 1.0)
    same = target[target.local_batch == 32].iloc[[0, 3, 9, 20]]
    with pytest.raises(fitkit.FitError, match="local_batch is 32 in every probe") as caught:
        calibrate(source, same)
    assert "local_batch = 128" in caught.value.hint or "local_batch = 8" in caught.value.hint
    new = calibrate(source, same, allow_prior=True)
    assert any("what the source says" in note for note in new.notes)


@pytest.mark.parametrize(("factor", "unit"), [(1e3, "milliseconds"), (1e6, "microseconds")])
def test_times_in_other_units_are_named(
    source: fitkit.PerformanceModel, cluster: Times, factor: float, unit: str
) -> None:
    probes = some(cluster("new", 0.5, 1.0), PROBES)
    with pytest.raises(fitkit.FitError, match=f"are they {unit}"):
        calibrate(source, probes.assign(step_s=probes.step_s * factor))
    one = probes.assign(step_s=np.where(np.arange(6) == 2, probes.step_s * factor, probes.step_s))
    with pytest.raises(fitkit.FitError, match=f"n_workers 4.*are they {unit}"):
        calibrate(source, one)


def test_probes_of_several_devices_are_named(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    mixed = pd.concat(some(cluster(name, 0.5, 1.0), PROBES) for name in ("new", "newer"))
    with pytest.raises(fitkit.FitError, match="more than one device: new, newer") as caught:
        calibrate(source, mixed)
    assert "--where" in caught.value.hint
    kept = calibrate(source, mixed, where='device == "newer"')
    assert {key[3] for key in kept.estimator.groups_} == {"newer"}


def test_contradictory_probes_are_named(source: fitkit.PerformanceModel, cluster: Times) -> None:
    probes = some(cluster("new", 0.5, 1.0, noise=0.01), PROBES)
    again = probes.iloc[[2]].assign(step_s=2 * probes.step_s.iloc[2])
    with pytest.raises(fitkit.FitError, match=r"contradictory probes: n_workers 4, .*local_batch"):
        calibrate(source, pd.concat([probes, again]))
    target = cluster("new", 0.5, 1.0, noise=0.01)
    many = target.iloc[::12].reset_index(drop=True)
    many.loc[4, "step_s"] *= 12
    with pytest.raises(fitkit.FitError, match="contradictory probes: n_workers"):
        calibrate(source, many)


@pytest.mark.parametrize("factor", [1 / 12, 1 / 8, 8, 12])
def test_of_contradictory_probes_the_wrong_one_is_named(
    source: fitkit.PerformanceModel, cluster: Times, factor: float
) -> None:
    probes = cluster("new", 0.5, 1.0, noise=0.01).iloc[[0, 4, 11, 19, 31, 47, 58, 77, 93, 109]]
    for k in (0, 3, 7, 9):
        scale = np.where(np.arange(10) == k, factor, 1.0)
        with pytest.raises(fitkit.FitError, match="contradictory") as caught:
            calibrate(source, probes.assign(step_s=probes.step_s * scale))
        names = ["n_workers", "n_nodes", "local_batch"]
        wrong = ", ".join(f"{name} {probes[name].iloc[k]:g}" for name in names)
        assert f"probes: {wrong} took" in str(caught.value)


def test_an_unknown_network_and_other_recipes_are_refused(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    probes = some(cluster("new", 0.5, 1.0), PROBES)
    with pytest.raises(fitkit.FitError, match="network other from: it knows net"):
        calibrate(source, probes.assign(network="other"))
    pairs = pd.DataFrame({"job": ["a", "a", "b"], "neighbour": ["a", "b", "b"]})
    shared = fitkit.fit(pairs.assign(normalised_throughput=[0.5, 0.6, 0.7], device="k80"), "shared")
    for ask in (calibrate, suggest_probes):
        with pytest.raises(ValueError, match="recipe shared"):
            ask(shared, pairs)


def test_phases_are_carried_too(cluster: Times) -> None:
    def phases(device: str, factor: float) -> pd.DataFrame:
        frame = cluster(device, 1.0, 1.0).query("n_nodes == 1")
        seconds = factor * (0.01 + 1e-3 * frame.local_batch + 2e-3 * (frame.n_workers - 1))
        return frame.drop(columns="step_s").assign(phase="comm", duration_s=seconds)

    model = fitkit.fit(phases("old", 1.0), "phases", statistic="median")
    target = phases("new", 0.4)
    places = [(1, 1, 8), (1, 1, 128), (4, 1, 32), (4, 1, 128)]
    new = calibrate(model, some(target, places))
    assert (answers(new, target).predicted_s / target.duration_s - 1).abs().max() < 0.02


def test_a_validation_shows_simpler_ways_beside_it(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    """Compute twice as fast, links three times as slow: no one factor says that."""
    target = cluster("new", 0.5, 3.0)
    new = fitkit.calibrate(source, target.iloc[3::37], allow_prior=True)
    report = fitkit.validate(target, model=new)
    assert {"one_factor", "from_scratch", "fit_to_all"} <= set(report.baselines)
    assert report.overall["mape"] < report.baselines["one_factor"]["mape"]
    assert "one factor" in str(report.summary())
    rows = report.rows
    mape = (rows.one_factor / rows.measured_s - 1).abs().mean()
    assert report.baselines["one_factor"]["mape"] == pytest.approx(mape)
