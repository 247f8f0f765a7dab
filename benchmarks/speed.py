"""Print CPU seconds of the things that must stay fast. Wall time is no guide on a shared machine.

  python benchmarks/speed.py

A fit is timed in a process of its own, which this file is too (``--fit NAME``).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from types import SimpleNamespace

import numpy as np
import pandas as pd
from lines import Line, Section, show

import fitkit
from fitkit.fitting import measurements
from fitkit.models.columns import number_columns
from fitkit.parallel import one_thread

DATA = Path(__file__).parents[1] / "data"
TITLE = "Speed"
TEXT = """
CPU seconds of a fit in a process of its own, one thread, the least of two; beside it those of the
whole process, with the start of Python and all imports. Layers of unknown shape are fitted each on
its own. A step model chooses among its forms by cross-validation and grows trees; what its
intervals cost stands in a section of its own.
"""
ADDED = "What intervals and the guard cost"
ADDED_TEXT = """
CPU seconds that held-out errors, guard and identifiability add to the fit of a step model, in a
process of its own, one thread, the least of two; and how many configurations a model predicts in a
CPU second, with intervals and all that is said of them, the most of three.
"""
LIMIT_S = 2.0
LIMIT_ADDED_S = 5.0
LEAST_PREDICTED = 100_000.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def of_command(*words: str) -> float:
    """Least CPU time of five starts of a command."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "fitkit", *words],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | ONE_THREAD,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def of_call(function: Callable[[], object]) -> float:
    start = process_time()
    function()
    return process_time() - start


def n_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def layers(n_layers: int, n_batches: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    batch = np.tile(2.0 ** np.arange(n_batches), n_layers)
    layer = np.repeat([f"layer{i}" for i in range(n_layers)], n_batches)
    times = (1e-4 + 1e-5 * batch) * (1 + 0.05 * random.standard_normal(len(batch)))
    return pd.DataFrame(
        {"network": "n", "layer": layer, "phase": "forward", "local_batch": batch,
         "duration_s": times}
    )  # fmt: skip


def runs(n_networks: int, n_runs: int) -> pd.DataFrame:
    """Steps of networks on 1 to 64 workers, every run of another configuration."""
    random = np.random.default_rng(0)
    n = n_networks * n_runs
    workers = 2.0 ** random.integers(0, 7, n)
    nodes = np.maximum(workers / 2.0 ** random.integers(0, 4, n), 1.0)
    batch = random.permutation(np.arange(n)) + 8.0
    mean = 0.02 + 1e-3 * batch + 0.03 * np.log2(workers) + 0.05 * (nodes > 1)
    times = mean * (1 + 0.05 * random.standard_normal(n))
    network = np.repeat([f"network{i}" for i in range(n_networks)], n_runs)
    return pd.DataFrame(
        {"network": network, "n_workers": workers, "n_nodes": nodes, "local_batch": batch,
         "step_s": times}
    )  # fmt: skip


# Recipe, what is fitted to it, and something small that takes the same way through the code.
FITS: dict[str, tuple[str, pd.DataFrame, pd.DataFrame]] = {
    "500 layers, six batches each": ("layers", layers(500, 6), layers(2, 6)),
    "step, 1,000 runs of a network": ("step", runs(1, 1000), runs(1, 40)),
    "step, 1,000 runs of four networks": ("step", runs(4, 250), runs(1, 40)),
}
LAYERS, STEPS = tuple(FITS)[:2]


def of_fit(name: str, *words: str) -> float:
    """Least CPU time of two fits, each in a process of its own.

    Of the fit alone with ``--warm``, everything being imported, else of all that the process did;
    with ``--bare`` without intervals and guard.
    """
    words = (sys.executable, __file__, "--fit", name, *words)
    return min(
        float(
            subprocess.run(
                words, check=True, capture_output=True, text=True, env=os.environ | ONE_THREAD
            ).stdout
        )
        for _ in range(2)
    )


def fit_here(name: str, *, warm: bool, is_bare: bool) -> float:
    """CPU time of a fit in this process, which has done nothing else."""
    recipe, frame, small = FITS[name]
    fit = bare_fit if is_bare else fitkit.fit
    if not warm:
        fit(frame, recipe)
        return process_time()
    fit(small, recipe)
    return of_call(lambda: fit(frame, recipe))


def bare_fit(frame: pd.DataFrame, name: str) -> None:
    """Fit a recipe, without intervals and guard."""
    found = measurements(frame, name)
    recipe, pooled = found.recipe, found.pooled
    columns = {str(column): pooled[column].to_numpy() for column in pooled.columns}
    numeric = number_columns(columns, recipe.columns, len(pooled))
    groups = {column: columns[column] for column in recipe.groups}
    rows = SimpleNamespace(**vars(numeric), **groups)
    with one_thread():
        recipe.estimator("interpolation").fit(rows, columns[found.target])


def section(_shared: Path, _folder: Path) -> Section:
    """CPU seconds of fits."""
    lines = []
    for name in FITS:
        bare = () if name == LAYERS else ("--bare",)
        bar = LIMIT_S if name in (LAYERS, STEPS) else None
        whole = {"with_imports": of_fit(name, *bare)}
        lines.append(Line(name, of_fit(name, "--warm", *bare), bar, whole, unit="s"))
    return Section(TITLE, TEXT, lines)


def added(_shared: Path, _folder: Path) -> Section:
    """CPU seconds that intervals add to a fit, and predictions in a second."""
    more = of_fit(STEPS, "--warm") - of_fit(STEPS, "--warm", "--bare")
    recipe, frame, _ = FITS[STEPS]
    model = fitkit.fit(frame, recipe)
    many = {str(name): np.tile(frame[name].to_numpy(), 100) for name in frame}
    n = len(many["n_workers"])
    seconds = min(of_call(lambda: model.predict_columns(many, n)) for _ in range(3))
    return Section(
        ADDED,
        ADDED_TEXT,
        [
            Line(f"added to: {STEPS}", more, LIMIT_ADDED_S, unit="s"),
            Line("configurations a second", n / seconds, None, least=LEAST_PREDICTED, unit="/s"),
        ],
    )


def others() -> None:
    """Print what has no bar: ingesting, predicting, starting."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder) / "runs"
        for name in ("cntk", "pytorch"):
            seconds = of_call(lambda name=name: fitkit.ingest([DATA / name], dataset))
            print(f"ingest data/{name}: {seconds:.1f} s for {n_bytes(DATA / name) / 1e6:.1f} MB")
        model = fitkit.fit(dataset, "step", where='framework == "pytorch"')
        path = Path(folder) / "step.json"
        model.save(path)
        one = {"network": "tinygpt", "instrument": "none", "n_workers": 1, "local_batch": 4.0}
        many = {name: np.full(100_000, value, dtype=object) for name, value in one.items()}
        seconds = of_call(lambda: model.predict_columns(many, 100_000))
        print(f"predict 100,000 configurations: {seconds:.2f} s")
        print(f"fitkit --help: {of_command('--help'):.3f} s")
        at = [f"--at={name}={value}" for name, value in one.items()]
        print(f"fitkit predict --at: {of_command('predict', str(path), *at):.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", choices=[*FITS], help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        print(fit_here(given.fit, warm=given.warm, is_bare=given.bare))
        return
    show(section(Path(), Path()))
    others()


if __name__ == "__main__":
    main()
