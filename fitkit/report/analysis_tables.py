"""Tables of the page of an analysis; long ones say how many rows they leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from fitkit.report.part_looks import part_name
from fitkit.report.series import scale_words
from fitkit.report.tables import FRACTIONS, Table, table

MAX_ROWS = {False: 60, True: 25}
MAX_SOURCES = {False: 200, True: 60}
MAX_LAYERS = {False: 25, True: 15}
SHARES = FRACTIONS | {
    "runner_up_share", "share_after", "share_reached", "from_share", "to_share", "efficiency",
    "efficiency_low", "efficiency_high",
    "exposed_share", "off", "rate", "excess", "lag", "drift", "drift_low", "drift_high",
}  # fmt: skip
# column: heading, what it means
WORDS = {
    "at": ("scale", "how many nodes or workers"),
    "series": ("curve", "what was run"),
    "n_runs": ("runs", ""),
    "measured_s": ("time", "median of the runs"),
    "low_s": ("from", "90 % of the runs lie between the two"),
    "high_s": ("to", "90 % of the runs lie between the two"),
    "ideal_s": ("ideal", "what ideal scaling from the smallest scale would take"),
    "speedup": ("speed-up", "against the smallest scale"),
    "efficiency": ("efficiency", "share of the ideal speed"),
    "efficiency_low": ("low", "of the efficiency"),
    "efficiency_high": ("high", "of the efficiency"),
    "throughput": ("samples/s", ""),
    "from_share": ("low", "end of the 90 % interval of the share"),
    "to_share": ("high", "end of the 90 % interval of the share"),
    "bottleneck": ("takes most", ""),
    "runner_up": ("next", "what takes second most"),
    "runner_up_share": ("its share", ""),
    "is_clear": (
        "clear",
        "intervals of the two lie apart or, of fewer than 3 runs, one is twice the other",
    ),
    "part": ("part", ""),
    "after": ("after", "last scale at which it takes at most half"),
    "share_after": ("share", "at that scale"),
    "n_after": ("runs", "at that scale"),
    "reached": ("reached", "next scale, from which on it takes more"),
    "share_reached": ("share", "at that scale"),
    "n_reached": ("runs", "at that scale"),
    "label": ("set-up", ""),
    "n_workers": ("workers", ""),
    "step_s": ("step", ""),
    "comm_s": ("communication", "of a step, beside which no computing was timed"),
    "wait_s": ("wait", "for other ranks"),
    "hidden_s": ("hidden", "communication beside which devices compute; – if no log tells"),
    "exposed_share": ("share", "communication of the step"),
    "usual_s": ("repetitions", "median of the other runs of the same configuration"),
    "off": ("differs by", "from its repetitions"),
    "n": ("of", "runs of this configuration"),
    "n_ranks": ("ranks", ""),
    "median_s": ("median step", ""),
    "n_stragglers": ("stragglers", "steps far above the median"),
    "rate": ("rate", "share of the steps after warm-up"),
    "excess": ("longer by", "than the median step, on average"),
    "busy_s": ("busy in a step", "without communication and waiting"),
    "lag": ("longer by", "than the other ranks"),
    "n_repeated": ("repeated", "runs of a configuration that was run again"),
    "drift": ("drift", "from the first run to the last"),
    "drift_low": ("low", "of the drift, 90 % interval"),
    "drift_high": ("high", "of the drift, 90 % interval"),
    "reason": ("answer", ""),
    "layer_type": ("kind", ""),
    "duration_s": ("time", "of a median call"),
    "share": ("share", ""),
}


_QUESTIONS = {
    "fastest": "fastest scale", "knee": "where the step begins to grow",
    "knee of step": "where the step begins to grow",
    "knee of init": "where the start begins to grow",
}  # fmt: skip


def words_table(
    caption: str, frame: pd.DataFrame, columns: Sequence[str], note: str = "",
    words: Mapping[str, tuple[str, str]] = WORDS,
) -> Table:  # fmt: skip
    """A table of some columns, under headings that a reader knows."""
    shown = frame[[name for name in columns if name in frame]]
    found = table(caption, shown, note, SHARES)
    heads = [
        head._replace(label=words[name][0], explanation=words[name][1]) if name in words else head
        for name, head in zip(map(str, shown.columns), found.heads, strict=True)
    ]
    return found._replace(heads=heads)


def capped(n_shown: int, n_all: int, what: str) -> str:
    """How many rows a table does not show."""
    if n_all <= n_shown:
        return ""
    return f"{n_all - n_shown:,} more {what} are not shown; the JSON document has them all."


def _named(scale: str) -> dict[str, tuple[str, str]]:
    return {**WORDS, "at": (scale_words(scale), "")}


def use_table(use: pd.DataFrame, scale: str) -> Table:
    """The parts of one curve at each scale."""
    shown = use.rename(columns={"low": "from_share", "high": "to_share"})
    columns = ["at", "part", "seconds_s", "share", "from_share", "to_share", "n_runs"]
    shown = shown.assign(seconds_s=shown.seconds)
    words = {**_named(scale), "seconds_s": ("time", "of a run, or of a step")}
    return words_table("Where the time goes", shown, columns, "", words)


def _in_order(found: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Rows of the curves in the order in which they are drawn."""
    order = found.series.map({name: number for number, name in enumerate(names)})
    keys = ["_place", *(["at"] if "at" in found else [])]
    return found.assign(_place=order).sort_values(keys, kind="stable")


