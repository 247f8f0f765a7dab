"""What a fitted recipe says of itself, for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fitkit.display import Summary, Table, format_number, format_quantity
from fitkit.models.columns import common_label, group_labels
from fitkit.models.terms import TERMS
from fitkit.models.turning_points import counted

if TYPE_CHECKING:
    from fitkit.models.grouped import GroupedModel
    from fitkit.models.performance import PerformanceModel
    from fitkit.models.run_scaling import ScalingAnswer

_SHOWN_PARAMETERS = 60
_SHOWN_LINES = 20
_WHY = {
    "undetermined": "the measurements cannot tell it from earlier terms",
    "unknown": "a column that it needs is null",
}


def left_out(estimator: GroupedModel) -> list[str]:
    """Which terms have no parameter in some groups, and why: a sentence each."""
    count = Counter(
        (parameter.term, parameter.status)
        for model in estimator.groups_.values()
        for parameter in model.parameters_
        if parameter.status in _WHY
    )
    return [
        f"term {term} is left out of {n} of {len(estimator.groups_)} groups: {_WHY[status]}"
        for (term, status), n in count.items()
    ]


def model_summary(model: PerformanceModel) -> Summary:
    """What was fitted, parameter by parameter, in units that can be read."""
    groups = model.estimator.groups_
    rows = list(_parameter_rows(model))
    terms = {row[1].rpartition(": ")[2] for row in rows}  # a part of a run stands before it
    notes = [*model.notes, *model.left_out()]
    if len(rows) > _SHOWN_PARAMETERS:
        notes.append(f"{len(rows) - _SHOWN_PARAMETERS} more parameters are not shown")
    rest_on = _by_text(model.intervals_rest_on())
    columns = ("group", "term", "estimate", "90 % interval", "by", "the data say", "n")
    return Summary(
        f"Model of recipe {model.recipe.name}",
        {
            "time": f"{model.target}, {model.statistic} over steps and repetitions",
            "groups": str(len(groups)),
            "same in all": common_label(groups, model.recipe.groups),
            "configurations": str(model.estimator.n_obs_),
            **{name: term.meaning for name, term in TERMS.items() if name in terms},
        },
        [
            *_lines("Choices", "how it was fitted", model.choices()),
            Table(columns, tuple(rows[:_SHOWN_PARAMETERS]), "Parameters", 2),
            *_lines("Intervals of predictions", "what they rest on", rest_on),
            *_lines("Runs that would tell more", "which run", _by_text(model.suggestions())),
            *_scaling_table(model.scaling),
        ],
        notes,
    )


def _parameter_rows(model: PerformanceModel) -> Iterator[tuple[str, ...]]:
    groups = model.estimator.groups_
    labels = group_labels(groups, model.recipe.groups)
    for key, fitted in groups.items():
        for p, said in zip(fitted.parameters_, model.determined(key), strict=True):
            if p.status in ("positive", "zero"):
                interval = f"{_plain(p.ci_low, p.unit)} … {_plain(p.ci_high, p.unit)}"
                estimate = format_quantity(p.estimate, p.unit)
                yield (
                    labels[key], p.term, estimate, interval, p.method, said,
                    str(fitted.n_obs_),
                )  # fmt: skip


def _scaling_table(answers: Sequence[ScalingAnswer]) -> list[Table]:
    """Where runs stop scaling, group by group."""
    rows = [
        (
            answer.group, answer.what, answer.kind + _batch(answer.batch),
            f"{answer.n_scales} to {counted(answer.n_max, answer.unit)}", answer.words,
        )
        for answer in answers[:_SHOWN_LINES]
    ]  # fmt: skip
    names = ("group", "of", "scaling", "scales", "where it stops")
    more = len(answers) - len(rows)
    title = "Where scaling stops" + (f" ({more} more lines are not shown)" if more else "")
    return [Table(names, tuple(rows), title, len(names))] if rows else []


def _batch(batch: float) -> str:
    return f", batch {format_number(batch)}" if math.isfinite(batch) else ""


def _by_text(text_of: Mapping[str, str]) -> dict[str, list[str]]:
    """Groups by what is true of them."""
    found: dict[str, list[str]] = {}
    for group, text in text_of.items():
        found.setdefault(text, []).append(group)
    return found


def _lines(title: str, what: str, groups_of: dict[str, list[str]]) -> list[Table]:
    """One line for each text, with the first of the groups of which it is true."""
    lines = []
    for text, groups in groups_of.items():
        more = f" and {len(groups) - 1} more" if len(groups) > 1 else ""
        lines.append((groups[0] + more, text))
    return [Table(("group", what), tuple(lines[:_SHOWN_LINES]), title, 2)] if lines else []


def _plain(value: float, unit: str) -> str:
    """A bound in the prefix of its own, without the unit's denominator."""
    return format_quantity(value, unit.partition("/")[0]) if math.isfinite(value) else "?"
