"""Logs → dataset: find the files, form the sources, parse and store each, once.

A source is stored whole or not at all. Content alone decides what is new: the same bytes change
nothing, a source whose files have grown replaces what it was, and neither the order of the paths
nor the number of processes shows in the tables.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from fitkit.dataset import Dataset
from fitkit.errors import FitkitError, InputError
from fitkit.ingestion.discovery import (
    Options,
    SourceResult,
    discover,
    form_sources,
    unreadable,
)
from fitkit.ingestion.metadata import check_metadata
from fitkit.parallel import parallel_map
from fitkit.parsers import Parser, Source
from fitkit.records import TABLE_OF, Diagnostic, Run, SourceRow

__all__ = ["Options", "SourceResult", "check_metadata", "ingest", "ingest_each", "nothing_found"]

log = logging.getLogger(__name__)
_FIXED = {"run_id", "source_id", "job_id"}


@dataclass(frozen=True)
class _Task:
    """A source that is to be stored, and the stored sources that it replaces."""

    source: Source
    parser: Parser
    replaces: tuple[str, ...] = ()


def ingest(
    paths: Path | str | Sequence[Path | str],
    dataset: Dataset | Path | str,
    *,
    options: Options | None = None,
    n_jobs: int = 1,
) -> Dataset:
    """Read logs into a dataset.

    Parameters
    ----------
    paths
        Files, folders and glob patterns.
    dataset
        The dataset, or its folder.
    n_jobs
        Processes; the tables do not depend on it.

    Raises
    ------
    InputError
        If a path does not exist, or nothing at all could be ingested from the paths.
    ParseError
        If a source cannot be read. The other sources are in the dataset all the same.

    Examples
    --------
    >>> ds = fitkit.ingest("logs/", "runs-parquet")  # doctest: +SKIP
    """
    store = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    results = list(ingest_each(paths, store, options=options, n_jobs=n_jobs))
    failed = [result for result in results if result.status == "failed"]
    if failed:
        more = f" (and {len(failed) - 1} more sources)" if len(failed) > 1 else ""
        raise InputError(failed[0].error + more, failed[0].hint)
    if all(result.status == "unrecognised" for result in results):
        raise InputError(*nothing_found(results))
    return store


def nothing_found(results: Sequence[SourceResult]) -> tuple[str, str]:
    """Message and hint for paths from which nothing could be ingested."""
    if len(results) == 1:
        return results[0].error, results[0].hint
    known = results[0].hint if results else ""
    return f"no logs of a known format among {len(results)} files", known


def ingest_each(
    paths: Path | str | Sequence[Path | str],
    dataset: Dataset,
    *,
    options: Options | None = None,
    n_jobs: int = 1,
    dry_run: bool = False,
) -> Iterator[SourceResult]:
    """Ingest and yield what became of each source as it is done.

    Takes the arguments of `ingest`; with ``dry_run`` sources are parsed and nothing is stored.

    Raises
    ------
    InputError
        If a path does not exist, or another process is writing to the dataset.
    """
    options = options or Options()
    check_metadata(options.metadata)
    files, results = discover(paths, dataset.path, options)
    yield from results
    sources, results = form_sources(files, options)
    yield from results
    if dry_run:
        yield from parallel_map(partial(_store, None), [_Task(s, p) for s, p in sources], n_jobs)
        return
    with dataset.writing():
        tasks, results = _plan(sources, dataset, n_jobs)
        yield from results
        stored = parallel_map(partial(_store, dataset.path), tasks, n_jobs)
        for task, result in zip(tasks, stored, strict=True):
            if result.status == "ingested":
                for source_id in task.replaces:
                    dataset.remove(source_id)
            yield result


# -- what is new ---------------------------------------------------------------------------


def _plan(
    sources: Sequence[tuple[Source, Parser]], dataset: Dataset, n_jobs: int
) -> tuple[list[_Task], list[SourceResult]]:
    """Decide by content which sources are new, unchanged, or grown from stored ones."""
    stored = {row["source_id"]: row for row in dataset.arrow("sources").to_pylist()}
    tasks: dict[str, _Task] = {}
    results = []
    run_ids = _run_ids(dataset)
    hashed = parallel_map(_hash, [source for source, _ in sources], n_jobs)
    for source, (_, parser) in zip(hashed, sources, strict=True):
        if isinstance(source, SourceResult):
            results.append(replace(source, format=parser.name))
        elif source.source_id in tasks or _is_stored(source, parser, stored):
            ids = run_ids.get(source.source_id, ())
            results.append(SourceResult(source.label, parser.name, "unchanged", tuple(ids)))
        else:
            tasks[source.source_id] = _Task(source, parser)
    for task in tasks.values():
        older = [key for key, row in stored.items() if _has_grown(row, task.source)]
        tasks[task.source.source_id] = replace(task, replaces=tuple(older))
    return list(tasks.values()), results


def _run_ids(dataset: Dataset) -> dict[str, list[str]]:
    run_ids: dict[str, list[str]] = {}
    for row in dataset.arrow("runs", ["source_id", "run_id"]).to_pylist():
        run_ids.setdefault(row["source_id"], []).append(row["run_id"])
    return run_ids


def _hash(source: Source) -> Source | SourceResult:
    try:
        _ = source.source_id  # computed once, kept with the source
    except OSError as error:
        return unreadable(source.label, None, error)
    return source


def _is_stored(source: Source, parser: Parser, stored: Mapping[str, Mapping[str, Any]]) -> bool:
    row = stored.get(source.source_id)
    if row is not None:
        same = bool(row["metadata"] == _metadata_json(source))
        return same and int(row["parser_version"]) >= parser.version
    members = {(name, sha) for name, sha, _ in source.digests}
    return any(members < _members(row) for row in stored.values())


def _members(row: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(name, sha) for name, sha, _ in json.loads(row["files"])}


def _has_grown(row: Mapping[str, Any], source: Source) -> bool:
    """Whether every file of a stored source is, as it was or longer, among those of this one."""
    if row["source_id"] == source.source_id:
        return False
    now = {name: (sha, n_bytes) for name, sha, n_bytes in source.digests}
    files = {file.name: file for file in source.files}
    for name, sha, n_bytes in json.loads(row["files"]):
        if name not in now or now[name][1] < n_bytes:
            return False
        if now[name][0] != sha and files[name].digest(n_bytes)[0] != sha:
            return False
    return True


# -- storing -------------------------------------------------------------------------------


def _store(dataset: Path | None, task: _Task) -> SourceResult:
    source, parser = task.source, task.parser
    try:
        records = list(parser.parse(source))
    except FitkitError as error:
        return SourceResult(source.label, parser.name, "failed", error=str(error), hint=error.hint)
    except OSError as error:
        return unreadable(source.label, parser.name, error)
    except Exception as error:  # a fault of ours must not take other sources along
        log.debug("parsing %s", source.label, exc_info=True)
        return SourceResult(
            source.label, parser.name, "failed",
            error=f"{source.label}: the {parser.name} parser failed: {error!r}",
            hint="please report it with the file; -v shows where",
        )  # fmt: skip
    notes = source.problems.records(source.source_id)
    if dataset is None:
        rows: Mapping[str, int] = Counter(TABLE_OF[type(r)] for r in (*records, *notes))
    else:
        rows = Dataset(dataset).write(_row(task, notes), [*records, *notes])
    run_ids = tuple(record.run_id for record in records if isinstance(record, Run))
    return SourceResult(source.label, parser.name, "ingested", run_ids, rows, len(notes))


def _row(task: _Task, notes: Sequence[Diagnostic]) -> SourceRow:
    source = task.source
    return SourceRow(
        source_id=source.source_id,
        path=source.label,
        format=task.parser.name,
        parser_version=task.parser.version,
        n_bytes=sum(n_bytes for _, _, n_bytes in source.digests),
        n_diagnostics=len(notes),
        files=json.dumps(source.digests),
        metadata=_metadata_json(source),
    )


def _metadata_json(source: Source) -> str:
    def text(value: Any) -> str:
        if isinstance(value, date):
            return value.isoformat()
        raise TypeError(type(value).__name__)

    return json.dumps(dict(source.metadata), sort_keys=True, default=text)
