"""fitkit fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fitkit.cli.options import (
    QUESTIONS,
    common,
    key_value,
    print_json,
    print_result,
    recipe,
    say,
    statistic,
    target,
    typed,
    where,
)
from fitkit.dataset import Dataset
from fitkit.error_report import plain_json
from fitkit.features import FRAMES
from fitkit.fitting import fit
from fitkit.models.matching import text_columns
from fitkit.models.recipes import recipe_named


@click.command(epilog="Example: fitkit fit runs-parquet --recipe layers -o layers.json")
@click.argument("dataset")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="MODEL.json",
    help="Where to save the model.",
)
@recipe
@where
@target
@statistic
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="A feature that every row has, e.g. device=A100.",
)
@click.option(
    "--question",
    type=click.Choice(QUESTIONS),
    default="interpolation",
    show_default=True,
    help="What the model will be asked: times inside the measured range, or at more workers than "
    "any measured run had. Where a recipe chooses among forms, it holds out such rows.",
)
@common
def command(
    dataset: str,
    output: Path,
    recipe: str,
    where: str | None,
    target: str | None,
    statistic: Any,
    settings: tuple[str, ...],
    question: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit a recipe to a dataset and save the model as JSON."""
    data: Any = Dataset(dataset)
    if settings and data.exists:
        chosen = recipe_named(recipe)
        words = text_columns((*chosen.groups, *chosen.words))
        given = {key: typed(v, is_text=key in words) for key, v in map(key_value, settings)}
        data = FRAMES[recipe](data, statistic or "median").assign(**given)
    model = fit(data, recipe, where=where, target=target, statistic=statistic, question=question)
    model.save(output)
    parameters = model.params_
    if as_json:
        document = {
            "model": str(output),
            "recipe": recipe,
            "n_runs": model.provenance["n_runs"],
            "n_rows": model.provenance["n_rows"],
            "parameters": parameters.to_dict("records"),
            "groups": len(model.estimator.groups_),
            "choices": [{"groups": names, "how": how} for how, names in model.choices().items()],
            "intervals": model.intervals_rest_on(),
            "further_runs": model.suggestions(),
            "scaling": [answer.to_dict() for answer in model.scaling],
            "warnings": [*model.notes, *model.left_out()],
        }
        print_json(plain_json(document))
    else:
        print_result(model.summary())
    say(f"model saved to {output}", quiet)
