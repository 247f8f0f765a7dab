"""Record the runs of data/recorder: every configuration twice, all in one random order.

Run it on a machine that does nothing else, from any folder, with the Python that has fitkit and
torch: ``python data/scripts/recorder/record_samples.py data/recorder``. It takes about five
minutes on two cores. ``--only N`` stops after N runs, to try it.
"""

from __future__ import annotations

import argparse
import csv
import getpass
import gzip
import itertools
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
# Model → workers → samples a step and worker.
BATCHES = {
    "tinygpt": {1: (1, 2, 4, 8, 12), 2: (1, 2, 4)},
    "vggsmall": {1: (2, 4, 8, 16, 32), 2: (4, 8, 16)},
}
REPETITIONS = (1, 2)
SEED = 20261201
COLUMNS = ("order", "run", "ranks", "started_at", "wall_s", "load_before", "command")


def main() -> int:
    """Record all runs, or the first few."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", type=int, default=None)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    # Beside the folder, not in it: the folder holds logs alone.
    order_of_runs = options.folder.with_name(f"recording_order_{options.folder.name}.csv")
    with order_of_runs.open("w", newline="") as table:
        rows = csv.writer(table, lineterminator="\n")
        rows.writerow(COLUMNS)
        for order, run in enumerate(_in_random_order()[: options.only]):
            rows.writerow([order, *_record(options.folder, *run)])
            table.flush()
    return _check(options.folder)


def _in_random_order() -> list[tuple[str, int, int, int]]:
    """Model, workers, batch and repetition of each run."""
    runs = [
        (model, workers, batch, repetition)
        for model, by_workers in BATCHES.items()
        for workers, batches in by_workers.items()
        for batch, repetition in itertools.product(batches, REPETITIONS)
    ]
    random.Random(SEED).shuffle(runs)  # noqa: S311 - an order, no secret
    return runs


def _record(
    folder: Path, model: str, workers: int, batch: int, repetition: int
) -> tuple[str, int, str, str, str, str]:
    name = f"{model}_w{workers}_b{batch}_rep{repetition}"
    command = ["torchrun", "--standalone", f"--nproc_per_node={workers}", "train.py"]
    command += ["--model", model, "--batch", str(batch)]
    load = f"{os.getloadavg()[0]:.2f}"
    started, clock = datetime.now(UTC), time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(
            [sys.executable, "-m", *_recorded(str(Path(place) / name), model, command)],
            cwd=HERE, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wall = f"{time.perf_counter() - clock:.2f}"
        _keep(Path(place) / name, folder / name)
    shown = " ".join(_recorded(name, model, command))
    return name, workers, f"{started:%Y-%m-%dT%H:%M:%SZ}", wall, load, shown


def _recorded(folder: str, network: str, command: list[str]) -> list[str]:
    return ["fitkit", "record", "-d", folder, "--network", network, "--", *command]


def _keep(recorded: Path, kept: Path) -> None:
    """Store the logs compressed, the same bytes for the same log."""
    kept.mkdir(exist_ok=True)
    for log in sorted(recorded.glob("recorder_rank*.jsonl")):
        with (
            (kept / f"{log.name}.gz").open("wb") as file,
            gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
            log.open("rb") as text,
        ):
            shutil.copyfileobj(text, packed)


def _check(folder: Path) -> int:
    """Sizes, and whether a log holds a name of this machine."""
    logs = sorted(folder.rglob("*.gz"))
    secrets = {platform.node(), getpass.getuser(), str(Path.home()), str(HERE.parents[2])}
    words = [word.encode() for word in secrets if len(word) > 3]
    texts = {log: gzip.decompress(log.read_bytes()) for log in logs}
    found = [log for log, text in texts.items() if any(word in text for word in words)]
    sizes = [log.stat().st_size for log in logs]
    print(f"{len(logs)} logs, {sum(sizes):,} bytes, the largest {max(sizes):,}")
    for log in found:
        print(f"{log} holds the name of a machine, a user or a folder", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
