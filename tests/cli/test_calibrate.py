"""fitkit calibrate: runs to make, the calibrated model, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fitkit
import fitkit.cli
from fitkit.ingestion import Options

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fitkit.cli.VERBS, "calibrate", "Carry a model to new hardware.")


def _frame(device: str, compute: float) -> pd.DataFrame:
    cells = [(w, b) for w in (1.0, 2, 4, 8, 16) for b in (8.0, 16, 32, 64)]
    frame = pd.DataFrame(cells, columns=["n_workers", "local_batch"])
    frame = frame.assign(n_nodes=np.maximum(1.0, frame.n_workers / 4), network="net", device=device)
    seconds = compute * (0.02 + 0.002 * frame.local_batch) + 0.01 * np.log2(frame.n_workers)
    return frame.assign(step_s=seconds)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of an old device."""
    path = tmp_path_factory.mktemp("source") / "old.json"
    fitkit.fit(_frame("old", 1.0), "step", statistic="median").save(path)
    return path


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of six runs on a new device."""
    rows = _frame("new", 0.25).iloc[[0, 3, 9, 14, 16, 19]]
    folder = tmp_path_factory.mktemp("probes")
    table = rows.assign(run=[f"run{k}" for k in range(6)])
    table.to_csv(folder / "probes.csv", index=False)
    (folder / "probes.toml").write_text(
        'run_id = { text = "{run}" }\n'
        '[[records]]\ntable = "runs"\n[records.columns]\n'
        'network = "network"\ndevice = "device"\nn_nodes = "n_nodes"\n'
        'n_workers = "n_workers"\nlocal_batch = "local_batch"\n'
        '[[records]]\ntable = "steps"\n[records.columns]\n'
        'n_steps = 1\nduration_s = { value = "step_s", unit = "s" }\n'
    )
    options = Options(mapping=folder / "probes.toml")
    fitkit.ingest(folder / "probes.csv", folder / "ds", options=options)
    return folder / "ds"


def test_runs_are_suggested_as_commands(fitkit_run: Run, source: Path) -> None:
    ask = ["calibrate", str(source), "--suggest", "3", "--max-workers", "8"]
    found = fitkit_run(*ask, "--devices-per-node", "4", "--json").document
    assert len(found["probes"]) == 3
    for row in found["probes"]:
        per_node = row["n_workers"] / row["n_nodes"]
        assert row["n_workers"] <= 8
        assert per_node <= 4
        assert row["command"].startswith("fitkit record -d probes -- torchrun --nnodes=")
        assert row["command"].endswith(f"--batch {row['local_batch']:g}")
        assert row["device_s"] == pytest.approx(100 * row["n_workers"] * row["expected_s"])
    assert found["device_s"] == pytest.approx(sum(row["device_s"] for row in found["probes"]))
    text = fitkit_run(*ask, "--command", "mpirun -n {n_workers} go {network}").out
    assert "3 runs to make" in text
    assert "go net" in text
    assert "error left" in text


def test_candidates_of_a_file_and_probes_that_there_are(
    fitkit_run: Run, source: Path, probes: Path, tmp_path: Path
) -> None:
    path = tmp_path / "could.csv"
    _frame("new", 1.0).drop(columns="step_s").to_csv(path, index=False)
    ask = ["calibrate", str(source), str(probes), "--suggest", "2", "--candidates", str(path)]
    rows = fitkit_run(*ask, "--json").document["probes"]
    known = pd.read_csv(path)
    assert all(
        ((known.n_workers == row["n_workers"]) & (known.local_batch == row["local_batch"])).any()
        for row in rows
    )


def test_a_model_is_calibrated_and_predicts(
    fitkit_run: Run, source: Path, probes: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.json"
    found = fitkit_run("calibrate", str(source), str(probes), "-o", str(new), "--json")
    assert found.document["n_probes"] == 6
    origins = {row["term"]: row["origin"] for row in found.document["parameters"]}
    assert origins["per_sample"] == "probes"
    assert any("past transfers" in warning for warning in found.document["warnings"])
    at = ["--at", "n_workers=4", "--at", "n_nodes=1", "--at", "local_batch=32"]
    (row,) = fitkit_run("predict", str(new), *at, "--json").document["predictions"]
    assert row["predicted_s"] == pytest.approx(0.25 * 0.084 + 0.02, rel=0.1)
    text = fitkit_run("calibrate", str(source), str(probes), "-o", str(new)).out
    assert "calibrated from net · old to 6 probes" in text
    assert "from the probes" in text


def test_what_is_missing_or_wrong_is_said(
    fitkit_run: Run, source: Path, probes: Path, tmp_path: Path
) -> None:
    out = ["-o", str(tmp_path / "new.json")]
    for arguments, status, what in (
        ((), 2, "--suggest N to be told what to run"),
        (("--suggest", "3"), 2, "say what could be run: --max-workers N"),
        (("--suggest", "3", "--candidates", "none.csv"), 3, "none.csv: No such file"),
        (("--suggest", "3", "--max-workers", "4", "--command", "{x}"), 2, "'x' is no column"),
        (("--suggest", "3", "--max-workers", "4", "--budget", "0.1"), 2, "does not pay for 3"),
        ((str(probes), *out, "--where", "local_batch == 8"), 3, "local_batch is 8 in every probe"),
        (("--suggest", "3", "--max-workers", "4", *out), 2, "-o is for calibrating"),
        (("--suggest", "3", "--max-workers", "4", "--allow-prior"), 2, "--allow-prior is for"),
        (("--suggest", "3", "--max-workers", "4", "--budget", "nan"), 2, "positive number"),
        ((str(probes), *out, "--spec", "abacus"), 3, "abacus: No such file"),
    ):
        found = fitkit_run("calibrate", str(source), *arguments)
        assert found.status == status
        assert what in found.err
    assert not (tmp_path / "new.json").exists()


def test_a_table_of_candidates_is_checked(fitkit_run: Run, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "could.csv"
    ask = ["calibrate", str(source), "--suggest", "1", "--candidates", str(path)]
    header = "n_workers,local_batch,n_nodes\n"
    for rows, what in (
        ("", "has no rows"),
        ("1,8,1\n-1,8,1\n", "line 3: n_workers is -1"),
        ("0,8,1\n", "line 2: n_workers is 0"),
        ("1.5,8,1\n", "line 2: n_workers is 1.5"),
        ("1,8,1\n2,,1\n", "line 3: local_batch is nothing"),
        ("x,8,1\n", "line 2: n_workers is x"),
    ):
        path.write_text(header + rows)
        found = fitkit_run(*ask)
        assert found.status == 3
        assert what in found.err
    path.write_text(header + "1,1234567,1\n")
    (row,) = fitkit_run(*ask, "--json").document["probes"]
    assert row["command"].endswith("--batch 1234567")
    path.write_text(header + "3,8,2\n")
    found = fitkit_run(*ask)
    assert found.status == 2
    assert "3 workers do not divide among 2 nodes" in found.err
    assert "-n 3" in fitkit_run(*ask, "--command", "mpirun -n {n_workers} go").out


def test_commands_divide_workers_where_no_column_has_nodes(fitkit_run: Run, tmp_path: Path) -> None:
    """And name the network where there are several."""
    frame = _frame("old", 1.0).drop(columns="n_nodes")
    other = frame.assign(network="other", step_s=2 * frame.step_s)
    path = tmp_path / "two.json"
    fitkit.fit(pd.concat([frame, other]), "step", statistic="median").save(path)
    could = tmp_path / "could.csv"
    pd.DataFrame({"network": ["net", "other"], "n_workers": [10, 10], "local_batch": 8}).to_csv(
        could
    )
    ask = ["calibrate", str(path), "--suggest", "1", "--candidates", str(could), "--json"]
    rows = fitkit_run(*ask, "--devices-per-node", "8").document["probes"]
    assert [row["command"].split(" -- ")[1] for row in rows] == [
        f"torchrun --nnodes=2 --nproc_per_node=5 train.py --batch 8 --network {network}"
        for network in ("net", "other")
    ]
    (first, _) = fitkit_run(*ask, "--devices-per-node", "4").document["probes"]
    assert "--nnodes=5 --nproc_per_node=2 " in first["command"]


def test_sheets_conditions_and_tables_are_used_by_both(
    fitkit_run: Run, source: Path, probes: Path, tmp_path: Path
) -> None:
    path = tmp_path / "probes.csv"
    own = _frame("new", 0.25).iloc[[0, 3, 9, 14, 16, 19]]
    pd.concat([own, own.assign(device="x", step_s=9 * own.step_s)]).to_csv(path, index=False)
    ask = ["--suggest", "2", "--max-workers", "8", "--devices-per-node", "4", "--json"]
    found = fitkit_run("calibrate", str(source), str(path), *ask)
    assert "more than one device: new, x" in found.err
    only = ["--where", "device == 'new'"]
    told = fitkit_run("calibrate", str(source), str(path), *ask, *only).document["probes"]
    same = fitkit_run("calibrate", str(source), str(probes), *ask).document["probes"]
    assert [row["expected_s"] for row in told] == pytest.approx([row["expected_s"] for row in same])
    bare = tmp_path / "bare.csv"
    own.rename(columns={"step_s": "ms"}).to_csv(bare, index=False)
    asked = fitkit_run("calibrate", str(source), str(bare), *ask)
    assert asked.status == 3
    assert "needs a column step_s" in asked.err
    assert "fitkit ingest" in asked.err
    new = tmp_path / "new.json"
    ran = fitkit_run("calibrate", str(source), str(path), *only, "-o", str(new), "--json")
    assert ran.document["n_probes"] == 6
    plain = fitkit_run("calibrate", str(source), *ask, "--spec", "H100").document
    assert any("--source-spec" in text for text in plain["warnings"])
    sheets = ["--spec", "H100", "--source-spec", "T4"]
    assert not fitkit_run("calibrate", str(source), *ask, *sheets).document["warnings"]
