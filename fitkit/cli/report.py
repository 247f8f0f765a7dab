"""fitkit report."""

from __future__ import annotations

from pathlib import Path

import click

from fitkit.cli.options import (
    common,
    output,
    print_json,
    print_result,
    say,
    static,
    typed_command,
    warn,
    where,
)
from fitkit.dataset import Dataset
from fitkit.diagnosis.analysis import analyse
from fitkit.error_report import ErrorReport
from fitkit.errors import FitkitError
from fitkit.models.loading import load_model
from fitkit.validation import validate


@click.command(
    epilog="Example: fitkit report runs-parquet --where 'network == \"bert\"' -o report.html"
)
@click.argument("dataset")
@where
@click.option("--model", metavar="MODEL.json", help="Show its predictions of the same runs, too.")
@output(".html", ".json")
@static
@common
def command(
    dataset: str,
    where: str | None,
    model: str | None,
    output: tuple[Path, ...],
    static: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Where the time goes, how runs scale, the bottleneck and the knee, on one page."""
    store = Dataset(dataset)
    errors, note = _predicted(store, model, where)
    found = analyse(store, where=where, errors=errors, notes=[note] if note else [])
    found.command = typed_command()
    for path in output:
        found.save(path, static=static)
    warn([note] if note else [], quiet)
    if as_json:
        print_json(found.to_dict())
    else:
        print_result(found.summary())
    for path in output:
        say(f"report written to {path}", quiet)


def _predicted(
    store: Dataset, model: str | None, where: str | None
) -> tuple[ErrorReport | None, str]:
    """How wrong a model is on these runs, or why it cannot be asked about them."""
    if model is None:
        return None, ""
    fitted = load_model(model)
    if not store.exists:
        return None, ""  # the analysis says so
    try:
        return validate(store, fitted.recipe.name, model=fitted, where=where), ""
    except (FitkitError, ValueError) as error:
        return None, f"{model} predicts none of these runs: {error}"
