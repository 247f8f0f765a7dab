"""fitkit calibrate."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fitkit.cli.options import common, print_json, print_result, say, where
from fitkit.display import Summary, Table, format_number, format_quantity, format_share
from fitkit.models.loading import load_model

if TYPE_CHECKING:
    import pandas as pd

    from fitkit.models.performance import PerformanceModel

_SIZES = ("n_workers", "n_nodes", "local_batch", "global_batch")
_WORDS = ("network", "phase", "device", "system")
_COMMAND = "torchrun --nnodes={n_nodes} --nproc_per_node={per_node} train.py --batch {local_batch}"
_TABLES = (".csv", ".parquet")


def _seconds(value: float) -> str:
    return format_quantity(value, "s")


# What `suggest_probes` adds to the rows, under which title, and how it is written.
_ADDED: dict[str, tuple[str, Callable[[float], str]]] = {
    "expected_s": ("a step takes", _seconds),
    "source_s": ("on the source", _seconds),
    "device_s": ("device time", _seconds),
    "expected_error": ("error left", format_share),
}


@click.command(
    epilog="Which runs to make says --suggest 6. Example: "
    "fitkit calibrate t4.json a100-runs -o a100.json"
)
@click.argument("model", metavar="MODEL.json")
@click.argument("probes", required=False, metavar="[PROBES]")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="NEW.json",
    help="Where to save the calibrated model.",
)
@click.option(
    "--spec",
    metavar="FILE.toml|NAME",
    help="Data sheet of the new hardware, or a device that fitkit knows, such as H100.",
)
@click.option("--source-spec", metavar="FILE.toml|NAME", help="The same of the old hardware.")
@where
@click.option(
    "--allow-prior",
    is_flag=True,
    help="Accept probes that are all of one size: the rest comes from MODEL, and is said so.",
)
@click.option(
    "--suggest",
    type=click.IntRange(min=1),
    metavar="N",
    help="Propose N runs of each network to make on the new hardware instead; PROBES are those "
    "already made.",
)
@click.option(
    "--budget",
    type=float,
    metavar="DEVICE_SECONDS",
    help="What the proposed runs of each network may cost.",
)
@click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    metavar="FILE.csv|.parquet",
    help="Runs that could be made; else those of a cluster of --max-workers.",
)
@click.option(
    "--max-workers", type=click.IntRange(min=1), metavar="N", help="Devices of the cluster."
)
@click.option(
    "--devices-per-node", type=click.IntRange(min=1), default=8, show_default=True, metavar="N",
    help="Devices of a node of the cluster.",
)  # fmt: skip
@click.option(
    "--max-local-batch", type=click.IntRange(min=1), metavar="N",
    help="Largest batch that fits into the memory of a device.",
)  # fmt: skip
@click.option(
    "--command", "template", metavar="TEXT", show_default=_COMMAND,
    help="How a run is started; a proposed run fills in its {columns} and {per_node}. Of several "
    "networks the default says which.",
)  # fmt: skip
@common
def command(
    model: str,
    probes: str | None,
    output: Path | None,
    suggest: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Carry a model to new hardware from a few probe runs, or say which to make.

    MODEL.json was fitted elsewhere. PROBES are runs on the new hardware: a dataset. What the
    model knows is the prior, the probes are the evidence; what each parameter rests on is in the
    result, and its intervals are as wide as that.
    """
    source = load_model(model)
    if suggest is not None:
        if output is not None or options["allow_prior"]:
            what = "-o" if output is not None else "--allow-prior"
            raise click.UsageError(f"{what} is for calibrating; --suggest only says what to run")
        _suggest(source, probes, suggest, options, as_json)
        return
    if probes is None or output is None:
        raise click.UsageError("give PROBES and -o NEW.json; or --suggest N to be told what to run")
    from fitkit.calibration import calibrate

    chosen = ("spec", "source_spec", "where", "allow_prior")
    new = calibrate(source, _probes(source, probes), **{name: options[name] for name in chosen})
    new.save(output)
    if as_json:
        print_json(_document(new, output))
    else:
        print_result(new.summary())
    say(f"model saved to {output}", quiet)


def _probes(source: PerformanceModel, path: str) -> pd.DataFrame | str:
    """A dataset by its path, or a table with the columns of the recipe."""
    from fitkit.errors import InputError

    if Path(path).suffix not in _TABLES or not Path(path).is_file():
        return path
    found = _table(Path(path))
    if source.target not in found:
        raise InputError(
            f"{path}: a table of probes needs a column {source.target}, in seconds",
            f"make a dataset of logs: fitkit ingest {shlex.quote(path)} -d probes-parquet",
        )
    return found


def _table(path: Path) -> pd.DataFrame:
    import pandas as pd

    from fitkit.errors import InputError

    try:
        found = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", "check the path") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}", "give a CSV with a header, or Parquet") from error
    if found.empty:
        raise InputError(f"{path} has no rows", "give a row for each run, below the header")
    return found


def _document(new: PerformanceModel, output: Path) -> dict[str, Any]:
    from fitkit.error_report import plain_json

    document = {
        "model": str(output),
        "recipe": new.recipe.name,
        "n_probes": new.provenance["n_configurations"],
        "parameters": new.params_.to_dict("records"),
        "groups": len(new.estimator.groups_),
        "choices": [{"groups": names, "how": how} for how, names in new.choices().items()],
        "intervals": new.intervals_rest_on(),
        "warnings": new.notes,
    }
    found: dict[str, Any] = plain_json(document)
    return found


