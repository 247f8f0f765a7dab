"""Measure how predictions go astray beyond the measured range, and write fitkit's library of it.

  python benchmarks/extrapolation.py [--shared FOLDER] > fitkit/models/extrapolation_errors.json

Of every group of every data set the smaller half, and the smaller quarter, of a scale predict what
lies above, as `fitkit.models.conformal` does in every fit. Here all groups of a data set count
together, and what is kept are 100 quantiles of the errors for each root of a doubling. No figure in
docs/accuracy.md is for a group that asks the library: all have scales or relatives of their own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepbench
import layers
import numpy as np
import pandas as pd
import pollux
import vtrain
from threadpoolctl import threadpool_limits
from trials import ingest

import fitkit

N_QUANTILES = 100
_DIGITS = 5


def data_sets(shared: Path, folder: Path) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Name, recipe and rows of each data set."""
    yield "Sia and Pollux, step times", "step", pollux.load(shared, folder)
    yield "DeepBench, all-reduce", "comms", deepbench.load(shared, folder)
    yield "vTrain, all-reduce", "comms", vtrain.tables(shared, folder)
    yield "vTrain, Megatron on 8 A100", "pipeline", vtrain.load(shared, folder)
    path = shared / "public_tables/neusight_ops/linear.csv.gz"
    dataset = ingest(path, "neusight_linear", folder)
    yield "NeuSight, dense layers", "layers", layers.TRIAL.frame(dataset)


def entries(shared: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """What the library says of each axis of each data set."""
    for source, recipe, frame in data_sets(shared, folder):
        model = fitkit.fit(frame, recipe, question="scale-up", statistic="median")
        for axis in model.recipe.axes:
            groups = [errors.beyond.get(axis) for errors in model.intervals.groups.values()]
            found = [errors for errors in groups if errors is not None]
            if not found:
                continue
            # Each group counts as much as any other, however many rows it has.
            places = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
            pooled = np.concatenate([np.quantile(errors, places) for errors in found])
            yield {
                "source": source,
                "recipe": recipe,
                "axis": axis,
                "n_groups": len(found),
                "n_errors": sum(map(len, found)),
                "errors": np.quantile(pooled, places).round(_DIGITS).tolist(),
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        found = list(entries(given.shared, Path(folder)))
    lines = ",\n".join(json.dumps(entry) for entry in found)
    print('{"entries": [\n' + lines + "\n]}")


if __name__ == "__main__":
    main()
