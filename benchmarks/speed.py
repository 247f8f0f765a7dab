"""Print CPU seconds of the things that must stay fast. Wall time is no guide on a shared machine.

python benchmarks/speed.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd

import fitkit

DATA = Path(__file__).parents[1] / "data"
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


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder) / "runs"
        for name in ("cntk", "pytorch"):
            seconds = of_call(lambda name=name: fitkit.ingest([DATA / name], dataset))
            print(f"ingest data/{name}: {seconds:.1f} s for {n_bytes(DATA / name) / 1e6:.1f} MB")
        frame = layers(500, 6)
        print(f"fit 500 layers: {of_call(lambda: fitkit.fit(frame, 'layers')):.2f} s")
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


if __name__ == "__main__":
    main()
