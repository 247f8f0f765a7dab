"""fitkit predict with recipes whose rows are no configurations of a training run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fitkit

Run = Callable[..., Any]
Frame = Callable[[str], pd.DataFrame]
LAYOUT = {
    "n_workers": "2", "tensor_parallel": "2", "pipeline_parallel": "1,2", "micro_batch": "2",
    "global_batch": "64", "hidden_size": "1024", "n_layers": "24", "sequence_length": "1024",
}  # fmt: skip


@pytest.fixture
def ask(fitkit_run: Run, recipe_model: Callable[[str], Any], tmp_path: Path) -> Callable[..., Any]:
    """Predictions of a model of a recipe at the points given as words."""

    def predictions(name: str, *more: str, **points: str) -> list[dict[str, Any]]:
        path = tmp_path / f"{name}.json"
        if not path.exists():
            recipe_model(name).save(path)
        at = [word for key, value in points.items() for word in ("--at", f"{key}={value}")]
        found = fitkit_run("predict", path, *at, *more, "--json")
        assert found.status == 0, found.err
        return found.document["predictions"]  # type: ignore[no-any-return]

    return predictions


def statuses(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["status"], row["reason"]) for row in rows]


class TestCollectives:
    def test_an_operation_is_a_word_and_a_size_a_number(self, ask: Any) -> None:
        rows = ask("comms", op="all_reduce", topology="intra", n_ranks="4,8", n_bytes="1e6,3e7")
        assert statuses(rows) == [("inside", "")] * 4
        for row in rows:
            expected = 1e-5 * row["n_ranks"] + row["n_bytes"] / 1e9
            assert row["predicted_s"] == pytest.approx(expected, rel=0.1)
            assert row["low_s"] < expected < row["high_s"]

    def test_ranks_between_the_measured_ones_are_inside(self, ask: Any) -> None:
        (row,) = ask("comms", op="all_reduce", topology="intra", n_ranks="6", n_bytes="1e6")
        assert (row["status"], row["predicted_s"]) == ("inside", pytest.approx(1.06e-3, rel=0.1))

    @pytest.mark.parametrize("more", [[], ["--allow-extrapolation"]], ids=str)
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"op": "broadcast"}, "op broadcast was not measured; measured: all_reduce"),
            ({"topology": "inter"}, "topology inter was not measured; measured: intra"),
            ({"n_ranks": "2.5"}, "not measured: op all_reduce, topology intra, n_ranks 2.5"),
            ({"n_bytes": None}, "give n_bytes"),
        ],
        ids=str,
    )
    def test_what_was_not_measured_is_refused(
        self, ask: Any, change: dict[str, Any], reason: str, more: list[str]
    ) -> None:
        points = {"op": "all_reduce", "topology": "intra", "n_ranks": "4", "n_bytes": "1e6"}
        points = {key: value for key, value in {**points, **change}.items() if value is not None}
        (row,) = ask("comms", *more, **points)
        assert (row["status"], row["predicted_s"]) == ("refused", None)
        assert row["reason"].startswith(reason)

    def test_the_only_operation_need_not_be_said(self, ask: Any) -> None:
        asked = {"n_ranks": "4", "n_bytes": "1e6"}
        (said,) = ask("comms", op="all_reduce", topology="intra", **asked)
        for points in ({}, {"op": "all_reduce"}, {"topology": "intra"}):
            (row,) = ask("comms", **points, **asked)
            assert (row["status"], row["predicted_s"]) == ("inside", said["predicted_s"])

    def test_each_operation_has_a_range_of_its_own(
        self, ask: Any, recipe_frame: Frame, tmp_path: Path
    ) -> None:
        frame = recipe_frame("comms")
        other = frame[frame.n_ranks == 2].assign(op="broadcast")
        fitkit.fit(pd.concat([frame, other]), "comms").save(tmp_path / "comms.json")
        points = {"topology": "intra", "n_ranks": "2,8,16", "n_bytes": "1e6"}
        for row in ask("comms", **points):
            assert statuses([row]) == [("refused", "say which op: all_reduce, broadcast")]
        assert statuses(ask("comms", op="all_reduce", **points)) == [("inside", "")] * 3
        inside, *outside = ask("comms", op="broadcast", **points)
        assert inside["status"] == "inside"
        for row in outside:
            assert row["status"] == "refused"
            assert row["reason"].startswith("n_ranks was 2 in every measurement")

    def test_far_ranks_and_sizes_are_refused_until_extrapolation_is_allowed(self, ask: Any) -> None:
        points = {"op": "all_reduce", "topology": "intra", "n_ranks": "16,32,128", "n_bytes": "1e6"}
        assert [row["status"] for row in ask("comms", **points)] == [
            "inside", "extrapolated", "refused",
        ]  # fmt: skip
        rows = ask("comms", "--allow-extrapolation", **points)
        assert [row["status"] for row in rows] == ["inside", "extrapolated", "extrapolated"]
        times = [row["predicted_s"] for row in rows]
        assert times == sorted(times)


class TestPipelines:
    def test_a_layout_of_the_devices_has_a_time(self, ask: Any) -> None:
        rows = ask("pipeline", **LAYOUT)
        assert statuses(rows) == [("inside", "")] * 2
        for row, stages in zip(rows, (1, 2), strict=True):
            expected = 0.05 + 2.0 / (4 * stages) * (1 + (stages - 1) * 4 / 64)
            assert row["predicted_s"] == pytest.approx(expected, rel=0.15)

    def test_what_never_varied_need_not_be_said_and_what_did_must(self, ask: Any) -> None:
        constant = {"global_batch", "hidden_size", "n_layers", "sequence_length"}
        short = {key: value for key, value in LAYOUT.items() if key not in constant}
        full = ask("pipeline", **LAYOUT)
        for row, said in zip(ask("pipeline", **short), full, strict=True):
            assert row["predicted_s"] == said["predicted_s"]
        short.pop("micro_batch")
        assert statuses(ask("pipeline", **short)) == [("refused", "give micro_batch")] * 2

    def test_another_network_is_refused(self, ask: Any) -> None:
        for row in ask("pipeline", **{**LAYOUT, "hidden_size": "2048"}):
            assert row["status"] == "refused"
            assert row["reason"].startswith("hidden_size was 1024 in every measurement")


class TestSharedDevices:
    def test_jobs_are_words_with_blanks_and_brackets(self, ask: Any) -> None:
        rows = ask("shared", job="bert (batch size 2)", neighbour="gpt,vgg", device="k80")
        assert statuses(rows) == [("inside", "")] * 2
        for row, left in zip(rows, (0.6, 0.5), strict=True):
            assert row["predicted_s"] == pytest.approx(0.8 * left, rel=0.1)

    def test_the_only_device_need_not_be_said(self, ask: Any) -> None:
        (row,) = ask("shared", job="gpt", neighbour="vgg")
        assert row["status"] == "inside"

    @pytest.mark.parametrize("more", [[], ["--allow-extrapolation"]], ids=str)
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"job": "t5"}, "not measured: job t5, neighbour vgg"),
            ({"job": "bert (batch size 64)"}, "not measured: job bert (batch size 64), neighbour"),
            ({"neighbour": "t5"}, "not measured: job gpt, neighbour t5"),
            ({"neighbour": None}, "give neighbour"),
            ({"device": "v100"}, "device v100 was not measured; measured: k80"),
        ],
        ids=str,
    )
    def test_what_was_not_measured_is_refused(
        self, ask: Any, change: dict[str, Any], reason: str, more: list[str]
    ) -> None:
        points = {"job": "gpt", "neighbour": "vgg", **change}
        points = {key: value for key, value in points.items() if value is not None}
        (row,) = ask("shared", *more, **points)
        assert (row["status"], row["predicted_s"]) == ("refused", None)
        assert row["reason"].startswith(reason)


@pytest.mark.parametrize("name", ["comms", "pipeline", "shared"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_rows_of_a_table_are_predicted_as_in_python(
    ask: Any, recipe_frame: Frame, tmp_path: Path, name: str, suffix: str
) -> None:
    frame = recipe_frame(name)
    path = tmp_path / f"asked{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    rows = ask(name, "--from", str(path))
    expected = fitkit.load_model(tmp_path / f"{name}.json").predict(frame)
    assert [row["predicted_s"] for row in rows] == expected.predicted_s.tolist()
    assert [row["status"] for row in rows] == ["inside"] * len(frame)


def test_a_layer_of_a_type_that_was_not_measured_is_refused(ask: Any) -> None:
    sizes = {"local_batch": "64", "flop": "2097152", "n_params": "16384", "input_bytes": "32768",
             "output_bytes": "32768"}  # fmt: skip
    (row,) = ask("layers", layer_type="Linear", **sizes)
    assert row["status"] == "inside"
    (row,) = ask("layers", layer_type="Conv", **sizes)
    assert statuses([row]) == [("refused", "layer_group Conv was not measured; measured: Linear")]


def test_a_network_that_was_not_measured_is_refused_though_its_device_was(ask: Any) -> None:
    points = {"local_batch": "8", "n_workers": "2", "n_nodes": "1"}
    (row,) = ask("step", network="gpt", device="A100", **points)
    assert row["status"] == "inside"
    (row,) = ask("step", "--allow-extrapolation", network="t5", device="A100", **points)
    assert statuses([row]) == [("refused", "network t5 was not measured; measured: bert, gpt")]
    (row,) = ask("step", "--allow-extrapolation", network="gpt", device="T4", **points)
    assert statuses([row]) == [("refused", "device T4 was not measured; measured: A100")]


def test_more_workers_than_a_network_had_are_told_from_those_of_others_on_demand(ask: Any) -> None:
    few = {"network": "bert", "device": "T4", "local_batch": "8", "n_nodes": "1"}
    rows = ask("step", n_workers="2,4", **few)
    assert [row["status"] for row in rows] == ["inside", "refused"]
    why = "n_workers was 2 in every measurement: nothing tells what another value costs"
    assert rows[1]["reason"] == why
    (row,) = ask("step", "--allow-extrapolation", n_workers="4", **few)
    assert (row["status"], row["low_s"] < row["predicted_s"] < row["high_s"]) == (
        "extrapolated",
        True,
    )
    assert row["reason"] == f"answered because extrapolation was allowed: {why}"
