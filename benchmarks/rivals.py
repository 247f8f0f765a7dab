"""Predictions of the published tools themselves: Extra-P and AdaptDL.

Both pin old versions of what fitkit needs new, so each lives in an environment of its own and is
asked in a process of its own. To install them:

  python -m venv extrap-env  && extrap-env/bin/pip install extrap
  python -m venv adaptdl-env && adaptdl-env/bin/pip install --no-deps adaptdl==0.2.11
  adaptdl-env/bin/pip install "numpy<2" scipy autograd

Then name the interpreters, by option or in the environment (FITKIT_EXTRAP_PYTHON,
FITKIT_ADAPTDL_PYTHON); where one is absent a line says so and its columns stay empty.

  python benchmarks/rivals.py [--shared FOLDER] [--extrap-python PATH] [--adaptdl-python PATH]

prints the error of each beside that of fitkit's own form of it, on the same rows. This file is
also what the other interpreter runs (``--worker NAME``), with its own packages and numpy alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

VARIABLES = {
    "extrap": "FITKIT_EXTRAP_PYTHON",
    "adaptdl": "FITKIT_ADAPTDL_PYTHON",
    "hta": "FITKIT_HTA_PYTHON",
}
PLACES = ("n_nodes", "n_workers", "local_batch")


def interpreter(tool: str, option: str | None = None) -> str | None:
    """The interpreter that has a tool: as given, else from the environment, else none.

    Says so on standard error where there is none, or where it cannot import the tool.
    """
    python = option or os.environ.get(VARIABLES[tool])
    if python:
        asked = subprocess.run(
            [python, "-I", "-c", f"import {tool}"], capture_output=True, check=False
        )
        if asked.returncode == 0:
            return python
    print(f"{tool}: not installed, see {Path(__file__).name}", file=sys.stderr)
    return None


def extrap_predictions(
    train: pd.DataFrame,
    test: pd.DataFrame,
    columns: Sequence[str],
    target: str,
    python: str | None,
    by: Sequence[str] = (),
) -> np.ndarray:
    """Seconds for each test row from Extra-P's default modeler, shape ``(rows,)``.

    Parameters
    ----------
    columns
        Its parameters; columns that never vary in training are left out, group by group.
    target
        Column of the times in seconds.
    python
        Interpreter that has Extra-P; without one all is NaN.
    by
        Columns of the groups that are modelled apart.
    """
    tables = []
    for known, asked, _ in _groups(train, test, by):
        varying = [name for name in columns if np.ptp(known[name].to_numpy(dtype=float)) > 0]
        tables.append(
            {
                "columns": varying,
                "known": known[varying].to_numpy(dtype=float).tolist(),
                "times": known[target].tolist(),
                "asked": asked[varying].to_numpy(dtype=float).tolist(),
            }
        )
    return _collect(_ask("extrap", python, tables), train, test, by)


def adaptdl_predictions(
    train: pd.DataFrame,
    test: pd.DataFrame,
    columns: Sequence[str],
    target: str,
    python: str | None,
    by: Sequence[str] = (),
    sync: str | None = None,
) -> np.ndarray:
    """Seconds for each test row from AdaptDL's own fit, shape ``(rows,)``.

    Parameters
    ----------
    columns
        Names of its nodes, replicas and local batch, in this order.
    target
        Column of the times in seconds.
    python
        Interpreter that has AdaptDL; without one all is NaN.
    by
        Columns of the groups that are modelled apart.
    sync
        Column of the part of the time that is synchronisation: AdaptDL wants the other part
        beside the whole. Without it that part is taken to be the shortest time of the same local
        batch.
    """
    tables = []
    for known, asked, _ in _groups(train, test, by):
        if sync is None:
            compute = known.groupby(columns[2])[target].transform("min")
        else:
            compute = (known[target] - known[sync]).clip(lower=1e-6)
        tables.append(
            {
                "known": known[list(columns)].to_numpy(dtype=float).tolist(),
                "compute": compute.tolist(),
                "times": known[target].tolist(),
                "asked": asked[list(columns)].to_numpy(dtype=float).tolist(),
            }
        )
    return _collect(_ask("adaptdl", python, tables), train, test, by)


def _groups(
    train: pd.DataFrame, test: pd.DataFrame, by: Sequence[str]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, np.ndarray]]:
    """Training and test rows of each group that has both, and the positions of the latter."""
    known, asked = (
        frame[list(by)].astype(str).agg(" ".join, axis=1).to_numpy() if by else np.zeros(len(frame))
        for frame in (train, test)
    )
    for key in np.unique(asked):
        if (known == key).any():
            yield train[known == key], test[asked == key], np.flatnonzero(asked == key)


def _ask(tool: str, python: str | None, tables: list[dict[str, Any]]) -> list[list[float]] | None:
    if python is None:
        return None
    answer = subprocess.run(
        [python, "-I", __file__, "--worker", tool],
        input="\n".join(json.dumps(table) for table in tables),
        capture_output=True,  # both warn at length about small tables
        text=True,
        check=False,
    )
    if answer.returncode:
        raise RuntimeError(f"{tool} failed: {answer.stderr.strip()[-2000:]}")
    return [json.loads(line) for line in answer.stdout.splitlines()]


def _collect(
    answers: list[list[float]] | None, train: pd.DataFrame, test: pd.DataFrame, by: Sequence[str]
) -> np.ndarray:
    seconds = np.full(len(test), np.nan)
    if answers is not None:
        for (_, _, rows), answer in zip(_groups(train, test, by), answers, strict=True):
            seconds[rows] = answer
    return seconds


# -- in the other interpreter --------------------------------------------------------------


def extrap_worker(table: dict[str, Any]) -> list[float]:
    """Model one table of measurements with Extra-P."""
    from extrap.fileio.file_reader.jsonlines_file_reader import read_jsonlines_file
    from extrap.modelers.model_generator import ModelGenerator

    columns = table["columns"]
    if not columns:
        return [float(np.mean(table["times"]))] * len(table["asked"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.jsonl"
        lines = [
            json.dumps({"params": dict(zip(columns, row, strict=True)), "value": time})
            for row, time in zip(table["known"], table["times"], strict=True)
        ]
        path.write_text("\n".join(lines), encoding="utf-8")
        experiment = read_jsonlines_file(str(path))
    generator = ModelGenerator(experiment)
    generator.model_all()
    (model,) = generator.models.values()
    function = model.hypothesis.function
    single = len(columns) == 1
    return [float(function.evaluate(row[0] if single else row)) for row in table["asked"]]


def adaptdl_worker(table: dict[str, Any]) -> list[float]:
    """Fit and ask AdaptDL's throughput model on one table of measurements."""
    from adaptdl.goodput import GoodputFunction, GradParams, fit_perf_params

    nodes, replicas, batch = np.array(table["known"]).T
    compute, times = np.array(table["compute"]), np.array(table["times"])
    fitted = fit_perf_params(nodes, replicas, batch, compute, times)
    nodes, replicas, batch = np.array(table["asked"]).T
    model = GoodputFunction(fitted, GradParams(1.0, 1.0), 1)
    return list(map(float, replicas * batch / model.throughput(nodes, replicas, batch, 0)))


