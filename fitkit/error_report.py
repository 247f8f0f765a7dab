"""ErrorReport: how wrong a model is on runs it never saw, as text, JSON, CSV and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fitkit.display import DASH, Summary, Table, format_share
from fitkit.models.baselines import BASELINES
from fitkit.models.columns import is_null
from fitkit.models.domain import STAMP
from fitkit.models.terms import TERMS
from fitkit.report import ErrorPage, error_page

_MAX_GROUPS = 25
_FIGURES = ("mape", "median_ape", "p90_ape", "wape", "bias")


def error_figures(rows: pd.DataFrame) -> dict[str, float]:
    """Figures of the rows that have a prediction.

    Parameters
    ----------
    rows
        Columns ``measured_s, predicted_s, low_s, high_s, repeat_difference`` and one for each
        baseline; missing ones give null.

    Returns
    -------
    dict
        ``n``; ``mape, median_ape, p90_ape``: mean, median and 90th percentile of the absolute
        error as a fraction of the measured time; ``wape``: summed absolute error by summed
        time; ``bias``: mean signed error; ``coverage, width`` of the intervals, the latter by
        the measured time; ``floor, median_floor``: mean and median difference of two
        repetitions; the MAPE of each baseline.
    """
    known = rows[rows.predicted_s.notna()]
    measured = known.measured_s.to_numpy(dtype=float)
    error = known.predicted_s.to_numpy(dtype=float) - measured
    relative = error / measured
    absolute = np.abs(relative)
    figures = {
        "n": len(known),
        "mape": _mean(absolute),
        "median_ape": float(np.median(absolute)) if len(known) else float("nan"),
        "p90_ape": float(np.quantile(absolute, 0.9)) if len(known) else float("nan"),
        "wape": float(np.abs(error).sum() / measured.sum()) if len(known) else float("nan"),
        "bias": _mean(relative),
        **_intervals(known, measured),
    }
    repeats = known.get("repeat_difference", pd.Series(dtype=float)).dropna()
    figures["floor"] = float(repeats.mean())
    figures["median_floor"] = float(repeats.median())
    for name in BASELINES:
        guessed = (
            known[name].to_numpy(dtype=float) if name in known else np.full(len(known), np.nan)
        )
        figures[name] = _mean(np.abs(guessed / measured - 1))
    return figures


def _mean(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("nan")


def _intervals(known: pd.DataFrame, measured: np.ndarray) -> dict[str, float]:
    if "low_s" not in known:
        return {"coverage": float("nan"), "width": float("nan")}
    low, high = known.low_s.to_numpy(dtype=float), known.high_s.to_numpy(dtype=float)
    have = np.isfinite(low) & np.isfinite(high)
    if not have.any():
        return {"coverage": float("nan"), "width": float("nan")}
    inside = (low <= measured) & (measured <= high)
    return {
        "coverage": float(inside[have].mean()),
        "width": float(((high - low) / measured)[have].mean()),
    }


@dataclass
class ErrorReport:
    """Prediction error on held-out configurations.

    Attributes
    ----------
    rows
        One row for each held-out configuration: its features, ``measured_s, predicted_s, low_s,
        high_s, status, fold``, the baselines' guesses, ``n_repeats, repeat_difference``.
    runs
        Each run's measured and predicted total over its held-out rows.
    clocks
        `error_figures` by clock: wall clock and, where known, CPU time.
    groups
        `error_figures` by held-out value, phase, layer and so on: ``by, value, ...``.
    parameters
        Parameters of the fit to all rows.
    notes
        What was left out or refused, and why.
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
    breakdown: pd.DataFrame = field(default_factory=pd.DataFrame)

    # -- figures ---------------------------------------------------------------------------

    @property
    def overall(self) -> dict[str, float]:
        """Figures over all held-out rows."""
        figures = error_figures(self.rows)
        keep = ("n", *_FIGURES, "coverage", "width")
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
    def baselines(self) -> dict[str, dict[str, float]]:
        """Figures of each baseline on the rows that the model and it both predict.

        One that lacks a column or training rows for all of them predicts none: it is not listed.
        """
        found = {}
        rows = self.rows[self.rows.predicted_s.notna()]
        for name in BASELINES:
            if name in rows and rows[name].notna().any():
                guesses = pd.DataFrame(
                    {"measured_s": rows.measured_s, "predicted_s": rows[name].astype(float)}
                )
                figures = error_figures(guesses)
                found[name] = {key: figures[key] for key in ("n", *_FIGURES)}
        return found

    @property
    def run_error(self) -> dict[str, float]:
        """Figures over the totals of the runs."""
        figures = error_figures(self.runs)
        return {key: figures[key] for key in ("n", *_FIGURES)}

    @property
    def title(self) -> str:
        """What was judged."""
        what = "on held-out runs" if self.is_held_out else "with a model fitted elsewhere"
        return f"Prediction error of recipe {self.recipe} {what}"

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        overall, worst = self.overall, self._worst()
        held_out = "held-out " if self.is_held_out else ""
        text = (
            f"On {overall['n']:.0f} {held_out}configurations the model errs by "
            f"{format_share(overall['median_ape'])} in the median and "
            f"{format_share(overall['mape'])} on average"
        )
        if np.isfinite(self.noise_floor["mape"]):
            text += f"; two repetitions differ by {format_share(self.noise_floor['mape'])}"
        return text + (f". Worst: {worst}." if worst else ".")

    def _extrapolated(self) -> str:
        """How many rows lie outside what the fit that predicts them had measured."""
        far = int((self.rows.status == "extrapolated").sum()) if "status" in self.rows else 0
        if not far:
            return ""
        forced = int(self.rows.reason.astype(str).str.startswith(STAMP).sum())
        text = f"{far} of {len(self.rows)} lie outside the range of their fit"
        return f"{text}, {forced} of them so far that nobody would be answered unasked"

    def _worst(self) -> str:
        groups = self.groups[self.groups.by.isin(["layer and phase", "phase", "held out"])]
        groups = groups[groups.n > 0]
        if len(groups) < 2:
            return ""
        row = groups.nlargest(1, "mape").iloc[0]
        return f"{row['value']}, {format_share(row['mape'])}"

    # -- shapes ----------------------------------------------------------------------------

    def summary(self) -> Summary:
        """The report for a terminal or a notebook."""
        tables = [self._clock_table(), self._baseline_table()]
        tables += [self._group_table(by) for by in dict.fromkeys(self.groups.by)]
        shown = [table for table in tables if table.rows]
        return Summary(self.title, self._facts(), shown, [self.verdict, *self.notes])

    def _clock_table(self) -> Table:
        rows = [
            (
                str(c["clock"]), f"{c['n']:.0f}", *(format_share(c[name]) for name in _FIGURES),
                format_share(c["median_floor"]), format_share(c["floor"]),
                format_share(c["coverage"]), format_share(c["width"]),
            )
            for c in self.clocks.to_dict("records")
        ]  # fmt: skip
        return Table(
            (
                "clock", "n", "MAPE", "median", "p90", "by time", "bias", "floor (median)",
                "floor (mean)", f"in {self.level:.0%} interval", "its width",
            ),
            tuple(rows),
            "Error beside the noise floor, the difference of two repetitions",
        )  # fmt: skip

    def _baseline_table(self) -> Table:
        judged = {"fitkit": self.overall, **self.baselines}
        rows = [(_words(name), f"{f['n']:.0f}", *_shares(f)) for name, f in judged.items()]
        columns = ("", "n", "MAPE", "median", "p90", "by time", "bias")
        return Table(columns, tuple(rows), "Beside the baselines, each on the n rows it predicts")

    def _group_table(self, by: str) -> Table:
        groups = self.groups[self.groups.by == by]
        shown = groups.nlargest(_MAX_GROUPS, "n") if len(groups) > _MAX_GROUPS else groups
        more = f" ({len(groups) - len(shown)} more)" if len(shown) < len(groups) else ""
        rows = [
            (
                _value_text(row["value"]), f"{row['n']:.0f}",
                *(format_share(row[name]) for name in ("mape", "median_ape", "bias", "floor")),
                _best_baseline(row),
            )
            for row in shown.to_dict("records")
        ]  # fmt: skip
        columns = (by, "n", "MAPE", "median", "bias", "floor", "best baseline")
        return Table(columns, tuple(rows), f"By {by}{more}")

    def to_dict(self) -> dict[str, Any]:
        """The report as the JSON document of ``fitkit validate --json``; null for NaN."""
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
            "baselines": self.baselines,
            "run_error": self.run_error,
            "clocks": _records(self.clocks),
            "groups": _records(self.groups),
            "runs": _records(self.runs),
            "parameters": _records(self.parameters),
            "rows": _records(self.rows),
            "notes": list(self.notes),
            "command": self.command,
        }
        plain: dict[str, Any] = plain_json(document)
        return plain

    def to_html(self, path: Path | str) -> None:
        """Write one self-contained page that opens offline."""
        _write(Path(path), error_page(self._page()))

    def save(self, path: Path | str) -> None:
        """Write the report; the suffix chooses between ``.html``, ``.json`` and ``.csv`` (rows).

        Raises
        ------
        ValueError
            At another suffix.
        """
        path, suffix = Path(path), Path(path).suffix.lower()
        if suffix in (".html", ".htm"):
            self.to_html(path)
        elif suffix == ".json":
            _write(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        elif suffix == ".csv":
            _write(path, self.rows.to_csv(index=False))
        else:
            raise ValueError(f"{path}: write a report as .html, .json or .csv")

    def _page(self) -> ErrorPage:
        parameters = self.parameters[self.parameters.status.isin(["positive", "zero"])]
        meanings = [TERMS[name].meaning for name in parameters.term]
        names = ["group", "run_id", "measured_s", "predicted_s", "low_s", "high_s"]
        features = [c for c in self.rows.columns if c not in (*names, *BASELINES) and _is_told(c)]
        told = [c for c in features if len(self.rows[c].unique()) > 1]
        rows = self.rows[self.rows.predicted_s.notna()]
        judged = {"fitkit": self.overall, **self.baselines}
        baselines = pd.DataFrame([{"name": _words(name), **f} for name, f in judged.items()])
        columns = ["by", "value", "n", "mape", "median_ape", "bias", "floor", *BASELINES]
        return ErrorPage(
            title=self.title,
            verdict=self.verdict,
            facts=self._facts(),
            overall=self.clocks[["clock", "n", *_FIGURES, "floor", "coverage", "width"]],
            baselines=baselines[["name", "n", "mape", "median_ape"]],
            groups=self.groups[columns].rename(columns=_words),
            rows=rows.reindex(columns=[*names, *told]),
            parameters=parameters.assign(meaning=meanings),
            breakdown=self.breakdown,
            notes=list(self.notes),
        )

    def _facts(self) -> Mapping[str, str]:
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
        if len(self.runs) > 1:
            facts["Run totals"] = _figures_text(self.run_error)
        if extrapolated := self._extrapolated():
            facts["Extrapolated"] = extrapolated
        if self.command:
            facts["How to reproduce"] = self.command
        return facts


def _is_told(name: str) -> bool:
    return not name.startswith(("repeat_", "cpu_")) and name not in (
        "reason", "started_at", "layer_group", "weight_shape", "fold",
    )  # fmt: skip


def _words(name: str) -> str:
    return name.replace("_", " ") if name in BASELINES else name


def _best_baseline(figures: Mapping[Any, Any]) -> str:
    known = [name for name in BASELINES if np.isfinite(figures[name])]
    if not known:
        return DASH
    best = min(known, key=lambda name: figures[name])
    return f"{_words(best)} {format_share(figures[best])}"


def _shares(figures: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(format_share(figures[name]) for name in _FIGURES)


def _figures_text(figures: Mapping[str, float]) -> str:
    return (
        f"{format_share(figures['median_ape'])} in the median, {format_share(figures['mape'])} on "
        f"average ({figures['n']:.0f} runs)"
    )


def _value_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def plain_json(value: Any) -> Any:
    """JSON values: nulls and infinities become null, instants ISO text, other objects text."""
    if isinstance(value, dict):
        return {str(key): plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if is_null(value) or (isinstance(value, float) and not np.isfinite(value)):
        return None
    if isinstance(value, date):  # an instant is one, too
        return value.isoformat()
    return value if isinstance(value, str | int | float) else str(value)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(path)
