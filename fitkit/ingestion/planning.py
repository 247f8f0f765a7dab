"""What is new: sources compared by content with what is stored, and with each other."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fitkit.dataset import Dataset
from fitkit.errors import FitkitError
from fitkit.ingestion.discovery import SourceResult, unreadable
from fitkit.ingestion.metadata import metadata_json, stored_metadata
from fitkit.parallel import parallel_map
from fitkit.parsers import Parser, Source, SourceFile

# Tables that a command prints anew each time, and that tell each time what became of their jobs.
DUMPS = ("sacct", "lsf", "swf")
# Formats whose logs are the same under any name: their jobs would be counted twice.
NAMELESS = (*DUMPS, "torque", "alps")
Member = tuple[str, str, int]  # name, SHA-256 and bytes of a file, decompressed


@dataclass(frozen=True)
class Task:
    """A source that is to be stored.

    Attributes
    ----------
    replaces
        Stored sources that it replaces.
    later
        Stored sources that may be a later state of it: no file of it is longer there, or it is
        a dump under the same path.
    earlier
        Stored dumps under the same path that it may be a later state of, with their metadata.
    """

    source: Source
    parser: Parser
    replaces: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    earlier: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Plan:
    """What to do with the sources.

    Attributes
    ----------
    tasks
        Sources to store.
    held
        The others, each with the identifier of the source that holds all of it: a stored one,
        or that of a task.
    """

    tasks: list[Task] = field(default_factory=list)
    held: list[tuple[Source, Parser, str]] = field(default_factory=list)


def hash_sources(
    sources: Sequence[tuple[Source, Parser]], n_jobs: int
) -> tuple[list[tuple[Source, Parser]], list[SourceResult]]:
    """Read every source once for its content hash; those that cannot be read have failed."""
    hashed, results = [], []
    found = parallel_map(_hash, sources, n_jobs)
    for source, (_, parser) in zip(found, sources, strict=True):
        if isinstance(source, SourceResult):
            results.append(source)
        else:
            hashed.append((source, parser))
    return hashed, results


def _hash(pair: tuple[Source, Parser]) -> Source | SourceResult:
    source, parser = pair
    try:
        _ = source.source_id  # computed once, kept with the source
    except FitkitError as error:  # a .zip of several files, for one
        return SourceResult(source.label, parser.name, "failed", error=str(error), hint=error.hint)
    except OSError as error:
        return unreadable(source.label, parser.name, error)
    return source


def make_plan(sources: Sequence[tuple[Source, Parser]], dataset: Dataset) -> Plan:
    """Decide by content which sources are new, and which are held by others.

    Of equal sources the first counts. A source whose files are all, as they are or longer,
    among those of another one is a part or an earlier state of it.
    """
    stored = {row["source_id"]: row for row in dataset.arrow("sources").to_pylist()}
    members = {key: _members(row) for key, row in stored.items()}
    holders, plan = _Holders(members), Plan()
    new: dict[str, tuple[Source, Parser]] = {}
    seen: set[str] = set()
    copies = {(row["format"], _content(members[key])): key for key, row in stored.items()}
    for source, parser in sources:
        key = source.source_id
        if parser.name in NAMELESS:
            same = copies.setdefault((parser.name, _content(source.digests)), key)
            if same != key and (same not in stored or _is_same(source, parser, stored[same])):
                plan.held.append((source, parser, same))
                continue
        row = stored.get(key)
        told = _with_told(source, [row] if row else [])
        holder = holders.of(source) if row is None else None
        if key in seen or (row is not None and _is_same(told, parser, row)):
            holder = key
        seen.add(key)
        if holder is None:
            new[key] = (told, parser)
        else:
            plan.held.append((source, parser, holder))
    files_of_new = {key: source.digests for key, (source, _) in new.items()}
    among_new, among_all = _Families(files_of_new), _Families(members | files_of_new)
    whole_of = {
        part: holder for source, _, holder in plan.held for part in among_new.parts_of(source)
    }
    for key, (source, parser) in new.items():
        parts = among_all.parts_of(source)
        whole_of |= dict.fromkeys(parts, key)
        replaced = tuple(part for part in parts if part in stored)
        told = _with_told(source, [stored[part] for part in replaced])
        later = () if replaced else _later_states(source, parser, stored, members)
        dumps = _dumps_of(source, parser, stored)
        earlier = {name: text for name, text in dumps.items() if name not in (key, *replaced)}
        later = tuple(dict.fromkeys([*later, *earlier]))
        plan.tasks.append(Task(told, parser, replaced, later, earlier))
    return _without_parts(plan, whole_of)


def _without_parts(plan: Plan, whole_of: Mapping[str, str]) -> Plan:
    """Only sources that no other one holds are stored."""

    def outermost(key: str) -> str:
        while key in whole_of:
            key = whole_of[key]
        return key

    held = [(source, parser, outermost(holder)) for source, parser, holder in plan.held]
    tasks = []
    for task in plan.tasks:
        key = task.source.source_id
        if key in whole_of:
            held.append((task.source, task.parser, outermost(key)))
        else:
            tasks.append(task)
    return Plan(tasks, held)


def _later_states(
    source: Source,
    parser: Parser,
    stored: Mapping[str, Mapping[str, Any]],
    members: Mapping[str, Sequence[Member]],
) -> tuple[str, ...]:
    def is_later(files: Sequence[Member]) -> bool:
        sizes = {name: n_bytes for name, _, n_bytes in files}
        return all(n_bytes <= sizes.get(name, -1) for name, _, n_bytes in source.digests)

    return tuple(
        key
        for key, files in members.items()
        if stored[key]["format"] == parser.name and key != source.source_id and is_later(files)
    )


def _dumps_of(
    source: Source, parser: Parser, stored: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Stored dumps under the path of the source, and their metadata."""
    path = unpacked(source.label)
    rows = stored.items() if parser.name in DUMPS else ()
    return {
        key: row["metadata"] for key, row in rows
        if row["path"] == path and row["format"] == parser.name
    }  # fmt: skip


