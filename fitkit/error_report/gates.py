"""Limits that a report has to keep, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fitkit.display import format_share
from fitkit.error_report.figures import error_figures

_SHOWN = 3
# gate: the figure it limits, how it is called
_LIMITED = {
    "max_mape": ("mape", "MAPE"),
    "max_bias": ("bias", "bias"),
    "min_coverage": ("coverage", "coverage"),
}


@dataclass(frozen=True)
class Gate:
    """One limit and what it was held against.

    Attributes
    ----------
    gate
        ``max_mape``, ``max_bias``, ``min_coverage``, or ``no leak``.
    by, value
        The group that is judged; empty for all rows.
    figure, limit
        As fractions; of leaks, how many there are.
    passed
        Whether it is kept; an unknown figure keeps no limit.
    """

    gate: str
    by: str
    value: str
    figure: float
    limit: float
    passed: bool

    @property
    def text(self) -> str:
        """What was found, in one phrase."""
        group = f"{self.by} = {self.value}: " if self.by else ""
        if self.gate == "no leak":
            plural = "run equals a training run" if self.figure == 1 else "runs equal training runs"
            return f"{self.figure:.0f} held-out {plural}" if self.figure else "no leak"
        name = _LIMITED[self.gate][1]
        found = format_share(self.figure, signed=self.gate == "max_bias")
        limit = format_share(self.limit)
        return f"{group}{name} {found}, {'' if self.passed else 'not '}within the limit of {limit}"


def judge_gates(
    rows: pd.DataFrame, overall: Mapping[str, float], limits: Mapping[str, float | None], *,
    by: str | None = None, n_leaks: int = 0,
) -> list[Gate]:  # fmt: skip
    """Hold a report against limits.

    Parameters
    ----------
    rows
        Its held-out rows.
    overall
        Its figures over all of them.
    limits
        ``max_mape, max_bias, min_coverage``; those that are absent are not asked for.
    by
        Column of the rows: each of its values has to keep the limits as well.
    n_leaks
        Held-out runs that were trained on; they keep no limit.

    Raises
    ------
    ValueError
        If there is no such column.
    """
    asked = {name: limit for name, limit in limits.items() if limit is not None}
    if not asked:
        if by is not None:
            raise ValueError("give a limit such as --max-mape beside --gate-by")
        return []
    gates = [_gate(name, limit, overall) for name, limit in asked.items()]
    if by is not None:
        if by not in rows:
            raise ValueError(f"no column {by!r}; there are {', '.join(map(str, rows.columns))}")
        for value, part in rows.groupby(by, sort=True, observed=True, dropna=False):
            figures = error_figures(part)
            gates += [_gate(name, limit, figures, by, value) for name, limit in asked.items()]
    gates.append(Gate("no leak", "", "", float(n_leaks), 0.0, n_leaks == 0))
    return gates


def _gate(
    name: str, limit: float, figures: Mapping[str, float], by: str = "", value: Any = ""
) -> Gate:
    figure = float(figures[_LIMITED[name][0]])
    # NaN keeps no limit: nothing was predicted.
    passed = figure >= limit if name == "min_coverage" else abs(figure) <= limit
    text = f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)
    return Gate(name, by, text, figure, limit, passed)


def failure(gates: list[Gate]) -> str:
    """Which limits are not kept, in one line; empty if all are."""
    failed = [gate.text for gate in gates if not gate.passed]
    more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return "; ".join(failed[:_SHOWN]) + more
