"""fitkit predict: grids, tables, refusals and the document."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fitkit

Run = Callable[..., Any]
AT = ["--at", "n_workers=1", "--at", "local_batch=2,4,8"]


def predictions(found: Any) -> list[dict[str, Any]]:
    return found.document["predictions"]  # type: ignore[no-any-return]


def test_the_document_has_features_times_and_status(fitkit_run: Run, step_model: Path) -> None:
    rows = predictions(fitkit_run("predict", step_model, *AT, "--json"))
    assert [(row["n_workers"], row["local_batch"]) for row in rows] == [(1, 2), (1, 4), (1, 8)]
    for row in rows:
        assert row.keys() >= {"predicted_s", "low_s", "high_s", "status", "reason"}
        assert 0 < row["low_s"] < row["predicted_s"] < row["high_s"]
        assert (row["status"], row["reason"]) == ("inside", "")
    times = [row["predicted_s"] for row in rows]
    assert times == sorted(times)


def test_a_feature_may_be_repeated_and_features_make_a_grid(
    fitkit_run: Run, step_model: Path
) -> None:
    at = ["--at", "n_workers=1", "--at", " local_batch = 2, 4", "--at", "local_batch=8"]
    rows = predictions(fitkit_run("predict", step_model, *at, "--json"))
    assert rows == predictions(fitkit_run("predict", step_model, *AT, "--json"))
    grid = fitkit_run("predict", step_model, *AT, "--at", "network=tinygpt,bert", "--json")
    found = [(row["local_batch"], row["network"]) for row in predictions(grid)]
    assert found == [(b, name) for b in (2, 4, 8) for name in ("tinygpt", "bert")]


def test_what_was_not_measured_is_refused_with_the_reason(
    fitkit_run: Run, step_model: Path
) -> None:
    found = fitkit_run("predict", step_model, *AT, "--at", "network=tinygpt,bert", "--json")
    for row in predictions(found):
        refused = row["network"] == "bert"
        assert row["status"] == ("refused" if refused else "inside")
        assert (row["predicted_s"] is None) == (row["low_s"] is None) == refused
        assert ("bert was not measured" in row["reason"]) == refused
    assert found.status == 0
    assert "3 of 6 refused: network bert was not measured" in found.err


def test_what_is_missing_is_refused_with_what_to_give(fitkit_run: Run, step_model: Path) -> None:
    found = fitkit_run("predict", step_model, "--at", "n_workers=1", "--json")
    assert predictions(found)[0]["reason"] == "give local_batch"
    assert found.err == "1 of 1 refused: give local_batch\n"
    assert fitkit_run("predict", step_model, "--at", "n_workers=1", "-q").err == ""


def test_what_was_one_value_in_every_run_need_not_be_said(
    fitkit_run: Run, step_model: Path
) -> None:
    short = fitkit_run("predict", step_model, "--at", "local_batch=4", "--json")
    told = fitkit_run(
        "predict", step_model, "--at", "local_batch=4", "--at", "n_workers=1", "--json"
    )
    (row,), (full,) = predictions(short), predictions(told)
    assert row["status"] == "inside"
    assert {**row, "n_workers": 1} == full


def test_far_points_are_refused_until_extrapolation_is_allowed(
    fitkit_run: Run, step_model: Path
) -> None:
    at = ["--at", "n_workers=1", "--at", "local_batch=16,32,100000", "--json"]
    found = fitkit_run("predict", step_model, *at)
    assert [row["status"] for row in predictions(found)] == ["inside", "extrapolated", "refused"]
    assert "--allow-extrapolation answers 1 of them" in found.err
    found = fitkit_run("predict", step_model, *at, "--allow-extrapolation")
    rows = predictions(found)
    assert [row["status"] for row in rows] == ["inside", "extrapolated", "extrapolated"]
    assert all(math.isfinite(row["predicted_s"]) for row in rows)
    assert found.err == ""


def test_a_higher_level_gives_wider_intervals(fitkit_run: Run, step_model: Path) -> None:
    widths = []
    for level in (0.5, 0.9, 0.99):
        (row, *_) = predictions(fitkit_run("predict", step_model, *AT, "--level", level, "--json"))
        widths.append(row["high_s"] - row["low_s"])
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


def test_the_summary_shows_every_point(fitkit_run: Run, step_model: Path) -> None:
    found = fitkit_run("predict", step_model, *AT)
    assert (found.status, found.err) == (0, "")
    assert "its 90% interval" in found.out
    assert found.out.count("inside") == 3


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_rows_of_a_table_are_predicted(
    fitkit_run: Run, step_model: Path, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"plan{suffix}"
    frame = pd.DataFrame(
        {
            "n_workers": [1, 1, 1], "local_batch": [2, 4, None], "note": ["a", None, "c"],
            "on": pd.to_datetime(["2026-01-01", None, "2026-01-03"]),
        }
    )  # fmt: skip
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    rows = predictions(fitkit_run("predict", step_model, "--from", path, "--json"))
    grid = predictions(fitkit_run("predict", step_model, *AT, "--json"))
    for row, point in zip(rows[:2], grid, strict=False):
        assert row["predicted_s"] == pytest.approx(point["predicted_s"])
    assert [row["note"] for row in rows] == ["a", None, "c"]
    assert rows[1]["on"] is None
    assert rows[0]["on"].startswith("2026-01-01")
    assert (rows[2]["status"], rows[2]["reason"]) == ("refused", "give local_batch")


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.csv", ""), ("words.parquet", "n_workers\n1\n"), ("binary.csv", "\0\0\0")],
)
def test_a_table_that_cannot_be_read_is_bad_input(
    fitkit_run: Run, step_model: Path, tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    found = fitkit_run("predict", step_model, "--from", path)
    if found.status:  # pandas takes some bytes for an empty table
        assert (found.status, found.out) == (3, "")
        assert str(path) in found.complaint[0]


def test_a_grid_has_a_limit_however_large_it_is(fitkit_run: Run, step_model: Path) -> None:
    values = ",".join(map(str, range(1, 401)))
    found = fitkit_run("predict", step_model, "--at", f"a={values}", "--at", f"b={values}")
    assert found.complaint[0] == "a grid of 160,000 points: at most 100,000"
    axes = [word for i in range(64) for word in ("--at", f"f{i}=1,2")]  # 2**64 points
    found = fitkit_run("predict", step_model, *axes)
    assert found.status == 2
    assert "18,446,744,073,709,551,616 points" in found.complaint[0]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "fitkit.model/1"}', '{"format": "fitkit.model/2"}']
)
def test_a_file_that_is_no_model_is_bad_input(
    fitkit_run: Run, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "m.json"
    path.write_text(content)
    found = fitkit_run("predict", path, "--at", "n=1")
    assert (found.status, found.out) == (3, "")
    assert str(path) in found.complaint[0]


WORDS = ("007", "1.0", "1e3", "true", "nan", "NA", "2026-01-01T10:00", "a,b", "bert ", '5"', "zz")


@pytest.fixture(scope="module")
def named_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of networks whose names look like something else; each has a time of its own."""
    batch = [2.0, 4.0, 8.0]
    frame = pd.DataFrame(
        [
            {"network": name, "local_batch": b, "n_workers": 1, "step_s": 0.01 * (k + 1) * b}
            for k, name in enumerate(WORDS)
            for b in batch
        ]
    )
    path = tmp_path_factory.mktemp("named") / "step.json"
    fitkit.fit(frame, recipe="step").save(path)
    return path


