"""Everything that a dataset says of itself without a split, as one object with one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.answers import count, findings, headline, main_bottleneck, tiles
from fitkit.diagnosis.gathering import FRAMES, gather
from fitkit.diagnosis.selected import SelectedRuns, measured, select
from fitkit.diagnosis.telling import told_first, why_this
from fitkit.display import Summary, Table, format_number, format_share
from fitkit.error_report import ErrorReport, plain_json
from fitkit.error_report.page import page_of
from fitkit.error_report.plain import json_text, records, save, write
from fitkit.error_report.provenance import provenance
from fitkit.errors import FitError
from fitkit.report.analysis_page import AnalysisPage, analysis_charts, analysis_page
from fitkit.report.glance import Tile
from fitkit.report.part_looks import part_name
from fitkit.report.pictures import Picture

_SCALES = 8  # rows of the table for a terminal


@dataclass
class Analysis:
    """Where the time of the runs of a dataset goes, where they stop scaling, what disturbs them.

    Attributes
    ----------
    dataset, where, n_runs
        What was analysed.
    use
        See `fitkit.diagnosis.time_use`.
    bottlenecks, crossings
        See `fitkit.diagnosis.bottlenecks` and `fitkit.diagnosis.crossings`.
    efficiency
        See `fitkit.diagnosis.efficiency`.
    jumps
        See `fitkit.diagnosis.jumps.jumps`.
    knees
        ``view, series, name`` (``fastest`` scale, ``knee`` of what), ``status, at, low, high,
        n_max`` and the ``text`` that says it.
    exposed
        See `fitkit.diagnosis.exposed`.
    outliers
        See `fitkit.diagnosis.outlying_runs`.
    straggling, ranks
        Rows of `fitkit.diagnosis.stragglers` with straggling steps, the most first, and slow
        ranks, the slowest first.
    drift
        Rows of `fitkit.diagnosis.order_drift` of which a start is known.
    layers, accounts
        See `fitkit.diagnosis.layer_shares` and `fitkit.error_report.time_accounts`.
    provenance
        Sources of the runs, versions and diagnostics.
    untold
        What no log tells, and what to record for it.
    errors
        What a model predicts of the same runs, if one was given.
    notes
        What else a reader should know.
    command
        That makes the same again.
    """

    dataset: str
    where: str | None
    n_runs: int
    use: pd.DataFrame
    bottlenecks: pd.DataFrame
    crossings: pd.DataFrame
    efficiency: pd.DataFrame
    jumps: pd.DataFrame
    knees: pd.DataFrame
    exposed: pd.DataFrame
    outliers: pd.DataFrame
    straggling: pd.DataFrame
    ranks: pd.DataFrame
    drift: pd.DataFrame
    layers: pd.DataFrame
    accounts: pd.DataFrame
    provenance: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    untold: Sequence[tuple[str, str]] = ()
    errors: ErrorReport | None = None
    notes: Sequence[str] = ()
    command: str = ""

    # -- words -----------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """What was analysed."""
        which = f" where {self.where}" if self.where else ""
        return f"Where the time goes: {count(self.n_runs, 'run')} of {self.dataset}{which}"

    @cached_property
    def headline(self) -> str:
        """What limits the largest scale, in a sentence."""
        return headline(self)

    @cached_property
    def told(self) -> pd.DataFrame:
        """What takes most of each curve at its largest scale, see `told_first`."""
        use = self.use
        return told_first(self.bottlenecks, set(use.series[use.kind.ne("as measured")]))

    @property
    def first(self) -> list[str]:
        """Names of the curves, that which says most for sure first."""
        return list(dict.fromkeys(self.told.series)) if len(self.told) else []

    @property
    def why(self) -> str:
        """Which curve is spoken of first, and why; empty if there is no other."""
        if not self.first:
            return ""
        reason = why_this(self.told.iloc[0], len(self.first))
        return f"{self.first[0]}: {reason}" if reason else ""

    @property
    def answers(self) -> list[Tile]:
        """Questions that are asked first, each with its answer and what stands beside it."""
        return tiles(self)

    @property
    def findings(self) -> list[str]:
        """What misleads, what does not add up, what is unclear."""
        return findings(self, self.notes)

    # -- shapes ----------------------------------------------------------------------------

    def summary(self) -> Summary:
        """The answers, for a terminal or a notebook; `fitkit diagnose` has the details."""
        facts = {"Result": self.headline}
        facts |= {"Curve": self.why} if self.why else {}
        facts |= {one.question: f"{one.answer} ({one.beside})" for one in self.answers}
        table = self._bottleneck_table()
        return Summary(self.title, facts, [table] if table.rows else [], self.findings)

    def _bottleneck_table(self) -> Table:
        row = main_bottleneck(self)
        names = ("scale", "takes most", "share", "next", "share", "clear", "runs")
        if row is None:
            return Table(names, ())
        found = self.bottlenecks
        own = found[(found["view"] == row["view"]) & (found.series == row["series"])]
        own = own.sort_values("at")
        rows = [
            (
                format_number(float(one["at"])), part_name(one["bottleneck"], one["view"]),
                format_share(one["share"]), part_name(_word(one["runner_up"]), one["view"]),
                format_share(one["runner_up_share"]), "yes" if one["is_clear"] else "no",
                format_number(float(one["n_runs"])),
            )
            for one in own.tail(_SCALES).to_dict("records")
        ]  # fmt: skip
        title = f"What takes most of {'a run' if row['view'] == 'run' else 'a step'}"
        title += f": {row['series']}"
        if len(own) > _SCALES:
            title += f" (the largest {_SCALES} of {len(own)} scales; all: --json)"
        return Table(names, tuple(rows), title, 2)

    def to_dict(self) -> dict[str, Any]:
        """The analysis as the JSON document of ``fitkit report --json``; null for NaN."""
        document = {
            "dataset": self.dataset,
            "where": self.where,
            "n_runs": self.n_runs,
            "headline": self.headline,
            "answers": [one._asdict() for one in self.answers],
            "findings": self.findings,
            **{name: records(getattr(self, name)) for name in FRAMES},
            "untold": [{"what": what, "record": how} for what, how in self.untold],
            "errors": self.errors.to_dict() if self.errors is not None else None,
            "provenance": {name: records(table) for name, table in self.provenance.items()},
            "command": self.command,
        }
        plain: dict[str, Any] = plain_json(document)
        return plain

    def to_html(self, path: Path | str, *, static: bool = False) -> None:
        """Write one self-contained page that opens offline.

        Parameters
        ----------
        static
            Draw plain pictures, which makes a small file, instead of charts that can be explored.
        """
        write(Path(path), analysis_page(self._page, static=static))

    def save(self, path: Path | str, *, static: bool = False) -> None:
        """Write the analysis; the suffix chooses between ``.html`` and ``.json``.

        Parameters
        ----------
        static
            As in `to_html`.

        Raises
        ------
        ValueError
            At another suffix.
        """
        shapes = {
            ".html": lambda: analysis_page(self._page, static=static),
            ".json": lambda: json_text(self.to_dict()),
        }
        save(Path(path), shapes, "an analysis")

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The charts of the page by name, as drawings for a notebook or a paper."""
        return {name: Picture(chart) for name, chart in analysis_charts(self._page).items()}

    def _repr_html_(self) -> str:
        first = next(iter(self.pictures.values()), None)
        return self.summary()._repr_html_() + (first._repr_html_() if first else "")

    @cached_property
    def _page(self) -> AnalysisPage:
        """What the page shows, as plain frames."""
        facts = {"Dataset": self.dataset, "Runs": f"{self.n_runs:,}"}
        facts |= {"Condition": self.where} if self.where else {}
        curves = self.efficiency.series.nunique() if len(self.efficiency) else 0
        facts |= {"Curves": f"{curves:,}"} if curves else {}
        facts |= {"Spoken of first": self.why} if self.why else {}
        return AnalysisPage(
            title=self.title,
            verdict=self.headline,
            tiles=self.answers,
            facts=facts,
            findings=self.findings,
            first=self.first,
            use=self.use,
            bottlenecks=self.bottlenecks,
            crossings=self.crossings,
            efficiency=self.efficiency,
            jumps=self.jumps,
            knees=self.knees,
            exposed=self.exposed,
            outliers=self.outliers,
            runs=self.straggling,
            ranks=self.ranks,
            drift=self.drift,
            layers=self.layers,
            accounts=self.accounts.drop(columns="parts", errors="ignore"),
            errors=page_of(self.errors) if self.errors is not None else None,
            untold=self.untold,
            provenance=self.provenance,
            reproduce=self.command,
        )


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def analyse(
    data: Dataset | Path | str,
    *,
    where: str | None = None,
    errors: ErrorReport | None = None,
    notes: Sequence[str] = (),
) -> Analysis:
    """Say where the time of the runs of a dataset goes, how they scale, and what disturbs them.

    Parameters
    ----------
    data
        A dataset, or its folder.
    where
        Condition on the columns of its runs.
    errors
        What a model predicts of the same runs, from `fitkit.validate`: shown beside.
    notes
        What else a reader of the page should know.

    Returns
    -------
    Analysis
        Its ``summary()``, ``to_html()``, ``to_dict()``, and the frames behind them.

    Raises
    ------
    InputError
        If there is no dataset, or no run meets the condition.
    ValueError
        If the condition cannot be read.
    """
    runs = select(data if isinstance(data, Dataset) else Dataset(data), where)
    frames, untold = gather(runs)
    return Analysis(
        dataset=Path(runs.path).name,
        where=where,
        n_runs=len(runs.run_ids),
        **frames,
        provenance=provenance(runs, runs.run_ids),
        untold=untold,
        errors=errors,
        notes=[*notes, *_left_out(runs)],
    )


def _left_out(runs: SelectedRuns) -> list[str]:
    """Runs that are not compared with the others, and why."""
    try:
        notes = measured(runs, "run").notes
    except FitError:  # no log times whole runs
        return []
    return [f"{note}." for note in notes if note.endswith(("left out", "not compared with them"))]
