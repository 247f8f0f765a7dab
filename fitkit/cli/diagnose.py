"""fitkit diagnose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import pandas as pd

from fitkit.cli.options import common, print_json, print_result, where
from fitkit.dataset import Dataset
from fitkit.diagnosis import (
    device_shares,
    layer_shares,
    of_several,
    order_drift,
    phase_shares,
    run_scaling,
    scaling,
    select,
    stragglers,
)
from fitkit.display import Summary, Table, format_number, format_quantity, format_share
from fitkit.error_report import plain_json
from fitkit.errors import FitError

_SHOWN = 12  # rows of a table for people; --json has all
_LARGEST = 3  # phases or layers named for each set-up


@click.command(epilog="Example: fitkit diagnose runs-parquet --where 'network == \"tinygpt\"'")
@click.argument("dataset")
@where
@common
def command(dataset: str, where: str | None, as_json: bool, quiet: bool) -> None:
    """Say where the time goes, what disturbs it, and whether the measuring order misleads."""
    runs = select(Dataset(dataset), where)
    found, said = _sections(runs)
    if as_json:
        frames = {name: frame.to_dict("records") for name, frame in found.items()}
        document = {"dataset": dataset, "where": where, "n_runs": len(runs.run_ids), **frames}
        print_json(plain_json({**document, "said": said, "warnings": _warnings(found)}))
    else:
        print_result(_summary(dataset, len(runs.run_ids), found, said))


def _sections(runs: Dataset) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """What each section found, and what it says in a line: why, if it found nothing."""
    found = {
        "phases": of_several(phase_shares(runs)),
        "device": device_shares(runs),
        "layers": layer_shares(runs),
        "stragglers": stragglers(runs),
        "straggler_runs": stragglers(runs, "run"),
    }
    said = {
        "phases": _say_shares(found["phases"], "times more than one phase of a step"),
        "layers": _say_shares(found["layers"], "times the layers of a network"),
        "stragglers": _say_stragglers(found["stragglers"]),
        "slow ranks": _say_ranks(found["stragglers"]),
    }
    if len(found["device"]):
        said["phases"] += " on the host"
        said["device"] = _say_shares(found["device"], "")
    found["drift"], said["drift"] = _or_reason(order_drift, runs, _say_drift)
    found["scaling"], said["scaling"] = _or_reason(scaling, runs, _say_scaling)
    found["runs"], said["whole runs"] = _or_reason(run_scaling, runs, _say_runs)
    return found, said


def _or_reason(
    measure: Callable[[Dataset], pd.DataFrame], runs: Dataset, say: Callable[[pd.DataFrame], str]
) -> tuple[pd.DataFrame, str]:
    try:
        frame = measure(runs)
    except FitError as error:
        return pd.DataFrame(), f"nothing to say: {error}"
    return frame, say(frame)


def _say_shares(shares: pd.DataFrame, what: str) -> str:
    if shares.empty:
        return f"nothing to say: no log {what}"
    setups = shares.label.nunique()
    largest = shares.sort_values("share", kind="stable").groupby("label").last()
    name = "layer_type" if "layer_type" in shares else "phase"
    counts = largest[name].fillna("?").value_counts().sort_index().sort_values(kind="stable")
    return f"{counts.index[-1]} takes most in {counts.iloc[-1]} of {_count(setups, 'set-up')}"


def _say_stragglers(ranks: pd.DataFrame) -> str:
    if ranks.empty:
        return "nothing to say: no log times steps"
    ranks = ranks[ranks.rate.notna()]
    if ranks.empty:
        return "nothing to say: no rank has times of 8 steps, of fewer none stands out"
    steady, late = (ranks.n_steps - ranks.n_warm_up).sum(), ranks.n_stragglers.sum()
    if not late:
        return f"none of {steady:.0f} steps after warm-up"
    excess = (ranks.excess * ranks.n_stragglers).sum() / late
    runs = ranks[ranks.n_stragglers > 0].run_id.nunique()
    return (
        f"{late:.0f} of {steady:.0f} steps after warm-up ({format_share(late / steady)}), "
        f"{format_share(excess)} longer than the median, in {runs} of {ranks.run_id.nunique()} runs"
    )


def _say_ranks(ranks: pd.DataFrame) -> str:
    if ranks.empty:
        return "nothing to say: no log times steps"
    several = ranks[ranks.lag.notna()].run_id.nunique()
    if not several:
        return "nothing to say: no run has the steps of more than one rank"
    slow = ranks[ranks.is_slow]
    if slow.empty:
        return f"none in {_count(several, 'run')} of several ranks"
    return f"in {slow.run_id.nunique()} of {_count(several, 'run')} of several ranks"


def _say_drift(groups: pd.DataFrame) -> str:
    if not groups.n_runs.any():
        return "nothing to say: no run with a step time says when it started"
    alone = groups[groups.scope == "group"]
    counts = alone.verdict.value_counts()
    listed = ", ".join(f"{verdict} in {n}" for verdict, n in sorted(counts.items()))
    return f"{_count(len(alone), 'group')}: {listed}"


def _say_scaling(curves: pd.DataFrame) -> str:
    if curves.empty:
        return "nothing to say: nothing was measured with 5 numbers of workers at one batch"
    knees = (curves.knee_status == "knee").sum()
    turns = (curves.fastest_status == "turning point").sum()
    return f"a knee in {knees} of {_count(len(curves), 'curve')}, a fastest scale in {turns}"


def _say_runs(answers: pd.DataFrame) -> str:
    if answers.empty:
        return "nothing to say: no group of runs was measured at 3 scales"
    totals = answers[answers.what == "total"]
    stops = (totals.status == "turning point").sum()
    knees = (answers.status == "knee").sum()
    curves = _count(len(totals), "curve")
    return f"a fastest scale in {stops} of {curves}, {_count(knees, 'knee')} of their parts"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _warnings(found: dict[str, pd.DataFrame]) -> list[str]:
    drift = found["drift"]
    flagged = drift[drift.is_flagged] if len(drift) else drift
    return [f"{row['group']}: {row['reason']}" for row in flagged.to_dict("records")]


def _summary(
    dataset: str, n_runs: int, found: dict[str, pd.DataFrame], said: dict[str, str]
) -> Summary:
    tables = [
        _share_table(found["phases"], "phase", "Where the time of a median step goes"),
        _share_table(found["device"], "phase", "What devices did in a median step"),
        _share_table(found["layers"], "layer", "Layers that cost most"),
        _straggler_table(found["straggler_runs"]),
        _rank_table(found["stragglers"]),
        _drift_table(found["drift"]),
        _scaling_table(found["scaling"]),
        _run_table(found["runs"]),
    ]
    title = f"Diagnosis of {_count(n_runs, 'run')} in {dataset}"
    return Summary(title, said, [table for table in tables if table.rows], _warnings(found))


def _share_table(shares: pd.DataFrame, name: str, title: str) -> Table:
    """The largest parts of each set-up, the longest set-ups first."""
    rows = []
    if len(shares):
        whole = shares.groupby("label").duration_s.sum()
        whole = whole.sort_index().sort_values(ascending=False, kind="stable")
        for label, seconds in whole.head(_SHOWN).items():
            parts = shares[shares.label == label].nlargest(_LARGEST, "share").to_dict("records")
            listed = ", ".join(
                f"{_part(part, name)} {format_share(part['share'])}" for part in parts
            )
            rows.append((str(label), format_quantity(seconds, "s"), listed))
    return _table(("set-up", "all", f"largest {name}s"), rows, title, shares, "label")


def _part(part: dict[Any, Any], name: str) -> str:
    return f"{part['layer']} {part['phase']}" if name == "layer" else str(part["phase"])


def _straggler_table(runs: pd.DataFrame) -> Table:
    late = runs[runs.n_stragglers > 0]
    worst = late.sort_values(["rate", "run_id"], ascending=[False, True]).head(_SHOWN)
    rows = [
        (
            row["run_id"], f"{row['n_ranks']}", format_quantity(row["median_s"], "s"),
            f"{row['n_stragglers']:.0f}", format_share(row["rate"]), format_share(row["excess"]),
        )
        for row in worst.to_dict("records")
    ]  # fmt: skip
    names = ("run", "ranks", "median step", "stragglers", "rate", "longer by")
    return _table(names, rows, "Stragglers, most first", late, "run_id", n_labels=1)


def _rank_table(ranks: pd.DataFrame) -> Table:
    slow = ranks[ranks.is_slow.astype(bool)]
    worst = slow.sort_values(["lag", "run_id"], ascending=[False, True]).head(_SHOWN)
    rows = [
        (
            row["run_id"], f"{row['rank']}", format_quantity(row["busy_s"], "s"),
            format_share(row["lag"]),
        )
        for row in worst.to_dict("records")
    ]  # fmt: skip
    names = ("run", "rank", "busy in a step", "longer than the others by")
    return _table(names, rows, "Ranks that the others wait for", slow, "run_id", n_labels=1)


def _drift_table(groups: pd.DataFrame) -> Table:
    """What is said of each group of which a start is known, flagged ones first."""
    dated = groups[groups.n_runs > 0] if len(groups) else groups
    first = dated.sort_values("is_flagged", ascending=False, kind="stable") if len(dated) else dated
    rows = [
        (row["group"], f"{row['n_repeated']} of {row['n_runs']}", row["reason"])
        for row in first.head(_SHOWN).to_dict("records")
    ]
    names = ("group", "runs repeated", "what repetitions and the order say")
    return _table(names, rows, "Drift while the runs were measured", dated, "group")


def _scaling_table(curves: pd.DataFrame) -> Table:
    rows = [
        (
            row["group"], f"{row['kind']}, batch {format_number(row['batch'])}",
            f"{row['n_scales']} numbers to {format_number(row['n_max'])}",
            row["knee_words"], row["fastest_words"],
        )
        for row in curves.head(_SHOWN).to_dict("records")
    ]  # fmt: skip
    names = ("group", "scaling", "workers", "knee of the step", "fastest")
    title = "Scaling"
    if len(curves) > len(rows):
        title = f"{title} ({len(rows)} of {len(curves)}; all: --json)"
    return Table(names, tuple(rows), title, len(names))


def _run_table(answers: pd.DataFrame) -> Table:
    rows = [
        (
            row["group"], row["what"], f"{row['n_scales']} to {format_number(row['n_max'])}",
            row["unit"], row["words"],
        )
        for row in answers.head(_SHOWN).to_dict("records")
    ]  # fmt: skip
    names = ("group", "what", "scales", "", "where it stops")
    title = "Where whole runs stop scaling"
    if len(answers) > len(rows):
        title = f"{title} ({len(rows)} of {len(answers)}; all: --json)"
    return Table(names, tuple(rows), title, len(names))


def _table(
    names: tuple[str, ...], rows: Sequence[tuple[str, ...]], title: str, every: pd.DataFrame,
    by: str, n_labels: int | None = None,
) -> Table:  # fmt: skip
    """A table that says how many rows it does not show."""
    total = every[by].nunique() if len(every) else 0
    if total > len(rows):
        title = f"{title} ({len(rows)} of {total}; all: --json)"
    return Table(names, tuple(rows), title, len(names) if n_labels is None else n_labels)