# -- proposing runs ------------------------------------------------------------------------


def _suggest(
    source: PerformanceModel, probes: str | None, n: int, options: dict[str, Any], as_json: bool
) -> None:
    from fitkit.calibration import suggest_probes

    found = suggest_probes(
        source,
        _candidates(source, options),
        n,
        options["budget"],
        probes=None if probes is None else _probes(source, probes),
        spec=options["spec"],
        source_spec=options["source_spec"],
        where=options["where"],
        max_workers=options["max_workers"],
        max_local_batch=options["max_local_batch"],
    )
    rows = [{str(name): v for name, v in row.items()} for row in found.to_dict("records")]
    template = options["template"] or _default_command(rows)
    commands = [_command(template, row, options["devices_per_node"]) for row in rows]
    if as_json:
        from fitkit.error_report import plain_json

        told = [{**row, "command": text} for row, text in zip(rows, commands, strict=True)]
        notes = found.attrs.get("notes", [])
        print_json(plain_json({"probes": told, "device_s": _cost(rows), "warnings": notes}))
    else:
        print_result(_summary(found, rows, commands))


def _default_command(rows: Sequence[dict[str, Any]]) -> str:
    """How a run is started; of several networks it says which."""
    several = [name for name in ("network",) if len({row.get(name) for row in rows}) > 1]
    return " ".join([_COMMAND, *(f"--{name} {{{name}}}" for name in several)])


def _cost(rows: Sequence[dict[str, Any]]) -> float | None:
    """Device-seconds of all; None where they are not known, such as of single layers."""
    costs = [row["device_s"] for row in rows if "device_s" in row]
    return float(sum(costs)) if costs else None


def _candidates(source: PerformanceModel, options: dict[str, Any]) -> pd.DataFrame:
    from fitkit.calibration.probes import cluster_candidates

    path = options["candidates"]
    if path is not None:
        return _checked(_table(path), path)
    if options["max_workers"] is None:
        raise click.UsageError("say what could be run: --max-workers N, or --candidates FILE")
    return cluster_candidates(
        source, options["max_workers"], options["devices_per_node"], options["max_local_batch"]
    )


def _checked(candidates: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Candidates whose sizes are whole numbers from 1; the first other one is named."""
    import numpy as np
    import pandas as pd

    from fitkit.errors import InputError

    for name in _SIZES:
        if name not in candidates:
            continue
        values = pd.to_numeric(candidates[name], errors="coerce").to_numpy(dtype=float)
        wrong = np.flatnonzero(~((values >= 1) & (values % 1 == 0)))
        if len(wrong):
            k = int(wrong[0])
            where = f"line {k + 2}" if path.suffix == ".csv" else f"row {k + 1}"
            shown = candidates[name].iloc[k]
            value = "nothing" if pd.isna(shown) else shown
            raise InputError(f"{path}, {where}: {name} is {value}", "give a whole number from 1")
    return candidates


def _whole(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _command(template: str, row: dict[str, Any], devices_per_node: int) -> str:
    """A run as a command, recorded by fitkit; nodes that no column tells are those it needs."""
    workers = float(row.get("n_workers", 1.0))
    nodes = float(row.get("n_nodes") or _fewest_nodes(workers, devices_per_node))
    per_node = workers / nodes
    if not per_node.is_integer() and "{per_node}" in template:
        raise click.UsageError(
            f"{_whole(workers)} workers do not divide among {_whole(nodes)} nodes: give a "
            "--command without {per_node}, or other candidates"
        )
    numbers = {name: _whole(row[name]) for name in _SIZES if name in row}
    words = {name: shlex.quote(str(row[name])) for name in _WORDS if name in row}
    try:
        started = template.format(
            **{"n_nodes": _whole(nodes), "local_batch": "1"} | numbers | words,
            per_node=_whole(per_node),
        )
    except (KeyError, IndexError, ValueError) as error:
        known = ", ".join([*numbers, *words, "per_node"])
        raise click.UsageError(f"--command: {error} is no column; known: {known}") from error
    return f"fitkit record -d probes -- {started}"


def _fewest_nodes(workers: float, devices_per_node: int) -> int:
    """Nodes that so many workers need if each has as many."""
    nodes = max(1, math.ceil(workers / devices_per_node))
    while nodes < workers and workers % nodes:
        nodes += 1
    return nodes


def _summary(
    found: pd.DataFrame, rows: Sequence[dict[str, Any]], commands: Sequence[str]
) -> Summary:
    names = [name for name in (*_WORDS, *_SIZES) if name in found and found[name].notna().any()]
    added = {name: how for name, how in _ADDED.items() if name in found}
    cells = [
        (
            *(row[n] if isinstance(row[n], str) else format_number(row[n]) for n in names),
            *(show(row[name]) for name, (_, show) in added.items()),
        )
        for row in rows
    ]
    columns = (*names, *(title for title, _ in added.values()))
    n_words = sum(name in _WORDS for name in names)
    table = Table(columns, tuple(cells), "Runs, the most telling first", max(n_words, 1))
    typed = Table(("command",), tuple((text,) for text in commands), "Commands")
    cost = _cost(rows)
    facts = {} if cost is None else {"device time of all": format_quantity(cost, "s")}
    notes = ["a probe is 100 steps after warm-up; times and errors are what the source expects"]
    title = f"{len(found)} runs to make on the new hardware"
    told = [*(notes if cost is not None else []), *found.attrs.get("notes", [])]
    return Summary(title, facts, [table, typed], told)
