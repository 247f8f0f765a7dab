"""Reading of PyTorch traces: whole, exact, fast, and in little memory.

  python benchmarks/traces.py totals [--shared FOLDER]
  python benchmarks/traces.py speed [--shared FOLDER] [--hta-python PATH] [--repeats N]
  python benchmarks/traces.py scale TARGET MEGABYTES [--source TRACE] [--shared FOLDER]

``totals`` compares counts and sums of every public trace with those that the json module finds.
``speed`` ingests a trace of 300 MB and one of 1.2 GB, each in a process of its own, and lets
Holistic Trace Analysis (HTA) parse the smaller one. HTA needs an environment of its own:

  python -m venv hta-env && hta-env/bin/pip install HolisticTraceAnalysis==0.5.0

Its interpreter is named by option or in the environment (FITKIT_HTA_PYTHON); without it the
comparison is left out. This file is also what the processes run (``--worker NAME``).
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from textwrap import indent
from time import process_time
from typing import Any, NamedTuple

SOURCE = "pytorch/public_traces/tracelens__mi300__resnet_act_checkpoint.json.gz"
IDS = ("External id", "Ev Idx", "Python id", "Python parent id", "correlation", "Sequence number")
STEP = "ProfilerStep#"
MB = 1_000_000
SIZES = {"300 MB": 300, "1.2 GB": 1200}
LEAST_MB_PER_S, MOST_MB, LEAST_TIMES = 100.0, 300.0, 5.0
TOTALS_TEXT = """
Counts and sums over all events of the public traces as fitkit reads them. They differ where the
json module finds other ones; what is no trace of events is refused.
"""
SPEED_TEXT = """
A real trace of a ResNet on 8 MI300X, copied behind itself with new ids and shifted times in the
text layout of torch 2.13. `fitkit.ingest` hashes, reads and analyses it and writes the tables; HTA
0.5.0 parses it into one frame, with its default backend. Megabytes of the file for each CPU second
of the call, everything being imported and the file in memory; the most of {repeats}. Memory is the
peak of the whole process, interpreter included.
"""


# -- a trace of any size ---------------------------------------------------------------------


class Slot(NamedTuple):
    """What changes from copy to copy: its value in the first one, and by how much."""

    value: int
    shift: int
    is_time: bool = False

    def text(self, number: int) -> str:
        """Its text in a copy, counted from 0; times are nanoseconds, written as microseconds."""
        value = self.value + number * self.shift
        return f"{value // 1000}.{value % 1000:03d}" if self.is_time else str(value)


class Copies:
    """Text of the events of a trace in the layout of torch 2.13, with slots.

    Parameters
    ----------
    events
        As json reads them.
    """

    def __init__(self, events: list[dict[str, Any]]) -> None:
        spans = [one for one in events if one["ph"] == "X" and isinstance(one["tid"], int)]
        ends = [nanoseconds(one["ts"] + one["dur"]) for one in spans]
        begin = min(nanoseconds(one["ts"]) for one in spans)
        args = [one["args"] for one in events if "args" in one]
        self._shifts = {key: 1 + max(one.get(key) or 0 for one in args) for key in IDS}
        self._shifts["id"] = 1 + max(one.get("id", 0) for one in events)
        self._shifts["ts"] = max(ends) - begin + MB  # a millisecond between two copies
        self._n_steps = len({one["name"] for one in events if one["name"].startswith(STEP)})
        self._slots: list[Slot] = []
        texts = [self._object(one, "  ") for one in events if one["ph"] != "M"]
        self._template = ",".join(f"\n{text}" for text in texts)
        # Names of threads are told once.
        names = [json.dumps(one, indent=2) for one in events if one["ph"] == "M"]
        self.names = "".join(",\n" + indent(text, "  ") for text in names)

    def text(self, number: int) -> str:
        """Text of a copy, counted from 0."""
        return self._template % tuple(slot.text(number) for slot in self._slots)

    def _object(self, content: dict[str, Any], margin: str) -> str:
        pairs = []
        for key, value in content.items():
            written = (
                self._object(value, f"{margin}  ") if key == "args" else self._value(key, value)
            )
            pairs.append(f"{margin}  {escaped(key)}: {written.lstrip()}")
        return f"{margin}{{\n" + ",\n".join(pairs) + f"\n{margin}}}"

    def _value(self, key: str, value: Any) -> str:
        if key == "ts":
            return self._slot(Slot(nanoseconds(value), self._shifts[key], is_time=True))
        if key in self._shifts and isinstance(value, int) and value > 0:
            return self._slot(Slot(value, self._shifts[key]))
        if key == "name" and value.startswith(STEP):
            number = int(value.removeprefix(STEP))
            return f'"{STEP}{self._slot(Slot(number, self._n_steps))}"'
        return escaped(value)

    def _slot(self, slot: Slot) -> str:
        self._slots.append(slot)
        return "%s"


def nanoseconds(stamp: float) -> int:
    return round(stamp * 1000)


def escaped(value: Any) -> str:
    return json.dumps(value).replace("%", "%%")


def scale(source: Path, target: Path, n_bytes: int) -> None:
    """Write a trace of about so many bytes from copies of a real one."""
    document = read_trace(source)
    copies = Copies(document.pop("traceEvents"))
    name = json.dumps(document.pop("traceName", target.name))
    with target.open("w", encoding="utf-8") as file:
        pairs = [f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in document.items()]
        file.write("{\n" + "".join(pairs) + '  "traceEvents": [')
        number = 0
        while not number or file.tell() < n_bytes:
            file.write("," * bool(number) + copies.text(number))
            number += 1
        file.write(f'{copies.names}\n  ],\n  "traceName": {name}\n}}\n')


def read_trace(path: Path, **how: Any) -> dict[str, Any]:
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content, **how)


# -- counts and sums -------------------------------------------------------------------------


def found_by_json(path: Path) -> tuple[int, ...]:
    """Events, complete events, sums of their nanoseconds and of the external ids of all."""
    events = read_trace(path, parse_float=Decimal)["traceEvents"]
    spans = [one for one in events if one["ph"] == "X"]
    ids = (
        args.get(key, 0)
        for args in (one.get("args") or {} for one in events)
        for key in ("External id", "external id")  # the second is the word of 2021
    )
    return len(events), len(spans), sum(round(one["dur"] * 1000) for one in spans), sum(ids)


def totals(shared: Path) -> bool:
    """Print counts and sums of every public trace; whether all are as the json module finds."""
    from lines import table

    from fitkit.errors import ParseError
    from fitkit.parsers.kineto.reader import TraceReader
    from fitkit.parsers.source import Source, SourceFile

    rows, agree = [], True
    for path in sorted((shared / SOURCE).parent.glob("*.json.gz")):
        file = SourceFile(path, path.name)
        reader = TraceReader(Source(path.name, (file,)), file)
        try:
            n_rows = sum(len(batch) for batch in reader.batches())
        except ParseError as error:
            is_refused = "traceEvents" not in read_trace(path)
            rows.append([path.name, *[""] * 5, "refused" if is_refused else f"**{error}**"])
            agree &= is_refused
            continue
        ours, other = tuple(reader.totals[:4]), found_by_json(path)
        agree &= ours == other
        verdict = "yes" if ours == other else f"**no**: {other}"
        rows.append([path.name, *(f"{figure:,}" for figure in (*ours, n_rows)), verdict])
    print(f"## Totals of traces\n\n{TOTALS_TEXT.strip()}\n")
    columns = ["trace", "events", "with a duration", "ns", "external ids", "kept", "as json"]
    table(columns, rows)
    return agree


# -- speed and memory ------------------------------------------------------------------------


class Cost(NamedTuple):
    """CPU seconds of a call, peak of the memory of its process in MB, and what came of it."""

    cpu_s: float
    peak_mb: float
    n_rows: int


def cost(python: str, worker: str, path: Path, repeats: int) -> Cost:
    """Cost of reading a trace in a process of its own; the least of each figure."""
    words = [python, "-I", __file__, "--worker", worker, str(path)]
    found = []
    for _ in range(repeats):
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise RuntimeError(f"{worker} failed: {answer.stderr.strip()[-2000:]}")
        found.append(Cost(*json.loads(answer.stdout.splitlines()[-1])))
    return Cost(min(one.cpu_s for one in found), max(one.peak_mb for one in found), found[0].n_rows)


def speed(shared: Path, hta_python: str | None, repeats: int) -> bool:
    """Print speed and memory at both sizes; whether all bars are kept."""
    from lines import Line, Section, show
    from rivals import interpreter

    rival = interpreter("hta", hta_python)
    speeds, peaks, compared = [], [], []
    for name, n_mb in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scaled.pt.trace.json"
            scale(shared / SOURCE, path, n_mb * MB)
            size = path.stat().st_size / MB
            ours = cost(sys.executable, "fitkit", path, repeats)
            theirs = None
            if rival and n_mb == min(SIZES.values()):
                theirs = cost(rival, "hta", path, 1)
        others = {"HTA": size / theirs.cpu_s} if theirs else {}
        rate = size / ours.cpu_s
        # The larger one tells whether speed depends on size; it has no bar of its own.
        least = LEAST_MB_PER_S if n_mb == min(SIZES.values()) else None
        speeds.append(Line(f"speed, {name}", rate, others=others, unit="MB/s", least=least))
        memory = {"HTA": theirs.peak_mb} if theirs else {}
        peaks.append(Line(f"memory, {name}", ours.peak_mb, MOST_MB, memory, unit="MB"))
        if theirs:
            times = theirs.cpu_s / ours.cpu_s
            compared.append(Line("times as fast as HTA", times, unit="1", least=LEAST_TIMES))
    lines = [*speeds, *compared, *peaks]
    show(Section("Speed of traces", SPEED_TEXT.format(repeats=repeats), lines))
    return not any(line.misses() for line in lines)


def work(worker: str, path: Path) -> None:
    """Read a trace in this process and print what it cost."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what is printed on the way is no answer
    call = {"fitkit": fitkit_call, "hta": hta_call}[worker](path)
    start = process_time()
    n_rows = call()
    print(json.dumps([process_time() - start, peak_mb(), n_rows]), file=answers)


