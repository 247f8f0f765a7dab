"""From paths to sources: which files there are, who reads them, which belong together."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fitkit.errors import FitkitError
from fitkit.ingestion.metadata import MAPPING, in_utc, read_side_files
from fitkit.ingestion.walking import find_files
from fitkit.parsers import (
    Parser,
    ProblemLog,
    Source,
    SourceFile,
    TableParser,
    identify,
    parser_named,
    read_mapping,
)
from fitkit.parsers.jobout import JobOutputParser

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """How to ingest.

    Attributes
    ----------
    format
        Read every file as this format instead of recognising it.
    metadata
        Columns of ``runs`` that the logs lack, and ``tz``, the zone of local time stamps. Wins
        over a side file ``run.toml``, which wins over the log.
    skip_bad_lines
        Count and report lines that cannot be read, instead of failing their source.
    mapping
        Read every file as a table, as this TOML file says.
    """

    format: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    skip_bad_lines: bool = False
    mapping: Path | str | None = None


@dataclass(frozen=True)
class SourceResult:
    """What became of one source, or of a file that belongs to none.

    Attributes
    ----------
    status
        ``ingested``, ``unchanged``, ``failed`` or ``unrecognised``.
    rows
        Rows stored, by table.
    error, hint
        Why it failed, and what to do.
    """

    path: str
    format: str | None
    status: str
    run_ids: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    n_diagnostics: int = 0
    error: str = ""
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """The result as in the JSON document of ``fitkit ingest``."""
        return asdict(self) | {"run_ids": list(self.run_ids), "rows": dict(self.rows)}


def discover(
    paths: Path | str | Sequence[Path | str], dataset: Path, options: Options
) -> tuple[list[tuple[SourceFile, Parser]], list[SourceResult]]:
    """Files below the paths that a parser reads, and what is to say of the others.

    Raises
    ------
    InputError
        If a path does not exist, or the mapping cannot be used.
    ValueError
        If there is no such format, or a mapping besides.
    """
    arguments = [paths] if isinstance(paths, str | Path) else list(paths)
    chosen = _chosen(options)
    files, problems = find_files(arguments, dataset, options.mapping)
    results = [
        unreadable(label, None, problem)
        if isinstance(problem, OSError)
        else SourceResult(label, None, "unrecognised", error=str(problem), hint=problem.hint)
        for label, problem in problems
    ]
    recognised = []
    for file in _without_twins(files):
        parser = _taken(file, chosen) if chosen else _recognise(file)
        if isinstance(parser, SourceResult):
            results.append(parser)
        else:
            recognised.append((file, parser))
    return recognised, results


def _chosen(options: Options) -> Parser | None:
    """The parser that reads every file, if the user said so."""
    if options.mapping is None:
        return parser_named(options.format) if options.format else None
    if options.format:
        raise ValueError("a format and a mapping: a mapping says itself how a table is to be read")
    return TableParser(read_mapping(options.mapping))


def _taken(file: SourceFile, parser: Parser) -> Parser | SourceResult:
    """The parser that the user named, unless nothing can be read: a .zip of several files.

    A mapping of lines reads what is inside the output of a job.
    """
    try:
        if isinstance(parser, TableParser) and parser.mapping.layout.patterns:
            envelope = JobOutputParser([parser])
            return envelope if envelope.recognises(file.head()) else parser
        file.head(1)
    except FitkitError as error:
        return SourceResult(file.label, parser.name, "failed", error=str(error), hint=error.hint)
    except OSError as error:
        return unreadable(file.label, parser.name, error)
    return parser


def _recognise(file: SourceFile) -> Parser | SourceResult:
    try:
        return identify(file)
    except FitkitError as error:
        return SourceResult(file.label, None, "unrecognised", error=str(error), hint=error.hint)
    except OSError as error:
        return unreadable(file.label, None, error)
    except Exception as error:  # noqa: BLE001 - a fault of ours: other files go on
        return crashed(file.label, None, error)


def _without_twins(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Leave out the compressed copy of a file that lies beside it."""
    twins: dict[tuple[Path, str], list[SourceFile]] = defaultdict(list)
    for file in files:
        twins[file.path.parent, file.name].append(file)
    dropped: set[Path] = set()
    for same in twins.values():
        first, *others = sorted(same, key=lambda file: len(file.path.name))
        dropped |= {file.path for file in others if _same_content(file, first)}
    return [file for file in files if file.path not in dropped]


def _same_content(one: SourceFile, other: SourceFile) -> bool:
    try:
        return one.digest() == other.digest()
    except (OSError, FitkitError):
        return False  # said when the file is read


def form_sources(
    files: Iterable[tuple[SourceFile, Parser]], options: Options
) -> tuple[list[tuple[Source, Parser]], list[SourceResult]]:
    """Families of files as sources, in the order of their labels, and what failed on the way."""
    by_parser: dict[str, tuple[Parser, list[SourceFile]]] = {}
    for file, parser in files:
        by_parser.setdefault(parser.name, (parser, []))[1].append(file)
    sources, results = [], []
    for parser, members in by_parser.values():
        families = _families(parser, members)
        if isinstance(families, Exception):
            results += [crashed(file.label, parser.name, families) for file in members]
            continue
        for family in families:
            source = _source(family, parser, options)
            if isinstance(source, SourceResult):
                results.append(source)
            else:
                sources.append((source, parser))
    return sorted(sources, key=lambda pair: (pair[0].label, pair[0].files[0].label)), results


def _families(
    parser: Parser, files: Sequence[SourceFile]
) -> list[tuple[SourceFile, ...]] | Exception:
    try:
        return parser.group(files)
    except Exception as error:  # noqa: BLE001 - a fault of ours: other formats go on
        return error


def _source(
    family: tuple[SourceFile, ...], parser: Parser, options: Options
) -> Source | SourceResult:
    label = family[0].label if len(family) == 1 else Path(family[0].label).parent.as_posix()
    if label == ".":  # the argument is the run's own folder
        label = family[0].path.resolve().parent.name
    try:
        metadata = {**read_side_files(family[0]), **in_utc(options.metadata)}
    except FitkitError as error:
        return SourceResult(label, parser.name, "failed", error=str(error), hint=error.hint)
    readers = [parser, *parser.inner] if isinstance(parser, JobOutputParser) else [parser]
    for reader in readers:
        if isinstance(reader, TableParser):
            metadata[MAPPING] = reader.mapping.sha256
    return Source(label, family, metadata, ProblemLog(options.skip_bad_lines))


def unreadable(label: str, name: str | None, error: OSError) -> SourceResult:
    """What is to say of a file that the system does not let us read."""
    return SourceResult(
        label, name, "failed", error=f"{label}: {error.strerror or error}",
        hint="check that the file can be read",
    )  # fmt: skip


def crashed(label: str, name: str | None, error: Exception) -> SourceResult:
    """What is to say of a file on which a parser fails in a way that it should not."""
    log.debug("reading %s", label, exc_info=error)
    who = f"the {name} parser" if name else "a parser"
    return SourceResult(
        label, name, "failed", error=f"{label}: {who} failed: {error!r}",
        hint="please report it with the file; -vv shows where, with --jobs 1",
    )  # fmt: skip
