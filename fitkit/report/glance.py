"""What a reader who only looks takes away: a few questions, each with a figure for an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitkit.display import clip, format_share, whole_percent
from fitkit.report import ErrorPage
from fitkit.report.series import differs, scale_words
from fitkit.report.tables import Table

_SURE = 0.9  # share of the resamples that decides, as in the sentence above
_ALIKE = 0.05  # difference of two errors that decides nothing
_WIDTH = 48  # characters of a name in a tile


class Tile(NamedTuple):
    """A question, its answer, and what stands beside it."""

    question: str
    answer: str
    beside: str


def glance(page: ErrorPage, parts: Table) -> list[Tile]:
    """Answers that the frames of a report give, most asked first.

    Parameters
    ----------
    page
        The report.
    parts
        Where the time goes: a row for each scale, a column for each part.
    """
    return [
        *_error(page.overall), *_intervals(page), *_better(page), *_outlier(page),
        *_limit(page.bottlenecks, parts, page.scale),
    ]  # fmt: skip


def _figure(row: Any, name: str) -> float:
    value = row.get(name)
    return float(value) if value is not None and pd.notna(value) else float("nan")


def _error(overall: pd.DataFrame) -> Iterator[Tile]:
    if overall.empty or "mape" not in overall:
        return
    row = overall.iloc[0]
    median, mape, floor, bias = (
        _figure(row, name) for name in ("median_ape", "mape", "floor", "bias")
    )
    is_known = np.isfinite(median)
    beside = [f"in the median, {format_share(mape)} on average" if is_known else "on average"]
    known = f"repetitions differ by {format_share(floor)}"
    beside.append(known if np.isfinite(floor) else "no configuration was repeated")
    if np.isfinite(bias):
        side = "too long" if bias > 0 else "too short"
        beside.append(f"predictions are {format_share(abs(bias))} {side} on average")
    yield Tile("How wrong is it?", format_share(median if is_known else mape), "; ".join(beside))


def _intervals(page: ErrorPage) -> Iterator[Tile]:
    found = dict(page.coverage_test)
    share = _figure(found, "share")
    if not np.isfinite(share) and len(page.overall):
        share = _figure(page.overall.iloc[0], "coverage")
    if not np.isfinite(share):
        return
    beside = "of the measurements lie in their interval"
    if np.isfinite(page.level):
        beside += f", which is to hold {100 * page.level:.6g} %"
    if found.get("verdict"):
        beside += f": {found['verdict']}"
    yield Tile("Are the intervals honest?", format_share(share), beside)


def _better(page: ErrorPage) -> Iterator[Tile]:
    question = "Better than the best baseline?"
    if len(page.skill):
        row = page.skill.iloc[0]
        name = str(row["baseline"]).replace("_", " ")
        better = _figure(row, "better")
        if np.isfinite(better):
            answer = "yes" if better >= _SURE else "no" if better <= 1 - _SURE else "about as good"
            more, share = ("less", better) if better >= 0.5 else ("more", 1 - better)
            said = f"errs {more} than {clip(name, _WIDTH)} in {whole_percent(share)} of resamples"
            beside = f"counting errors as factors, it {said}"
            yield Tile(question, answer, beside)
            return
    if len(page.baselines) < 2:
        return
    others = page.baselines.iloc[1:].dropna(subset=["mape"])
    if len(others):
        best = others.iloc[int(others.mape.astype(float).argmin())]
        ratio = _figure(page.baselines.iloc[0], "mape") / max(_figure(best, "mape"), 1e-12)
        verdict = "as good" if abs(ratio - 1) <= _ALIKE else "yes" if ratio < 1 else "no"
        beside = (
            f"{clip(best['name'], _WIDTH)} errs by {format_share(_figure(best, 'mape'))} on average"
        )
        yield Tile(question, verdict, beside)


def _outlier(page: ErrorPage) -> Iterator[Tile]:
    worst = page.worst
    if worst.empty:
        rows = page.rows
        if len(rows) < 2 or "run_id" not in rows:
            return
        known = rows[rows.measured_s.gt(0)]
        worst = known.assign(error=known.predicted_s / known.measured_s - 1)
        worst = worst.loc[worst.error.abs().sort_values(ascending=False).index[:1]]
    if len(worst):
        row = worst.iloc[0]
        error = _figure(row, "error")
        said = [f"predicted {format_share(abs(error))} too {'long' if error > 0 else 'short'}"]
        reason = row.get("reason")
        if "reasons" in worst or len(page.worst):
            said.append(f"likely reason: {clip(reason, 160)}" if reason else "")
        name = clip(row.get("run_id") or "one without a name", _WIDTH)
        yield Tile("Which run is farthest off?", name, "; ".join(filter(None, said)))


def _largest(bottlenecks: pd.DataFrame) -> pd.Series:
    """The row of the largest scale of the first series."""
    if "series" in bottlenecks:
        bottlenecks = bottlenecks[bottlenecks.series == bottlenecks.series.iloc[0]]
    return bottlenecks.sort_values("at").iloc[-1]


def _limit(bottlenecks: pd.DataFrame, parts: Table, scale: str) -> Iterator[Tile]:
    """What takes most of the time at the largest scale."""
    if len(bottlenecks):
        row = _largest(bottlenecks)
        share, second = _figure(row, "share"), _figure(row, "runner_up_share")
        said = [f"{format_share(share)} of the measured time"] if np.isfinite(share) else []
        if np.isfinite(second):
            said.append(f"next is {clip(row['runner_up'], _WIDTH)}, {format_share(second)}")
        if "series" in bottlenecks and differs(bottlenecks.series):
            said.append(f"of {clip(row['series'], _WIDTH)}")
        words = f" {scale_words(scale)}" if scale else ""
        yield Tile(
            f"What limits it at {row['at']:g}{words}?",
            clip(row.bottleneck, _WIDTH),
            "; ".join(said),
        )
    elif parts.sections:
        last = parts.sections[0][1][-1]
        seconds = [cell.value or 0.0 for cell in last[1:]]
        largest = int(np.argmax(seconds))
        words = parts.heads[0].label
        part = format_share(seconds[largest] / (sum(seconds) or 1.0))
        question = f"What takes most of it at {last[0].text} {words}?"
        yield Tile(
            question, clip(parts.heads[largest + 1].label, _WIDTH), f"{part} of the measured time"
        )
