"""fitkit ingest."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from fitkit.cli import BAD_INPUT, FAILED_CHECK, PARTIAL, complain
from fitkit.cli.options import (
    common,
    key_value,
    one_line,
    print_json,
    print_result,
    say,
    warn,
)
from fitkit.dataset import Dataset
from fitkit.display import Summary, Table
from fitkit.ingestion import Options, SourceResult, ingest_each, nothing_found, read_setting

_SHOWN = 5


@click.command(
    epilog="Example: fitkit ingest logs/ 'more/*.log.gz' -d runs-parquet --set device=A100"
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-d", "--dataset", required=True, help="Folder of the dataset; made if missing.")
@click.option("--format", "format_", metavar="NAME", help="Read every file as this format.")
@click.option(
    "--mapping",
    metavar="FILE|NAME",
    help="Read every file as a table (CSV, Parquet, JSON), as this file says, or a mapping that "
    "comes with fitkit: acme, helios, philly, pai, ...",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="What the logs lack, e.g. device=A100 or n_workers=8; wins over run.toml.",
)
@click.option("--tz", metavar="ZONE", help="Zone of local time stamps, e.g. America/Chicago.")
@click.option(
    "--keep-names/--hash-names",
    default=None,
    help="Names of people, groups, accounts and jobs as they are, or hashed, which is the default.",
)
@click.option(
    "--on-bad-lines",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Fail the source, or count the line and go on.",
)
@click.option("--strict", is_flag=True, help="Exit 1 if anything was noted or not recognised.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes; -1: all cores.")
@click.option("--dry-run", is_flag=True, help="Parse and report, store nothing.")
@common
def command(
    paths: tuple[str, ...],
    dataset: str,
    format_: str | None,
    mapping: str | None,
    settings: tuple[str, ...],
    tz: str | None,
    keep_names: bool | None,
    on_bad_lines: str,
    strict: bool,
    jobs: int,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Read logs into a dataset of Parquet tables.

    PATH is a file, a folder, a glob pattern, or - for standard input; .gz, .zst and a .zip of one
    file are read as they are. The format is recognised from the content. The same bytes again
    change nothing.

    Any table becomes a dataset with a mapping of its columns (docs/formats/tables.md shows one):
    fitkit ingest times.csv --mapping times.toml -d runs-parquet
    """
    metadata = {key: read_setting(key, value) for key, value in map(key_value, settings)}
    if tz:
        metadata["tz"] = read_setting("tz", tz)
    if keep_names is not None:
        metadata["keep_names"] = keep_names
    options = Options(format_, metadata, on_bad_lines == "skip", mapping)
    started = perf_counter()
    with tempfile.TemporaryDirectory() as spool:
        found = [_stdin(Path(spool)) if path == "-" else path for path in dict.fromkeys(paths)]
        results = list(
            _progress(
                ingest_each(found, Dataset(dataset), options=options, n_jobs=jobs, dry_run=dry_run),
                quiet,
            )
        )
    elapsed = perf_counter() - started
    if as_json:
        print_json(_document(dataset, results, elapsed))
    else:
        print_result(_summary(dataset, results, elapsed, dry_run))
    _report_problems(results, quiet)
    return _status(results, paths, strict)


def _stdin(spool: Path) -> str:
    path = spool / "stdin"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


def _progress(results: Iterable[SourceResult], quiet: bool) -> Iterator[SourceResult]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield from results
        return
    # No markup: file names may hold brackets.
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("finding files", total=None)
        for number, result in enumerate(results, 1):
            bar.update(task, description=f"{number} done, last {one_line(result.path)}")
            yield result


def _rows(results: list[SourceResult]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for result in results:
        rows.update(result.rows)
    return dict(rows)


def _document(dataset: str, results: list[SourceResult], elapsed: float) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "sources": [result.to_json() for result in results],
        "rows": _rows(results),
        "elapsed_s": elapsed,
    }


def _summary(
    dataset: str, results: list[SourceResult], elapsed: float, dry_run: bool
) -> Summary:  # fmt: skip
    formats = sorted({result.format or "" for result in results} - {""})
    states = ("ingested", "unchanged", "failed")
    rows = []
    for name in formats:
        of_format = [result for result in results if result.format == name]
        counts = Counter(result.status for result in of_format)
        notes = sum(result.n_diagnostics for result in of_format)
        n_rows = sum(_rows(of_format).values())
        rows.append((name, *(str(counts[s]) for s in states), f"{n_rows:,}", str(notes)))
    where = "Read, nothing stored (dry run)," if dry_run else f"Ingested into {dataset}"
    by_table = tuple((table, f"{n:,}") for table, n in _rows(results).items())
    tables = (
        Table(("format", *states, "rows", "notes"), tuple(rows), "Sources"),
        Table(("table", "rows"), by_table),
    )
    return Summary(f"{where} in {elapsed:.1f} s", tables=[t for t in tables if t.rows])


def _report_problems(results: list[SourceResult], quiet: bool) -> None:
    for result in results:
        if result.status == "failed":
            complain(result.error, result.hint, 0)
    strangers = [result for result in results if result.status == "unrecognised"]
    if len(results) == 1:
        strangers = []  # said by the exit status
    warn((r.error for r in strangers[:_SHOWN]), quiet)
    more = f"{len(strangers) - _SHOWN} more files are no logs of a known format; "
    for hint, _ in Counter(result.hint for result in strangers).most_common():
        say(f"  {more if len(strangers) > _SHOWN else ''}{hint}", quiet)
        more = ""
    notes = sum(result.n_diagnostics for result in results)
    if notes:
        text = "1 note" if notes == 1 else f"{notes} notes"
        say(f"{text} on what is odd in the logs: fitkit show DATASET diagnostics", quiet)


def _status(results: list[SourceResult], paths: tuple[str, ...], strict: bool) -> int:
    stored = any(result.status in ("ingested", "unchanged") for result in results)
    failed = any(result.status == "failed" for result in results)
    named = {"stdin" if path == "-" else Path(path).name for path in paths}
    strangers = [result for result in results if result.status == "unrecognised"]
    if not stored:
        if not failed:
            complain(*nothing_found(results), 0)
        return BAD_INPUT
    if failed or any(result.path in named for result in strangers):
        return PARTIAL
    odd = strangers or any(result.n_diagnostics for result in results)
    return FAILED_CHECK if strict and odd else 0
