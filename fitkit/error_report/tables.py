"""A report for a terminal: short tables of ready-made text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitkit.display import DASH, Summary, Table, clip, format_quantity, format_share
from fitkit.error_report.comparison import Comparison
from fitkit.error_report.figures import FIGURES, RIVALS
from fitkit.error_report.grouping import told_groups
from fitkit.error_report.headline import baseline_words

if TYPE_CHECKING:
    from fitkit.error_report.report import ErrorReport

_MAX_GROUPS = 25
_MAX_WORST = 10
_MAX_ACCOUNTS = 12
_MAX_CHANGES = 10


def report_summary(report: ErrorReport) -> Summary:
    """The report for a terminal or a notebook."""
    tables = [_clock_table(report), _baseline_table(report)]
    # Errors of single runs are long, and the worst of them are shown.
    groups = report.groups[report.groups.by != "run"]
    tables += [_group_table(groups, by) for by in told_groups(groups)]
    tables += [_worst_table(report.worst), _account_table(report.accounts)]
    tables += [*_comparison_tables(report.comparison)]
    shown = [table for table in tables if table.rows]
    said = [report.comparison.text, *report.comparison.notes] if report.comparison else []
    return Summary(report.title, report.facts, shown, [*report.findings, *said, *report.notes])


def _clock_table(report: ErrorReport) -> Table:
    rows = [
        (
            str(c["clock"]), f"{c['n']:.0f}", *(format_share(c[name]) for name in FIGURES),
            format_share(c["median_floor"]), format_share(c["floor"]),
            format_share(c["coverage"]), format_share(c["width"]),
        )
        for c in report.clocks.to_dict("records")
    ]  # fmt: skip
    return Table(
        (
            "clock", "n", "MAPE", "median", "p90", "by time", "bias", "floor (median)",
            "floor (mean)", f"in {100 * report.level:.6g}% interval", "its width",
        ),
        tuple(rows),
        "Error beside the noise floor, the difference of two repetitions",
    )  # fmt: skip


def _baseline_table(report: ErrorReport) -> Table:
    judged = {"fitkit": report.overall, **report.baselines}
    skill = {row["baseline"]: row for row in report.skill.to_dict("records")}
    rows = [
        (
            baseline_words(name), f"{f['n']:.0f}", *(format_share(f[key]) for key in FIGURES),
            *_skill_cells(skill.get(name)),
        )
        for name, f in judged.items()
    ]  # fmt: skip
    columns = (
        "", "n", "MAPE", "median", "p90", "by time", "bias", "fitkit's skill", "95 % from", "to",
        "better in",
    )  # fmt: skip
    return Table(columns, tuple(rows), "Beside the baselines, each on the n rows it predicts")


def _skill_cells(row: Mapping[Any, Any] | None) -> tuple[str, ...]:
    if row is None:
        return (DASH,) * 4
    skill = (format_share(row[name], signed=True) for name in ("skill", "low", "high"))
    return (*skill, format_share(row["better"]))


def _group_table(groups: pd.DataFrame, by: str) -> Table:
    own = groups[groups.by == by]
    shown = own.nlargest(_MAX_GROUPS, "n") if len(own) > _MAX_GROUPS else own
    more = f" ({len(own) - len(shown)} more)" if len(shown) < len(own) else ""
    rows = [
        (
            _value_text(row["value"]), f"{row['n']:.0f}",
            *(format_share(row[name]) for name in ("mape", "median_ape", "bias", "floor")),
            _remark(row), _best_baseline(row),
        )
        for row in shown.to_dict("records")
    ]  # fmt: skip
    columns = (by, "n", "MAPE", "median", "bias", "floor", "", "best baseline")
    return Table(columns, tuple(rows), f"By {by}{more}")


def _remark(figures: Mapping[Any, Any]) -> str:
    said = []
    if figures["below_floor"] is True:
        said.append("below floor")
    if figures["under_covering"] is True:
        said.append("too narrow")
    return ", ".join(said)


def _best_baseline(figures: Mapping[Any, Any]) -> str:
    known = [name for name in RIVALS if np.isfinite(figures[name])]
    if not known:
        return DASH
    best = min(known, key=lambda name: figures[name])
    return f"{baseline_words(best)} {format_share(figures[best])}"


def _worst_table(worst: pd.DataFrame) -> Table:
    rows = [
        (
            clip(row["run_id"], 40), format_quantity(row["measured_s"], "s"),
            format_quantity(row["predicted_s"], "s"), format_share(row["error"], signed=True),
            clip(row["reason"]),
        )
        for row in worst.head(_MAX_WORST).to_dict("records")
    ]  # fmt: skip
    columns = ("run", "measured", "predicted", "error", "likely reason")
    return Table(columns, tuple(rows), "The runs with the largest errors")


def _account_table(accounts: pd.DataFrame) -> Table:
    shown = accounts
    if len(accounts) > _MAX_ACCOUNTS:  # those that leave most
        order = accounts.unexplained_share.abs().sort_values(ascending=False, kind="stable").index
        shown = accounts.loc[order[:_MAX_ACCOUNTS]]
    n_more = len(accounts) - len(shown)
    more = f" ({n_more} that leave less are not shown)" if n_more else ""
    rows = [
        (
            clip(row["network"], 40), _value_text(row["n_workers"]), str(row["whole"]),
            str(row["n_runs"]), format_quantity(row["measured_s"], "s"),
            format_share(row["unexplained_share"]), _largest_part(row["parts"]),
        )
        for row in shown.to_dict("records")
    ]  # fmt: skip
    columns = ("network", "workers", "whole", "runs", "measured", "unexplained", "largest part")
    title = f"What the measured parts leave of the measured wholes{more}"
    return Table(columns, tuple(rows), title)


def _largest_part(parts: list[dict[str, Any]]) -> str:
    return f"{clip(parts[0]['part'], 40)} {format_share(parts[0]['share'])}" if parts else DASH


def _comparison_tables(comparison: Comparison | None) -> Iterator[Table]:
    if comparison is None:
        return
    changed = comparison.groups[comparison.groups.verdict.isin(["better", "worse"])]
    listed: list[dict[Any, Any]] = [
        {"by": "all", "value": "", **comparison.overall},
        *changed.head(_MAX_CHANGES).to_dict("records"),
    ]
    rows = [
        (
            f"{row['by']} {_value_text(row['value'])}".strip(), f"{row['n']:.0f}",
            format_share(row["old"]), format_share(row["new"]),
            *(format_share(row[name], signed=True) for name in ("change", "low", "high")),
            str(row["verdict"]),
        )
        for row in listed
    ]  # fmt: skip
    columns = ("", "n", "MAPE then", "now", "change", "95 % from", "to", "verdict")
    n_more = len(changed) - _MAX_CHANGES
    more = f" ({n_more} more groups changed)" if n_more > 0 else ""
    yield Table(columns, tuple(rows), f"Against {clip(comparison.against)}{more}")


def _value_text(value: object) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return DASH
    return clip(f"{value:g}" if isinstance(value, float) else str(value))
