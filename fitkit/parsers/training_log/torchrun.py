"""Lifecycle of torchrun and its elastic agent: starts, restarts, failures, the end.

Read from the sources of torch 2.13 and from runs of our own with it; earlier versions write the
same messages behind other prefixes. The agent's messages below WARNING appear with
``LOGLEVEL=INFO`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fitkit.parsers.training_log.findings import Findings, Span
from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import Where

_MODULE = r"(?:run|launcher|elastic)(?:[./]\w{1,40}){0,6}"
MESSAGE = re.compile(
    # I1130 23:49:55.371000 31066 torch/distributed/run.py:992] text
    r"(?:^|\]:? ?)[DIWEC](?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d\.\d{6}) "
    rf"(?:\d{{1,10}} )?torch/distributed/{_MODULE}\.py:\d{{1,6}}\] ?(?P<text>.*)$"
    # [2023-05-01 10:00:00,123] torch.distributed.run: [WARNING] text
    r"|\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] "
    rf"torch\.distributed\.{_MODULE}: \[[A-Z]{{4,8}}\] ?(?P<dated>.*)$"
    # WARNING:torch.distributed.run:text
    rf"|(?:^|\]:? ?)[A-Z]{{4,8}}:torch\.distributed\.{_MODULE}:(?P<plain>.*)$"
)
ROOT_CAUSE = "Root Cause (first observed failure):"
_FIELD = re.compile(
    r"\s{1,8}(?P<name>time|host|rank|exitcode|error_file|traceback) {0,10}: (?P<value>.{0,200})"
)
_EXIT = re.compile(r"(?P<code>-?\d{1,9}) \(pid: \d{1,10}\)(?: {1,4}\((?P<signal>\w{1,20})\))?")
_FAILED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<rank>\d{1,7}) \(pid: \d{1,10}\)"
)
_OPTION = re.compile(
    r"\s{0,8}(?P<name>min_nodes|max_nodes|nproc_per_node|group_world_size|global_world_sizes|"
    r"restart_count) {0,20}[:=] ?\[?(?P<value>\d{1,7})\b"
)
_ELAPSED = re.compile(r"Done waiting for other agents\. Elapsed: (?P<s>\d{1,9}(?:\.\d{1,20})?) sec")
_YEAR = 2000  # a leap year: most stamps have none


@dataclass
class _Failure:
    """What a block of the root cause says."""

    where: Where
    time: str = ""
    host: str = ""
    rank: str = ""
    exitcode: str = ""


class Torchrun:
    """Reads the launcher's lines; one for a log, whichever process wrote them."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._options: dict[str, int] = {}
        self._waiting: datetime | None = None  # since when the workers are not yet started
        self._stopped: _Failure | None = None  # the last failure that a single line states
        self._blocks: list[_Failure] = []
        self._open = False
        self._seen = False
        self._deaths = 0

    def read(self, line: Line) -> bool:
        """Read a message of the launcher, or a line of its last words."""
        found = MESSAGE.search(line.text) if "distributed" in line.text else None
        if found:
            text = next(t for t in found.group("text", "dated", "plain") if t is not None)
            self._message(line.where, text, _instant(found))
            return True
        if line.text.strip() == ROOT_CAUSE:
            self._blocks.append(_Failure(line.where))
            self._open = True
            return True
        if self._open:
            return self._field(line)
        return self._seen and line.text.startswith("  ") and self._option(line.text)

    def _field(self, line: Line) -> bool:
        field = _FIELD.match(line.text)
        if field and field["name"] in ("time", "host", "rank", "exitcode"):
            setattr(self._blocks[-1], field["name"], field["value"].strip())
        if line.text.startswith("===="):
            self._open = False
        return field is not None

    def _message(self, where: Where, text: str, at: datetime | None) -> None:
        if not self._seen:
            self._seen, self._waiting = True, at
            if self._findings.started is None and at and at.year != _YEAR:
                self._findings.started = at
        for start, action in _ACTIONS.items():
            if start in text:
                action(self, where, at)
        if self._option(text):
            return
        if failed := _FAILED.search(text):
            rank = f"unknown (local_rank: {failed['rank']})"
            self._stopped = _Failure(where, rank=rank, exitcode=failed["code"])
        elif elapsed := _ELAPSED.search(text):
            self._findings.spans.append(Span("teardown", float(elapsed["s"])))

    def _option(self, text: str) -> bool:
        option = _OPTION.match(text)
        if option:
            self._options[option["name"]] = int(option["value"])
        return option is not None

    def _waits(self, where: Where, at: datetime | None) -> None:
        if self._waiting is None:
            self._waiting = at

    def _starts(self, where: Where, at: datetime | None) -> None:
        if at and self._waiting and timedelta(0) <= at - self._waiting:
            seconds = (at - self._waiting).total_seconds()
            self._findings.spans.append(Span("launch", seconds))
        self._waiting = None

    def _restarts(self, where: Where, at: datetime | None) -> None:
        text = "torchrun restarted the workers: its log holds several attempts"
        self._findings.counted.add("restarted", text, where)
        self._stopped = None

    def _succeeds(self, where: Where, at: datetime | None) -> None:
        self._findings.ended, self._stopped = True, None

    def _dies(self, where: Where, at: datetime | None) -> None:
        self._findings.ended = False
        self._findings.counted.add("terminated", "a signal ended the launcher", where)

    def finish(self) -> None:
        """State nodes, ranks and what failed."""
        options = self._options
        n_nodes = options.get("group_world_size")
        if n_nodes is None and options.get("min_nodes") == options.get("max_nodes"):
            n_nodes = options.get("min_nodes")
        world = options.get("global_world_sizes")
        if world is None and n_nodes and options.get("nproc_per_node"):
            world = n_nodes * options["nproc_per_node"]
        self._findings.state("n_nodes", n_nodes or None)
        self._findings.state("world_size", world or None)
        if self._blocks:
            self._findings.ended = False
        # A failure that only a line states may have been made good by a restart nobody logged.
        for failure in self._blocks or ([self._stopped] if self._stopped else []):
            self._findings.counted.add("failed_rank", _words(failure), failure.where)


_Action = Callable[[Torchrun, Where, datetime | None], None]
# What the agent says when something happens.
_ACTIONS: dict[str, _Action] = {
    "Rendezvous'ing worker group": Torchrun._waits,
    "Starting worker group": Torchrun._starts,
    "will restart worker group": Torchrun._restarts,
    "worker group successfully finished": Torchrun._succeeds,
    "death signal, shutting down workers": Torchrun._dies,
    "Got termination signal": Torchrun._dies,
}


def _instant(found: re.Match[str]) -> datetime | None:
    try:
        if found["stamp"]:
            return datetime.strptime(found["stamp"], "%Y-%m-%d %H:%M:%S,%f")
        if found["clock"]:
            text = f"{_YEAR}-{found['month']}-{found['day']} {found['clock']}"
            return datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f")
    except ValueError:  # the digits are no date
        pass
    return None


def _words(failure: _Failure) -> str:
    code = _EXIT.match(failure.exitcode)
    exit_code = code["code"] if code else failure.exitcode or "unknown"
    signal = f" ({code['signal']})" if code and code["signal"] else ""
    place = f" on {failure.host}" if failure.host else ""
    when = f" at {failure.time.replace('_', ' ')}" if failure.time else ""
    rank = failure.rank or "unknown"
    return f"rank {rank}{place} failed first: exit code {exit_code}{signal}{when}"
