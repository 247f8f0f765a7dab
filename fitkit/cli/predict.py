"""fitkit predict: numpy and a JSON file are enough, pandas is imported for --from alone."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Collection
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from fitkit.cli.options import common, print_json, print_result, say, typed
from fitkit.display import Summary, Table, format_quantity
from fitkit.models.domain import STAMP
from fitkit.models.loading import load_model
from fitkit.models.matching import text_columns
from fitkit.models.performance import PerformanceModel
from fitkit.models.recipes import Recipe

_FIGURES = ("predicted_s", "low_s", "high_s")
_SUFFIXES = (".trace.json", ".json", ".csv")
_MAX_GRID = 100_000
_SHOWN = 100  # rows of the table for people
_REASONS = 12
_VALUE = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"\s*|(?P<bare>[^,]*)),')


@click.command(
    epilog="Example: fitkit predict step.json --at n_workers=1,2,4,8 --at local_batch=32"
)
@click.argument("model", metavar="MODEL.json")
@click.option(
    "--at",
    "points",
    multiple=True,
    metavar="KEY=V1,V2,...",
    help="Values of a feature; repeat it for a grid. A word that holds a comma or begins or ends "
    "with a blank stands in double quotes.",
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
    help="Answer what is otherwise refused: beyond two doublings outside the measured range, off a "
    "value that never varied, along a scale of two or three values, or where the forms that fit "
    "best disagree. Such answers say so.",
)
@click.option(
    "-o",
    "--output",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.trace.json|.json|.csv",
    help="Also write the predictions; may be repeated. A .trace.json shows them as a timeline in "
    "Perfetto (ui.perfetto.dev) or chrome://tracing.",
)
@common
def command(
    model: str,
    points: tuple[str, ...],
    table: Path | None,
    level: float,
    allow_extrapolation: bool,
    output: tuple[Path, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict times with intervals from a fitted model.

    A feature that tells groups apart (phase, network, device ...) may be left out where the
    model has one group only.
    """
    fitted = load_model(model)
    _check_output(output, fitted)
    columns = _columns(fitted.recipe, points, table)
    n_rows = max((len(values) for values in columns.values()), default=0)
    found = fitted.predict_columns(
        dict(columns), n_rows, level=level, allow_extrapolation=allow_extrapolation
    )
    rows = [
        {name: _plain(values[i]) for name, values in {**columns, **found}.items()}
        for i in range(n_rows)
    ]
    asked = {"target": fitted.target, "statistic": fitted.statistic, "level": level}
    document = {"predictions": rows, **asked, "allow_extrapolation": allow_extrapolation}
    if as_json:
        print_json(document)
    else:
        print_result(_summary(fitted, rows, list(columns), level))
    for path in output:
        _write(path, document, fitted.recipe)
        say(f"predictions written to {path}", quiet)
    reasons = [row["reason"] for row in rows if row["status"] == "refused"]
    if reasons:
        would = fitted.predict_columns(dict(columns), n_rows, level=level, allow_extrapolation=True)
        n_forced = len(reasons) - int((would["status"] == "refused").sum())
        hint = f"--allow-extrapolation answers {n_forced} of them" if n_forced > 0 else reasons[0]
        say(f"{len(reasons)} of {n_rows} refused: {hint}", quiet)


def _columns(recipe: Recipe, points: tuple[str, ...], table: Path | None) -> dict[str, np.ndarray]:
    """What is to be predicted."""
    if bool(points) == bool(table):
        raise click.UsageError("say what to predict: --at KEY=VALUES, or --from FILE")
    words = text_columns((*recipe.groups, *recipe.words))
    if table:
        return _read(table, words)
    columns = _grid(points, words)
    _check_names(recipe, columns)
    return columns


def _grid(points: tuple[str, ...], words: Collection[str]) -> dict[str, np.ndarray]:
    axes: dict[str, list[Any]] = {}
    for point in points:
        key, _, listed = point.partition("=")
        key, values = key.strip(), _values(listed)
        if not key or not all(values):
            raise click.UsageError(f"--at {point}: write KEY=VALUE or KEY=V1,V2,...")
        axes.setdefault(key, []).extend(typed(value, is_text=key in words) for value in values)
    size = math.prod(map(len, axes.values()))
    if size > _MAX_GRID:
        raise click.UsageError(f"a grid of {size:,} points: at most {_MAX_GRID:,}")
    cells = list(product(*axes.values()))
    return {
        name: np.array([cell[k] for cell in cells], dtype=object) for k, name in enumerate(axes)
    }


