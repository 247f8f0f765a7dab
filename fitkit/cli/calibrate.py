"""fitkit calibrate."""

from __future__ import annotations

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
    epilog="Example: fitkit calibrate t4.json --suggest 6 --max-workers 16 --devices-per-node 8, "
    "then fitkit calibrate t4.json a100-runs -o a100.json"
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
    help="Propose N runs to make on the new hardware instead; PROBES are those already made.",
)
@click.option(
    "--budget", type=float, metavar="DEVICE_SECONDS", help="What the proposed runs may cost."
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
    "--command", "template", metavar="TEXT",
    default="torchrun --nnodes={n_nodes} --nproc_per_node={per_node} train.py "
    "--batch {local_batch}",
    show_default=True,
    help="How a run is started; a proposed run fills in its {columns} and {per_node}.",
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
        _suggest(source, probes, suggest, options, as_json)
        return
    if probes is None or output is None:
        raise click.UsageError("give PROBES and -o NEW.json; or --suggest N to be told what to run")
    from fitkit.calibration import calibrate

    chosen = ("spec", "source_spec", "where", "allow_prior")
    new = calibrate(source, probes, **{name: options[name] for name in chosen})
    new.save(output)
    if as_json:
        print_json(_document(new, output))
    else:
        print_result(new.summary())
    say(f"model saved to {output}", quiet)


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
        probes=probes,
        spec=options["spec"],
        max_workers=options["max_workers"],
        max_local_batch=options["max_local_batch"],
    )
    rows = [{str(name): v for name, v in row.items()} for row in found.to_dict("records")]
    commands = [_command(options["template"], row) for row in rows]
    if as_json:
        from fitkit.error_report import plain_json

        told = [{**row, "command": text} for row, text in zip(rows, commands, strict=True)]
        print_json(plain_json({"probes": told, "device_s": _cost(rows)}))
    else:
        print_result(_summary(found, rows, commands))


def _cost(rows: Sequence[dict[str, Any]]) -> float | None:
    """Device-seconds of all; None where they are not known, such as of single layers."""
    costs = [row["device_s"] for row in rows if "device_s" in row]
    return float(sum(costs)) if costs else None


def _candidates(source: PerformanceModel, options: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd

    from fitkit.calibration.probes import cluster_candidates

    path = options["candidates"]
    if path is not None:
        from fitkit.errors import InputError

        try:
            return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}", "check the path") from error
        except ValueError as error:
            raise InputError(f"{path}: {error}", "give a CSV with a header, or Parquet") from error
    if options["max_workers"] is None:
        raise click.UsageError("say what could be run: --max-workers N, or --candidates FILE")
    return cluster_candidates(
        source, options["max_workers"], options["devices_per_node"], options["max_local_batch"]
    )


def _command(template: str, row: dict[str, Any]) -> str:
    """A run as a command, recorded by fitkit."""
    numbers = {name: f"{row[name]:g}" for name in _SIZES if name in row}
    words = {name: shlex.quote(str(row[name])) for name in _WORDS if name in row}
    workers, nodes = row.get("n_workers", 1.0), row.get("n_nodes", 1.0)
    try:
        started = template.format(
            **{"n_nodes": "1", "local_batch": "1"} | numbers | words,
            per_node=f"{max(workers / max(nodes, 1.0), 1.0):g}",
        )
    except (KeyError, IndexError, ValueError) as error:
        known = ", ".join([*numbers, *words, "per_node"])
        raise click.UsageError(f"--command: {error} is no column; known: {known}") from error
    return f"fitkit record -d probes -- {started}"


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
    return Summary(title, facts, [table, typed], notes if cost is not None else [])
