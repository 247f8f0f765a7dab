"""Reading of CNTK's logs: every training line of the public ones, fast, in little memory.

  python benchmarks/cntk_logs.py totals [--shared FOLDER]
  python benchmarks/cntk_logs.py speed [--shared FOLDER] [--megabytes N] [--repeats N]

``totals`` compares the epochs and minibatch lines of every public log with those that a plain
search finds. ``speed`` ingests two logs made of real lines, each in a process of its own: all
public logs behind each other, again and again, and a training that goes on and on. This file is
also what the processes run (``--worker LOG``).
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import process_time
from typing import NamedTuple

from lines import Line, Section, show, table
from traces import MB, peak_mb

import fitkit

LOGS = "cntk/public_baselines"
ONE_TRAINING = "v2.0__ParallelTraining_NoQuantization_SinglePrecision__baseline.cpu.txt.gz"
LEAST_MB_PER_S = 40.0
MOST_GROWTH_MB = 60.0
TOTALS_TEXT = """
Training epochs and minibatch lines as a search finds them, and as rows of the tables. A log
without minibatch lines has a timed group for each of its epochs, or for none if nothing tells how
many minibatches they had.
"""
SPEED_TEXT = """
`fitkit.ingest` hashes and reads a log of {megabytes} MB and writes the tables. Megabytes of the
log for each CPU second of the call, everything being imported and the file in memory; the most of
{repeats}. Memory is the peak of the whole process, interpreter included; growth is its difference
to that on a log of a quarter of the size.
"""


def logs(shared: Path) -> dict[str, str]:
    """The public logs by name."""
    paths = sorted((shared / LOGS).glob("*.gz"))
    if not paths:
        raise SystemExit(f"no logs at {shared / LOGS}: --shared names the folder of real logs")
    return {p.name: gzip.decompress(p.read_bytes()).decode("utf-8", "replace") for p in paths}


# -- totals ----------------------------------------------------------------------------------


class Counts(NamedTuple):
    """Finished training epochs, and lines about minibatches of them."""

    epochs: int
    minibatches: int


def searched(text: str) -> Counts:
    """What a search finds in a log; trial epochs of a search are no training."""
    lines = re.split(r"\r\n|\n|\r", text)
    epochs = sum("Finished Epoch" in line and "[Training" in line for line in lines)
    groups = [line for line in lines if "Epoch[" in line and "Minibatch[" in line]
    return Counts(epochs, sum("MinibatchSearch: Epoch[" not in line for line in groups))


def ingested(shared: Path) -> dict[str, Counts]:
    """Epochs and timed groups of minibatches in the tables, by log; strictly read."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = fitkit.ingest(sorted((shared / LOGS).glob("*.gz")), Path(folder) / "ds")
        runs = dataset.read("runs", ["run_id", "source_id"])
        paths = dataset.read("sources").set_index("source_id").path
        epochs = dataset.read("phases").query("phase == 'epoch'").run_id.value_counts()
        groups = dataset.read("steps").dropna(subset=["duration_s"]).run_id.value_counts()
    found = {}
    for source_id, own in runs.groupby("source_id").run_id:
        n_epochs, n_groups = (
            int(n.reindex(own, fill_value=0).sum()) for n in (epochs, groups)
        )  # fmt: skip
        found[Path(paths[source_id]).name] = Counts(n_epochs, n_groups)
    return found


def totals(shared: Path) -> bool:
    """Print the counts of all public logs; whether all are those of the search."""
    ours, rows, agree = ingested(shared), [], True
    for name, text in logs(shared).items():
        there, found = searched(text), ours.get(name.removesuffix(".gz"), Counts(0, 0))
        expected = [there] if there.minibatches else [there, Counts(there.epochs, there.epochs)]
        agree &= found in expected
        figures = (there.epochs, found.epochs, there.minibatches, found.minibatches)
        verdict = "yes" if found in expected else "**no**"
        rows.append([name.removesuffix(".txt.gz"), *map(str, figures), verdict])
    print(f"## Training lines of CNTK's public logs\n\n{TOTALS_TEXT.strip()}\n")
    table(["log", "epochs", "rows", "minibatch lines", "timed groups", "holds"], rows)
    return agree