def test_a_name_is_taken_as_it_was_typed(fitkit_run: Run, named_model: Path) -> None:
    for k, name in enumerate(WORDS):
        quoted = '"' + name.replace('"', '""') + '"'
        for written in (quoted, *([] if name in ("a,b", "bert ") else [name])):
            at = ["--at", f"network={written}", "--at", "local_batch=4", "--json"]
            (row,) = predictions(fitkit_run("predict", named_model, *at))
            assert (row["network"], row["status"]) == (name, "inside")
            assert row["predicted_s"] == pytest.approx(0.04 * (k + 1), rel=0.05)
    for other in ("7", "1", "1000", "True", "bert"):
        at = ["--at", f"network={other}", "--at", "local_batch=4", "--json"]
        (row,) = predictions(fitkit_run("predict", named_model, *at))
        assert row["reason"].startswith(f"network {other} was not measured; measured: 007, ")


def test_names_and_numbers_of_a_list_are_split_at_commas_outside_quotes(
    fitkit_run: Run, named_model: Path
) -> None:
    at = ["--at", 'network= 007 , "a,b","bert " ', "--at", "local_batch= 2 ,4", "--json"]
    rows = predictions(fitkit_run("predict", named_model, *at))
    assert [row["network"] for row in rows] == ["007"] * 2 + ["a,b"] * 2 + ["bert "] * 2
    assert [row["local_batch"] for row in rows] == [2, 4] * 3
    for wrong in ("network=", "network=a,,b", "=a", "network", 'network=""'):
        found = fitkit_run("predict", named_model, "--at", wrong)
        assert found.status == 2
        assert "write KEY=VALUE or KEY=V1,V2,..." in found.complaint[0]


