"""What an analysis says in words: the headline, and answers to what is asked first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fitkit.diagnosis.telling import among_others
from fitkit.display import clip, format_number, format_quantity, format_share
from fitkit.report.analysis_figures import counted_scale
from fitkit.report.glance import Tile
from fitkit.report.part_looks import part_name
from fitkit.report.ranking import ranked

if TYPE_CHECKING:
    from fitkit.diagnosis.analysis import Analysis

_NAME = 90  # characters of a curve in a sentence
_SHORT = 48  # in a tile
_DIVIDED = 0.5  # of a whole, from which on its parts are meant to add up to it
_FEW = 4  # scales between which much may lie
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
    whole, part = WHOLE.get(row["view"], "the time"), part_name(row["bottleneck"], row["view"])
    at = f"At {counted_scale(row['at'], row['scale'])}" if _is_known(row["at"]) else "Overall"
    text = f"{at} {part} takes {format_share(row['share'])} of {whole} ({_how_sure(row)})"
    if passed := _passing(analysis, row):
        text += f"; {passed}"
    if others := among_others(row, analysis.bottlenecks, analysis.use):
        text += f"; {others}"
    name = clip(row["series"], _NAME)
    return f"{text}. Curve: {name}." if _has_several(analysis) else f"{text}."


def _is_known(at: object) -> bool:
    return isinstance(at, float | int) and math.isfinite(at)


def _has_several(analysis: Analysis) -> bool:
    return len(analysis.first) > 1


def _how_sure(row: Mapping[Any, Any]) -> str:
    """Of how many runs, and what comes next where that is not clear."""
    said = count(int(row["n_runs"]), "run")
    if row["is_clear"] or not isinstance(row["runner_up"], str):
        return said
    following = part_name(row["runner_up"], row["view"])
    return f"{said}, not clear: {following}, {format_share(row['runner_up_share'])}, comes next"


def _passing(analysis: Analysis, row: Mapping[Any, Any]) -> str:
    """From where on the part of that row takes more than half, if it stays above."""
    found = analysis.crossings
    if len(found):
        found = found[(found.series == row["series"]) & (found["view"] == row["view"])]
        found = found[found.part == row["bottleneck"]]
    if found.empty:
        return ""
    passed, reached = found.iloc[0], counted_scale(found.iloc[0]["reached"], row["scale"])
    if passed["kind"] != "crossing":
        where = "around half" if passed["kind"] == "around half" else "mostly above half"
        return f"it is {where} from {reached} on"
    if not passed["is_clear"]:
        return ""
    after, share = format_number(float(passed["after"])), format_share(float(passed["share_after"]))
    return f"it passes half between {after} ({share}) and {reached}"


def main_bottleneck(analysis: Analysis) -> dict[Any, Any] | None:
    """What takes most, at its largest scale, of the curve that is spoken of first."""
    return analysis.told.iloc[0].to_dict() if len(analysis.told) else None


def _efficiency_sentence(analysis: Analysis) -> str:
    found = last_efficiencies(analysis)
    if not found:
        return ""
    row = found[0]
    what = "whole runs are" if row["view"] == "run" else "steps are"
    return (
        f"At {counted_scale(row['at'], row['scale'])} {_faster(row, what)} as at the smallest "
        f"scale: "
        f"{format_share(row['efficiency'])} of the ideal ({count(int(row['n_runs']), 'run')}; "
        f"{clip(row['series'], _NAME)})."
    )


def _faster(row: Mapping[Any, Any], what: str = "") -> str:
    """How much more is done in a time; a step that grows with the scale does not get shorter."""
    times = f"{format_number(row['speedup'])} times"
    if row["view"] == "run" or row["kind"] == "strong":
        return f"{what} {times} as fast".strip()
    return f"{'training does ' if what else ''}{times} as many samples a second"


def _same_work(row: Mapping[Any, Any]) -> str:
    """What the efficiency of whole runs takes for granted, if no log counts their samples."""
    is_counted = row["view"] != "run" or math.isfinite(row["throughput"])
    return "" if is_counted else "if all did the same work: no log counts their samples"


def _layer_sentence(analysis: Analysis) -> str:
    layers = analysis.layers
    if layers.empty:
        return ""
    row = layers.iloc[int(layers.share.argmax())]
    return (
        f"Layer {clip(row.layer, _SHORT)} takes {format_share(float(row.share))} of the layers' "
        f"time ({row['phase']}, {clip(row['label'], _NAME)})."
    )


def last_efficiencies(analysis: Analysis) -> list[dict[Any, Any]]:
    """Efficiency of the main curve at its largest scale: of whole runs, then of its steps.

    With ``below``, words of where it falls below one half.
    """
    found = analysis.efficiency
    known = found[found.efficiency.notna()] if len(found) else found
    if known.empty:
        return []
    n_scales = known.groupby(["view", "series"])["at"].transform("nunique")
    several = known[n_scales > 1]
    if several.empty:
        return []
    name = ranked(several, analysis.first)[0]
    own = several[several.series == name].sort_values("at")
    parts = [own[own["view"] == view] for view in WHOLE]
    return [
        {**part.iloc[-1].to_dict(), "first": part["at"].iloc[0], "below": _below_half(part)}
        for part in parts
        if len(part)
    ]


def _below_half(own: pd.DataFrame) -> str:
    """Where the efficiency of a curve falls below one half, and stays there."""
    above = own.efficiency.ge(0.5).to_numpy()
    if above[-1] or not above.any():
        return ""
    last = len(above) - 1 - int(above[::-1].argmax())
    before, beyond = own.iloc[last], own.iloc[last + 1]
    return (
        f"it falls below one half between {format_number(float(before['at']))} "
        f"({format_share(float(before.efficiency))}) and "
        f"{counted_scale(float(beyond['at']), beyond.scale)}"
    )


# --- tiles ------------------------------------------------------------------------------------


def tiles(analysis: Analysis) -> list[Tile]:
    """What is asked first, with an answer each."""
    return [*_limits(analysis), *_stops(analysis), *_efficient(analysis), *_hidden(analysis),
            *_wrong(analysis), *_stands_out(analysis)]  # fmt: skip


def _limits(analysis: Analysis) -> Iterator[Tile]:
    row = main_bottleneck(analysis)
    if row is None:
        return
    where = counted_scale(row["at"], row["scale"]) if _is_known(row["at"]) else "every scale"
    own = analysis.use
    own = own[(own.series == row["series"]) & (own["view"] == row["view"])]
    own = own[(own.part == row["bottleneck"]) & own["at"].eq(row["at"])]
    seconds = f" ({format_quantity(float(own.seconds.iloc[0]), 's')})" if len(own) else ""
    whole = WHOLE.get(row["view"], "the time")
    beside = [f"{format_share(row['share'])} of {whole}{seconds}", _how_sure(row)]
    if row["bottleneck"] == "training":
        beside.append("the logs divide it no further")
    if row["is_clear"] and isinstance(row["runner_up"], str):
        following = part_name(row["runner_up"], row["view"])
        beside.append(f"then {following}, {format_share(row['runner_up_share'])}")
    beside.append(_other_view(analysis, row))
    answer = part_name(row["bottleneck"], row["view"])
    yield Tile(f"What limits it at {where}?", answer, "; ".join(filter(None, beside)))


def _other_view(analysis: Analysis, row: Mapping[Any, Any]) -> str:
    """What takes most of whole runs where a step is told of, and the other way round."""
    told = analysis.told
    same = told[(told.series == row["series"]) & (told["view"] != row["view"])]
    if same.empty or same["at"].iloc[0] != row["at"]:
        return ""
    other = same.iloc[0]
    what = "of whole runs" if other["view"] == "run" else "of the steps"
    part, share = part_name(other.bottleneck, other["view"]), format_share(float(other.share))
    return f"{what} {part} takes most, {share}" + ("" if other.is_clear else ", not clear")


def _spoken_of(analysis: Analysis, series: str) -> str:
    """Which curve, if it is another than the one of the headline."""
    main = analysis.first[:1]
    return "" if not _has_several(analysis) or [series] == main else clip(series, _SHORT)


def _stops(analysis: Analysis) -> Iterator[Tile]:
    knees = analysis.knees
    if knees.empty:
        return
    names = [*ranked(analysis.efficiency, analysis.first), *knees.series]
    series = next(name for name in names if name in set(knees.series))
    own = knees[knees.series == series]
    row = _most_telling(own)
    of_curve = analysis.efficiency
    of_curve = of_curve[(of_curve.series == series) & (of_curve["view"] == row["view"])]
    where = "at" if row["name"] == "fastest" else "knee at"
    answer = f"{where} {format_number(float(row['at']))}" if math.isfinite(row["at"]) else ""
    if not answer:
        answer = "not up to " + format_number(float(row["n_max"])) if row["status"] == "none" \
            else "not determined"  # fmt: skip
    text = str(row["text"]).removeprefix("not determined: ")
    said = [text, _few_scales(of_curve), _spoken_of(analysis, series)]
    yield Tile("Where does scaling stop?", answer, "; ".join(filter(None, said)))


def _most_telling(own: pd.DataFrame) -> pd.Series:
    """Of what is said of a curve: its fastest scale, its knee, or that there is neither."""
    is_last, is_found = own["name"].eq("fastest"), own["at"].notna()
    for rows in (own[is_last & is_found], own[is_found], own[is_last]):
        if len(rows):
            return rows.iloc[0]
    return own.iloc[0]


def _few_scales(of_curve: pd.DataFrame) -> str:
    """The scales, if they are so few that much lies between them."""
    at = [format_number(float(one)) for one in sorted(of_curve["at"].unique())]
    if not 1 < len(at) <= _FEW:
        return ""
    return f"measured at {', '.join(at[:-1])} and {at[-1]} only"


def _efficient(analysis: Analysis) -> Iterator[Tile]:
    found = last_efficiencies(analysis)
    if not found:
        return
    row = found[0]
    what = "whole runs" if row["view"] == "run" else "steps"
    speed = f"{_faster(row)} as at {format_number(row['first'])}"
    runs = count(int(row["n_runs"]), "run")
    beside = [f"of the ideal speed, {what} ({runs}): {speed}", _same_work(row), row["below"]]
    beside += [_of_steps(row, other) for other in found[1:]]
    beside.append(_spoken_of(analysis, row["series"]))
    question = f"How efficient is it at {counted_scale(row['at'], row['scale'])}?"
    yield Tile(question, format_share(row["efficiency"]), "; ".join(filter(None, beside)))


def _of_steps(row: Mapping[Any, Any], steps: Mapping[Any, Any]) -> str:
    share, same = format_share(steps["efficiency"]), steps["at"] == row["at"]
    where = "" if same else f" at {counted_scale(steps['at'], steps['scale'])}"
    return f"steps alone {share}{where}"


def _hidden(analysis: Analysis) -> Iterator[Tile]:
    """Of set-ups of several workers: one alone has nobody to talk to."""
    found = analysis.exposed
    known = found[found.exposed_share.notna() & found.n_workers.gt(1)] if len(found) else found
    if known.empty:
        return
    shares = known.exposed_share.astype(float)
    row = known.iloc[int(shares.argmax())]
    question = "How much of a step is communication?"
    beside = [
        f"{clip(row['label'], _NAME)} ({count(int(row['n_runs']), 'run')})",
        f"least of {count(len(known), 'set-up')}: {format_share(float(shares.min()))}"
        if len(known) > 1 else "",
        "no log tells what computing hides besides" if known.hidden_s.isna().all()
        else "what computing hides is not counted",
    ]  # fmt: skip
    answer = f"up to {format_share(float(row.exposed_share))}"
    yield Tile(question, answer, "; ".join(filter(None, beside)))


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
            f"{what} took {format_quantity(float(row.measured_s), 's')}, its "
            f"{count(int(row['n']) - 1, 'repetition')} {format_quantity(float(row.usual_s), 's')} "
            f"in the median: {_times(float(row.off))} {side}"
        )
        beside += f"; {clip(row['group'], _NAME)}" if _has_several(analysis) else ""
        more = len(analysis.outliers) - 1
        beside += f"; {more:,} more stand out" if more else ""
        yield Tile(question, clip(row.run_id, _NAME), beside)
    elif len(analysis.straggling):
        row = analysis.straggling.iloc[0]
        beside = (
            f"{format_share(float(row.rate))} of its steps are {format_share(float(row.excess))} "
            "longer than the median"
        )
        yield Tile(question, clip(row.run_id, _NAME), beside)


def _times(off: float) -> str:
    return f"{format_number(1 + off)} times" if off > 1 else format_share(abs(off))


# --- what a reader should know ----------------------------------------------------------------


def findings(analysis: Analysis, notes: Sequence[str] = ()) -> list[str]:
    """Sentences beside the headline: what misleads, what does not add up, what is unclear."""
    found = list(notes)
    found += [f"{words}." for words in analysis.jumps.words]
    found += _larger(analysis)
    if len(analysis.drift):
        flagged = analysis.drift[analysis.drift.is_flagged.astype(bool)]
        found += [f"{clip(row['group'])}: {row['reason']}" for row in flagged.to_dict("records")][
            :5
        ]
    accounts = analysis.accounts
    # Of whose time less than half is timed in parts, is not divided: nothing is missing in it.
    accounts = accounts[accounts.unexplained_share.abs() < _DIVIDED] if len(accounts) else accounts
    if len(accounts) and not accounts.adds_up.all():
        bad = accounts[~accounts.adds_up.astype(bool)]
        row = bad.iloc[int(bad.unexplained_share.abs().argmax())]
        found.append(
            f"In {len(bad):,} of {len(accounts):,} sums of parts (over runs, epochs or steps) more "
            f"than 2 % of the time is missing or counted twice; most in the {row.whole} of "
            f"{clip(row.network)}: "
            f"{format_share(float(row.unexplained_share), signed=True)} unexplained."
        )
    if len(analysis.ranks):
        n_runs = analysis.ranks.run_id.nunique()
        found.append(f"In {count(n_runs, 'run')} the others wait for a slow rank.")
    return found


def _larger(analysis: Analysis) -> list[str]:
    """That the headline does not speak of the largest scale of these runs."""
    row, found = main_bottleneck(analysis), analysis.bottlenecks
    if row is None or not _is_known(row["at"]):
        return []
    same = found[found.scale.eq(row["scale"]) & found["at"].gt(row["at"])]
    if same.empty:
        return []
    largest = same.iloc[int(same["at"].argmax())]
    where = counted_scale(float(largest["at"]), row["scale"])
    name = clip(largest["series"], _NAME)
    told = "the headline speaks of the curve that says most for sure"
    return [f"The largest scale of these runs is {where} ({name}); {told}."]
