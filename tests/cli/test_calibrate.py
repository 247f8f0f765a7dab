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
        ((str(probes), *out, "--spec", "abacus"), 3, "abacus: No such file"),
    ):
        found = fitkit_run("calibrate", str(source), *arguments)
        assert found.status == status
        assert what in found.err
    assert not (tmp_path / "new.json").exists()
