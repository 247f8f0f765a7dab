"""Layers to a step: sums of their times, and what they leave of a measured whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fitkit.errors import FitError

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 0.02  # share of a whole that its parts may miss and still add up
_PHASES = ("forward", "backward", "optimizer")


def step_from_layers(
    layers: pd.DataFrame, by: Sequence[str] = ("run_id",), seconds: str = "predicted_s"
) -> pd.DataFrame:
    """Seconds of a step in forward, backward and optimizer: the sums over the layers.

    A layer that a step calls several times counts as often: ``n_calls``, the calls of it in one
    step, once if there is no such column. Ranks work side by side: with a column ``rank`` the
    sums of the ranks are averaged.

    Parameters
    ----------
    layers
        A row for each layer of the network and phase: ``layer``, ``phase``, the seconds of one
        call, the columns of ``by``; optional ``n_calls``, ``rank``, and ``reason``, why a time
        is missing.
    by
        Columns that tell runs or configurations apart.
    seconds
        Column of the times.

    Returns
    -------
    DataFrame
        ``by``, ``forward_s``, ``backward_s``, ``optimizer_s``; the last is NaN where no layer
        has an optimizer time, which then is measured as a phase only.

    Raises
    ------
    ValueError
        If a column is missing, a phase is none of a layer's, or a number of calls is none.
    FitError
        If a layer has no time, or a network no layer in forward or in backward; the message
        names it.
    """
    _check_layers(layers, by, seconds)
    calls = layers["n_calls"].astype(float) if "n_calls" in layers else 1.0
    keys = [*by, *(["rank"] if "rank" in layers else [])]
    each = layers[keys]
    for phase in _PHASES:
        own = layers[seconds].astype(float).where(layers.phase == phase)
        each = each.assign(**{phase: own * calls})
    sums = each.groupby(keys, dropna=False).sum(min_count=1)
    steps = sums.groupby(list(by), dropna=False).mean()
    for phase in ("forward", "backward"):
        lacking = steps.index[steps[phase].isna()]
        if len(lacking):
            raise FitError(
                f"{_text(by, lacking[0])}: no layer has a {phase} time",
                "record layers in both forward and backward",
            )
    return steps.rename(columns=lambda phase: f"{phase}_s").rename_axis(columns=None).reset_index()


def _check_layers(layers: pd.DataFrame, by: Sequence[str], seconds: str) -> None:
    for name in ("layer", "phase", *by, seconds):
        if name not in layers:
            raise ValueError(f"no column {name!r}; there are {', '.join(map(str, layers.columns))}")
    unknown = sorted(set(layers.phase) - set(_PHASES))
    if unknown:
        raise ValueError(f"phase {unknown[0]!r}: a layer has {', '.join(_PHASES)}")
    if "n_calls" in layers and not np.all(layers.n_calls.to_numpy(dtype=float) >= 0):
        raise ValueError("n_calls must be the calls of a layer in one step, from 0")
    missing = layers[~np.isfinite(layers[seconds].to_numpy(dtype=float))]
    if len(missing):
        row = missing.iloc[0]
        why = f": {row['reason']}" if "reason" in layers and row["reason"] else ""
        where = _text(by, [row[name] for name in by])
        raise FitError(
            f"{where}: layer {row['layer']} has no {row['phase']} time{why}; "
            f"{len(missing)} of {len(layers)} layer times are missing",
            "a sum without it would be too small: measure the layer, or leave the run out",
        )


def _text(by: Sequence[str], values: object) -> str:
    """What a key is, such as ``run_id 7``."""
    parts = [values] if isinstance(values, str) or not np.iterable(values) else list(values)
    return ", ".join(f"{name} {value}" for name, value in zip(by, parts, strict=True))


def account_for(
    frame: pd.DataFrame, whole: str, parts: Sequence[str], tolerance: float = TOLERANCE
) -> pd.DataFrame:
    """What parts leave of a whole, as an explicit rest.

    Parameters
    ----------
    frame
        Seconds of the whole and of the parts, a row for each configuration.
    whole, parts
        Their columns; a part that is null took no time.
    tolerance
        Share of the whole by which the sum may differ and still add up.

    Returns
    -------
    DataFrame
        On the index of ``frame``: ``other_s`` and ``other_share``, negative where parts ran
        side by side; ``adds_up``, whether the share is within the tolerance.

    Raises
    ------
    ValueError
        If a whole is not positive.
    """
    import pandas as pd

    total = frame[whole].to_numpy(dtype=float)
    if not np.all(total > 0):
        raise ValueError(f"{whole} must be positive seconds")
    rest = total - frame[list(parts)].fillna(0.0).to_numpy(dtype=float).sum(axis=1)
    share = rest / total
    return pd.DataFrame(
        {"other_s": rest, "other_share": share, "adds_up": np.abs(share) <= tolerance},
        index=frame.index,
    )
