"""fitkit show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
import pandas as pd

from fitkit.cli.options import common, print_json, print_result, say, where
from fitkit.conditions import parse_condition
from fitkit.dataset import Dataset
from fitkit.diagnosis import (
    device_shares,
    job_phase_summary,
    job_phases,
    layer_shares,
    phase_shares,
)
from fitkit.display import Summary, Table, format_quantity, format_share
from fitkit.errors import InputError
from fitkit.records import TABLES
from fitkit.schema import unit

_TOP = 6
_WIDTH = 150  # characters that a line of a terminal may take
_AS_COLUMNS = 4


@click.command(epilog="Example: fitkit show runs-parquet steps --where 'rank == 0' --limit 5")
@click.argument("dataset")
@click.argument("table", required=False, metavar="[TABLE]", type=click.Choice(list(TABLES)))
@where
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Rows to show; 0: all.",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all matching rows of TABLE as CSV.",
)
@common
def command(
    dataset: str,
    table: str | None,
    where: str | None,
    limit: int,
    csv: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what is in a dataset: formats, runs, where the time goes; or the head of a TABLE."""
    store = Dataset(dataset)
    if not store.exists:
        raise InputError(f"{dataset}: no dataset here", "fitkit ingest LOGS -d DATASET makes one")
    if table is None:
        if where or csv:
            raise click.UsageError("--where and --csv need a TABLE")
        overview = _overview(store)
        if as_json:
            print_json(overview)
        else:
            print_result(_overview_summary(store, overview))
        return
    frame = store.read(table)
    if where:
        frame = frame[parse_condition(where).mask(frame)]
    if csv:
        csv.write_text(frame.to_csv(index=False), encoding="utf-8")
        say(f"{len(frame)} rows written to {csv}", quiet)
    if as_json or not csv:
        _show_rows(frame.head(limit) if limit else frame, len(frame), table, as_json)


def _show_rows(rows: pd.DataFrame, total: int, table: str, as_json: bool) -> None:
    if as_json:
        print_json({"table": table, "n_rows": total, "rows": records(rows)})
        return
    known = rows.dropna(axis="columns", how="all")
    hidden = [name for name in rows.columns if name not in known.columns]
    notes = ["null in all these rows: " + ", ".join(hidden)]
    print_result(
        Summary(
            f"{table}: {len(rows)} of {total} rows",
            tables=_row_tables(known),
            notes=notes if hidden and len(rows) else [],
        )
    )


