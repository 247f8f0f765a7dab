"""Logs → dataset: find the files, form the sources, parse and store each, once.

A source is stored whole or not at all. Content alone decides what is new: the same bytes change
nothing, a source whose files have grown replaces what it was, and neither the order of the paths
nor the number of processes shows in the tables.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from fitkit.dataset import Dataset
from fitkit.errors import FitkitError, InputError, SchemaError
from fitkit.ingestion.discovery import (
    Options,
    SourceResult,
    crashed,
    discover,
    form_sources,
    unreadable,
)
from fitkit.ingestion.job_ids import with_job_ids
from fitkit.ingestion.metadata import check_metadata, metadata_json, read_setting
from fitkit.ingestion.planning import Plan, Task, hash_sources, make_plan, unpacked
from fitkit.ingestion.snapshots import as_later_dump, says_nothing_new
from fitkit.linking import find_links
from fitkit.parallel import parallel_map
from fitkit.records import TABLE_OF, Record, Run, SourceRow
from fitkit.schema import each_record

__all__ = [
    "Options",
    "SourceResult",
    "ingest",
    "ingest_each",
    "nothing_found",
    "read_setting",
]


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
        If a path does not exist, if nothing at all could be ingested from the paths, or if a
        source cannot be read. The other sources are in the dataset all the same.

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
    sources, results = hash_sources(sources, n_jobs)
    yield from results
    if not sources:
        return
    if dry_run:
        yield from _carry_out(make_plan(sources, dataset), dataset, None, n_jobs)
        return
    with dataset.writing():
        yield from _carry_out(make_plan(sources, dataset), dataset, dataset.path, n_jobs)
        dataset.rewrite("links", find_links(dataset))


def _carry_out(
    plan: Plan, dataset: Dataset, folder: Path | None, n_jobs: int
) -> Iterator[SourceResult]:
    done: dict[str, SourceResult] = {}
    stored = set(dataset.source_ids())
    run_ids = _run_ids(dataset) if plan.held else {}
    results = parallel_map(partial(_store, folder), plan.tasks, n_jobs)
    for task, result in zip(plan.tasks, results, strict=True):
        done[task.source.source_id] = result
        yield result
    for source, parser, holder in plan.held:
        whole = done.get(holder)
        if whole is None or (whole.status == "failed" and source.source_id in stored):
            ids = run_ids.get(holder if whole is None else source.source_id, ())
            yield SourceResult(source.label, parser.name, "unchanged", tuple(ids))
        elif whole.status == "failed":
            error = f"{source.label}: the same as {whole.path} or a part of it, which failed"
            yield SourceResult(source.label, parser.name, "failed", error=error, hint=whole.hint)
        else:
            yield SourceResult(source.label, parser.name, "unchanged", whole.run_ids)


def _run_ids(dataset: Dataset) -> dict[str, list[str]]:
    run_ids: dict[str, list[str]] = {}
    for row in dataset.arrow("runs", ["source_id", "run_id"]).to_pylist():
        run_ids.setdefault(row["source_id"], []).append(row["run_id"])
    return run_ids


# -- storing -------------------------------------------------------------------------------


def _store(folder: Path | None, task: Task) -> SourceResult:
    source, name = task.source, task.parser.name
    if folder is not None and task.later and says_nothing_new(task, Dataset(folder)):
        return SourceResult(source.label, name, "unchanged")
    if folder is not None and task.earlier:
        task = as_later_dump(task, Dataset(folder))
    run_ids: list[str] = []
    records = _records(task, run_ids)
    rows: Mapping[str, int]
    try:
        if folder is None:
            rows = Counter(TABLE_OF[type(record)] for record in each_record(records))
        else:
            rows = Dataset(folder).write(_row(task), records, task.replaces)
    except _Unread as failure:
        return failure.result
    except (SchemaError, KeyError, AttributeError) as error:  # no records, or not of their types
        return crashed(source.label, name, error)
    n_notes = rows.get("diagnostics", 0)
    return SourceResult(source.label, name, "ingested", tuple(run_ids), rows, n_notes)


class _Unread(Exception):  # noqa: N818 - not an error of its own: it carries a result
    """A parser failed, as the result says."""

    def __init__(self, result: SourceResult) -> None:
        super().__init__(result.error)
        self.result = result


def _records(task: Task, run_ids: list[str]) -> Iterator[Record | pa.Table]:
    """Yield the records of a source as its parser does, then its diagnostics; note its runs."""
    source, name = task.source, task.parser.name
    is_empty = True  # but for a run of which nothing is told
    try:
        for record in with_job_ids(task.parser.parse(source), source):
            if isinstance(record, Run):
                run_ids.append(record.run_id)
            else:
                is_empty = False
            yield record
        if is_empty and not any(task.parser.recognises(file.head()) for file in source.files):
            raise InputError(
                f"{source.label}: nothing in it is of the format {name}",
                "leave --format out: the format is told by the content",
            )
    except FitkitError as error:
        result = SourceResult(source.label, name, "failed", error=str(error), hint=error.hint)
        raise _Unread(result) from error
    except OSError as error:
        raise _Unread(unreadable(source.label, name, error)) from error
    except Exception as error:  # a fault of ours: other sources go on
        raise _Unread(crashed(source.label, name, error)) from error
    for note in source.problems.records(source.source_id):
        yield replace(note, path=unpacked(note.path))


def _row(task: Task) -> SourceRow:
    source = task.source
    return SourceRow(
        source_id=source.source_id,
        path=unpacked(source.label),
        format=task.parser.name,
        parser_version=task.parser.version,
        n_bytes=sum(n_bytes for _, _, n_bytes in source.digests),
        n_diagnostics=0,  # known when all is read
        files=json.dumps(source.digests),
        metadata=metadata_json(source.metadata),
    )
