"""Where the time goes: shares of the phases in a step, of the layers in a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.features import layer_times, phase_times
from fitkit.models.columns import is_null, key_text

# What a user recognises a training set-up by; and what else makes it another one.
_NAMED = ["framework", "network", "network_params", "n_workers", "local_batch", "instrument"]
_APART = ["device", "system", "sync_method"]
SETUP = [*_NAMED, *_APART]


def phase_shares(dataset: Dataset) -> pd.DataFrame:
    """Median step of each set-up, phase by phase.

    Returns
    -------
    DataFrame
        ``label`` and columns of the set-up, ``phase``, ``duration_s`` (the median step, mean over
        runs), ``share`` of the step; sorted by set-up and falling share.
    """
    times = phase_times(dataset, "median").rename(columns={"n_params": "network_params"})
    return _shares(times[times.phase != "init"], ["phase"])


def device_shares(dataset: Dataset) -> pd.DataFrame:
    """What the devices of each set-up did in a median step, as `phase_shares` says it.

    Its phases are ``compute``, ``overlap`` (with communication), ``comm`` (that nothing hides),
    ``copy``, ``launch_gap`` and ``idle``.
    """
    times = phase_times(dataset, "median", "device").rename(columns={"n_params": "network_params"})
    return _shares(times, ["phase"])


def layer_shares(dataset: Dataset) -> pd.DataFrame:
    """Median call of each layer and phase, of each set-up.

    Returns
    -------
    DataFrame
        ``label`` and columns of the set-up, ``layer``, ``layer_type``, ``phase``, ``duration_s``,
        ``share`` of all layers.
    """
    return _shares(layer_times(dataset, "median"), ["layer", "layer_type", "phase"])


def _shares(times: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    columns = ["label", *SETUP, *names, "duration_s", "share"]
    if times.empty:
        return pd.DataFrame(columns=columns)
    missing = {name: None for name in SETUP if name not in times}
    by_setup = times.assign(**missing).groupby([*SETUP, *names], dropna=False, sort=False)
    shares = by_setup.duration_s.mean().reset_index()
    whole = shares.groupby(SETUP, dropna=False).duration_s.transform("sum")
    shares["share"] = shares.duration_s / whole
    shares = shares.sort_values([*SETUP, "share"], ascending=[True] * len(SETUP) + [False])
    shares["label"] = setup_labels(shares)
    return shares[columns].reset_index(drop=True)


def setup_labels(setups: pd.DataFrame) -> list[str]:
    """What a user calls each set-up; its machine only where that tells it from another one."""
    labels = pd.Series([_label(row) for row in setups[_NAMED].to_dict("records")], setups.index)
    for name in _APART:
        values = setups[name].map(key_text, na_action="ignore")
        several = values.groupby(labels).transform("nunique") > 1
        labels = labels.where(~(several & values.notna()), labels + " · " + values.astype(str))
    return labels.tolist()


def of_several(shares: pd.DataFrame) -> pd.DataFrame:
    """The set-ups of which more than one phase is timed: one alone is always all of it."""
    return shares[shares.groupby("label").phase.transform("nunique") > 1] if len(shares) else shares


def _label(row: Mapping[Any, Any]) -> str:
    parts = [key_text(row[name]) for name in _NAMED[:2] if not is_null(row[name])]
    if not is_null(row["network_params"]):
        parts.append(f"{row['network_params'] / 1e6:.3g} M params")
    if not is_null(row["n_workers"]):
        parts.append(f"{key_text(row['n_workers'])} worker{'' if row['n_workers'] == 1 else 's'}")
    if not is_null(row["local_batch"]):
        parts.append(f"batch {row['local_batch']:g}")
    if row["framework"] == "pytorch" and not is_null(row["instrument"]):
        parts.append(f"instrument {row['instrument']}")
    return " · ".join(parts) or "all runs"
