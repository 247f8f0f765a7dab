"""What the captions of an analysis say besides what is drawn."""

from __future__ import annotations

import pandas as pd

from fitkit.display import clip, format_number, format_quantity, format_share
from fitkit.report.series import differs, scale_words

SIGNS = (
    "Marks are the median of the runs, 90 % of them lie on the upright lines; "
    "dashed is what ideal scaling from the smallest scale would take."
)
_ALIKE = 0.03  # two times that differ by less tell the same
_CHANGING = (
    "Where the batch changes with the scale, the ideal step is the time for as many samples, so "
    "it may rise and fall."
)


def drawn_of(drawn: pd.DataFrame, every: pd.DataFrame, is_judged: bool) -> str:
    """How many curves are drawn, and which, if they are not all.

    Parameters
    ----------
    drawn, every
        ``view, series, kind``: of a chart; of all.
    is_judged
        Whether curves of a sure answer come first.
    """
    said = []
    n_drawn, n_all = drawn.series.nunique(), every.series.nunique()
    if n_drawn < n_all:
        first = "those of which it is surest what takes most, then " if is_judged else ""
        said.append(
            f"{n_drawn} of {n_all:,} curves are drawn: {first}those of most scales and widest "
            "reach, one of each group before the second of any; the figures have all."
        )
    if "kind" in drawn and (drawn.kind.eq("as measured") & drawn["view"].eq("step")).any():
        said.append(_CHANGING)
    return " ".join(said)


def means_beside(use: pd.DataFrame, efficiency: pd.DataFrame, scale: str) -> str:
    """Why the bars of a curve are not as long as its times in the chart above, if they are not."""
    if efficiency.empty:
        return ""
    view, series = use["view"].iloc[0], use.series.iloc[0]
    own = efficiency[(efficiency["view"] == view) & (efficiency.series == series)]
    rows = use.groupby("at").agg(seconds=("seconds", "sum"), n_runs=("n_runs", "first"))
    timed = own.set_index("at")[["measured_s", "n_runs"]].rename(columns={"n_runs": "n_timed"})
    both = rows.join(timed, how="inner")
    off = (both.seconds / both.measured_s - 1).abs()
    if both.empty or not off.max() > _ALIKE:
        return ""
    most = both.iloc[int(off.argmax())]
    at = float(both.index[int(off.argmax())])
    bars, marks = (format_quantity(float(most[name]), "s") for name in ("seconds", "measured_s"))
    what = (
        "means over the runs, as shares of medians would not add up"
        if view == "run"
        else "means over the steps whose parts a log times, slow ones too, as shares of medians "
        "would not add up"
    )
    words = scale_words(scale)
    where = f"{format_number(at)} {words.removesuffix('s') if at == 1 else words}"
    text = (
        f"Bars are {what}; the time over the scale is the median: {marks} at {where}, here {bars}"
    )
    fewer = most.n_runs < most.n_timed
    told = f", of {most.n_runs:.0f} of its {most.n_timed:.0f} runs" if fewer else ""
    return f"{text}{told}."


def no_batch_kept(use: pd.DataFrame) -> str:
    """That steps of a curve are of different batches, or of unknown ones."""
    if not {"kind", "batch"} <= set(use) or use["view"].iloc[0] != "step":
        return ""
    is_mixed = use.kind.eq("as measured").all() and use.batch.isna().all()
    return "No batch is kept over these scales." if is_mixed and differs(use["at"]) else ""


def exposed_words(every: pd.DataFrame, shown: pd.DataFrame) -> str:
    """What the shares of communication are, of which most, and what they leave open."""
    worst = shown.iloc[0]
    runs = (
        f", {worst.n_runs:.0f} run{'' if worst.n_runs == 1 else 's'}" if "n_runs" in shown else ""
    )
    most = f"{clip(shown.index[0], 100)} ({format_share(float(worst.exposed_share))}{runs})"
    said = [f"Share of a step that goes into communication, or waiting. Most: {most}."]
    n_several = every[every.n_workers.gt(1)].label.nunique()
    if len(shown) < n_several:
        said.append(f"{len(shown)} of {n_several:,} set-ups of several workers are drawn.")
    if every.hidden_s.isna().all():
        said.append("No log tells how much more computing hides.")
    return " ".join(said)
