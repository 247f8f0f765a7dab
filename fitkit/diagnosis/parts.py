"""The parts of a run and of a step: which phase counts as what, and as seconds of a rank."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

INITIALISATION, IO, COMPUTE, COMMUNICATION = "initialisation", "I/O", "compute", "communication"
WAIT, EVALUATION, CHECKPOINT, TEARDOWN = "wait", "evaluation", "checkpoint", "teardown"
TRAINING, UNEXPLAINED = "training", "unexplained"

PARTS = (
    INITIALISATION, IO, COMPUTE, COMMUNICATION, WAIT, EVALUATION, CHECKPOINT, TEARDOWN, TRAINING,
    UNEXPLAINED,
)  # fmt: skip

START = ("launch", "init", "staging", "precompute", "prologue")
WORK = ("forward", "backward", "compute", "optimizer", "grad_accumulate")

PART_OF = {
    **dict.fromkeys(START, INITIALISATION),
    **dict.fromkeys(WORK, COMPUTE),
    "io": IO, "comm": COMMUNICATION, "wait": WAIT, "eval": EVALUATION, "checkpoint": CHECKPOINT,
    "teardown": TEARDOWN,
}  # fmt: skip


def moved(rows: pd.DataFrame, tops: Collection[str]) -> pd.DataFrame:
    """Rows with their ``part``, and what lies inside of another part once more, taken from that.

    Parameters
    ----------
    rows
        ``phase, parent, duration_s`` and what else tells rows apart.
    tops
        Parents whose phases are parts. A phase below another one counts where it is of another
        part than that: communication inside of ``backward`` is no computing.
    """
    part, outer = rows.phase.map(PART_OF), rows.parent.map(PART_OF)
    direct = rows.parent.isin(list(tops))
    inside = ~direct & part.notna() & outer.notna() & (part != outer)
    taken = rows[inside].assign(part=outer[inside], duration_s=-rows.duration_s[inside])
    return pd.concat([rows.assign(part=part)[(direct | inside) & part.notna()], taken])


def of_a_rank(rows: pd.DataFrame, n_ranks: pd.Series) -> pd.DataFrame:
    """Seconds of each part of each run, a column for each part; what was not timed is null.

    Ranks are averaged over all that timed the whole, since a part that one of them has alone
    keeps the others waiting; what is timed for the run as one is of every rank.

    Parameters
    ----------
    rows
        ``run_id, rank, part, duration_s``.
    n_ranks
        That timed the whole, by ``run_id``.
    """
    if rows.empty:
        return pd.DataFrame(index=pd.Index([], name="run_id", dtype=object), dtype=float)
    of_run = rows.run_id.map(n_ranks).where(rows["rank"].notna(), 1).fillna(1).clip(lower=1)
    shared = rows.assign(duration_s=rows.duration_s / of_run)
    return shared.pivot_table("duration_s", "run_id", "part", "sum").astype(float)
