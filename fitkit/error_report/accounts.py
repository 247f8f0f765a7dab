"""Phases and layers against the step and the run: what they leave is shown, not spread."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.models.layer_sums import account_for

COLUMNS = [
    "network", "n_workers", "whole", "n_runs", "measured_s", "parts_s", "unexplained_s",
    "unexplained_share", "adds_up", "worst_run", "worst_share", "parts",
]  # fmt: skip
# From the outside in; phases below "device" run beside the host's.
_WHOLES = (
    "total", "train", "epoch", "step", "compute", "forward", "backward", "optimizer", "init",
)  # fmt: skip
_SETUP = ["network", "n_workers"]
_LAYERS = "layers"


def time_accounts(dataset: Dataset, run_ids: Collection[str]) -> pd.DataFrame:
    """What is left of each measured whole beside its measured parts, by set-up.

    Sums over all steps and ranks, since medians do not add up. The parts of a whole are the phases
    that name it as their parent, those of ``forward`` and ``backward`` the layers as well. A
    phase ``other`` is no part but what is looked for.

    Returns
    -------
    DataFrame
        ``network, n_workers, whole, n_runs``; ``measured_s, parts_s, unexplained_s``: seconds of
        a run and rank on average; ``unexplained_share``, negative where parts run side by side;
        ``adds_up``: within 2 %; ``worst_run`` and its ``worst_share``; ``parts``: a list of
        ``part, seconds, share``.
    """
    pieces = _pieces(dataset, run_ids)
    if pieces.empty:
        return pd.DataFrame(columns=COLUMNS)
    by_run = pieces.pivot_table(
        index=["run_id", "whole"], columns="part", values="duration_s", aggfunc="sum"
    )
    if "" not in by_run:
        return pd.DataFrame(columns=COLUMNS)
    wholes = by_run.pop("").rename("measured_s")
    by_run, wholes = by_run[wholes > 0], wholes[wholes > 0]
    has_parts = by_run.notna().any(axis="columns")
    by_run, wholes = by_run[has_parts], wholes[has_parts]
    accounts = account_for(by_run.assign(measured_s=wholes), "measured_s", list(by_run.columns))
    accounts = accounts.assign(measured_s=wholes).join(by_run).reset_index()
    facts = _facts(dataset).reindex(accounts.run_id).reset_index(drop=True)
    accounts = accounts.assign(**{name: facts[name] for name in _SETUP})
    groups = accounts.groupby([*_SETUP, "whole"], dropna=False, sort=True)
    rows = [_row(key, part, list(by_run.columns)) for key, part in groups]
    rows.sort(key=lambda row: (str(row["network"]), str(row["n_workers"]), _place(row["whole"])))
    return pd.DataFrame(rows, columns=COLUMNS)


def _place(whole: str) -> int:
    return _WHOLES.index(whole) if whole in _WHOLES else len(_WHOLES)


def _row(key: Any, runs: pd.DataFrame, parts: list[str]) -> dict[str, Any]:
    seconds = {name: float(runs[name].fillna(0.0).mean()) for name in parts}
    seconds = {name: value for name, value in seconds.items() if value > 0}
    measured, sum_s = float(runs.measured_s.mean()), float(sum(seconds.values()))
    share = 1 - sum_s / measured
    worst = runs.loc[[runs.other_share.abs().idxmax()]].iloc[0]
    return {
        **dict(zip([*_SETUP, "whole"], key, strict=True)),
        "n_runs": len(runs),
        "measured_s": measured,
        "parts_s": sum_s,
        "unexplained_s": measured - sum_s,
        "unexplained_share": share,
        "adds_up": bool(runs.adds_up.all()),
        "worst_run": str(worst.run_id),
        "worst_share": float(worst.other_share),
        "parts": [
            {"part": name, "seconds": value, "share": value / measured}
            for name, value in sorted(seconds.items(), key=lambda item: -item[1])
        ],
    }


def _pieces(dataset: Dataset, run_ids: Collection[str]) -> pd.DataFrame:
    """Seconds of wholes, whose part is empty, and parts: ``run_id, whole, part, duration_s``."""
    phases = dataset.read("phases", ["run_id", "rank", "phase", "parent", "duration_s"])
    phases = phases[phases.run_id.isin(list(run_ids)) & phases.duration_s.notna()]
    top = phases.parent.isna()
    has_total = phases.run_id.isin(phases.run_id[top & (phases.phase == "total")])
    # What no phase contains is a part of the run, which its total measures, if it was measured.
    parent = phases.parent.mask(top & has_total & (phases.phase != "total"), "total")
    is_part = parent.notna() & (phases.phase != "other") & (parent != "device")
    wholes = phases.assign(whole=phases.phase, part="")
    if wholes.empty:
        return wholes[["run_id", "whole", "part", "duration_s"]]
    parts = phases.assign(whole=parent, part=phases.phase)[is_part]
    frames = [frame for frame in (parts, _layers(dataset, run_ids)) if len(frame)]
    return pd.concat([_of_a_rank(frame, wholes) for frame in [wholes, *frames]])


def _of_a_rank(pieces: pd.DataFrame, wholes: pd.DataFrame) -> pd.DataFrame:
    """Pieces with the seconds of a rank: their mean over the ranks that timed the whole.

    Where the whole is timed for the run, or a piece is, the ranks are all that the run has.
    """
    key = ["run_id", "whole"]
    ranks = wholes.groupby(key)["rank"].nunique().rename("n_of_whole")
    of_run = wholes.groupby("run_id")["rank"].nunique()
    pieces = pieces.join(ranks, on=key).dropna(subset="n_of_whole")
    timed = pd.MultiIndex.from_frame(wholes[[*key, "rank"]].drop_duplicates())
    is_timed = pd.MultiIndex.from_frame(pieces[[*key, "rank"]]).isin(timed)
    pieces = pieces[is_timed | (pieces.n_of_whole == 0) | pieces["rank"].isna()]
    n_ranks = pieces.n_of_whole.where(pieces.n_of_whole > 0, pieces.run_id.map(of_run))
    n_ranks = n_ranks.mask(pieces["rank"].isna(), 1).clip(lower=1)
    pieces = pieces.assign(duration_s=pieces.duration_s / n_ranks)
    return pieces[["run_id", "whole", "part", "duration_s"]]


def _layers(dataset: Dataset, run_ids: Collection[str]) -> pd.DataFrame:
    columns = ["run_id", "rank", "phase", "layer_index", "duration_s", "n"]
    layers = dataset.read("layers", columns)
    layers = layers[layers.run_id.isin(list(run_ids)) & (layers.n > 0)]
    placed = layers.layer_index.notna()  # a row without a place waits for the gradients
    layers = layers[placed | ~placed.groupby(layers.run_id).transform("any")]
    seconds = layers.duration_s.astype(float) * layers.n.astype(float)
    return layers.assign(whole=layers.phase, part=_LAYERS, duration_s=seconds)


def _facts(dataset: Dataset) -> pd.DataFrame:
    runs = dataset.read("runs", ["run_id", "network", "n_workers", "n_effective_workers"])
    runs = runs.assign(n_workers=runs.n_effective_workers.fillna(runs.n_workers).astype(float))
    return runs.drop_duplicates("run_id").set_index("run_id")[_SETUP]