# -- speed and memory ------------------------------------------------------------------------


def whole_logs(shared: Path) -> Iterator[str]:
    """All public logs, one behind the other, again and again."""
    return itertools.cycle(logs(shared).values())


def long_training(shared: Path) -> Iterator[str]:
    """An epoch of one rank again and again: minibatch lines and its end, numbered on and on."""
    every = logs(shared)[ONE_TRAINING].splitlines()
    lines = [line for line in every if line.startswith("MPI Rank 0: ") and "Epoch[" in line]
    first = next(number for number, line in enumerate(lines) if "Finished Epoch" in line)
    text = "".join(f"{line}\n" for line in lines[: first + 1])
    for epoch in itertools.count(1):
        yield re.sub(r"Epoch\[ *\d+ of", f"Epoch[{epoch:2d} of", text)


def write(target: Path, pieces: Iterable[str], n_bytes: int) -> float:
    """Write pieces until the file has about so many bytes; its megabytes."""
    with target.open("wb") as file:
        for piece in pieces:
            file.write(piece.encode())
            if file.tell() >= n_bytes:
                return file.tell() / MB
    raise ValueError("the pieces end")


class Cost(NamedTuple):
    """CPU seconds of a call, and the peak of the memory of its process in MB."""

    cpu_s: float
    peak_mb: float


def cost(log: Path, repeats: int) -> Cost:
    """Cost of ingesting a log in a process of its own: the fewest seconds, the highest peak."""
    words = [sys.executable, __file__, "speed", "--worker", str(log)]
    found = []
    for _ in range(repeats):
        answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found.append(Cost(*json.loads(answer.splitlines()[-1])))
    return Cost(min(one.cpu_s for one in found), max(one.peak_mb for one in found))


def work(log: Path) -> None:
    """Ingest a log in this process and print what it cost; all is imported before."""
    with tempfile.TemporaryDirectory(prefix="fitkit-", dir=log.parent) as folder:
        with log.open("rb") as file:
            (Path(folder) / "small.log").write_bytes(file.read(MB))
        fitkit.ingest(Path(folder) / "small.log", Path(folder) / "before")
        start = process_time()
        fitkit.ingest(log, Path(folder) / "tables")
        print(json.dumps([process_time() - start, peak_mb()]))


def speed(shared: Path, megabytes: int, repeats: int) -> bool:
    """Print speed and memory on both logs; whether all bars are kept."""
    speeds, peaks = [], []
    for name, pieces in {"all public logs": whole_logs, "a long training": long_training}.items():
        with tempfile.TemporaryDirectory() as folder:
            log, quarter = Path(folder) / "cntk.log", Path(folder) / "quarter.log"
            n_mb = write(log, pieces(shared), megabytes * MB)
            write(quarter, pieces(shared), megabytes * MB // 4)
            ours, least = cost(log, repeats), cost(quarter, 1)
        rate = n_mb / ours.cpu_s
        speeds.append(Line(f"speed, {name}", rate, unit="MB/s", least=LEAST_MB_PER_S))
        growth = ours.peak_mb - least.peak_mb
        peaks.append(Line(f"memory, {name}", ours.peak_mb, unit="MB"))
        peaks.append(Line(f"growth of it, {name}", growth, MOST_GROWTH_MB, unit="MB"))
    lines = [*speeds, *peaks]
    text = SPEED_TEXT.format(megabytes=megabytes, repeats=repeats)
    show(Section("Speed of CNTK's logs", text, lines))
    return not any(line.misses() for line in lines)


def main() -> None:
    """Do what the command line asks for; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["totals", "speed"])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--worker", type=Path, metavar="LOG", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker)
    elif given.what == "totals":
        sys.exit(not totals(given.shared))
    else:
        sys.exit(not speed(given.shared, given.megabytes, given.repeats))


if __name__ == "__main__":
    main()
