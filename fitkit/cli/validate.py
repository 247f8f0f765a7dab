"""fitkit validate."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fitkit.cli import FAILED_CHECK, complain
from fitkit.cli.options import (
    common,
    output,
    print_json,
    print_result,
    recipe,
    say,
    static,
    statistic,
    target,
    typed_command,
    where,
)
from fitkit.dataset import Dataset
from fitkit.error_report import ErrorReport, failure, read_report
from fitkit.models.loading import load_model
from fitkit.validation import validate

_FRACTION = click.FloatRange(min=0)
_SHARE = click.FloatRange(0, 1)


def _known(_context: click.Context, _parameter: click.Parameter, limit: float | None) -> Any:
    if limit is not None and math.isnan(limit):
        raise click.BadParameter("nan is no limit")
    return limit


def _gates(command: Callable[..., Any]) -> Callable[..., Any]:
    """What the report has to keep, and where continuous integration reads it."""
    for option in (
        click.option("--junit", type=click.Path(dir_okay=False, path_type=Path),
                     metavar="FILE.xml", help="Write the limits as JUnit XML, a test for each."),
        click.option("--gate-by", metavar="COLUMN",
                     help="Each of its values has to keep the limits, too."),
        click.option("--min-coverage", type=_SHARE, metavar="FRACTION", callback=_known,
                     help="Exit 1 if fewer measurements lie in their interval."),
        click.option("--max-bias", type=_FRACTION, metavar="FRACTION", callback=_known,
                     help="Exit 1 if the mean signed error is above, to either side."),
        click.option("--max-mape", type=_FRACTION, metavar="FRACTION", callback=_known,
                     help="Exit 1 if the MAPE is above."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(
    epilog="Example: fitkit validate runs-parquet --recipe phases --leave-out local_batch "
    "-o report.html"
)
@click.argument("dataset")
@recipe
@click.option("--hold-out", metavar="COND", help="Predict the rows for which it holds.")
@click.option("--leave-out", metavar="COLUMN", help="Hold out each of its values in turn.")
@click.option("--folds", type=int, metavar="K", help="Random folds over configurations.")
@click.option("--scale-up", metavar="COLUMN", help="Train on small values, predict the next.")
@click.option("--model", metavar="MODEL.json", help="Judge a model that was fitted elsewhere.")
@click.option("--keep-smallest", is_flag=True, help="Never leave the smallest value out.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of --folds.")
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Level of the intervals.",
)
@where
@target
@statistic
@_gates
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="OLD.json",
    help="Compare with a report that was written before: what got better or worse.",
)  # fmt: skip
@output(".html", ".json", ".csv")
@static
@common
def command(
    dataset: str,
    recipe: str,
    model: str | None,
    output: tuple[Path, ...],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Prediction error on held-out runs, beside baselines and the noise floor.

    Choose one of --hold-out, --leave-out, --folds, --scale-up and --model. Repetitions of a
    configuration are held out together; a run that is held out and trained on under another name
    is reported, and keeps no limit.
    """
    store = Dataset(dataset)
    fitted = load_model(model) if model else None
    limits = {name: options.pop(name) for name in ("max_mape", "max_bias", "min_coverage")}
    by, junit = options.pop("gate_by"), options.pop("junit")
    against, static = options.pop("against"), options.pop("static")
    old = read_report(against) if against is not None else None
    report = validate(store, recipe, model=fitted, **options)
    report.command = typed_command()
    report.check(**limits, by=by)
    if old is not None:
        report.compare_with(old)
    for path in output:
        report.save(path, static=static)
    if junit is not None:
        report.to_junit(junit)
    if as_json:
        print_json(report.to_dict())
    else:
        print_result(report.summary())
    for path in (*output, *([junit] if junit is not None else [])):
        say(f"report written to {path}", quiet)
    return _status(report)


def _status(report: ErrorReport) -> int:
    failed = failure(report.gates)
    if not failed:
        return 0
    return complain(failed, "-o report.html shows which rows are worst", FAILED_CHECK)
