"""From paths to sources: which files there are, who reads them, which belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fitkit.errors import FitkitError, InputError, ParseError
from fitkit.ingestion.metadata import SIDE_FILE, read_side_files
from fitkit.parsers import Parser, ProblemLog, Source, SourceFile, identify, parser_named


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
    """

    format: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    skip_bad_lines: bool = False


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
    """Files below the paths that a parser reads, and what is to say of the others."""
    arguments = [paths] if isinstance(paths, str | Path) else list(paths)
    found: dict[Path, SourceFile] = {}
    for argument in arguments:
        for file in _walk(argument, dataset):
            key = file.path.resolve()
            # A file reached in two ways keeps the longer label, whatever the order of the paths.
            if key not in found or _preference(file) > _preference(found[key]):
                found[key] = file
    recognised, results = [], []
    for file in sorted(found.values(), key=lambda f: f.label):
        try:
            parser = parser_named(options.format) if options.format else identify(file)
        except FitkitError as error:
            results.append(
                SourceResult(file.label, None, "unrecognised", error=str(error), hint=error.hint)
            )
        except OSError as error:
            results.append(unreadable(file.label, None, error))
        else:
            recognised.append((file, parser))
    return recognised, results


def _preference(file: SourceFile) -> tuple[int, str]:
    return len(file.label), file.label


def _walk(argument: Path | str, dataset: Path) -> list[SourceFile]:
    path = Path(argument)
    if path.is_dir():
        files = [SourceFile(p, str(p.relative_to(path))) for p in _tree(path, dataset.resolve())]
        if not files:
            raise InputError(f"{path}: a folder without files", "name a folder that holds logs")
        return files
    if path.is_file():
        return [SourceFile(path, path.name)]
    if any(mark in str(argument) for mark in "*?["):
        root = Path(path.anchor) if path.is_absolute() else Path()
        matches = sorted(root.glob(str(path.relative_to(path.anchor))))
        if matches:
            # Below a pattern, labels keep the part that the pattern stands for.
            return [
                replace(
                    file, label=str(Path(match.name) / file.label) if match.is_dir() else file.label
                )
                for match in matches
                for file in _walk(match, dataset)
            ]
    raise InputError(f"{argument}: no such file or folder", "check the path")


def _tree(folder: Path, dataset: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.resolve() == dataset:
            continue
        if path.is_dir():
            yield from _tree(path, dataset)
        elif path.is_file() and path.name != SIDE_FILE:
            yield path


def form_sources(
    files: Iterable[tuple[SourceFile, Parser]], options: Options
) -> tuple[list[tuple[Source, Parser]], list[SourceResult]]:
    """Families of files as sources, in the order of their labels, and what failed on the way."""
    by_parser: dict[str, tuple[Parser, list[SourceFile]]] = {}
    for file, parser in files:
        by_parser.setdefault(parser.name, (parser, []))[1].append(file)
    sources, results = [], []
    for parser, members in by_parser.values():
        for family in parser.group(members):
            label = family[0].label if len(family) == 1 else str(Path(family[0].label).parent)
            try:
                metadata = {**read_side_files(family[0]), **options.metadata}
            except ParseError as error:
                results.append(
                    SourceResult(label, parser.name, "failed", error=str(error), hint=error.hint)
                )
                continue
            problems = ProblemLog(options.skip_bad_lines)
            sources.append((Source(label, family, metadata, problems), parser))
    return sorted(sources, key=lambda pair: pair[0].label), results


def unreadable(label: str, name: str | None, error: OSError) -> SourceResult:
    """What is to say of a file that the system does not let us read."""
    return SourceResult(
        label, name, "failed", error=f"{label}: {error.strerror or error}",
        hint="check that the file can be read",
    )  # fmt: skip