def test_a_word_is_no_number(fitkit_run: Run, named_model: Path) -> None:
    found = fitkit_run("predict", named_model, "--at", "network=zz", "--at", "local_batch=true")
    assert found.status == 2
    assert found.complaint[0] == "column local_batch: 'true' is not a number"


def test_names_of_a_table_are_taken_as_they_stand(
    fitkit_run: Run, named_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "plan.csv"
    pd.DataFrame({"network": WORDS, "local_batch": 4}).to_csv(path, index=False)
    rows = predictions(fitkit_run("predict", named_model, "--from", path, "--json"))
    assert [row["network"] for row in rows] == list(WORDS)
    assert [row["status"] for row in rows] == ["inside"] * len(WORDS)
    path.write_text("network,local_batch\n,4\n")
    (row,) = predictions(fitkit_run("predict", named_model, "--from", path, "--json"))
    assert row["reason"].startswith("say which network: 007, ")


@pytest.mark.parametrize("name", ["local_batsh", "sequence_length"])
def test_a_name_that_the_model_does_not_read_is_refused(
    fitkit_run: Run, step_model: Path, name: str
) -> None:
    found = fitkit_run("predict", step_model, *AT, "--at", f"{name}=1")
    assert found.status == 2
    assert found.complaint[0].startswith(f"--at {name}: recipe step reads ")
    assert "local_batch, n_nodes, n_params" in found.complaint[0]


def test_a_long_table_is_cut_and_the_document_is_not(fitkit_run: Run, step_model: Path) -> None:
    at = ["--at", "n_workers=1", "--at", f"local_batch={','.join(['4'] * 120)}"]
    found = fitkit_run("predict", step_model, *at)
    assert found.out.count("inside") == 100
    assert "20 more rows are not shown; --json has all of them" in found.out
    assert len(predictions(fitkit_run("predict", step_model, *at, "--json"))) == 120


# -- files -----------------------------------------------------------------------------------


def test_predictions_are_written_as_the_suffix_says(
    fitkit_run: Run, step_model: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / "deep" / name for name in ("p.json", "p.csv", "p.trace.json")]
    output = [word for path in paths for word in ("-o", path)]
    at = [*AT, "--at", "network=tinygpt,bert", "--level", "0.8"]
    found = fitkit_run("predict", step_model, *at, *output, "--json")
    assert found.status == 0
    assert [f"predictions written to {path}" in found.err for path in paths] == [True] * 3
    as_json, as_csv, trace = paths
    assert json.loads(as_json.read_text()) == found.document
    frame = pd.read_csv(as_csv)
    rows = predictions(found)
    assert list(frame.columns) == list(rows[0])
    assert frame.predicted_s.dropna().tolist() == [
        row["predicted_s"] for row in rows if row["predicted_s"] is not None
    ]
    document = json.loads(trace.read_text())
    drawn = [event for event in document["traceEvents"] if event["ph"] == "X"]
    inside = [row for row in rows if row["status"] == "inside"]
    assert len(drawn) == 3
    for event, row in zip(drawn, inside, strict=True):
        assert event["dur"] == pytest.approx(row["predicted_s"] * 1e6, abs=1e-3)
        assert (event["name"], event["ts"]) == ("step", 0)
        assert event["args"].items() >= {"low_s": row["low_s"], "status": "inside"}.items()
    assert [row["network"] for row in document["otherData"].pop("refused")] == ["bert"] * 3
    assert document["otherData"] == {
        "recipe": "step", "target": "step_s", "statistic": "median", "level": 0.8,
        "allow_extrapolation": False,
    }  # fmt: skip


def test_other_suffixes_are_refused_before_anything_is_predicted(
    fitkit_run: Run, step_model: Path, tmp_path: Path
) -> None:
    found = fitkit_run("predict", step_model, *AT, "-o", tmp_path / "p.html")
    assert (found.status, found.out) == (2, "")
    assert "write predictions as .trace.json, .json or .csv" in found.complaint[0]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told(
    fitkit_run: Run, step_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    found = fitkit_run("predict", step_model, *AT, "-o", tmp_path / "file" / "p.csv", "-q")
    assert found.status == 3
    assert "Traceback" not in found.err


SIZES = ["flop=2097152", "n_params=16384", "input_bytes=32768", "output_bytes=32768"]
POINTS = {
    "phases": ["phase=comm,io", "n_workers=2", "local_batch=8"],
    "layers": [
        "network=mlp",
        "layer=b,a",
        "layer_type=Linear",
        "phase=forward",
        "local_batch=64,128",
        *SIZES,
    ],
    "comms": ["op=all_reduce", "n_ranks=4,8", "n_bytes=1e6"],
    "shared": ["job=gpt", "neighbour=vgg"],
}
DRAWN = {
    "phases": [("n_workers 2, local_batch 8", "comm")],  # no io was measured
    "layers": [(f"network mlp, local_batch {n}", name) for n in (64, 128) for name in ("b", "a")],
    "comms": [(f"op all_reduce, n_ranks {n}, n_bytes 1e+06", "comms") for n in (4, 8)],
}


@pytest.mark.parametrize("recipe", POINTS)
def test_every_recipe_of_times_has_a_timeline(
    fitkit_run: Run, recipe_frame: Callable[[str], pd.DataFrame], tmp_path: Path, recipe: str
) -> None:
    model, path = tmp_path / "m.json", tmp_path / "p.trace.json"
    fitkit.fit(recipe_frame(recipe), recipe).save(model)
    at = [word for point in POINTS[recipe] for word in ("--at", point)]
    found = fitkit_run("predict", model, *at, "-o", path)
    if recipe == "shared":
        assert found.status == 2
        assert "normalised_throughput is no time that a trace could show" in found.complaint[0]
        return
    events = json.loads(path.read_text())["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    drawn = [(named[e["pid"]], e["name"]) for e in events if e["ph"] == "X"]
    assert drawn == DRAWN[recipe]


def test_a_timeline_needs_numpy_alone(step_model: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from fitkit.cli import run; run(sys.argv[1:]); print(sorted(sys.modules))"
    )
    output = [word for suffix in ("trace.json", "json", "csv") for word in ("-o", f"p.{suffix}")]
    done = subprocess.run(
        [sys.executable, "-c", program, "predict", step_model, *AT, *output],
        capture_output=True, check=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert len(list(tmp_path.iterdir())) == 3
    for name in ("pandas", "pyarrow", "scipy", "sklearn", "plotly", "msgspec"):
        assert f"'{name}'" not in done.stdout.splitlines()[-1]
