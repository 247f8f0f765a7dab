"""Tables of nccl-tests and rccl-tests: times of one collective over sizes.

A file can hold several tests; each is a run, with two rows of ``comms`` for each size: out of
place and in place. ``n_bytes`` is the size that the table states, by which the tools compute
``algbw = size / time`` and ``busbw = algbw * factor``. The factor follows from the collective and
the ranks (nccl-tests, ``doc/PERFORMANCE.md``): it checks a table, or tells what no header does.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.parsers.training_log.quantities import LARGEST, TIME, rounding
from fitkit.parsers.values import TOLERANCE, disagree
from fitkit.records import Comm, Record, Run

# Name of the program without _perf, our name, what busbw is by algbw without the ranks' share.
_OPS = {
    "all_reduce": ("all_reduce", 2.0), "all_gather": ("all_gather", 1.0),
    "reduce_scatter": ("reduce_scatter", 1.0), "alltoall": ("all_to_all", 1.0),
    "alltoallv": ("all_to_all", 1.0), "gather": ("gather", 1.0), "scatter": ("scatter", 1.0),
    "broadcast": ("broadcast", None), "reduce": ("reduce", None), "sendrecv": ("send_recv", None),
}  # fmt: skip
_SHARES = dict(_OPS.values())  # of the ranks: share * (n - 1) / n; None: 1 for any number of them
_WORDS = "|".join(sorted(_OPS, key=len, reverse=True))
_PROGRAM = re.compile(rf"(?<![a-z_])({_WORDS})_perf\b(?!:)")
_FILE = re.compile(rf"(?<![a-z])({_WORDS})(?![a-z])")
_LINE = re.compile(
    r"\s{0,8}(?:(?P<label>\[\d{1,7},\d{1,7}\]<std(?:out|err)>|\d{1,7}(?=: )):)?(?P<text>.*)$"
)
_HEADER = re.compile(r"\s{0,8}# ?nThread:? \d{1,6} nGpus:? \d{1,6} ")
_COLUMNS = re.compile(
    r"\s{0,8}#\s{1,40}size\s{1,40}count\s{1,40}type\s.{0,60}\balgbw\s{1,20}busbw\s"
)
_START = re.compile(r"\s{0,8}# ?Collective test starting: (?P<program>\w{1,60})")
_VERSION = re.compile(r"\s{0,8}# ?(?P<tool>[nr]ccl-tests) version (?P<version>[\w.]{1,40})")
_RANK = re.compile(
    r"\s{0,8}#\s{1,20}Rank\s{1,10}(?P<rank>\d{1,7})\s{1,10}(?:Group\s{1,10}\d{1,7}\s{1,10})?"
    r"Pid\s{1,10}\d{1,10} on\s{1,40}(?P<host>\S{1,200}) device\s{1,10}(?P<index>\d{1,7}) "
    r"\[[0-9a-fA-Fx:.]{1,30}\]\s{1,10}(?P<name>\S.{0,200}?)\s*$"
)
_END = re.compile(r"\s{0,8}# ?(?:Avg bus bandwidth|Collective test concluded)")
_UNITS = re.compile(r"\s{0,8}#\s{1,80}\(B\)\s{1,40}\(elements\).{0,80}?\((?P<time>us|ms|s)\)")
_LIKE_ROW = re.compile(r"\s{0,40}\d{1,40}\s{1,40}\d{1,40}\s{1,40}\S")
_WHOLE = re.compile(r"\d{1,18}")
_NUMBER = re.compile(TIME)
_REDUCTION = re.compile(r"sum|prod|max|min|avg|mulsum|none|all")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_PRECISIONS = {
    "float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16",
    "int8": "int8", "uint8": "uint8", "int32": "int32", "uint32": "uint32", "int64": "int64",
    "uint64": "uint64", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True)
class _Measurement:
    """One of the two halves of a row; bandwidths in GB/s as printed."""

    line: int
    n_bytes: int
    seconds: float
    relative_error: float  # of the time, by its rounding
    algbw: str
    busbw: str


@dataclass
class _Test:
    """One table and its header."""

    file: SourceFile
    program: str | None = None
    tool: str = "nccl-tests"
    version: str | None = None
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    unit: float = _SECONDS["us"]
    has_cpu_times: bool = False
    n_imprecise: int = 0
    is_mixed: bool = False  # whether it may hold rows of several processes
    kinds: set[str] = field(default_factory=set)
    reductions: set[str] = field(default_factory=set)
    has_root: bool = False
    has_header: bool = False
    rows: list[_Measurement] = field(default_factory=list)
    n_wrong: int = 0
    ended: bool = False

    @property
    def is_new(self) -> bool:
        """Whether only what precedes a header was read of it."""
        return not (self.rows or self.devices or self.ended)

    @property
    def has_begun(self) -> bool:
        """Whether any line of it is one of a table."""
        return not self.is_new or self.has_header or bool(self.program or self.version)

    @property
    def is_open(self) -> bool:
        """Whether it began, and has neither a row nor an end."""
        return bool(self.devices) and not (self.rows or self.ended)


class NcclTestsParser:
    """Tables of ``all_reduce_perf`` and its siblings."""

    name = "nccl_tests"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it has the header of such a table."""
        if b"nThread" not in head and b"busbw" not in head:
            return False
        lines = head.decode("utf-8", "replace").splitlines()
        return any(
            _HEADER.match(text) or _COLUMNS.match(text)
            for text in (_text(line)[1] for line in lines if "#" in line[:60])
        )

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file for itself."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield a run and its collectives for each test.

        Raises
        ------
        ParseError
            If a row cannot be read, or nothing tells which collective a table is of.
        """
        found = [test for file in source.files for test in _read(source, file)]
        if not any(test.has_begun for test in found):
            raise ParseError(
                source.files[0].label, 0, "no line of a table of nccl-tests",
                "without --format the content tells which format it is",
            )  # fmt: skip
        tests = [test for test in found if test.rows]
        if not tests:
            source.problems.note(source.files[0], None, "no_times", "no row of a table")
        for index, test in enumerate(tests):
            suffix = f"-{index}" if len(tests) > 1 else ""
            yield from _records(source, test, source.run_id + suffix)


def _text(line: str) -> tuple[str, str]:
    """Label of the process that a launcher put before a line, and the line without it."""
    found = _LINE.match(line)
    return (found["label"] or "", found["text"]) if found else ("", line)


def _read(source: Source, file: SourceFile) -> list[_Test]:
    """Tests of a file, in the order in which they begin."""
    tests: list[_Test] = []
    current: dict[str, _Test] = {}  # of each process that prints
    for number, line in source.lines(file):
        label, text = _text(line)
        test = current.get(label)
        if test is None or (_begins(text) and not test.is_new):
            has_begun = test is not None and test.is_open
            test = current[label] = _Test(file, is_mixed=has_begun)
            tests.append(test)
        try:
            if not _LIKE_ROW.match(text):
                _read_header(test, text)
            elif source.problems.may_be_cut(file, number):
                raise ValueError("what is there may not be all")
            else:
                _read_row(source, test, number, text)
        except ValueError:
            source.problems.bad_line(file, number, line)
    return tests


def _begins(text: str) -> bool:
    return bool(_HEADER.match(text) or _START.match(text) or _VERSION.match(text) or
                (_PROGRAM.search(text) and not text.lstrip().startswith("#")))  # fmt: skip


def _read_header(test: _Test, text: str) -> None:
    if found := _RANK.match(text):
        test.is_mixed |= int(found["rank"]) in test.devices
        test.hosts[int(found["rank"])] = found["host"]
        test.devices[int(found["rank"])] = found["name"]
    elif version := _VERSION.match(text):
        test.tool, test.version = version["tool"], version["version"]
    elif _COLUMNS.match(text) or _HEADER.match(text):
        test.has_header = True
        test.has_cpu_times |= "cputime" in text.split()
    elif units := _UNITS.match(text):
        test.unit = _SECONDS[units["time"]]
    elif _END.match(text):
        test.ended = True
    elif program := _PROGRAM.search(text):
        test.program = program[1]


def _read_row(source: Source, test: _Test, number: int, text: str) -> None:
    """Read ``size count type [redop] [root]`` and one or two times with their bandwidths.

    Raises
    ------
    ValueError
        If it is no such row.
    """
    size, count, kind, *rest = text.split()
    if not _WHOLE.fullmatch(size) or not _WHOLE.fullmatch(count) or kind not in _PRECISIONS:
        raise ValueError("not a row")
    reduction = rest.pop(0) if rest and _REDUCTION.fullmatch(rest[0]) else "none"
    root = int(rest.pop(0)) if len(rest) in (5, 9) else -1
    if len(rest) not in (4, 8):
        raise ValueError("not as many columns as a row has")
    halves = [_half(test, number, int(size), rest[i : i + 4]) for i in range(0, len(rest), 4)]
    test.kinds.add(kind)
    test.reductions.add(reduction)
    test.has_root |= root >= 0
    test.n_wrong += sum(bool(re.fullmatch(r"0*[1-9]\d{0,17}", rest[i])) for i in (3, len(rest) - 1))
    for half in halves:
        if half and not half.seconds > 0:
            source.problems.note(test.file, number, "bad_value", "a collective that took no time")
        elif half:
            test.rows.append(half)


def _half(test: _Test, number: int, size: int, words: Sequence[str]) -> _Measurement | None:
    """None for a test that does not run in place."""
    *figures, _ = words
    if all(figure == "N/A" for figure in figures):
        return None
    if not all(_NUMBER.fullmatch(figure) for figure in figures):
        raise ValueError("not a number")
    time, algbw, busbw = figures
    if test.has_cpu_times:  # how long the launch took: the bandwidth still is that of the transfer
        rate, error = float(algbw), rounding(algbw)
        if error > TOLERANCE * rate:
            test.n_imprecise += 1
            return None
        return _Measurement(number, size, size / (rate * 1e9), error / rate, algbw, busbw)
    error = rounding(time) / float(time) if float(time) > 0 else math.inf
    return _Measurement(number, size, float(time) * test.unit, error, algbw, busbw)


# -- what a table says about itself ------------------------------------------------------------


def _factor(op: str, n_ranks: int) -> float:
    """What busbw is by algbw."""
    share = _SHARES[op]
    return 1.0 if share is None else share * (n_ranks - 1) / n_ranks


def _contradictions(test: _Test, factor: float) -> list[_Measurement]:
    """Measurements whose busbw is not that factor of algbw, by more than rounding and 5 %."""
    return [
        row for row in test.rows
        if abs(float(row.busbw) - factor * float(row.algbw))
        > rounding(row.busbw) + factor * rounding(row.algbw)
        and disagree(float(row.busbw), factor * float(row.algbw))
    ]  # fmt: skip


def _op(test: _Test, n_ranks: int | None) -> str:
    """The collective: as the program is called, by the file's name, or by the columns.

    Raises
    ------
    ParseError
        If nothing tells.
    """
    named = test.program or next(iter(_FILE.findall(test.file.name)), None)
    if named:
        return _OPS[named][0]
    if test.reductions != {"none"}:
        if test.has_root:
            return "reduce"
        told = [
            op for op in ("all_reduce", "reduce_scatter")
            if n_ranks and n_ranks > 1 and not _contradictions(test, _factor(op, n_ranks))
        ]  # fmt: skip
        if len(told) == 1:
            return told[0]
    raise ParseError(
        test.file.label, test.rows[0].line, "nothing tells which collective this table is of",
        "name the file after the program, e.g. all_reduce_perf.txt",
    )  # fmt: skip


def _ranks(test: _Test, op: str) -> int | None:
    """The only number of ranks by which every busbw follows from its algbw."""
    share = _SHARES[op]
    if share is None:
        return None
    low, high = 1.0, math.inf
    for row in test.rows:
        algbw, busbw = float(row.algbw), float(row.busbw)
        # The tools compute from the time as measured; who copied a table, from it as printed.
        errors = rounding(row.algbw) + row.relative_error * algbw, rounding(row.busbw)
        if algbw > errors[0]:
            low = max(low, _ranks_of((busbw - errors[1]) / (algbw + errors[0]) / share))
            high = min(high, _ranks_of((busbw + errors[1]) / (algbw - errors[0]) / share))
    if not low <= high + 1e-6 < LARGEST:
        return None
    whole = math.ceil(low - 1e-6)
    return whole if whole == math.floor(high + 1e-6) else None


def _ranks_of(ratio: float) -> float:
    """Solve ``ratio = (n - 1) / n``."""
    return 1.0 / (1.0 - ratio) if ratio < 1.0 else math.inf


def _records(source: Source, test: _Test, run_id: str) -> Iterator[Record]:
    logged = len(test.devices) or None
    stated = source.metadata.get("n_workers") or logged
    op = _op(test, stated)
    run = source.complete(_run(source, test, run_id, logged or _ranks(test, op)))
    _check(source, test, op, run.n_workers, is_stated=stated is not None)
    topology = None if run.n_nodes is None else "inter" if run.n_nodes > 1 else "intra"
    yield run
    for row in test.rows:
        yield Comm(
            run_id, 0, op, row.seconds, run.n_workers, run.n_nodes, row.n_bytes, topology=topology
        )


def _run(source: Source, test: _Test, run_id: str, n_ranks: int | None) -> Run:
    names = Counter(test.devices.values())
    on_host = Counter(test.hosts.values()).values()
    if len(names) > 1:
        text = f"different devices: {', '.join(sorted(names))}"
        source.problems.note(test.file, None, "mixed_devices", text)
    return Run(
        run_id=run_id,
        source_id=source.source_id,
        framework=test.tool,
        framework_version=test.version,
        device=next(iter(names)) if len(names) == 1 else None,
        n_nodes=len(on_host) or None,
        n_devices=len(test.devices) or None,
        n_workers=n_ranks,
        n_effective_workers=source.metadata.get("n_workers") or n_ranks,
        precision=_PRECISIONS[next(iter(test.kinds))] if len(test.kinds) == 1 else None,
        state="completed" if test.ended else "incomplete",
        placement="".join(map(str, on_host)) if on_host and max(on_host) < 10 else None,
    )


def _check(source: Source, test: _Test, op: str, n_ranks: int | None, is_stated: bool) -> None:
    note, rows = source.problems.note, len(test.rows)
    if n_ranks is None:
        note(test.file, None, "ranks_unknown", "no header and no factor tells the ranks")
    elif not is_stated:
        text = f"no header: {n_ranks} ranks follow from busbw / algbw"
        note(test.file, None, "ranks_inferred", text)
    elif odd := _contradictions(test, _factor(op, n_ranks)):
        text = f"busbw of {len(odd)} of {rows} times is not that of {op} on {n_ranks} ranks"
        note(test.file, odd[0].line, "busbw_mismatch", text)
    wrong = [
        row for row in test.rows
        if disagree(row.n_bytes / row.seconds / 1e9, float(row.algbw))
        and abs(row.n_bytes / row.seconds / 1e9 - float(row.algbw)) > rounding(row.algbw)
    ]  # fmt: skip
    if wrong:
        text = f"algbw of {len(wrong)} of {rows} times is not size over time"
        note(test.file, wrong[0].line, "algbw_mismatch", text)
    _note_oddities(source, test)
    if test.n_wrong:
        note(test.file, None, "wrong_results", f"{test.n_wrong} times came with wrong results")
    if not test.ended:
        note(test.file, None, "incomplete", "the table has no closing line")


def _note_oddities(source: Source, test: _Test) -> None:
    """Note what the rows of a table are not: times, of one type, of one process."""
    note = source.problems.note
    if test.has_cpu_times:
        text = (
            "the column states the CPU's time for the launch (-C): durations are size / algbw; "
            f"{test.n_imprecise} are left out whose algbw is rounded to less than 5 %"
        )
        note(test.file, None, "cpu_times", text)
    if len(test.kinds) > 1:
        text = f"one table of several types, no precision is that of the run: {sorted(test.kinds)}"
        note(test.file, None, "mixed_precisions", text)
    if test.is_mixed:
        text = (
            "one table began inside another, or names a rank twice: rows of several processes may "
            "stand in one run"
        )
        note(test.file, test.rows[0].line, "interleaved_tables", text)
