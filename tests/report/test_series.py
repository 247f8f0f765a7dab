"""Rows arranged for charts: series over scale, parts of a time, errors over a feature."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.report.series import curves, error_bins, hours_since_first, scale_of, time_parts


@pytest.fixture
def rows() -> pd.DataFrame:
    """Two networks on 1, 2 and 4 workers; one of them at a constant global batch."""
    cells = [
        (network, n, batch, phase, 1.0 * n if phase == "comm" else 10.0 / n)
        for network, batches in [("bert", {1: 8, 2: 8, 4: 8}), ("gpt", {1: 64, 2: 32, 4: 16})]
        for n, batch in batches.items()
        for phase in ("compute", "comm")
    ]
    frame = pd.DataFrame(
        cells, columns=["network", "n_workers", "local_batch", "phase", "measured_s"]
    )
    return frame.assign(
        predicted_s=1.1 * frame.measured_s, low_s=frame.measured_s, high_s=2 * frame.measured_s,
        global_batch=frame.n_workers * frame.local_batch, run_id=frame.index.map("run {}".format),
        sync=np.where(frame.n_workers == 1, "single", "parallel"), fold=frame.n_workers.astype(str),
    )  # fmt: skip


def test_the_scale_is_the_first_that_differs(rows: pd.DataFrame) -> None:
    assert scale_of(rows) == "n_workers"
    assert scale_of(rows.assign(n_workers=1, n_nodes=[1, 2] * 6)) == "n_nodes"
    assert scale_of(rows.assign(n_workers=1)) == ""


def test_a_series_differs_in_the_scale_alone(rows: pd.DataFrame) -> None:
    bert = curves(rows[rows.network == "bert"], "n_workers")
    assert dict(bert.groupby("series").size()) == {"comm": 3, "compute": 3}
    assert bert["at"].tolist() == [1, 2, 4] * 2
    comm = bert[bert.series == "comm"]
    assert comm.measured_s.tolist() == [1, 2, 4]
    np.testing.assert_allclose(comm.high_s, [2, 4, 8])
    gpt = curves(rows[rows.network == "gpt"], "n_workers")  # one global batch: a series as well
    assert gpt[gpt.series == "compute"].measured_s.tolist() == [10, 5, 2.5]


def test_rows_without_a_time_are_no_point(rows: pd.DataFrame) -> None:
    rows.loc[rows.n_workers == 4, "predicted_s"] = np.nan
    assert curves(rows, "n_workers")["at"].max() == 2
    assert curves(rows.assign(measured_s=np.nan), "n_workers").empty


def test_parts_are_those_of_one_series(rows: pd.DataFrame) -> None:
    name, parts = time_parts(rows[rows.network == "bert"], "n_workers")
    assert name == "all runs"
    assert parts.to_dict("list") == {
        "at": [1, 1, 2, 2, 4, 4],
        "part": ["compute", "comm"] * 3,  # the largest in total first
        "seconds": [10, 1, 5, 2, 2.5, 4],
    }


def test_layers_add_up_to_their_type_and_runs_do_not() -> None:
    frame = pd.DataFrame({
        "layer": ["a", "b", "c"] * 2, "layer_type": ["Linear", "Linear", "Norm"] * 2,
        "n_workers": [1, 1, 1, 2, 2, 2], "measured_s": [1.0, 2.0, 4.0, 1.5, 2.5, 8.0],
    })  # fmt: skip
    _, parts = time_parts(pd.concat([frame, frame]), "n_workers")
    assert parts.part.tolist() == ["Norm", "Linear"] * 2
    assert parts.seconds.tolist() == [4, 3, 8, 4]


def test_parts_beyond_eight_are_joined() -> None:
    names = [f"phase {k}" for k in range(10)]
    frame = pd.DataFrame({"phase": names * 2, "n_workers": [1] * 10 + [2] * 10})
    _, parts = time_parts(frame.assign(measured_s=[10.0 - k for k in range(10)] * 2), "n_workers")
    assert parts[parts["at"] == 1].part.tolist() == [*names[:7], "the rest"]
    assert parts.seconds.iloc[7] == 3 + 2 + 1


def test_errors_at_each_value_of_few() -> None:
    errors = pd.Series([-0.1, 0.0, 0.1, 0.5, np.nan])
    found = error_bins(pd.Series([1, 1, 1, 16, 16]), errors)
    assert found.value.tolist() == ["1", "16"]
    assert found.n.tolist() == [3, 1]
    np.testing.assert_allclose(found["median"], [0, 0.5])
    np.testing.assert_allclose(found[["low", "high"]].iloc[0], [-0.08, 0.08])
    words = error_bins(pd.Series(["b", "a", "b", "b", "a"]), errors)
    assert words[["value", "at", "n"]].values.tolist() == [["a", 0, 1], ["b", 1, 3]]


def test_errors_over_ranges_of_many() -> None:
    values = pd.Series(np.arange(80.0))
    found = error_bins(values, values / 100)
    assert found.n.tolist() == [10] * 8
    np.testing.assert_allclose(found["median"], found["at"] / 100)


def test_start_times_in_hours() -> None:
    started = pd.Series(["2026-12-01T10:30:00+00:00", "2026-12-01T09:00:00+00:00", None])
    np.testing.assert_allclose(hours_since_first(started), [1.5, 0, np.nan])
