"""fitkit predict: numpy and a JSON file are enough, pandas is imported for --from alone."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from fitkit.cli.options import common, literal, print_json, print_result, say
from fitkit.display import Summary, Table, format_quantity
from fitkit.models.loading import load_model
from fitkit.models.performance import PerformanceModel

_FIGURES = ("predicted_s", "low_s", "high_s")
_MAX_GRID = 100_000


@click.command(
    epilog="Example: fitkit predict step.json --at n_workers=1,2,4,8 --at local_batch=32"
)
@click.argument("model", metavar="MODEL.json")
@click.option(
    "--at",
    "points",
    multiple=True,
    metavar="KEY=V1,V2,...",
    help="Values of a feature; repeat it for a grid.",
)
@click.option(
    "--from",
    "table",
    type=click.Path(path_type=Path),
    metavar="FILE.csv|.parquet",
    help="Rows to predict, in the recipe's columns.",
)
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Level of the intervals.",
)
@click.option(
    "--allow-extrapolation",
    is_flag=True,
    help="Answer beyond two doublings outside the measured range, too.",
)
@common
def command(
    model: str,
    points: tuple[str, ...],
    table: Path | None,
    level: float,
    allow_extrapolation: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict times with intervals from a fitted model.

    A feature that tells groups apart (phase, network, device ...) may be left out where the
    model has one group only.
    """
    fitted = load_model(model)
    if bool(points) == bool(table):
        raise click.UsageError("say what to predict: --at KEY=VALUES, or --from FILE")
    columns = _read(table) if table else _grid(points)
    n_rows = max((len(values) for values in columns.values()), default=0)
    found = fitted.predict_columns(
        dict(columns), n_rows, level=level, allow_extrapolation=allow_extrapolation
    )
    rows = [
        {name: _plain(values[i]) for name, values in {**columns, **found}.items()}
        for i in range(n_rows)
    ]
    if as_json:
        print_json({"predictions": rows})
    else:
        print_result(_summary(fitted, rows, list(columns), level))
    reasons = [row["reason"] for row in rows if row["status"] == "refused"]
    if reasons:
        is_far = any("doublings" in reason for reason in reasons)
        hint = "--allow-extrapolation answers the far ones" if is_far else reasons[0]
        say(f"{len(reasons)} of {n_rows} refused: {hint}", quiet)


def _grid(points: tuple[str, ...]) -> dict[str, np.ndarray]:
    axes: dict[str, list[Any]] = {}
    for point in points:
        key, separator, values = point.partition("=")
        if not separator or not key.strip() or not all(map(str.strip, values.split(","))):
            raise click.UsageError(f"--at {point}: write KEY=VALUE or KEY=V1,V2,...")
        axes.setdefault(key.strip(), []).extend(literal(v.strip()) for v in values.split(","))
    size = math.prod(map(len, axes.values()))
    if size > _MAX_GRID:
        raise click.UsageError(f"a grid of {size:,} points: at most {_MAX_GRID:,}")
    cells = list(product(*axes.values()))
    return {
        name: np.array([cell[k] for cell in cells], dtype=object) for k, name in enumerate(axes)
    }


def _read(path: Path) -> dict[str, np.ndarray]:
    import pandas as pd

    from fitkit.errors import InputError

    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except OSError as error:
        reason = (error.strerror or str(error)) if path.exists() else "no such file"
        raise InputError(f"{path}: {reason}", "check the path") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}", "give a CSV with a header, or Parquet") from error
    return {str(name): frame[name].to_numpy(dtype=object) for name in frame.columns}


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if value != value or (isinstance(value, float) and math.isinf(value)):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


def _summary(
    model: PerformanceModel, rows: list[dict[str, Any]], features: list[str], level: float
) -> Summary:  # fmt: skip
    cells = [
        (
            *("" if row[name] is None else str(row[name]) for name in features),
            *(format_quantity(_number(row[name]), "s") for name in _FIGURES),
            row["status"],
            row["reason"],
        )
        for row in rows
    ]
    names = (*features, "predicted", "low", "high", "status", "reason")
    what = f"{model.statistic} over steps and repetitions"
    title = f"{model.target} of recipe {model.recipe.name}: {what}, with its {level:.0%} interval"
    return Summary(title, tables=[Table(names, tuple(cells), n_labels=len(features))])


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
