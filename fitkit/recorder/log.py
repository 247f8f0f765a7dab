"""The recorder's log: one JSON object a line, each on disk before the next step begins."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from fitkit.records import PHASES

FORMAT = "fitkit-recorder"
VERSION = 1


class LogWriter:
    """Writes the log of one rank.

    Parameters
    ----------
    folder
        Where the log goes; made if it is not there.
    rank
        The process, counted from 0.

    Raises
    ------
    FileExistsError
        If the folder holds a log of that rank already.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"recorder_rank{rank}.jsonl"
        self._process = os.getpid()
        try:
            self._file = self.path.open("xb")
        except FileExistsError as error:
            raise FileExistsError(
                f"{self.path} is the log of an earlier run: give each run a folder of its own"
            ) from error

    def begin(
        self, found: dict[str, Any], said: dict[str, Any], layers: list[dict[str, Any]]
    ) -> None:
        """Write the first lines; what the user said wins over what was found."""
        meta = {**found, **{key: value for key, value in said.items() if value is not None}}
        meta.update(clocks(), machine=machine(), phases=PHASES)
        first = {"format": FORMAT, "version": VERSION}  # the first words tell the format
        known = {key: value for key, value in meta.items() if value is not None}
        self.write("meta", {**first, **known})
        self.write("layers", {"layers": layers})

    def write(self, kind: str, record: dict[str, Any]) -> None:
        """Write one line; it is out of this process when the call returns.

        A process that was forked from this one writes nothing.
        """
        if os.getpid() != self._process:
            return
        line = json.dumps({"kind": kind, **record}, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def discard(self) -> None:
        """Close the file and remove it: nothing is recorded after all."""
        self._file.close()
        self.path.unlink()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def clocks() -> dict[str, int]:
    """One instant on the clock of the stamps and on that of the calendar, in nanoseconds."""
    return {"epoch_ns": time.time_ns(), "perf_ns": time.perf_counter_ns()}


def machine() -> str:
    """Tells this machine from others without naming it."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]
