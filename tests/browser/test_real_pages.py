"""Pages of runs that others measured: MLPerf, Sia and Pollux, CNTK."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fitkit
from fitkit.ingestion import Options

MAPPINGS = Path(__file__).parents[2] / "benchmarks/mappings"
WIDTHS = (1280, 390)
A100 = 'network == "{}" and device == "A100"'


def mlperf(shared: Path, folder: Path) -> fitkit.Dataset:
    """Two benchmarks on one kind of device, and of the others none."""
    runs = pd.read_csv(shared / "mlperf/mlperf_runs.csv.gz", low_memory=False)
    chosen = runs.benchmark.isin(["bert", "resnet"]) & runs.accel_class.eq("A100")
    runs[chosen & runs.org.isin(["NVIDIA", "Dell", "Azure"])].to_csv(folder / "runs.csv")
    options = Options(mapping=MAPPINGS / "mlperf.toml")
    return fitkit.ingest(folder / "runs.csv", folder / "mlperf", options=options)


def pollux(shared: Path, folder: Path) -> fitkit.Dataset:
    """One network on one cluster, a third of its batches."""
    points = pd.read_csv(shared / "public_tables/sia_pollux/all_points.csv")
    chosen = points.model.eq("cifar10") & points.cluster.eq("aws")
    batches = sorted(points[chosen].local_bsz.unique())[::3]
    points[chosen & points.local_bsz.isin(batches)].to_csv(folder / "points.csv")
    options = Options(mapping=MAPPINGS / "sia_pollux.toml")
    return fitkit.ingest(folder / "points.csv", folder / "pollux", options=options)


def cntk(shared: Path, folder: Path) -> fitkit.Dataset:
    """Real runs of 1 to 4 workers, profiled and not."""
    logs = sorted((shared / "cntk/real_runs").glob("mlpbig_*"))
    return fitkit.ingest(logs, folder / "cntk")


SOURCES: dict[str, Callable[[Path, Path], fitkit.Dataset]] = {
    "mlperf": mlperf, "pollux": pollux, "cntk": cntk,
}  # fmt: skip
SPLITS: dict[str, dict[str, Any]] = {
    "mlperf": {"recipe": "run", "hold_out": "n_nodes > 8", "where": A100.format("bert")},
    "pollux": {"recipe": "step", "hold_out": "n_workers > 32"},
    "cntk": {"recipe": "phases", "folds": 2, "where": 'phase in ["compute", "comm", "optimizer"]'},
}
NAMES = [f"{source} {kind}" for source in SOURCES for kind in ("report", "errors")]


@pytest.fixture(scope="module")
def real_pages(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each source the page of the dataset and that of a validation; a static one of each."""
    folder = tmp_path_factory.mktemp("real")
    found = {}
    for name, make in SOURCES.items():
        dataset = make(shared, folder)
        where = SPLITS[name].get("where") if name == "mlperf" else None
        for kind, page in (
            ("report", fitkit.analyse(dataset, where=where)),
            ("errors", fitkit.validate(dataset, **SPLITS[name])),
        ):
            for suffix in ("", " static"):
                path = folder / f"{name} {kind}{suffix}.html"
                page.to_html(path, static=bool(suffix))
                found[f"{name} {kind}{suffix}"] = path
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_real_runs_are_drawn(
    drawn: Callable[[Path, int], int], real_pages: dict[str, Path], name: str, width: int
) -> None:
    assert drawn(real_pages[name], width) >= 3
    assert drawn(real_pages[f"{name} static"], width) >= 3


@pytest.mark.parametrize("name", ["mlperf report", "pollux errors", "cntk errors", "cntk report"])
def test_axe_finds_no_serious_fault_in_them(
    faults: Callable[[Path], list[Any]], real_pages: dict[str, Path], name: str
) -> None:
    found = faults(real_pages[name])
    assert found == [], json.dumps(found, indent=1)


def test_a_page_says_where_initialisation_passes_half(
    tab: Any, shared: Path, real_pages: dict[str, Path]
) -> None:
    tab.look_at(real_pages["mlperf report"])
    text = tab.run("document.body.innerText").replace("\u00a0", " ")
    runs = pd.read_csv(shared / "mlperf/mlperf_runs.csv.gz", low_memory=False)
    chosen = runs[
        runs.benchmark.eq("bert") & runs.accel_class.eq("A100") & runs["round"].eq("train_v2.0")
        & runs.org.eq("NVIDIA")
    ]  # fmt: skip
    shares = (chosen.init_s / (chosen.init_s + chosen.run_s)).groupby(chosen.nodes).median()
    assert list(shares.index) == [1, 8, 128]
    assert shares[8] < 0.5 < shares[128]
    assert "initialisation takes" in text
    assert "passes half between 8" in text
    assert "128 nodes" in text
