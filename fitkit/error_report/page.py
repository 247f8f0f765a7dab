"""A report as the frames that its page is drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fitkit.error_report.figures import BESIDE, FIGURES
from fitkit.error_report.grouping import told_groups
from fitkit.error_report.headline import baseline_words
from fitkit.models.recipes import RECIPES
from fitkit.models.terms import TERMS
from fitkit.report import ErrorPage

if TYPE_CHECKING:
    from fitkit.error_report.report import ErrorReport

# Of what rows have besides features, only when they started is drawn.
_UNTOLD = {"reason", "layer_group", "weight_shape", "fold", "below_floor", "scale_step"}
_CHANGE = ["by", "value", "n", "old", "new", "change", "low", "high", "verdict"]


def page_of(report: ErrorReport) -> ErrorPage:
    """What the page shows."""
    parameters = report.parameters[report.parameters.status.isin(["positive", "zero"])]
    # What a form has besides sums of terms, such as its overlap, names itself.
    meanings = [TERMS[n].meaning if n in TERMS else "" for n in parameters.term]
    names = ["group", "run_id", "measured_s", "predicted_s", "low_s", "high_s"]
    # What was measured in the same run is no feature: it is not known before.
    known = {*names, *BESIDE, *RECIPES[report.recipe].measured}
    features = [c for c in report.rows.columns if c not in known and _is_told(c)]
    told = [c for c in features if _varies(report.rows[c])]
    rows = report.rows[report.rows.predicted_s.notna()]
    judged = {"fitkit": report.overall, **report.baselines}
    baselines = pd.DataFrame([{"name": baseline_words(name), **f} for name, f in judged.items()])
    columns = ["by", "value", "n", "mape", "median_ape", "bias", "floor", "below_floor",
               "under_covering", *BESIDE]  # fmt: skip
    groups = report.groups[report.groups.by.isin(told_groups(report.groups))]
    context = report.context
    facts = {name: text for name, text in report.facts.items() if text != report.command}
    return ErrorPage(
        title=report.title,
        verdict=report.verdict,
        facts=facts,
        overall=report.clocks[["clock", "n", *FIGURES, "floor", "coverage", "width"]],
        baselines=baselines[["name", "n", "mape", "median_ape"]],
        groups=groups[columns].rename(columns=baseline_words),
        rows=rows.reindex(columns=[*names, *told]),
        parameters=parameters.assign(meaning=meanings),
        breakdown=context.breakdown,
        layers=context.layers,
        notes=list(report.notes),
        reproduce=report.command,
        level=report.level,
        skill=report.skill,
        worst=report.worst.drop(columns="reasons"),
        coverage_test=report.coverage_test.to_dict(),
        leaks=report.leaks,
        accounts=report.accounts.drop(columns="parts"),
        gates=pd.DataFrame([vars(gate) for gate in report.gates]),
        changes=_changes(report),
        against=report.comparison.against if report.comparison else "",
        provenance=report.provenance,
        scale=context.scale,
        curves=context.curves,
        knees=context.knees,
        bottlenecks=context.bottlenecks,
        parts_of=context.parts_of,
        time_parts=context.time_parts,
        crossings=context.crossings,
    )


def _changes(report: ErrorReport) -> pd.DataFrame:
    if report.comparison is None:
        return pd.DataFrame()
    overall = {"by": "all", "value": "", **report.comparison.overall}
    rows = [overall, *report.comparison.groups.to_dict("records")]
    return pd.DataFrame(rows, columns=_CHANGE)


def _varies(column: pd.Series) -> bool:
    try:
        return len(column.unique()) > 1
    except TypeError:  # lists and the like are no feature
        return False


def _is_told(name: str) -> bool:
    return not name.startswith(("repeat_", "cpu_")) and name not in _UNTOLD
