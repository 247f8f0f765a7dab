"""The HTML pages, drawn from plain frames: this package knows no model.

A page is one file that needs nothing else: the chart library is inlined once, or not at all where
charts are drawings; every number is plain HTML and stays readable with scripts off, and nothing is
loaded from anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fitkit.report.rendering import render

if TYPE_CHECKING:
    import pandas as pd

    from fitkit.report.figures import Chart

__all__ = ["MAIN_CHART", "ErrorPage", "error_charts", "error_page"]

MAIN_CHART = "predicted against measured"


def _nothing() -> pd.DataFrame:
    import pandas as pd  # slow to import

    return pd.DataFrame()


@dataclass(frozen=True)
class ErrorPage:
    """What the page of a prediction-error report shows; all errors and shares are fractions.

    Empty frames leave their part of the page out.

    Parameters
    ----------
    title
        What was judged, and how.
    verdict
        The result in one sentence, shown largest.
    facts
        Name to text: recipe, split, number of rows, noise floor.
    overall
        A row per clock or quantity, with error columns such as ``n, mape, median_ape, bias``.
    baselines
        ``name, n, mape, median_ape``; the first row is the model itself.
    groups
        ``by, value, n, mape, median_ape, bias, floor`` and a column of errors per baseline.
    rows
        ``run_id, group, measured_s, predicted_s, low_s, high_s`` and any feature columns; of what
        else there may be, ``started_at`` tells the order in time, ``phase`` or ``layer_type`` the
        parts that a time consists of, and ``status, reason, fold, n_repeats, below_floor`` are no
        features.
    parameters
        ``group, term, estimate, std_err, ci_low, ci_high, unit, status, meaning``.
    breakdown
        ``label, phase, share``: where the time goes.
    layers
        The same of the layers of each set-up.
    notes
        Warnings, said plainly.
    reproduce
        The command that makes this report.
    level
        Of the intervals.
    skill
        ``baseline, n, skill, low, high, better, unit``: how much less the model errs.
    worst
        ``run_id, group, measured_s, predicted_s, error, reason`` of the runs farthest off; without
        it, the rows farthest off are listed.
    coverage_test
        ``share, low, high, verdict``: whether intervals hold what their level says.
    leaks
        ``kind, how, run_id, equals, fold``: runs that were trained on and held out.
    accounts
        ``network, n_workers, whole, n_runs, measured_s, parts_s, unexplained_s,
        unexplained_share, adds_up``.
    gates
        ``gate, by, value, figure, limit, passed``.
    changes
        ``by, value, n, old, new, change, low, high, verdict`` beside an earlier report; the first
        row is all predictions.
    against
        What that report is called.
    curves
        ``series, at, measured_s, predicted_s, low_s, high_s``: time over the scale; without it,
        the rows that differ in nothing else are drawn.
    scale
        What ``at`` counts: a column of the rows, by itself the first of ``n_workers, n_nodes,
        n_ranks, n_devices, n_gpus`` that differs among them.
    knees
        ``series, at, low, high, text``, optionally ``what``: from where on the time grows with the
        scale; of curves that are drawn it is a line.
    bottlenecks
        ``at, bottleneck, share``, optionally ``series, runner_up, runner_up_share, n_runs``: what
        takes most of the time at each scale; the first series is the one asked for first.
    parts_of
        The series that ``time_parts`` is of.
    time_parts
        ``at, part, seconds``: what the time consists of; without it, from the rows.
    crossings
        Where a part passes half of the time, a sentence each.
    provenance
        Caption to frame: sources and hashes, versions, diagnostics, machine.
    """

    title: str
    verdict: str
    facts: Mapping[str, str]
    overall: pd.DataFrame
    baselines: pd.DataFrame
    groups: pd.DataFrame
    rows: pd.DataFrame
    parameters: pd.DataFrame
    breakdown: pd.DataFrame
    notes: Sequence[str]
    reproduce: str = ""
    level: float = math.nan
    skill: pd.DataFrame = field(default_factory=_nothing)
    worst: pd.DataFrame = field(default_factory=_nothing)
    coverage_test: Mapping[str, Any] = field(default_factory=dict)
    leaks: pd.DataFrame = field(default_factory=_nothing)
    accounts: pd.DataFrame = field(default_factory=_nothing)
    gates: pd.DataFrame = field(default_factory=_nothing)
    changes: pd.DataFrame = field(default_factory=_nothing)
    against: str = ""
    curves: pd.DataFrame = field(default_factory=_nothing)
    scale: str = ""
    knees: pd.DataFrame = field(default_factory=_nothing)
    bottlenecks: pd.DataFrame = field(default_factory=_nothing)
    time_parts: pd.DataFrame = field(default_factory=_nothing)
    provenance: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    layers: pd.DataFrame = field(default_factory=_nothing)
    parts_of: str = ""
    crossings: Sequence[str] = ()


def error_page(page: ErrorPage, *, static: bool = False) -> str:
    """Render a prediction-error report as one self-contained HTML document.

    Parameters
    ----------
    page
        The frames and sentences to show.
    static
        Draw the charts as SVG: a page of a tenth of the size, which neither zooms nor filters.

    Returns
    -------
    str
        The document, to be written as UTF-8.
    """
    from fitkit.report.error_sections import sections  # slow to import

    return render("error_report.html.j2", static=static, page=page, **sections(page, static))


def error_charts(page: ErrorPage) -> dict[str, Chart]:
    """The charts of the page without scripts, by name: `MAIN_CHART` and its siblings."""
    from fitkit.report.error_sections import charts  # slow to import

    return charts(page)