def unpacked(label: str) -> str:
    """The same for a log and for its compressed copy."""
    return re.sub(r"\.(?:gz|zst|zip)$", "", label)


def _members(row: Mapping[str, Any]) -> tuple[Member, ...]:
    return tuple((name, sha, n_bytes) for name, sha, n_bytes in json.loads(row["files"]))


def _content(files: Iterable[Member]) -> tuple[str, ...]:
    """The same for the same content under other names."""
    return tuple(sorted(sha for _, sha, _ in files))


def _with_told(source: Source, rows: Iterable[Mapping[str, Any]]) -> Source:
    """The source with what was said of it, or of a part of it, unless it is said otherwise."""
    told: dict[str, Any] = {}
    for row in rows:
        told |= stored_metadata(row["metadata"])
    return source.with_metadata(told | dict(source.metadata)) if told else source


def _is_same(source: Source, parser: Parser, row: Mapping[str, Any]) -> bool:
    """Whether storing the source again would change nothing but by an older parser."""
    told = row["metadata"] == metadata_json(source.metadata) and row["format"] == parser.name
    return bool(told) and int(row["parser_version"]) >= parser.version


class _Holders:
    """Finds the stored source that holds all files of another one as they are."""

    def __init__(self, members: Mapping[str, Sequence[Member]]) -> None:
        self._with_file: dict[tuple[str, str], set[str]] = defaultdict(set)
        for key, files in members.items():
            for name, sha, _ in files:
                self._with_file[name, sha].add(key)

    def of(self, source: Source) -> str | None:
        sets = [self._with_file.get((name, sha), set()) for name, sha, _ in source.digests]
        return min(set.intersection(*sets), default=None)


class _Families:
    """Finds sources whose files are, as they are or longer, among those of another one."""

    def __init__(self, members: Mapping[str, Sequence[Member]]) -> None:
        self._by_names: dict[frozenset[str], dict[str, Sequence[Member]]] = defaultdict(dict)
        for key, files in members.items():
            self._by_names[frozenset(name for name, *_ in files)][key] = files

    def parts_of(self, source: Source) -> list[str]:
        own = frozenset(name for name, *_ in source.digests)
        candidates = {
            key: files
            for names, group in self._by_names.items()
            if names <= own
            for key, files in group.items()
            if key != source.source_id
        }
        if not candidates:
            return []
        present = set(source.digests) | set(_beginnings(source, candidates.values()))
        return [key for key, files in candidates.items() if present.issuperset(files)]


def _beginnings(source: Source, families: Iterable[Sequence[Member]]) -> Iterator[Member]:
    """Name, hash and length of every beginning of a file that is as long as one of a family."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for files in families:
        for name, _, n_bytes in files:
            sizes[name].add(n_bytes)
    for file in source.files:
        yield from _prefixes(file, sorted(sizes.get(file.name, ())))


def _prefixes(file: SourceFile, sizes: Sequence[int]) -> Iterator[Member]:
    sha, total, left = hashlib.sha256(), 0, list(reversed(sizes))
    with suppress(EOFError, OSError, FitkitError):  # said when it is parsed
        for block in file.blocks() if left else ():
            start = 0
            while left and left[-1] <= total + len(block):
                size = left.pop()
                sha.update(block[start : size - total])
                start = size - total
                yield file.name, sha.hexdigest(), size
            if not left:
                return
            sha.update(block[start:])
            total += len(block)