def _row_tables(known: pd.DataFrame) -> list[Table]:
    """The rows as lines if they fit; else a few as columns, or many in blocks of columns."""
    names = [str(name) for name in known.columns]
    lines = [
        tuple(_cell(value, name) for name, value in zip(names, row, strict=True))
        for row in known.itertuples(index=False)
    ]
    widths = [max(map(len, column)) + 2 for column in zip(names, *lines, strict=True)]
    if sum(widths) > _WIDTH and 0 < len(lines) <= _AS_COLUMNS:
        numbers = tuple(f"row {k}" for k in range(1, len(lines) + 1))
        fields = tuple(zip(names, *lines, strict=True))
        return [Table(("column", *numbers), fields, n_labels=1 + len(lines))]
    blocks, width = [[0]] if names else [], 0
    for k, size in enumerate(widths):
        width += size
        if width > _WIDTH and blocks[-1] != [0]:
            # The first column, which names the row, leads every block.
            blocks.append([0])
            width = widths[0] + size
        if k:
            blocks[-1].append(k)
    return [
        Table(
            tuple(names[k] for k in block),
            tuple(tuple(line[k] for k in block) for line in lines),
            n_labels=len(block),
        )
        for block in blocks
    ]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON values: null for missing, ISO text for instants, integers where they are."""
    return [
        {str(key): _json(value) for key, value in row.items()} for row in frame.to_dict("records")
    ]


def _json(value: Any) -> Any:
    if value is None or value is pd.NaT or value != value:
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value if math.isfinite(value) else None
    return value


def _cell(value: Any, name: str) -> str:
    value = _json(value)
    if value is None:
        return ""
    if unit(name) == "s" and not isinstance(value, str):
        return format_quantity(float(value), "s")
    if name.endswith("_id") and len(str(value)) > 24:
        return str(value)[:16]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _overview(store: Dataset) -> dict[str, Any]:
    sources, diagnostics = store.read("sources"), store.read("diagnostics")
    runs, jobs = store.read("runs"), store.read("jobs")
    formats = sources.groupby("format").agg(
        sources=("source_id", "size"), n_bytes=("n_bytes", "sum")
    )
    keys = ["framework", "network", "n_workers", "instrument"]
    found = runs.groupby(keys, dropna=False, sort=True)
    setups = [
        {
            **dict(zip(keys, map(_json, key), strict=True)),
            "runs": len(part),
            "local_batches": sorted({_json(v) for v in part.local_batch.dropna()}),
            "incomplete": int((part.state == "incomplete").sum()),
        }
        for key, part in found
    ]
    instants = pd.concat([runs.started_at, jobs.submitted_at, jobs.ended_at]).dropna()
    return {
        "dataset": str(store.path),
        "rows": store.counts(),
        "formats": records(formats.reset_index()),
        "span": [_json(instants.min()), _json(instants.max())] if len(instants) else None,
        "runs": setups,
        "diagnostics": {str(k): int(v) for k, v in diagnostics.code.value_counts().items()},
        "phases": records(phase_shares(store)),
        "device": records(device_shares(store)),
        "layers": records(layer_shares(store)),
        "jobs": records(job_phase_summary(job_phases(store))),
    }


def _overview_summary(store: Dataset, overview: dict[str, Any]) -> Summary:
    facts = {
        "tables": ", ".join(f"{name} {n:,}" for name, n in overview["rows"].items() if n),
        "formats": ", ".join(f"{f['format']} {f['sources']} sources" for f in overview["formats"]),
    }
    if overview["span"]:
        facts["dated"] = " to ".join(overview["span"])
    if overview["diagnostics"]:
        codes = overview["diagnostics"].items()
        facts["diagnostics"] = ", ".join(f"{code} {n}" for code, n in codes)
    tables = [_run_table(overview["runs"])]
    where = "Where the time of a median step goes"
    tables.append(_phase_table(overview["phases"], where))
    tables.append(_phase_table(overview["device"], "What devices did in a median step"))
    tables.append(_layer_table(overview["layers"]))
    tables.append(_job_table(overview["jobs"]))
    return Summary(f"Dataset {store.path}", facts, [table for table in tables if table.rows])


def _run_table(setups: list[dict[str, Any]]) -> Table:
    rows = tuple(
        (
            str(s["framework"] or "?"), str(s["network"] or "?"), str(s["n_workers"] or "?"),
            str(s["instrument"] or "?"), ", ".join(f"{b:g}" for b in s["local_batches"]),
            str(s["runs"]), str(s["incomplete"] or ""),
        )
        for s in setups
    )  # fmt: skip
    names = (
        "framework",
        "network",
        "workers",
        "instrument",
        "batch a worker",
        "runs",
        "incomplete",
    )
    return Table(names, rows, "Runs", 5)


def _job_table(phases: list[dict[str, Any]]) -> Table:
    rows = tuple(
        (
            p["phase"], str(p["n_jobs"]), format_quantity(p["median_s"], "s"),
            format_share(p["share"]), str(p["n_negative"] or ""),
        )
        for p in phases
    )  # fmt: skip
    names = ("phase", "attempts", "median", "share of all", "negative")
    return Table(names, rows, "Where the time of jobs goes", 1)


def _ends(shares: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the smallest and of the largest batch of each network and number of workers.

    Without instruments if it was measured so: an instrument costs time of its own.
    """
    frame = pd.DataFrame(shares)
    if frame.empty:
        return []
    kin = ["framework", "network", "network_params", "n_workers"]
    plain = frame.instrument.eq("none").groupby([frame[k] for k in kin], dropna=False)
    frame = frame[frame.instrument.eq("none") | ~plain.transform("any")]
    batches = frame.groupby(kin, dropna=False).local_batch
    ends = batches.transform("min").eq(frame.local_batch) | batches.transform("max").eq(
        frame.local_batch
    )
    return records(frame[ends | frame.local_batch.isna()])


def _phase_table(shares: list[dict[str, Any]], title: str) -> Table:
    shown = _ends(shares)
    phases = list(dict.fromkeys(row["phase"] for row in shown))
    labels = list(dict.fromkeys(row["label"] for row in shown))
    found = {(row["label"], row["phase"]): row for row in shown}
    rows = []
    for label in labels:
        steps = sum(row["duration_s"] for row in shown if row["label"] == label)
        cells = [found.get((label, phase)) for phase in phases]
        texts = (format_share(cell["share"]) if cell else "" for cell in cells)
        rows.append((label, format_quantity(steps, "s"), *texts))
    title = f"{title}, smallest and largest batch (all: --json)"
    return Table(("set-up", "step", *phases), tuple(rows), title)


def _layer_table(shares: list[dict[str, Any]]) -> Table:
    """The layers that cost most, of the slowest set-up of each network."""
    frame = pd.DataFrame(shares)
    rows: list[tuple[str, ...]] = []
    for _, of_network in frame.groupby(["framework", "network"], dropna=False) if shares else ():
        slowest = of_network.groupby("label").duration_s.sum().idxmax()
        chosen = of_network[of_network.label == slowest]
        rows += [
            (
                row["label"], row["layer"], row["layer_type"], row["phase"],
                format_quantity(row["duration_s"], "s"), format_share(row["share"]),
            )
            for row in chosen.nlargest(_TOP, "duration_s").to_dict("records")
        ]  # fmt: skip
    names = ("set-up", "layer", "type", "phase", "median call", "share of layers")
    return Table(names, tuple(rows), "Layers that cost most (all: --json)", 4)
