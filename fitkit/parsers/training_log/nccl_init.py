"""What ``NCCL_DEBUG=INFO`` says at the start: how many ranks, and on which machines."""

from __future__ import annotations

import re

from fitkit.parsers.training_log.findings import Findings
from fitkit.parsers.training_log.prefixes import Line

_INIT = re.compile(
    r"(?P<host>[\w.-]{1,80}):\d{1,10}:\d{1,10} \[\d{1,4}\] NCCL INFO .{0,60}?comm 0x[0-9a-f]{1,16} "
    r"rank (?P<rank>\d{1,7}) nranks (?P<n>\d{1,7}) .{0,200}Init COMPLETE"
)


class NcclInit:
    """Reads the lines of all ranks; the largest communicator is that of the run."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._hosts: dict[int, dict[int, str]] = {}  # by size of the communicator, of each rank

    def read(self, line: Line) -> bool:
        """Read that a rank is initialised."""
        found = _INIT.search(line.raw) if "Init COMPLETE" in line.raw else None
        if found:
            self._hosts.setdefault(int(found["n"]), {})[int(found["rank"])] = found["host"]
        return found is not None

    def finish(self) -> None:
        """State ranks, and machines if every rank named its own."""
        if not self._hosts:
            return
        n = max(self._hosts)
        self._findings.state("world_size", n or None)
        if len(self._hosts[n]) == n:
            self._findings.state("n_nodes", len(set(self._hosts[n].values())))
