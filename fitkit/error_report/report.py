"""ErrorReport: how wrong a model is on runs it never saw, as text, JSON, CSV and a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fitkit.display import Summary, format_share
from fitkit.error_report.accounts import COLUMNS as ACCOUNTS
from fitkit.error_report.comparison import Comparison, compare
from fitkit.error_report.context import Context
from fitkit.error_report.coverage import CoverageTest, coverage_test
from fitkit.error_report.figures import BESIDE, FIGURES, error_figures, is_below
from fitkit.error_report.gates import Gate, judge_gates
from fitkit.error_report.headline import findings
from fitkit.error_report.junit import junit_xml
from fitkit.error_report.leaks import COLUMNS as LEAKS
from fitkit.error_report.old_report import OldReport, read_report
from fitkit.error_report.outliers import COLUMNS as WORST
from fitkit.error_report.page import page_of
from fitkit.error_report.plain import json_text, plain_json, records, save, write
from fitkit.error_report.skill import has_skill, skills
from fitkit.error_report.tables import report_summary
from fitkit.models.domain import STAMP
from fitkit.report import MAIN_CHART, error_charts, error_page
from fitkit.report.pictures import Picture


@dataclass
class ErrorReport:
    """Prediction error on held-out configurations.

    Attributes
    ----------
    rows
        One row for each held-out configuration: its features, ``measured_s, predicted_s, low_s,
        high_s, status, fold``, the baselines' guesses, ``n_repeats, repeat_difference``,
        ``below_floor``: whether repetitions of it differ by as much as the prediction errs.
    runs
        Each run's measured and predicted total over its held-out rows, see
        `fitkit.error_report.outliers.run_totals`.
    clocks
        `error_figures` by clock: wall clock and, where known, CPU time.
    groups
        `error_figures` by held-out value, phase, layer and so on: ``by, value, ...``,
        ``below_floor, under_covering``.
    parameters
        Parameters of the fit to all rows.
    notes
        What was left out or refused, and why.
    worst
        The ten runs with the largest errors and their likely reasons, see
        `fitkit.error_report.outliers.worst_runs`.
    leaks
        Runs that are the same run under another name, see `fitkit.error_report.split_leaks`.
    accounts
        What phases and layers leave of the step and the run, see
        `fitkit.error_report.accounts.time_accounts`.
    configuration_columns
        Columns that name a configuration.
    provenance
        Sources, versions and diagnostics behind the runs, frames by caption.
    gates
        Limits that the report was held against, see `check`.
    comparison
        The report beside an older one, see `compare_with`; nothing if it was not asked for.
    ask_context
        Says how the runs scale and where their time goes. It is asked when that is shown first.
    """

    recipe: str
    split: str
    target: str
    statistic: str
    level: float
    rows: pd.DataFrame
    runs: pd.DataFrame
    parameters: pd.DataFrame
    clocks: pd.DataFrame
    groups: pd.DataFrame
    notes: Sequence[str] = ()
    n_runs: int = 0
    is_held_out: bool = True
    command: str = ""
    worst: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=WORST))
    leaks: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=LEAKS))
    accounts: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=ACCOUNTS))
    configuration_columns: Sequence[str] = ()
    provenance: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    gates: list[Gate] = field(default_factory=list)
    comparison: Comparison | None = None
    ask_context: Callable[[ErrorReport], Context] | None = field(
        default=None, repr=False, compare=False
    )

    # -- figures ---------------------------------------------------------------------------

    @property
    def overall(self) -> dict[str, float]:
        """Figures over all held-out rows."""
        figures = error_figures(self.rows)
        keep = ("n", *FIGURES, "coverage", "width")
        return {name: figures[name] for name in keep}

    @property
    def noise_floor(self) -> dict[str, float]:
        """Difference of two repetitions of a configuration: no model errs less for long."""
        repeats = self.rows[self.rows.predicted_s.notna()].repeat_difference.dropna()
        return {
            "n": len(repeats),
            "mape": float(repeats.mean()),
            "median_ape": float(repeats.median()),
        }

    @property
    def below_floor(self) -> bool | None:
        """Whether the MAPE is no larger than the noise floor; nothing if that is not known."""
        return is_below(self.overall["mape"], self.noise_floor["mape"])

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Figures of each baseline on the rows that the model and it both predict.

        One that lacks a column or training rows for all of them predicts none: it is not listed.
        """
        found = {}
        rows = self.rows[self.rows.predicted_s.notna()]
        for name in BESIDE:
            if name in rows and rows[name].notna().any():
                guesses = pd.DataFrame(
                    {"measured_s": rows.measured_s, "predicted_s": rows[name].astype(float)}
                )
                figures = error_figures(guesses)
                found[name] = {key: figures[key] for key in ("n", *FIGURES)}
        return found

    @cached_property
    def skill(self) -> pd.DataFrame:
        """By how much the model errs less than each baseline, see `fitkit.error_report.skills`."""
        return skills(self.rows)

    @property
    def has_skill(self) -> bool | None:
        """Whether it beats one constant for all configurations; nothing if that is not known."""
        return has_skill(self.skill)

    @cached_property
    def coverage_test(self) -> CoverageTest:
        """Whether the intervals hold what their level says."""
        return coverage_test(self.rows[self.rows.predicted_s.notna()], self.level)

    @property
    def n_leaks(self) -> int:
        """Held-out runs that are equal to a training run."""
        return int(self.leaks[self.leaks.kind == "leak"].run_id.nunique())

    @property
    def run_error(self) -> dict[str, float]:
        """Figures over the totals of the runs."""
        figures = error_figures(self.runs)
        return {key: figures[key] for key in ("n", *FIGURES)}

    @cached_property
    def context(self) -> Context:
        """How the runs scale and where their time goes; empty where nothing tells."""
        return self.ask_context(self) if self.ask_context is not None else Context()

    # -- judgement -------------------------------------------------------------------------

    def check(
        self, max_mape: float | None = None, max_bias: float | None = None,
        min_coverage: float | None = None, by: str | None = None,
    ) -> list[Gate]:  # fmt: skip
        """Hold the report against limits, which it then also shows.

        Parameters
        ----------
        max_mape, max_bias
            Largest mean absolute error, and largest mean signed error to either side.
        min_coverage
            Least share of the measurements that lie in their interval.
        by
            Column of the rows: each of its values has to keep the limits as well.

        Raises
        ------
        ValueError
            If there is no such column, or it is given without a limit.
        """
        limits = {"max_mape": max_mape, "max_bias": max_bias, "min_coverage": min_coverage}
        # What a model was fitted to elsewhere is named; only a split promises to keep it apart.
        n_leaks = self.n_leaks if self.is_held_out else 0
        self.gates = judge_gates(self.rows, self.overall, limits, by=by, n_leaks=n_leaks)
        return self.gates

    def compare_with(self, old: OldReport | Path | str) -> Comparison:
        """Compare with a report that was saved as JSON before; the comparison is then shown, too.

        Raises
        ------
        InputError
            If the file is no report, or one of another recipe or target.
        """
        if not isinstance(old, OldReport):
            old = read_report(old)
        names = ("recipe", "target", "split", "statistic")
        how = {name: str(getattr(self, name)) for name in names}
        self.comparison = compare(self.rows, old, self.configuration_columns, how)
        return self.comparison

    # -- words -----------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """What was judged."""
        what = "on held-out runs" if self.is_held_out else "with a model fitted elsewhere"
        return f"Prediction error of recipe {self.recipe} {what}"

    @property
    def verdict(self) -> str:
        """The result in words, behind whatever makes it worth little."""
        return " ".join(self.findings)

    @property
    def findings(self) -> list[str]:
        """The sentences of the verdict, what matters most first."""
        return findings(self)

    @property
    def facts(self) -> Mapping[str, str]:
        """Name to text: what was judged, on what, and how to do it again."""
        floor = self.noise_floor
        facts = {
            "Split": self.split,
            "Time": f"{self.target}, {self.statistic} over steps and repetitions",
            "Held-out configurations": f"{self.overall['n']:.0f}",
            "Runs": str(self.n_runs),
        }
        if floor["n"]:
            facts["Noise floor"] = (
                f"two repetitions differ by {format_share(floor['median_ape'])} in the median, "
                f"{format_share(floor['mape'])} on average ({floor['n']:.0f} configurations)"
            )
        else:
            facts["Noise floor"] = "not known: no held-out configuration was repeated"
        if len(self.runs) > 1:
            facts["Run totals"] = _figures_text(self.run_error)
        if extrapolated := self._extrapolated():
            facts["Extrapolated"] = extrapolated
        if self.command:
            facts["How to reproduce"] = self.command
        return facts

    def _extrapolated(self) -> str:
        """How many rows lie outside what the fit that predicts them had measured."""
        far = int((self.rows.status == "extrapolated").sum()) if "status" in self.rows else 0
        if not far:
            return ""
        forced = int(self.rows.reason.astype(str).str.startswith(STAMP).sum())
        text = f"{far} of {len(self.rows)} lie outside the range of their fit"
        return f"{text}; {forced} of them `fitkit predict` would refuse" if forced else text

    # -- shapes ----------------------------------------------------------------------------

    def summary(self) -> Summary:
        """The report for a terminal or a notebook."""
        return report_summary(self)

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The charts of the page by name, as drawings for a notebook or a paper."""
        return {name: Picture(chart) for name, chart in error_charts(page_of(self)).items()}

    def _repr_html_(self) -> str:
        drawn = self.pictures.get(MAIN_CHART)
        return self.summary()._repr_html_() + (drawn._repr_html_() if drawn else "")

    def to_dict(self) -> dict[str, Any]:
        """The report as the JSON document of ``fitkit validate --json``; null for NaN."""
        compared = self.comparison
        document = {
            "recipe": self.recipe,
            "split": self.split,
            "target": self.target,
            "statistic": self.statistic,
            "level": self.level,
            "n_runs": self.n_runs,
            "verdict": self.verdict,
            "overall": self.overall,
            "noise_floor": self.noise_floor,
            "below_floor": self.below_floor,
            "baselines": self.baselines,
            "skill": records(self.skill),
            "has_skill": self.has_skill,
            "coverage_test": self.coverage_test.to_dict(),
            "run_error": self.run_error,
            "clocks": records(self.clocks),
            "groups": records(self.groups),
            "runs": records(self.runs),
            "worst": records(self.worst),
            "leaks": records(self.leaks),
            "accounts": records(self.accounts),
            "context": self.context.to_dict(),
            "gates": [vars(gate) for gate in self.gates],
            "comparison": compared and {**vars(compared), "groups": records(compared.groups)},
            "parameters": records(self.parameters),
            "provenance": {name: records(table) for name, table in self.provenance.items()},
            "configuration_columns": list(self.configuration_columns),
            "rows": records(self.rows),
            "notes": list(self.notes),
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
        write(Path(path), error_page(page_of(self), static=static))

    def to_junit(self, path: Path | str) -> None:
        """Write the limits of `check` as JUnit XML, a test for each."""
        write(Path(path), junit_xml(self))

    def save(self, path: Path | str, *, static: bool = False) -> None:
        """Write the report; the suffix chooses between ``.html``, ``.json`` and ``.csv`` (rows).

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
            ".html": lambda: error_page(page_of(self), static=static),
            ".json": lambda: json_text(self.to_dict()),
            ".csv": lambda: self.rows.to_csv(index=False),
        }
        save(Path(path), shapes, "a report")


def _figures_text(figures: Mapping[str, float]) -> str:
    return (
        f"{format_share(figures['median_ape'])} in the median, {format_share(figures['mape'])} on "
        f"average ({figures['n']:.0f} runs)"
    )
