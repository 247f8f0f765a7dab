"""Efficiency by hand, and a planted plateau."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.dataset import Dataset
from fitkit.diagnosis import efficiency, scaling
from fitkit.records import Phase, Run, SourceRow, Step


def stored(folder, records):
    store = Dataset(folder / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


def runs(times, repeats=(1.0,), local=None, whole=None):
    """Steps of one second each way: ``times`` by workers, batch of a worker or of all kept."""
    records = []
    for n, seconds in times.items():
        for k, factor in enumerate(repeats):
            name = f"{n}-{k}"
            facts = {
                "local_batch": float(local or whole / n), "global_batch": int(whole or local * n)
            }  # fmt: skip
            records.append(Run(name, "s", network="net", n_workers=n, **facts))
            records.append(Step(name, 0, 1, seconds * factor, n_samples=facts["global_batch"]))
    return records


def test_weak_scaling_is_measured_by_the_step_of_the_smallest_scale(tmp_path):
    found = efficiency(stored(tmp_path, runs({1: 2.0, 2: 2.5, 4: 4.0}, local=8)), "step")
    assert found["kind"].unique().tolist() == ["weak"]
    assert found["at"].tolist() == [1, 2, 4]
    assert found.ideal_s.tolist() == [2.0, 2.0, 2.0]
    assert found.efficiency.tolist() == pytest.approx([1.0, 0.8, 0.5])
    assert found.speedup.tolist() == pytest.approx([1.0, 1.6, 2.0])
    assert found.throughput.tolist() == pytest.approx([4.0, 6.4, 8.0])
    assert found.low_s.isna().all()


def test_strong_scaling_is_measured_by_a_share_of_the_step(tmp_path):
    found = efficiency(stored(tmp_path, runs({2: 4.0, 4: 2.5, 8: 2.0}, whole=32)), "step")
    assert found["kind"].unique().tolist() == ["strong"]
    assert found.ideal_s.tolist() == [4.0, 2.0, 1.0]
    assert found.efficiency.tolist() == pytest.approx([1.0, 0.8, 0.5])
    assert found.speedup.tolist() == pytest.approx([1.0, 1.6, 2.0])


def test_runs_of_a_scale_are_told_by_their_median_and_where_most_lie(tmp_path):
    records = runs({1: 1.0, 2: 1.0, 4: 2.0}, repeats=(0.9, 1.0, 1.2), local=8)
    row = efficiency(stored(tmp_path, records), "step").iloc[-1]
    assert (row.n_runs, row.measured_s) == (3, pytest.approx(2.0))
    assert row.low_s == pytest.approx(np.quantile([1.8, 2.0, 2.4], 0.05))
    assert row.efficiency_high == pytest.approx(1.0 / row.low_s)
    assert row.efficiency_low == pytest.approx(1.0 / row.high_s)


def test_a_planted_plateau_is_one_of_speedup_and_has_its_knee(tmp_path):
    """From 8 workers on a step grows in proportion: no worker adds anything."""
    times = {n: max(1.0, n / 8) for n in (1, 2, 4, 8, 12, 16, 24, 32)}
    store = stored(tmp_path, runs(times, repeats=(0.999, 1.001), local=4))
    found = efficiency(store, "step").set_index("at")
    assert found.speedup.tolist() == pytest.approx([1, 2, 4, 8, 8, 8, 8, 8])
    assert found.efficiency[32.0] == pytest.approx(0.25)
    knee = scaling(store).iloc[0]
    assert knee.knee == pytest.approx(8.0, rel=0.02)
    assert found.series.unique().tolist() == [f"{knee.group} · weak, batch 4"]


def test_whole_runs_lose_what_their_start_costs(tmp_path):
    """12 s of start, and 96 s of training that scale: 108, 36 of 27, 24 of 13.5 s."""
    records = []
    for n in (1, 4, 8):
        facts = {"n_workers": 8 * n, "n_nodes": n}
        records += [
            Run(f"r{n}", "s", network="net", **facts), Phase(f"r{n}", "init", 12.0),
            Phase(f"r{n}", "train", 96.0 / n),
        ]  # fmt: skip
    found = efficiency(stored(tmp_path, records), "run")
    assert (found["kind"].iloc[0], found["scale"].iloc[0]) == ("as measured", "n_nodes")
    assert found.measured_s.tolist() == [108.0, 36.0, 24.0]
    assert found.ideal_s.tolist() == [108.0, 27.0, 13.5]
    assert found.efficiency.tolist() == pytest.approx([1.0, 0.75, 13.5 / 24])


def test_without_a_batch_nothing_is_ideal_for_a_step(tmp_path):
    records = []
    for n in (1, 2, 4):
        records += [Run(f"r{n}", "s", network="net", n_workers=n), Step(f"r{n}", 0, 1, 1.0)]
    found = efficiency(stored(tmp_path, records))
    assert found.view.unique().tolist() == ["step"]
    assert found.measured_s.tolist() == [1.0, 1.0, 1.0]
    assert found[["ideal_s", "speedup", "efficiency", "throughput"]].isna().all(axis=None)
