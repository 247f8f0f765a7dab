"""What ``fitkit record`` tells the processes that it leads to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

LOGS = "recorder_rank*.jsonl"
_VARIABLE = "FITKIT_RECORD"
_BOOTSTRAP = Path(__file__).parent / "bootstrap"


@dataclass(frozen=True)
class Setting:
    """Where the logs go, and what a log cannot know.

    Attributes
    ----------
    folder
        Absolute path: programs change their working directory.
    first
        Number of the first run in the folder that is free.
    network
        Name of the network; None: that of its class.
    local_batch
        Samples a step and worker; None: what the network is called with.
    """

    folder: str
    first: int = 1
    network: str | None = None
    local_batch: int | None = None

    @classmethod
    def read(cls) -> Setting | None:
        """That of the environment of this process; None if there is none."""
        text = os.environ.get(_VARIABLE)
        return cls(**json.loads(text)) if text else None

    def environment(self) -> Mapping[str, str]:
        """The environment of this process, and what switches the recorder on in every Python."""
        path = [str(_BOOTSTRAP), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(path), _VARIABLE: json.dumps(asdict(self))}
        return {**os.environ, **own}

    def folders(self) -> Iterator[Path]:
        """Where the log of a rank may go, the first choice first: one folder is one run."""
        return (run_folder(Path(self.folder), number) for number in count(self.first))


def run_folder(folder: Path, number: int) -> Path:
    """The folder of a run; the second one in the same place lies below the first."""
    return folder if number == 1 else folder / f"run{number}"


def first_free(folder: Path) -> int:
    """Number of the first run that has no log there yet."""
    return next(n for n in count(1) if not any(run_folder(folder, n).glob(LOGS)))
