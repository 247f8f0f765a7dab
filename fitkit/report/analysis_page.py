"""The page of an analysis: where the time goes and where scaling stops, from plain frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fitkit.report.rendering import render

if TYPE_CHECKING:
    import pandas as pd

    from fitkit.report import ErrorPage
    from fitkit.report.figures import Chart
    from fitkit.report.glance import Tile

__all__ = ["AnalysisPage", "analysis_charts", "analysis_page"]


def _nothing() -> pd.DataFrame:
    import pandas as pd  # slow to import

    return pd.DataFrame()


@dataclass(frozen=True)
class AnalysisPage:
    """What the page of an analysis shows; shares are fractions. Empty frames leave parts out.

    Parameters
    ----------
    title
        What was analysed.
    verdict
        The result in a sentence or two, shown largest.
    tiles
        What is asked first, with the answers.
    facts
        Name to text.
    findings
        Sentences that a reader should know besides.
    first
        Names of the curves that are drawn first.
    use
        ``view, series, scale, at, part, seconds, share, low, high, n_runs``: what the time
        consists of; views are ``run`` and ``step``.
    bottlenecks
        ``view, series, scale, at, bottleneck, share, low, high, runner_up, runner_up_share,
        is_clear, n_runs``.
    crossings
        ``view, series, part, after, share_after, n_after, reached, share_reached, n_reached, kind,
        is_clear``: where a part passes half of the whole.
    efficiency
        ``view, series, scale, at, n_runs, measured_s, low_s, high_s, ideal_s, speedup, efficiency,
        efficiency_low, efficiency_high, throughput``.
    jumps
        ``view, words``: between which scales most curves lose most.
    knees
        ``view, series, name, at, low, high, text``: where scaling stops, and what is said of it.
    exposed
        ``label, n_workers, step_s, comm_s, wait_s, hidden_s, exposed_share``.
    outliers
        ``run_id, group, of, measured_s, usual_s, off, n``: runs unlike their repetitions.
    runs
        ``run_id, n_ranks, median_s, n_stragglers, rate, excess`` of runs with straggling steps.
    ranks
        ``run_id, rank, busy_s, lag`` of the ranks that others wait for.
    drift
        ``group, n_runs, n_repeated, drift, low, high, is_flagged, reason``.
    layers
        ``label, layer, layer_type, phase, duration_s, share``.
    accounts
        As of `ErrorPage`.
    errors
        What a model predicts of the same runs.
    untold
        What no log tells, and what to record for it.
    provenance
        Caption to frame: sources and hashes, versions, diagnostics.
    reproduce
        The command that makes this page.
    """

    title: str
    verdict: str
    tiles: Sequence[Tile] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[str] = ()
    first: Sequence[str] = ()
    use: pd.DataFrame = field(default_factory=_nothing)
    bottlenecks: pd.DataFrame = field(default_factory=_nothing)
    crossings: pd.DataFrame = field(default_factory=_nothing)
    efficiency: pd.DataFrame = field(default_factory=_nothing)
    jumps: pd.DataFrame = field(default_factory=_nothing)
    knees: pd.DataFrame = field(default_factory=_nothing)
    exposed: pd.DataFrame = field(default_factory=_nothing)
    outliers: pd.DataFrame = field(default_factory=_nothing)
    runs: pd.DataFrame = field(default_factory=_nothing)
    ranks: pd.DataFrame = field(default_factory=_nothing)
    drift: pd.DataFrame = field(default_factory=_nothing)
    layers: pd.DataFrame = field(default_factory=_nothing)
    accounts: pd.DataFrame = field(default_factory=_nothing)
    errors: ErrorPage | None = None
    untold: Sequence[tuple[str, str]] = ()
    provenance: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    reproduce: str = ""

    @property
    def notes(self) -> Sequence[str]:
        """What stands in the box at the top."""
        return self.findings


def analysis_page(page: AnalysisPage, *, static: bool = False) -> str:
    """Render an analysis as one self-contained HTML document, to be written as UTF-8.

    Parameters
    ----------
    page
        The frames and sentences to show.
    static
        Draw the charts as SVG, in a page without a chart library.
    """
    from fitkit.report.analysis_sections import charts_of, sections  # slow to import

    found = sections(page, static)
    return render(
        "analysis.html.j2",
        static=static,
        page=page,
        sections=found,
        has_charts=not static and bool(charts_of(found)),
    )


def analysis_charts(page: AnalysisPage) -> dict[str, Chart]:
    """The charts of the page by name, with as many points as a page of drawings has."""
    from fitkit.report.analysis_sections import charts_of, sections  # slow to import

    return charts_of(sections(page, static=True))