def bottleneck_table(found: pd.DataFrame, names: Sequence[str], static: bool) -> Table:
    """What takes most at each scale."""
    shown = _in_order(found, names).rename(columns={"low": "from_share", "high": "to_share"})
    views = shown["view"].astype(str)
    for name in ("bottleneck", "runner_up"):
        parts = zip(shown[name], views, strict=True)
        shown[name] = [
            part_name(one, view) if isinstance(one, str) else None for one, view in parts
        ]
    columns = ["series", "at", "bottleneck", "share", "from_share", "to_share", "runner_up",
               "runner_up_share", "is_clear", "n_runs"]  # fmt: skip
    most = MAX_ROWS[static]
    note = capped(min(most, len(shown)), len(shown), "scales and curves")
    return words_table("What takes most at each scale", shown.head(most), columns, note)


def crossing_table(found: pd.DataFrame, names: Sequence[str], static: bool) -> Table:
    """Where a part passes half of the whole; what is clear first."""
    ordered = _in_order(found.assign(at=found.reached), names)
    shown = ordered.sort_values("is_clear", ascending=False, kind="stable")
    shown = shown.assign(
        part=[
            part_name(str(one), str(view))
            for one, view in zip(shown.part, shown["view"], strict=True)
        ],
        kind=shown.kind.where(shown.kind != "crossing", "more than half"),
    )
    columns = ["series", "part", "kind", "after", "share_after", "n_after", "reached",
               "share_reached", "n_reached", "is_clear"]  # fmt: skip
    most = MAX_ROWS[static] // 2
    note = capped(min(most, len(shown)), len(shown), "curves and parts")
    words = {
        **WORDS,
        "kind": ("takes", "from the scale reached on"),
        "is_clear": ("clear", "3 runs or more whose interval leaves one half out, or 3 scales"),
    }
    caption = "Where a part passes half of the whole"
    return words_table(caption, shown.head(most), columns, note, words)


def efficiency_table(found: pd.DataFrame, drawn: pd.DataFrame, static: bool) -> Table:
    """Times and efficiency at each scale, the drawn curves first."""
    is_drawn = found.index.isin(drawn.index)
    every = pd.concat([drawn, found[~is_drawn].sort_values(["series", "at"])])
    columns = ["series", "at", "n_runs", "measured_s", "low_s", "high_s", "ideal_s", "speedup",
               "efficiency", "efficiency_low", "efficiency_high", "throughput"]  # fmt: skip
    most = 2 * MAX_ROWS[static]
    note = capped(min(most, len(every)), len(every), "scales and curves")
    return words_table("Time and efficiency over the scale", every.head(most), columns, note)


