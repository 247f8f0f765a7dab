"""fitkit validate."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from fitkit.cli import FAILED_CHECK, complain
from fitkit.cli.options import (
    common,
    print_json,
    print_result,
    recipe,
    say,
    statistic,
    target,
    where,
)
from fitkit.dataset import Dataset
from fitkit.diagnosis import phase_shares
from fitkit.display import format_share
from fitkit.models.loading import load_model
from fitkit.validation import validate


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
@click.option("--max-mape", type=float, metavar="FRACTION", help="Exit 1 if the MAPE is above.")
@click.option(
    "-o",
    "--output",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html|.json|.csv",
    help="Also write the report; may be repeated.",
)
@common
def command(
    dataset: str,
    recipe: str,
    model: str | None,
    max_mape: float | None,
    output: tuple[Path, ...],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Prediction error on held-out runs, beside baselines and the noise floor.

    Choose one of --hold-out, --leave-out, --folds, --scale-up and --model. Repetitions of a
    configuration are held out together.
    """
    store = Dataset(dataset)
    fitted = load_model(model) if model else None
    report = validate(store, recipe, model=fitted, **options)
    report.command = shlex.join(["fitkit", *_typed()])
    if any(path.suffix == ".html" for path in output):
        report.breakdown = phase_shares(store)[["label", "phase", "share"]]
    for path in output:
        report.save(path)
    if as_json:
        print_json(report.to_dict())
    else:
        print_result(report.summary())
    for path in output:
        say(f"report written to {path}", quiet)
    mape = report.overall["mape"]
    if max_mape is not None and not mape <= max_mape:  # NaN fails, too: nothing was predicted
        what = f"MAPE {format_share(mape)}, not within the limit of {format_share(max_mape)}"
        return complain(what, "-o report.html shows which rows are worst", FAILED_CHECK)
    return 0


def _typed() -> list[str]:
    """The command as it was typed, or the arguments that a caller passed."""
    context = click.get_current_context().find_root()
    arguments: list[str] = context.obj if isinstance(context.obj, list) else sys.argv[1:]
    return arguments