def _check_names(recipe: Recipe, names: Collection[str]) -> None:
    known = {*recipe.configuration, *recipe.columns, *recipe.words}
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise click.UsageError(f"--at {name}: recipe {recipe.name} reads {listed}")


def _values(listed: str) -> list[str]:
    """What stands between the commas, without blanks around it; quotes keep both."""
    return [
        match["bare"].strip() if match["quoted"] is None else match["quoted"].replace('""', '"')
        for match in _VALUE.finditer(listed + ",")
    ]


def _read(path: Path, words: set[str]) -> dict[str, np.ndarray]:
    import pandas as pd

    from fitkit.errors import InputError

    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path)
            as_written = pd.read_csv(path, dtype=str, keep_default_na=False)
            for name in words & set(frame.columns):  # be they 007, true or nan
                frame[name] = [cell or None for cell in as_written[name]]
    except OSError as error:
        reason = (error.strerror or str(error)) if path.exists() else "no such file"
        raise InputError(f"{path}: {reason}", "check the path") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}", "give a CSV with a header, or Parquet") from error
    return {str(name): frame[name].to_numpy(dtype=object) for name in frame.columns}


def _check_output(paths: tuple[Path, ...], model: PerformanceModel) -> None:
    for path in paths:
        if not path.name.lower().endswith(_SUFFIXES):
            raise click.UsageError(f"{path}: write predictions as .trace.json, .json or .csv")
        if _is_trace(path) and not model.target.endswith("_s"):
            raise click.UsageError(f"{path}: {model.target} is no time that a trace could show")


def _is_trace(path: Path) -> bool:
    return path.name.lower().endswith(".trace.json")


def _write(path: Path, document: dict[str, Any], recipe: Recipe) -> None:
    """Write the predictions; the suffix says how."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = document["predictions"]
    if _is_trace(path):
        from fitkit.report.chrome_trace import write_chrome_trace
        from fitkit.report.predicted_timeline import predicted_timeline, refused

        asked = {key: value for key, value in document.items() if key != "predictions"}
        metadata = {"recipe": recipe.name, **asked, "refused": refused(rows)}
        slices = predicted_timeline(rows, _configuration(recipe), recipe.name)
        write_chrome_trace(path, slices, metadata)
    elif path.suffix.lower() == ".json":
        path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.DictWriter(stream, rows[0] if rows else _FIGURES, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


def _configuration(recipe: Recipe) -> set[str]:
    """Columns in which all parts of a step agree."""
    if "layer" in recipe.features:
        return {*recipe.groups, "network", "local_batch"} - {"phase", "layer_group"}
    return {*recipe.configuration, *recipe.columns, *recipe.words} - {"phase"}


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
            row["status"] + (", forced" if row["reason"].startswith(STAMP) else ""),
        )
        for row in rows[:_SHOWN]
    ]
    more = len(rows) - len(cells)
    notes = [f"{more:,} more rows are not shown; --json has all of them"] if more else []
    names = (*features, "predicted", "low", "high", "status")
    what = f"{model.statistic} over steps and repetitions"
    title = f"{model.target} of recipe {model.recipe.name}: {what}, with its {level:.0%} interval"
    tables = [Table(names, tuple(cells), n_labels=len(features))]
    return Summary(title, tables=tables, notes=[*_reasons(rows), *notes])


def _reasons(rows: list[dict[str, Any]]) -> list[str]:
    """What is said of rows, each once, with how many it is said of."""
    count = Counter(row["reason"] for row in rows if row["reason"])
    said = [f"{reason} ({n} of {len(rows)} rows)" for reason, n in count.most_common(_REASONS)]
    more = len(count) - len(said)
    return [*said, *([f"{more} more reasons; --json has all of them"] if more else [])]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