WORKERS = {"extrap": extrap_worker, "adaptdl": adaptdl_worker}


def work(tool: str) -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # what the tool prints is no answer
    for line in sys.stdin:
        print(json.dumps(WORKERS[tool](json.loads(line))), file=answers)


# -- beside our own forms ------------------------------------------------------------------


def training_steps(shared: Path) -> pd.DataFrame:
    """Median step time of each configuration of four networks on three clusters."""
    import pandas as pd

    points = pd.read_csv(shared / "public_tables/sia_pollux/all_points.csv")
    points = points[points.cluster.isin(["aws", "rtx", "dgx"])]
    keys = ["model", "cluster", "num_nodes", "num_replicas", "local_bsz"]
    steps = points.groupby(keys, as_index=False)[["step_time", "sync_time"]].median()
    names = ["network", "device", *PLACES, "step_s", "sync_s"]
    return steps.set_axis(names, axis=1)


def compare(shared: Path, pythons: dict[str, str | None]) -> None:
    from fitkit.display import format_share
    from fitkit.models.baselines import NormalForm, Pollux
    from fitkit.splits import k_fold

    steps = training_steps(shared)
    by = ["network", "device"]
    (fold, *_) = k_fold(len(steps), 5)
    train, test = steps[fold.train], steps[fold.test]
    found = {
        "Extra-P": extrap_predictions(train, test, PLACES, "step_s", pythons["extrap"], by),
        "AdaptDL": adaptdl_predictions(
            train, test, PLACES, "step_s", pythons["adaptdl"], by, "sync_s"
        ),
        "normal form": np.full(len(test), np.nan),
        "Pollux form": np.full(len(test), np.nan),
    }
    for known, asked, rows in _groups(train, test, by):
        form = NormalForm(PLACES).fit(known, known.step_s)
        found["normal form"][rows] = form.predict(asked)
        found["Pollux form"][rows] = Pollux().fit(known, known.step_s).predict(asked)
    print("MAPE of a fifth of the configurations, held out at random\n")
    print("| network, device | n | " + " | ".join(found) + " |")
    print("|" + "---|" * (2 + len(found)))
    for known, asked, rows in _groups(train, test, by):
        errors = [np.abs(found[name][rows] / asked.step_s - 1).mean() for name in found]
        name = " ".join(known[by].iloc[0])
        print(f"| {name} | {len(rows)} | " + " | ".join(map(format_share, errors)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--extrap-python")
    parser.add_argument("--adaptdl-python")
    parser.add_argument("--worker", choices=[*WORKERS], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker)
        return
    options = {"extrap": given.extrap_python, "adaptdl": given.adaptdl_python}
    compare(given.shared, {tool: interpreter(tool, path) for tool, path in options.items()})


if __name__ == "__main__":
    main()
