"""Where the time goes, stragglers, order and scaling, by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from fitkit.dataset import Dataset
from fitkit.diagnosis import (
    SelectedRuns,
    layer_shares,
    order_drift,
    phase_shares,
    scaling,
    stragglers,
)
from fitkit.errors import FitError
from fitkit.records import Layer, Phase, Run, SourceRow, Step

ORDER = [
    "scope", "group", "n_runs", "n_repeated", "period_s", "reach", "drift", "low", "high",
    "p_value", "column", "correlation", "verdict", "is_flagged", "reason",
]  # fmt: skip
BY_RANK = [
    "run_id", "rank", "n_steps", "n_warm_up", "median_s", "n_stragglers", "rate", "excess",
    "busy_s", "lag", "is_slow",
]  # fmt: skip
BY_RUN = [
    "run_id", "n_ranks", "n_steps", "n_warm_up", "median_s", "n_stragglers", "rate", "excess",
    "slow_rank", "lag",
]  # fmt: skip
SETUP = [
    "framework", "network", "network_params", "n_workers", "local_batch", "instrument", "device",
    "system", "sync_method",
]  # fmt: skip


@pytest.fixture
def dataset(tmp_path):
    """Two repetitions of one set-up, one run of another of which little is known."""
    known = {
        "framework": "pytorch", "network": "net", "n_params": 1_300_000, "n_workers": 2,
        "local_batch": 16.0, "instrument": "recorder",
    }  # fmt: skip
    records = [Run("a", "s", **known), Run("b", "s", **known), Run("c", "s", framework="pytorch")]
    for run_id, times in {"a": (1.0, 3.0), "b": (3.0, 5.0), "c": (2.0, 2.0)}.items():
        for name, seconds in zip(("forward", "backward"), times, strict=True):
            records.append(Phase(run_id, name, seconds, 0, step=0, parent="step"))
            facts = {"n": 2, "median_s": seconds, "local_batch": 16.0}
            records.append(Layer(run_id, 0, f"fc-{name}", "Linear", name, **facts))
        records.append(Phase(run_id, "init", 100.0, 0))
    store = Dataset(tmp_path / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


def test_shares_of_a_step_are_those_of_the_mean_run_and_add_up_to_one(dataset):
    shares = phase_shares(dataset)
    known = shares[shares.network == "net"]
    assert known.phase.tolist() == ["backward", "forward"]  # the largest first
    assert known.duration_s.tolist() == [4.0, 2.0]
    assert known.share.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert shares[shares.network.isna()].share.tolist() == [0.5, 0.5]


def test_the_start_of_a_run_is_no_part_of_a_step(dataset):
    assert "init" not in set(phase_shares(dataset).phase)


def test_shares_of_the_layers_add_up_to_one(dataset):
    shares = layer_shares(dataset)
    known = shares[shares.network == "net"]
    assert known[["layer", "layer_type", "phase"]].to_numpy().tolist() == [
        ["fc-backward", "Linear", "backward"], ["fc-forward", "Linear", "forward"],
    ]  # fmt: skip
    assert known.share.tolist() == pytest.approx([2 / 3, 1 / 3])


def test_a_set_up_is_named_by_what_is_known_of_it(dataset):
    assert phase_shares(dataset).label.unique().tolist() == [
        "pytorch · net · 1.3 M params · 2 workers · batch 16 · instrument recorder",
        "pytorch",
    ]


@pytest.mark.parametrize(
    ("shares", "names"),
    [(phase_shares, ["phase"]), (layer_shares, ["layer", "layer_type", "phase"])],
)
def test_nothing_measured_gives_an_empty_table_with_the_same_columns(shares, names, tmp_path):
    store = Dataset(tmp_path / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), [Run("a", "s")])
    found = shares(store)
    assert found.empty
    assert found.columns.tolist() == ["label", *SETUP, *names, "duration_s", "share"]


def stored(path, records):
    store = Dataset(path)
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


def sweep(order, drift, *, places=None, **facts):
    """Runs one hour apart over numbers of workers, of 10 steps each, on a machine that drifts."""
    records = []
    for k, n in enumerate(order):
        place = (k if places is None else places[k]) / (len(order) - 1)
        run_id = f"{facts.get('network', 'net')}-{k:02d}"
        start = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=k)
        known = {"framework": "pytorch", "network": "net", "device": "T4", **facts}
        records.append(
            Run(run_id, "s", n_workers=n, local_batch=8.0, global_batch=8 * n, started_at=start,
                **known)
        )  # fmt: skip
        step = (1 + 0.1 * n) * (1 + drift) ** place
        records += [Step(run_id, 0, 1, step, first_step=i) for i in range(10)]
    return records


class TestOrderDrift:
    def test_passes_on_a_drifting_machine_are_confounded(self, tmp_path):
        found = order_drift(stored(tmp_path / "ds", sweep([1, 2, 4, 8, 16] * 2, 0.3)))
        assert found.columns.tolist() == ORDER
        (row,) = found.to_dict("records")
        assert (row["scope"], row["verdict"], row["column"]) == ("group", "confounded", "n_workers")
        assert row["drift"] == pytest.approx(0.3, abs=1e-6)
        assert (row["n_runs"], row["n_repeated"], row["period_s"]) == (10, 10, 9 * 3600)
        assert row["reach"] == pytest.approx(5 / 9)
        assert row["is_flagged"]

    def test_several_groups_of_a_machine_are_tested_together_too(self, tmp_path):
        records = sweep([1, 2, 4, 8, 16] * 2, 0.3) + sweep([4, 1, 2] * 2, 0.3, network="other")
        found = order_drift(stored(tmp_path / "ds", records))
        assert found.scope.tolist() == ["machine", "group", "group"]
        assert found.group.tolist() == ["all on T4", "net", "other"]
        assert found.n_runs.tolist() == [16, 10, 6]

    def test_machines_that_nobody_names_are_not_taken_for_one(self, tmp_path):
        records = sweep([1, 2] * 2, 0.3, device=None)
        records += sweep([1, 2] * 2, 0.3, network="other", device=None)
        assert set(order_drift(stored(tmp_path / "ds", records)).scope) == {"group"}

    def test_runs_without_a_start_say_so(self, tmp_path):
        records = [
            replace(record, started_at=None) if isinstance(record, Run) else record
            for record in sweep([1, 2, 4], 0.0)
        ]
        (row,) = order_drift(stored(tmp_path / "ds", records)).to_dict("records")
        assert row["reason"] == "not determined: 0 of 3 runs have a start and a time"

    def test_a_run_starts_with_its_first_step_where_nothing_else_is_known(self, tmp_path):
        records = []
        for record in sweep([1, 2, 4, 8, 16] * 2, 0.3):
            if isinstance(record, Run):
                start = record.started_at
                record = replace(record, started_at=None)
            else:
                start += timedelta(seconds=1)
                record = replace(record, started_at=start)
            records.append(record)
        (row,) = order_drift(stored(tmp_path / "ds", records)).to_dict("records")
        assert (row["verdict"], row["period_s"]) == ("confounded", 9 * 3600)

    def test_a_frame_may_have_the_order_of_its_runs_alone(self):
        frame = pd.DataFrame({"n_workers": [1, 2, 4, 8, 16] * 2, "run_order": range(10)})
        frame["step_s"] = 1.3 ** (frame.run_order / 9) / frame.n_workers
        (row,) = order_drift(frame).to_dict("records")
        assert (row["verdict"], row["group"]) == ("confounded", "all runs")
        (row,) = order_drift(frame.drop(columns="run_order")).to_dict("records")
        assert row["verdict"] == "not determined"

    def test_no_step_times_is_an_error_that_says_so(self, tmp_path):
        with pytest.raises(FitError, match="no rows for recipe step"):
            order_drift(stored(tmp_path / "ds", [Run("a", "s")]))


class TestStragglers:
    @pytest.fixture
    def ranks(self, tmp_path):
        """Rank 1 is late twice; rank 0 is busy for half of its step, the others for a quarter."""
        records = [Run("a", "s"), Run("b", "s")]
        for rank in range(3):
            for step in range(20):
                seconds = 1.0 + 0.01 * (step % 3)
                seconds *= 3.0 if rank == 1 and step in (12, 17) else 1.0
                records.append(Step("a", rank, 1, seconds, first_step=step))
                busy = 0.5 if rank == 0 else 0.25
                for phase, part in (("forward", busy), ("comm", 1 - busy)):
                    records.append(
                        Phase("a", phase, part * seconds, rank, step=step, parent="step")
                    )
        records += [Step("b", 0, 1, 1.0, first_step=step) for step in range(5)]
        return stored(tmp_path / "ds", records)

    def test_rate_and_excess_of_each_rank_by_hand(self, ranks):
        found = stragglers(ranks)
        assert found.columns.tolist() == BY_RANK
        one = found[(found.run_id == "a") & (found["rank"] == 1)].iloc[0]
        assert (one.n_steps, one.n_warm_up, one.n_stragglers) == (20, 0, 2)
        assert one.rate == pytest.approx(0.1)
        assert one.excess == pytest.approx((3.0 + 3.06) / 2 / 1.01 - 1)
        others = found[(found.run_id == "a") & (found["rank"] != 1)]
        assert others[["n_stragglers", "rate", "excess"]].eq(0).all(axis=None)

    def test_the_rank_that_the_others_wait_for_is_found_in_steps_that_last_alike(self, ranks):
        found = stragglers(ranks)
        assert found.is_slow.tolist() == [True, False, False, False]
        assert found.lag.tolist()[:3] == pytest.approx([1.0, -1 / 3, -1 / 3], abs=0.01)
        assert np.isnan(found.lag[3])

    def test_of_fewer_than_8_steps_nothing_is_said(self, ranks):
        short = stragglers(ranks).iloc[3]
        assert np.isnan([short.rate, short.excess]).all()

    def test_by_run_the_ranks_are_put_together(self, ranks):
        found = stragglers(ranks, "run")
        assert found.columns.tolist() == BY_RUN
        long, short = found.to_dict("records")
        assert (long["n_ranks"], long["n_steps"], long["n_stragglers"]) == (3, 60, 2)
        assert long["rate"] == pytest.approx(2 / 60)
        assert long["excess"] == pytest.approx((3.0 + 3.06) / 2 / 1.01 - 1)
        assert (long["slow_rank"], long["lag"]) == (0, pytest.approx(1.0, abs=0.01))
        assert np.isnan([short["rate"], short["slow_rank"], short["lag"]]).all()

    def test_waiting_inside_a_phase_is_no_work(self, tmp_path):
        records = [Run("a", "s")]
        for rank, work in ((0, 0.2), (1, 0.8)):
            for step in range(10):
                records += [
                    Step("a", rank, 1, 1.0, first_step=step),
                    Phase("a", "backward", 1.0, rank, step=step, parent="step"),
                    Phase("a", "comm", 1 - work, rank, step=step, parent="backward"),
                ]
        found = stragglers(stored(tmp_path / "ds", records))
        assert found.busy_s.tolist() == pytest.approx([0.2, 0.8])
        assert found.is_slow.tolist() == [False, True]

    def test_without_steps_the_tables_are_empty(self, tmp_path):
        store = stored(tmp_path / "ds", [Run("a", "s")])
        assert stragglers(store).columns.tolist() == BY_RANK
        assert stragglers(store, "run").columns.tolist() == BY_RUN
        assert len(stragglers(store)) == len(stragglers(store, "run")) == 0


class TestScaling:
    def test_the_knee_of_a_serial_server_and_the_fastest_scale(self):
        n = np.repeat([1, 2, 4, 8, 12, 16, 20, 24, 32], 3)
        noise = np.exp(0.01 * np.random.default_rng(0).standard_normal(len(n)))
        frame = pd.DataFrame({"n_workers": n, "local_batch": 8.0})
        frame["step_s"] = np.maximum(1.6, 0.1 * n) * noise
        (row,) = scaling(frame).to_dict("records")
        assert (row["kind"], row["batch"], row["n_scales"], row["n_max"]) == ("weak", 8, 9, 32)
        assert row["knee_status"] == "knee"
        assert row["knee"] == pytest.approx(16, rel=0.05)
        assert row["knee_low"] < row["knee"] < row["knee_high"]

    def test_strong_scaling_is_that_of_the_whole_batch(self):
        n = np.repeat([1, 2, 4, 8, 16, 32], 3)
        noise = np.exp(0.01 * np.random.default_rng(0).standard_normal(len(n)))
        frame = pd.DataFrame({"n_workers": n, "global_batch": 64.0})
        frame["step_s"] = (1 / n + 0.05 * n) * noise
        (row,) = scaling(frame).to_dict("records")
        assert (row["kind"], row["batch"]) == ("strong", 64)
        assert (row["fastest_status"], row["fastest"]) == ("turning point", 4)

    def test_four_scales_are_too_few(self):
        frame = pd.DataFrame({"n_workers": [1, 2, 4, 8], "local_batch": 8.0, "step_s": 1.0})
        found = scaling(frame)
        assert found.empty
        assert "knee_words" in found

    def test_of_several_placements_the_densest_counts(self):
        frame = pd.DataFrame({"n_workers": [1, 2, 4, 8, 16] * 2, "local_batch": 8.0})
        frame["n_nodes"] = [1] * 5 + [1, 2, 2, 2, 2]
        frame["step_s"] = [1.0] * 5 + [1.0, 9.0, 9.0, 9.0, 9.0]
        (row,) = scaling(frame).to_dict("records")
        assert row["n_runs"] == 6  # the run on 1 worker has one node both times


class TestSelectedRuns:
    def test_rows_of_other_runs_are_not_read(self, tmp_path):
        records = sweep([1, 2, 4], 0.0)
        store = stored(tmp_path / "ds", records)
        some = SelectedRuns(store, "n_workers > 1")
        assert sorted(some.run_ids) == ["net-01", "net-02"]
        assert sorted(set(some.read("steps").run_id)) == ["net-01", "net-02"]
        assert some.read("steps", ["duration_s"]).columns.tolist() == ["duration_s"]
        assert len(some.read("sources")) == 1
        assert len(SelectedRuns(store).read("steps")) == 30

    def test_a_column_that_runs_lack_is_named(self, tmp_path):
        with pytest.raises(ValueError, match="no column 'step_s'"):
            SelectedRuns(stored(tmp_path / "ds", [Run("a", "s")]), "step_s > 1")
