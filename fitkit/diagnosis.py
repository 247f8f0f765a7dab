"""Where the time goes: shares of the phases in a step, of the layers in a network."""

from __future__ import annotations

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.features import layer_times, phase_times
from fitkit.models.grouped import key_text

# What a user recognises a training set-up by.
_SETUP = ["framework", "network", "n_workers", "local_batch", "instrument"]


def phase_shares(dataset: Dataset) -> pd.DataFrame:
    """Median step of each set-up, phase by phase.

    Returns
    -------
    DataFrame
        ``label`` (the set-up), ``phase``, ``duration_s`` (mean over its runs of the median step),
        ``share`` of the step, sorted by set-up and falling share.
    """
    times = phase_times(dataset, "median")
    times = times[times.phase != "init"]
    return _shares(times, ["phase"])


def layer_shares(dataset: Dataset) -> pd.DataFrame:
    """Median call of each layer and phase, of each set-up.

    Returns
    -------
    DataFrame
        ``label``, ``layer``, ``layer_type``, ``phase``, ``duration_s``, ``share`` of all layers.
    """
    return _shares(layer_times(dataset, "median"), ["layer", "layer_type", "phase"])


def _shares(times: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    columns = ["label", *names, "duration_s", "share"]
    if times.empty:
        return pd.DataFrame(columns=columns)
    times = times.assign(label=[_label(row) for row in times[_SETUP].to_dict("records")])
    shares = times.groupby(["label", *names], sort=False).duration_s.mean().reset_index()
    shares["share"] = shares.duration_s / shares.groupby("label").duration_s.transform("sum")
    return shares.sort_values(["label", "share"], ascending=[True, False])[columns].reset_index(
        drop=True
    )


def _label(row: dict[object, object]) -> str:
    workers, batch = row["n_workers"], row["local_batch"]
    parts = [key_text(row["framework"]), key_text(row["network"])]  # type: ignore[arg-type]
    if workers == workers:
        parts.append(f"{key_text(workers)} worker{'' if workers == 1 else 's'}")  # type: ignore[arg-type]
    if batch == batch:
        parts.append(f"batch {batch:g}")
    if row["framework"] == "pytorch" and row["instrument"]:
        parts.append(f"instrument {row['instrument']}")
    return " · ".join(parts)
