"""Pages of large data sets: how long they take, how large they are, what they say of MLPerf.

  python benchmarks/reports.py [--shared FOLDER]

Exits with status 1 if a page takes 10 CPU seconds or a limit of its size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lines import Line, Section, show
from trials import ingest

import fitkit
from fitkit.dataset import Dataset
from fitkit.models.performance import PerformanceModel

REPOSITORY = Path(__file__).parents[1]
MOST_S, MOST_BYTES, MOST_STATIC_BYTES = 10.0, 6e6, 0.5e6
TEXT = """
Everything between a dataset of Parquet and the page on disk: reading, diagnosis, judging, drawing;
`model` also predicts and judges every row with a model that was fitted and saved before: fits are
not in it. CPU seconds of the process, everything being imported.
"""
SAID = """
What `fitkit report` says in the first sentence of the page; of the runs of one submission, the mean
time of a part by the mean time of the whole.
"""
A100 = 'network == "{}" and device == "A100"'


class Page(Protocol):
    """What writes itself."""

    def save(self, path: Path | str, *, static: bool = False) -> None:
        """Write a file."""


def datasets(shared: Path, folder: Path) -> dict[str, Dataset]:
    """Datasets of real runs by name."""
    tables = {
        "MLPerf": ("mlperf/mlperf_runs.csv.gz", "mlperf"),
        "Sia and Pollux": ("public_tables/sia_pollux/all_points.csv", "sia_pollux"),
    }
    found = {
        name: ingest(shared / path, mapping, folder) for name, (path, mapping) in tables.items()
    }
    found["CNTK"] = fitkit.ingest(shared / "cntk/real_runs", folder / "cntk")
    found["samples"] = fitkit.ingest(
        [REPOSITORY / "data/pytorch", REPOSITORY / "data/recorder"], folder / "samples"
    )
    return found


def timed(make: Callable[[], Page], target: Path) -> tuple[dict[str, float], Page]:
    """CPU seconds until a page and its static twin are written, and their bytes."""
    start = time.process_time()
    page = make()
    page.save(target)
    found = {"s": time.process_time() - start}
    page.save(target.with_suffix(".static.html"), static=True)
    found["bytes"] = target.stat().st_size
    found["static"] = target.with_suffix(".static.html").stat().st_size
    return found, page


def cases(found: dict[str, Dataset]) -> Iterator[tuple[str, Callable[[], Page]]]:
    """Pages by name, and what makes them."""
    for name, dataset in found.items():
        yield f"{name}: report, {_count(dataset)} runs", partial(fitkit.analyse, dataset)
    for network in ("bert", "resnet"):
        where = A100.format(network)
        yield f"MLPerf: report, {network}", partial(fitkit.analyse, found["MLPerf"], where=where)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("MLPerf", {"recipe": "run", "where": A100.format("bert")}),
        ("MLPerf", {"recipe": "run", "where": A100.format("resnet")}),
        ("Sia and Pollux", {"recipe": "step"}),
        ("CNTK", {"recipe": "phases"}),
        ("samples", {"recipe": "layers"}),
    ]
    for name, request in asked:
        model = _fitted(found[name], request)
        report = partial(fitkit.validate, found[name], model=model, where=request.get("where"))
        words = " ".join(str(value) for value in request.values())
        yield f"{name}: validate, model, {words}", report


def _fitted(dataset: Dataset, request: dict[str, Any]) -> PerformanceModel:
    """A model as it comes from its file, with all that was worked out when it was saved."""
    with tempfile.TemporaryDirectory() as name:
        fitkit.fit(dataset, **request).save(Path(name) / "model.json")
        return fitkit.load_model(Path(name) / "model.json")


def _count(dataset: Dataset) -> str:
    return f"{len(dataset.read('runs', ['run_id'])):,}"


def speed(found: dict[str, Dataset], folder: Path) -> tuple[Section, dict[str, Page]]:
    """A line for each page, and the pages."""
    lines, pages = [], {}
    fitkit.analyse(found["CNTK"]).save(folder / "first.html")  # imports
    for place, (name, make) in enumerate(cases(found)):
        figures, pages[name] = timed(make, folder / f"{place}.html")
        rows = getattr(pages[name], "rows", None)
        words = name if rows is None else f"{name}, {len(rows):,} rows"
        lines += [
            Line(f"{words}: CPU time", figures["s"], MOST_S, unit="s"),
            Line(f"{words}: page", figures["bytes"], MOST_BYTES, unit="B"),
            Line(f"{words}: static page", figures["static"], MOST_STATIC_BYTES, unit="B"),
        ]
    return Section("Pages of large data sets", TEXT, lines), pages


def main() -> int:
    """Print all sections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=REPOSITORY.parent / "shared")
    with tempfile.TemporaryDirectory() as name:
        found = datasets(parser.parse_args().shared, Path(name))
        section, pages = speed(found, Path(name))
    show(section)
    print(f"\n## What limits MLPerf's runs\n\n{SAID.strip()}\n")
    for title, page in pages.items():
        if title.startswith("MLPerf: report, ") and "runs" not in title:
            print(f"* {title.split(', ')[1]} on A100: {getattr(page, 'headline', '')}")
    return int(any(line.misses() for line in section.lines))


if __name__ == "__main__":
    sys.exit(main())
