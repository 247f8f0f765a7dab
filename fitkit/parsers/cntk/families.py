"""Which files of a folder are one run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fitkit.parsers.cntk.lines import ranks_of_names
from fitkit.parsers.source import SourceFile, group_by_folder

_STEM = re.compile(r"^(?P<stem>.*?)\.?(?:log)?rank_?\d{1,6}(?P<end>\.\w+)?$")
# A log that tells of training by itself, not only of how a run was launched.
_TRAINING = re.compile(
    rb"Minibatch\[ *-?\d+- *\d+|Finished Epoch ?\[|configparameters: |=== Running |"
    rb"CNTKCommandTrainBegin: |command \(train action\)"
)


def group_files(files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Split files into the families that are one run each.

    A folder is one run, unless its logs are those of several: rank files of different names, or
    several logs that each tell of a training. What belongs to no log of them (profiler files, the
    output of the launcher) then is a family of its own.
    """
    families: list[tuple[SourceFile, ...]] = []
    for folder in group_by_folder(files):
        families += _split(folder)
    return families


def _split(folder: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    ranks = ranks_of_names([file.name for file in folder])
    logs: dict[str, list[SourceFile]] = {}
    others: list[SourceFile] = []
    for file in folder:
        if file.name in ranks:
            logs.setdefault(_stem(file.name), []).append(file)
        elif _TRAINING.search(file.head()):
            logs.setdefault(file.name + "\0", []).append(file)
        else:
            others.append(file)
    if len(logs) < 2:
        return [tuple(folder)]
    return [*map(tuple, logs.values()), *([tuple(others)] if others else [])]


def _stem(name: str) -> str:
    found = _STEM.match(name)
    return found["stem"] if found else name
