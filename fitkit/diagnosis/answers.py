"""What an analysis says in words: the headline, and answers to what is asked first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fitkit.diagnosis.time_use import MIN_RUNS
from fitkit.display import clip, format_number, format_quantity, format_share
from fitkit.report.analysis_figures import counted_scale
from fitkit.report.glance import Tile
from fitkit.report.ranking import ranked

if TYPE_CHECKING:
    from fitkit.diagnosis.analysis import Analysis

_NAME = 90  # characters of a curve in a sentence
_SHORT = 48  # in a tile
_NO_PART = ("training", "unexplained")
WHOLE = {"run": "the total", "step": "the step"}


def count(number: int, what: str) -> str:
    """A number of things: ``1 run``, ``6,036 runs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def headline(analysis: Analysis) -> str:
    """What limits the largest scale, and from where on; else what else is known."""
    for say in (_limit_sentence, _efficiency_sentence, _layer_sentence):
        if text := say(analysis):
            return text
    return f"No log of these {count(analysis.n_runs, 'run')} says where the time goes."


def _limit_sentence(analysis: Analysis) -> str:
    row = main_bottleneck(analysis)
    if row is None:
        return ""
    whole, part = WHOLE.get(row["view"], "the time"), row["bottleneck"]
    where = counted_scale(row["at"], row["scale"]) if math.isfinite(row["at"]) else "all scales"
    at = f"At {where}" if math.isfinite(row["at"]) else "Overall"
    text = f"{at} {part} takes {format_share(row['share'])} of {whole}"
    same = analysis.crossings
    if len(same):
        same = same[(same.series == row["series"]) & (same.part == part)]
        same = same[same["view"] == row["view"]]
    if len(same):
        crossed = same.iloc[0]
        reached = counted_scale(crossed["reached"], row["scale"])
        after = format_number(float(crossed["after"]))
        share = format_share(float(crossed["share_after"]))
        text += f"; it passes half between {after} ({share}) and {reached}"
        if not crossed["is_clear"]:
            few = min(crossed["n_after"], crossed["n_reached"]) < MIN_RUNS
            text += ", of which too few runs tell to be sure" if few else ", which is not sure"
    n_series = analysis.bottlenecks.series.nunique()
    return f"{text} ({clip(row['series'], _NAME)})." if n_series > 1 else f"{text}."


def main_bottleneck(analysis: Analysis) -> dict[Any, Any] | None:
    """What takes most of the main curve at its largest scale: of a run, else of a step.

    A view that names a part comes first: that training takes most of a run limits nothing.
    """
    found, rows = analysis.bottlenecks, []
    for view in WHOLE if len(found) else ():
        part = found[found["view"] == view]
        if len(part):
            own = part[part.series == ranked(part, analysis.first)[0]]
            rows.append(own.sort_values("at").iloc[-1].to_dict())
    named = [row for row in rows if row["bottleneck"] not in _NO_PART]
    return next(iter([*named, *rows]), None)


def _efficiency_sentence(analysis: Analysis) -> str:
    row = last_efficiency(analysis)
    if row is None:
        return ""
    what = "whole runs are" if row["view"] == "run" else "steps are"
    return (
        f"At {counted_scale(row['at'], row['scale'])} {what} "
        f"{format_number(row['speedup'])} times as fast as at the smallest scale: "
        f"{format_share(row['efficiency'])} of the ideal ({clip(row['series'], _NAME)})."
    )


def _layer_sentence(analysis: Analysis) -> str:
    layers = analysis.layers
    if layers.empty:
        return ""
    row = layers.iloc[int(layers.share.argmax())]
    return (
        f"Layer {clip(row.layer, _SHORT)} takes {format_share(float(row.share))} of the layers' "
        f"time ({row['phase']}, {clip(row['label'], _NAME)})."
    )


def last_efficiency(analysis: Analysis) -> dict[Any, Any] | None:
    """Efficiency of the main curve at its largest scale: of whole runs, else of steps."""
    found = analysis.efficiency
    for of in ("run", "step"):
        part = found[found["view"] == of] if len(found) else found
        part = part[part.efficiency.notna()] if len(part) else part
        several = part[part.groupby("series")["at"].transform("nunique") > 1] if len(part) else part
        if len(several):
            own = several[several.series == ranked(several, analysis.first)[0]]
            return own.sort_values("at").iloc[-1].to_dict()
    return None


# --- tiles ------------------------------------------------------------------------------------


def tiles(analysis: Analysis) -> list[Tile]:
    """What is asked first, with an answer each."""
    return [*_limits(analysis), *_stops(analysis), *_efficient(analysis), *_hidden(analysis),
            *_wrong(analysis), *_stands_out(analysis)]  # fmt: skip