def knee_table(knees: pd.DataFrame, names: Sequence[str], static: bool) -> Table:
    """What is said of where each curve stops scaling; what is determined first."""
    ordered = _in_order(knees.assign(found=knees["at"]).drop(columns="at"), names)
    shown = ordered.assign(_last=ordered.found.isna()).sort_values("_last", kind="stable")
    shown = shown.rename(columns={"text": "reason"})
    shown["question"] = [_QUESTIONS.get(str(name), str(name)) for name in shown["name"]]
    most = MAX_ROWS[static] // 2
    note = capped(min(most, len(shown)), len(shown), "answers")
    return words_table(
        "Where scaling stops", shown.head(most), ["series", "question", "reason"], note
    )


def exposed_table(found: pd.DataFrame, static: bool) -> Table:
    """Communication of each set-up."""
    columns = [
        "label",
        "n_workers",
        "n_runs",
        "step_s",
        "comm_s",
        "wait_s",
        "hidden_s",
        "exposed_share",
    ]
    most = MAX_ROWS[static]
    note = capped(min(most, len(found)), len(found), "set-ups")
    return words_table("Communication of a step", found.head(most), columns, note)


def outlier_table(found: pd.DataFrame, static: bool) -> Table:
    """Runs that differ from their repetitions, the farthest first."""
    columns = ["run_id", "group", "of", "measured_s", "usual_s", "off", "n"]
    most = MAX_ROWS[static] // 2
    note = capped(min(most, len(found)), len(found), "runs")
    words = {
        **WORDS,
        "run_id": ("run", ""),
        "of": ("which time", ""),
        "n": ("runs", "of this configuration"),
    }
    shown = found.head(most)
    return words_table("Runs unlike their repetitions, farthest first", shown, columns, note, words)


def straggler_table(found: pd.DataFrame, static: bool) -> Table:
    """Runs with steps far longer than the others, most first."""
    columns = ["run_id", "n_ranks", "median_s", "n_stragglers", "rate", "excess"]
    most = MAX_ROWS[static] // 2
    note = capped(min(most, len(found)), len(found), "runs")
    words = {**WORDS, "run_id": ("run", "")}
    return words_table("Straggling steps, most first", found.head(most), columns, note, words)


def rank_table(found: pd.DataFrame, static: bool) -> Table:
    """Ranks that the others wait for, the slowest first."""
    most = MAX_ROWS[static] // 2
    note = capped(min(most, len(found)), len(found), "ranks")
    words = {**WORDS, "run_id": ("run", "")}
    columns = ["run_id", "rank", "busy_s", "lag"]
    return words_table("Ranks that the others wait for", found.head(most), columns, note, words)


def drift_table(found: pd.DataFrame, static: bool) -> Table:
    """What repetitions and the order of measuring say, flagged groups first."""
    shown = found.sort_values("is_flagged", ascending=False, kind="stable")
    shown = shown.rename(columns={"low": "drift_low", "high": "drift_high"})
    columns = ["group", "n_runs", "n_repeated", "drift", "drift_low", "drift_high", "reason"]
    most = MAX_ROWS[static] // 2
    note = capped(min(most, len(shown)), len(shown), "groups")
    return words_table("While the runs were measured", shown.head(most), columns, note)


def layer_table(layers: pd.DataFrame, setup: object, static: bool) -> Table:
    """The layers of the longest set-up that cost most."""
    own = layers[layers.label == setup].sort_values("share", ascending=False, kind="stable")
    most = MAX_LAYERS[static]
    note = capped(min(most, len(own)), len(own), "layers of this set-up")
    columns = ["layer", "layer_type", "phase", "duration_s", "share"]
    return words_table(f"Layers of {setup}", own.head(most), columns, note)


def accounts_table(accounts: pd.DataFrame, static: bool) -> Table:
    """Wholes beside the sum of their parts, those that do not add up first."""
    shown = accounts.drop(columns="parts", errors="ignore")
    shown = shown.assign(_size=shown.unexplained_share.abs())
    shown = shown.sort_values(["adds_up", "_size"], ascending=[True, False], kind="stable")
    most = MAX_ROWS[static] // 2
    note = capped(min(most, len(shown)), len(shown), "set-ups and wholes")
    return table("Parts beside the whole", shown.head(most).drop(columns="_size"), note)


def source_table(name: str, frame: pd.DataFrame, static: bool) -> Table:
    """Sources, versions or diagnostics."""
    most = MAX_SOURCES[static]
    return table(name, frame.head(most), capped(min(most, len(frame)), len(frame), name.lower()))