def fitkit_call(path: Path) -> Callable[[], int]:
    """Ingesting a trace; something small was ingested before, so that all is imported."""
    import fitkit

    folder = tempfile.TemporaryDirectory(prefix="fitkit-", dir=path.parent)
    small = Path(folder.name) / "small.json"
    event = {
        "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.5,
        "args": {"External id": 1},
    }  # fmt: skip
    step = event | {"cat": "user_annotation", "name": "ProfilerStep#1", "dur": 5.0}
    small.write_text(json.dumps({"traceEvents": [event, step]}), encoding="utf-8")
    fitkit.ingest(small, Path(folder.name) / "before")

    def call() -> int:
        stored = fitkit.ingest(path, Path(folder.name) / "tables")
        n_rows = sum(stored.counts().values())
        folder.cleanup()
        return n_rows

    return call


def hta_call(path: Path) -> Callable[[], int]:
    import logging

    from hta.common import trace_parser
    from hta.configs.parser_config import ParserConfig

    logging.disable(logging.CRITICAL)
    config = ParserConfig.get_default_cfg()
    return lambda: len(trace_parser.parse_trace_dataframe(str(path), config)[1])


def peak_mb() -> float:
    """Most resident memory that this process had, in MB.

    The figure of ``getrusage`` may be that of the process that started this one.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / MB
    raise RuntimeError("the system does not say how much memory was resident")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "TRACE"), help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb")
    for verb in ("totals", "speed", "scale"):
        verbs.add_parser(verb).add_argument("--shared", type=Path, default=Path("../shared"))
    verbs.choices["speed"].add_argument("--hta-python")
    verbs.choices["speed"].add_argument("--repeats", type=int, default=3)
    verbs.choices["scale"].add_argument("target", type=Path)
    verbs.choices["scale"].add_argument("megabytes", type=int)
    verbs.choices["scale"].add_argument("--source", type=Path)
    given = parser.parse_args()
    if given.worker:
        work(given.worker[0], Path(given.worker[1]))
        return
    if given.verb == "scale":
        scale(given.source or given.shared / SOURCE, given.target, given.megabytes * MB)
        return
    if given.verb == "totals":
        sys.exit(not totals(given.shared))
    if given.verb == "speed":
        sys.exit(not speed(given.shared, given.hta_python, given.repeats))
    parser.print_help()


if __name__ == "__main__":
    main()
