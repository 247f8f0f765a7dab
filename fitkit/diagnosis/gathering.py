"""Every frame of an analysis, and what the logs of its runs do not tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from fitkit.diagnosis.bottlenecks import bottlenecks, crossings
from fitkit.diagnosis.efficiency import efficiency
from fitkit.diagnosis.exposure import exposed
from fitkit.diagnosis.jumps import jumps
from fitkit.diagnosis.order import COLUMNS as DRIFT
from fitkit.diagnosis.order import order_drift
from fitkit.diagnosis.outlying import MIN_ALIKE, most_alike, outlying_runs
from fitkit.diagnosis.ranks import stragglers
from fitkit.diagnosis.run_scaling import run_scaling
from fitkit.diagnosis.scaling import scaling
from fitkit.diagnosis.selected import SelectedRuns
from fitkit.diagnosis.series import series_name
from fitkit.diagnosis.shares import layer_shares
from fitkit.diagnosis.time_use import time_use
from fitkit.error_report import time_accounts
from fitkit.errors import FitError

FRAMES = (
    "use", "bottlenecks", "crossings", "efficiency", "jumps", "knees", "exposed", "outliers",
    "straggling", "ranks", "drift", "layers", "accounts",
)  # fmt: skip
KNEES = ["view", "series", "name", "status", "at", "low", "high", "n_max", "text"]


def gather(runs: SelectedRuns) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The frames of `FRAMES` by name; what no log tells, and what to record for it."""
    use, by_rank, by_run = time_use(runs), stragglers(runs), stragglers(runs, "run")
    drift = _found(order_drift, runs, DRIFT) if _has_starts(runs) else pd.DataFrame(columns=DRIFT)
    knees = [_found(measure, runs, KNEES) for measure in (_run_knees, _step_knees)]
    scales = efficiency(runs)
    frames = {
        "use": use,
        "bottlenecks": bottlenecks(use),
        "crossings": crossings(use),
        "efficiency": scales,
        "jumps": jumps(scales),
        "knees": pd.concat([one for one in knees if len(one)] or knees[:1], ignore_index=True),
        "exposed": exposed(runs),
        "outliers": outlying_runs(runs),
        "straggling": by_run[by_run.n_stragglers > 0].sort_values(
            ["rate", "run_id"], ascending=[False, True], ignore_index=True
        ),
        "ranks": by_rank[by_rank.is_slow.astype(bool)].sort_values(
            ["lag", "run_id"], ascending=[False, True], ignore_index=True
        ),
        "drift": drift[drift.n_runs > 0].reset_index(drop=True),
        "layers": layer_shares(runs),
        "accounts": time_accounts(runs, runs.run_ids),
    }
    return frames, _untold(runs, frames, by_rank)


def _found(
    measure: Callable[[SelectedRuns], pd.DataFrame], runs: SelectedRuns, columns: Sequence[str]
) -> pd.DataFrame:
    """What was measured; nothing where no log times it, and the page says so."""
    try:
        return measure(runs)
    except FitError:
        return pd.DataFrame(columns=list(columns))


def _has_starts(runs: SelectedRuns) -> bool:
    """Whether a log tells when anything started: without, nothing can drift."""
    tables = ("runs", "steps")
    return any(runs.read(table, ["started_at"]).started_at.notna().any() for table in tables)


def _named(answers: pd.DataFrame) -> pd.DataFrame:
    names = zip(answers.group, answers.kind, answers.batch, strict=True)
    return answers.assign(series=[series_name(*one) for one in names])


def _run_knees(runs: SelectedRuns) -> pd.DataFrame:
    answers = run_scaling(runs)
    if answers.empty:
        return pd.DataFrame(columns=KNEES)
    names = answers.what.replace({"total": "fastest"})
    return _named(answers).assign(view="run", name=names, text=answers.words)[KNEES]


def _step_knees(runs: SelectedRuns) -> pd.DataFrame:
    curves = scaling(runs)
    if curves.empty:
        return pd.DataFrame(columns=KNEES)
    named = _named(curves).assign(view="step")
    knee = named.assign(name="knee", status=named.knee_status, at=named.knee, low=named.knee_low,
                        high=named.knee_high, text=named.knee_words)  # fmt: skip
    nan = float("nan")
    fastest = named.assign(name="fastest", status=named.fastest_status, at=named.fastest, low=nan,
                           high=nan, text=named.fastest_words)  # fmt: skip
    return pd.concat([knee[KNEES], fastest[KNEES]], ignore_index=True)


def _is_hidden_told(exposed: pd.DataFrame) -> bool:
    """Whether a device was traced; nothing to tell where no communication is timed at all."""
    return exposed.empty or bool(exposed.hidden_s.notna().any())


def _untold(
    runs: SelectedRuns, frames: Mapping[str, pd.DataFrame], ranks: pd.DataFrame
) -> list[tuple[str, str]]:
    use, found = frames["use"], frames["efficiency"]
    n_scales = found.groupby("series")["at"].nunique().max() if len(found) else 0
    rows = (
        ("What a step consists of", bool(len(use)) and use["view"].eq("step").any(),
         "record the phases of a step: fitkit record, a trace, CNTK's profiler"),
        ("How it scales", n_scales > 1,
         "run the same network and batch with two or more numbers of workers"),
        ("Communication of a step", len(frames["exposed"]),
         "keep a trace of every rank, or time the collectives"),
        ("Communication that computing hides", _is_hidden_told(frames["exposed"]),
         "keep a trace of the devices, such as of torch.profiler"),
        ("Runs unlike their repetitions", most_alike(runs) >= MIN_ALIKE,
         f"repeat a configuration {MIN_ALIKE} times or more"),
        ("Straggling steps", ranks.rate.notna().any(), "log the time of each of 8 steps or more"),
        ("Ranks that the others wait for", ranks.lag.notna().any(), "keep the log of every rank"),
        ("Drift of the machine", len(frames["drift"]),
         "log when each run started, and repeat a configuration after a while"),
        ("Layers that cost most", len(frames["layers"]),
         "fitkit record, a trace, or CNTK's profiler"),
        ("What the parts leave unexplained", len(frames["accounts"]),
         "time phases together with the whole that they are part of"),
    )  # fmt: skip
    return [(what, how) for what, is_told, how in rows if not is_told]