def _limits(analysis: Analysis) -> Iterator[Tile]:
    row = main_bottleneck(analysis)
    if row is None:
        return
    where = counted_scale(row["at"], row["scale"]) if math.isfinite(row["at"]) else "every scale"
    beside = [f"{format_share(row['share'])} of {WHOLE.get(row['view'], 'the time')}"]
    if row["bottleneck"] == "training":
        beside.append("the logs divide it no further")
    if isinstance(row["runner_up"], str) and row["runner_up"]:
        beside.append(f"then {row['runner_up']}, {format_share(row['runner_up_share'])}")
    beside.append(_spoken_of(analysis.bottlenecks, row["series"]))
    yield Tile(f"What limits it at {where}?", row["bottleneck"], "; ".join(filter(None, beside)))


def _spoken_of(frame: pd.DataFrame, series: str) -> str:
    """Which curve, if there are several."""
    return clip(series, _SHORT) if len(frame.series.unique()) > 1 else ""


def _stops(analysis: Analysis) -> Iterator[Tile]:
    knees = analysis.knees
    if knees.empty:
        return
    names = [*ranked(analysis.efficiency, analysis.first), *knees.series]
    series = next(name for name in names if name in set(knees.series))
    own = knees[knees.series == series]
    is_last = own["name"].eq("fastest")
    row = (own[is_last] if is_last.any() else own).iloc[0]
    answer = f"at {format_number(float(row['at']))}" if math.isfinite(row["at"]) else ""
    if not answer:
        answer = "not up to " + format_number(float(row["n_max"])) if row["status"] == "none" \
            else "not determined"  # fmt: skip
    spoken = _spoken_of(knees, str(row["series"]))
    yield Tile("Where does scaling stop?", answer, "; ".join(filter(None, [row["text"], spoken])))


def _efficient(analysis: Analysis) -> Iterator[Tile]:
    row = last_efficiency(analysis)
    if row is None:
        return
    beside = [
        f"{format_number(row['speedup'])} times as fast as at the smallest scale",
        _spoken_of(analysis.efficiency, row["series"]),
    ]
    question = f"How efficient is it at {counted_scale(row['at'], row['scale'])}?"
    yield Tile(question, format_share(row["efficiency"]), "; ".join(filter(None, beside)))


def _hidden(analysis: Analysis) -> Iterator[Tile]:
    found = analysis.exposed
    known = found[found.exposed_share.notna()] if len(found) else found
    if known.empty:
        return
    row = known.iloc[int(known.exposed_share.astype(float).argmax())]
    question = "Communication that nothing hides?"
    yield Tile(question, f"up to {format_share(float(row.exposed_share))}",
               f"of a step; {clip(row['label'], _SHORT)}")  # fmt: skip


def _wrong(analysis: Analysis) -> Iterator[Tile]:
    if analysis.errors is None:
        return
    overall, n_seen = analysis.errors.overall, analysis.errors.n_leaks
    beside = f"in the median, {format_share(overall['mape'])} on average"
    if n_seen:  # what a model was fitted to says little of it
        beside += f"; not held out: it was fitted on {n_seen:,} of these runs"
    yield Tile("How wrong is the model?", format_share(overall["median_ape"]), beside)


def _stands_out(analysis: Analysis) -> Iterator[Tile]:
    question = "Which run is the outlier?"
    if len(analysis.outliers):
        row = analysis.outliers.iloc[0]
        side = "longer" if row.off > 0 else "shorter"
        what = "its step" if row["of"] == "step" else "it"
        beside = (
            f"{what} took {format_quantity(float(row.measured_s), 's')}, its repetitions "
            f"{format_quantity(float(row.usual_s), 's')}: {_times(float(row.off))} {side}"
        )
        more = len(analysis.outliers) - 1
        beside += f"; {more:,} more stand out" if more else ""
        yield Tile(question, clip(row.run_id, _SHORT), beside)
    elif len(analysis.straggling):
        row = analysis.straggling.iloc[0]
        beside = (
            f"{format_share(float(row.rate))} of its steps are {format_share(float(row.excess))} "
            "longer than the median"
        )
        yield Tile(question, clip(row.run_id, _SHORT), beside)


def _times(off: float) -> str:
    return f"{format_number(1 + off)} times" if off > 1 else format_share(abs(off))


# --- what a reader should know ----------------------------------------------------------------


def findings(analysis: Analysis, notes: Sequence[str] = ()) -> list[str]:
    """Sentences beside the headline: what misleads, what does not add up, what is unclear."""
    found = list(notes)
    if len(analysis.drift):
        flagged = analysis.drift[analysis.drift.is_flagged.astype(bool)]
        found += [f"{clip(row['group'])}: {row['reason']}" for row in flagged.to_dict("records")][
            :5
        ]
    accounts = analysis.accounts
    if len(accounts) and not accounts.adds_up.all():
        bad = accounts[~accounts.adds_up.astype(bool)]
        row = bad.iloc[int(bad.unexplained_share.abs().argmax())]
        found.append(
            f"The parts of {count(len(bad), 'whole')} of {len(accounts):,} do not add up within "
            f"2 %; most in {row.whole} of {clip(row.network)}: "
            f"{format_share(float(row.unexplained_share), signed=True)} unexplained."
        )
    if len(analysis.ranks):
        n_runs = analysis.ranks.run_id.nunique()
        found.append(f"In {count(n_runs, 'run')} the others wait for a slow rank.")
    return found
