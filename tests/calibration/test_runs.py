"""Whole runs and storage: initialisation on another file system, steps on another device."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.calibration import calibrate

DATA = 40e9  # bytes that every node reads


def _runs(device: str, step: float, client: float, whole: float) -> pd.DataFrame:
    """Runs that begin with every node reading the data set, of two bandwidths."""
    cells = [(n, b, d) for n in (1.0, 2, 4, 8, 16) for b in (8.0, 16, 32) for d in (DATA, 2 * DATA)]
    frame = pd.DataFrame(cells, columns=["n_nodes", "local_batch", "dataset_bytes"])
    frame = frame.assign(n_workers=frame.n_nodes, network="net", device=device, n_epochs=2.0)
    init_s = 10 + frame.dataset_bytes / client + frame.dataset_bytes * frame.n_nodes / whole
    step_s = step * (0.02 + 0.002 * frame.local_batch) + 0.005 * np.log2(frame.n_workers)
    steps = 1000.0
    return frame.assign(
        init_s=init_s, step_s=step_s, steps_per_epoch=steps, total_s=init_s + 2 * steps * step_s
    )


@pytest.fixture(scope="module")
def source() -> fitkit.PerformanceModel:
    """The model of runs on an old machine."""
    return fitkit.fit(_runs("old", 1.0, 1e9, 4e9), "run", statistic="median")


def predicted(model: fitkit.PerformanceModel, rows: pd.DataFrame) -> pd.Series:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
        return model.predict(rows, allow_extrapolation=True).predicted_s


def test_runs_are_carried_part_by_part(source: fitkit.PerformanceModel, tmp_path: Path) -> None:
    target = _runs("new", 0.25, 2e9, 16e9)
    places = [(1.0, 8.0, DATA), (1.0, 32.0, 2 * DATA), (4.0, 8.0, DATA), (8.0, 32.0, DATA)]
    places += [(16.0, 16.0, 2 * DATA), (2.0, 8.0, 2 * DATA)]
    probes = target.set_index(["n_nodes", "local_batch", "dataset_bytes"]).loc[places]
    new = calibrate(source, probes.reset_index())
    assert (predicted(new, target) / target.total_s - 1).abs().mean() < 0.05
    params = new.params_
    assert set(params.part) == {"init", "step"}
    assert set(params.origin) <= {"prior", "probes", "both"}
    new.save(tmp_path / "new.json")
    again = fitkit.load_model(tmp_path / "new.json")
    pd.testing.assert_series_equal(predicted(again, target), predicted(new, target))
    assert "step: calibrated from" in str(again.summary())


def test_storage_probes_tell_what_no_run_did(source: fitkit.PerformanceModel) -> None:
    # Of the new machine only steps were measured; the file system is twenty times as fast.
    target = _runs("new", 0.25, 20e9, 80e9)
    probes = target[target.n_nodes.isin([1, 4, 16]) & (target.dataset_bytes == DATA)]
    probes = probes.drop(columns=["init_s", "total_s"]).assign(total_s=np.nan)
    probes["total_s"] = probes.n_epochs * probes.steps_per_epoch * probes.step_s
    clients = np.array([1.0, 1, 2, 4, 8, 16])
    reads = pd.DataFrame({"n_clients": clients, "read_bytes": 1e9})
    reads["read_s"] = np.maximum(1 / 20, reads.n_clients / 80)
    with_storage = calibrate(source, probes, storage=reads)
    assert any("part init: no probe measured it" in note for note in with_storage.notes)
    blind = calibrate(source, probes)
    (init,), (guess,) = (
        [group.models_["init"] for group in model.estimator.groups_.values()]
        for model in (with_storage, blind)
    )
    truth = 10 + target.dataset_bytes / 20e9 + target.dataset_bytes * target.n_nodes / 80e9
    far = target.n_nodes == 16
    errors = [np.abs(np.log(m.predict(target) / truth))[far].mean() for m in (init, guess)]
    assert errors[0] < 0.5 * errors[1]
