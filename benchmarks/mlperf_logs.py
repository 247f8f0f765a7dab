"""Print how the MLPerf parser reproduces the published times of all stored result logs.

  python benchmarks/mlperf_logs.py [--shared FOLDER]

FOLDER holds `mlperf` and `pytorch/mlperf_logs`; default ../shared. Exits with 1 if a figure misses
its bar.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from lines import Line, Section, run

from fitkit.parsers import Source, SourceFile
from fitkit.parsers.mlperf import MlperfParser
from fitkit.records import Phase, Record, Run, Step

TITLE = "Times of MLPerf result logs"
TEXT = """
Every log of `mlperf/logs` is parsed and compared with its row of `mlperf/mlperf_runs.csv.gz`, every
log of `pytorch/mlperf_logs` with its line of the MANIFEST. A figure is the number of logs that
differ by more than a millisecond, or by more than half of the last digit where six digits of a
table say less; MANIFEST figures are whole seconds. Three rows of the table sort an evaluation's
stop before its start of the same millisecond, and so count the training between two evaluations as
one; the logs say that these took at most a millisecond, and that is what is compared there.
"""
# Columns of the table, and the phase and its parent that hold the same.
COLUMNS = {
    "init_s": ("init", {None}),
    "staging_s": ("staging", {None, "train"}),
    "run_s": ("train", {None}),
    "epoch_total_s": ("epoch", {"train"}),
    "block_total_s": ("train", {"train"}),
    "eval_total_s": ("eval", {"train", "epoch"}),
}
MISSORTED = {  # evaluations of these runs take what the log says, in seconds
    f"mlcommons/training_results_v0.7:NVIDIA/results/{system}_ngc20.06_pytorch/ssd/{log}.txt": took
    for system, log, took in (
        ("dgx1", "result_1", 0.0), ("dgx2h", "result_0", 0.001), ("dgx2h", "result_1", 0.001),
    )
}  # fmt: skip
_LINE = re.compile(
    r"^(\S+\.txt\.gz) +gbs (\d+) init (\d+) run (\d+) s .*?(?:iter time \S+ data \S+ s n=(\d+))?"
    r"(?: thr \d+)? +bad \d+ samples",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Parsed:
    """A log, what the parser made of it, and what is published of it."""

    name: str
    records: list[Record]
    codes: set[str]
    published: dict[str, str]

    @property
    def run(self) -> Run:
        """Its only run."""
        (found,) = (record for record in self.records if isinstance(record, Run))
        return found

    def total(self, name: str, parents: set[str | None]) -> float | None:
        """Seconds of a phase; None if there is none."""
        found = [
            record.duration_s
            for record in self.records
            if isinstance(record, Phase) and record.phase == name and record.parent in parents
        ]
        return sum(found) if found else None

    def differs(self, column: str) -> bool:
        """Whether a column of the table says something else."""
        ours, stated = self.total(*COLUMNS[column]), self.published[column]
        if column == "eval_total_s" and self.published["source"] in MISSORTED:
            stated = str(MISSORTED[self.published["source"]])
        if ours is None or not stated:
            return not (ours is None and not stated)
        return abs(ours - float(stated)) > tolerance(float(stated))


def tolerance(stated: float) -> float:
    """A millisecond, or half of the sixth digit; and the rounding of a sum."""
    half_digit = 0.5 * 10 ** (math.floor(math.log10(stated)) - 5) if stated > 0 else 0.0
    return max(0.001, half_digit) + 1e-6


def parse(path: Path, label: str, published: dict[str, str]) -> Parsed:
    """Parse one log."""
    source = Source(label, (SourceFile(path, label),))
    records = list(MlperfParser().parse(source))
    codes = {code for _, _, code, _ in source.problems.notes}
    return Parsed(label, records, codes, published)


def of_table(shared: Path) -> Iterator[Parsed]:
    """Every log of which the table has a row."""
    with gzip.open(shared / "mlperf/mlperf_runs.csv.gz", "rt", encoding="utf-8") as table:
        rows = {row["source"]: row for row in csv.DictReader(table)}
    with (shared / "mlperf/logs_index.csv").open(encoding="utf-8") as index:
        for entry in csv.DictReader(index):
            name = entry["file"]
            yield parse(shared / "mlperf" / name, name, rows[entry["source"]])


def of_manifest(shared: Path) -> Iterator[Parsed]:
    """Every log of which the MANIFEST has a line: batch, and whole seconds."""
    folder = shared / "pytorch/mlperf_logs"
    text = (folder / "MANIFEST.md").read_text(encoding="utf-8")
    names = ("batch", "init_s", "run_s", "n_marks")
    for name, *figures in _LINE.findall(text):
        yield parse(folder / name, name, dict(zip(names, figures, strict=True)))


def differs_from_manifest(log: Parsed) -> bool:
    """Whether a figure of the MANIFEST is another; it cuts seconds or rounds them."""
    known = [log.total("init", {None}), log.total("train", {None})]
    stated = [float(log.published[name]) for name in ("init_s", "run_s")]
    seconds = all(
        ours is not None and abs(ours - there) < 1
        for ours, there in zip(known, stated, strict=True)
    )
    marks = log.published["n_marks"]
    n_groups = sum(isinstance(record, Step) for record in log.records)
    # The MANIFEST leaves the first ten marks out.
    n_marks = not marks or n_groups == int(marks) + 10
    return not (seconds and n_marks and log.run.global_batch == int(log.published["batch"]))


def section(shared: Path, folder: Path) -> Section:
    """All lines."""
    begun = process_time()
    logs, more = list(of_table(shared)), list(of_manifest(shared))
    seconds = process_time() - begun
    lines = [
        Line(f"{column}, logs of {len(logs)} that differ", _n(logs, column), 0.0, unit="logs")
        for column in COLUMNS
    ]
    odd = sum(map(differs_from_manifest, more))
    lines.append(Line(f"MANIFEST, logs of {len(more)} that differ", odd, 0.0, unit="logs"))
    groups = sum(any(isinstance(r, Step) for r in log.records) for log in (*logs, *more))
    lines.append(Line("logs with groups of steps", groups, unit="logs"))
    flagged = sum("throughput_mismatch" in log.codes for log in (*logs, *more))
    lines.append(Line("logs whose stated throughput is flagged", flagged, unit="logs"))
    lines.append(Line("CPU time of all logs", seconds, unit="s"))
    return Section(TITLE, TEXT, lines)


def _n(logs: list[Parsed], column: str) -> int:
    return sum(log.differs(column) for log in logs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    shared = parser.parse_args().shared
    with tempfile.TemporaryDirectory() as folder:
        missed = list(run({"mlperf_logs": section}, shared, Path(folder)))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
