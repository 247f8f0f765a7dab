"""Rows of a report arranged for its charts: over scale, over each feature, over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from fitkit.display import format_number
from fitkit.report.tables import JUDGED, TIMES

SCALES = ("n_workers", "n_nodes", "n_ranks", "n_devices", "n_gpus")  # what grows, in this order
PARTS = ("phase", "layer_type")  # what a time consists of
LAYERS = ("layer", "layer_index", "layer_group")
BATCHES = ("local_batch", "global_batch")  # one of them is kept while the scale grows
NO_FEATURES = {"run_id", "group", *TIMES, *JUDGED}
MAX_SERIES = 6
MAX_PARTS = 8
N_BINS = 8
CURVES = ["series", "at", "measured_s", "predicted_s", "low_s", "high_s"]
TIME_PARTS = ["at", "part", "seconds"]


def features(rows: pd.DataFrame) -> list[str]:
    """Columns of rows that say what was run, where they differ."""
    names = [str(name) for name in rows if name not in NO_FEATURES]
    return [name for name in names if differs(rows[name])]


def differs(column: pd.Series) -> bool:
    """Whether a column has more than one value, a missing one aside."""
    return len(column.dropna().unique()) > 1


def is_number(column: pd.Series) -> bool:
    """Whether values of a column lie on an axis, and not beside each other as names do."""
    return is_numeric_dtype(column) and not is_bool_dtype(column)


def scale_of(rows: pd.DataFrame) -> str:
    """The column that tells how large a run was, or nothing if all were the same."""
    return next((name for name in SCALES if name in rows and differs(rows[name])), "")


def scale_words(scale: str) -> str:
    """What a scale counts, in words."""
    return scale.removeprefix("n_").replace("_", " ") or "scale"


def curves(rows: pd.DataFrame, scale: str) -> pd.DataFrame:
    """Measured and predicted time over the scale, all else being equal.

    Parameters
    ----------
    rows
        As `ErrorPage.rows`.
    scale
        A column of theirs.

    Returns
    -------
    DataFrame
        `CURVES`; of the series with most scales, at most `MAX_SERIES`.
    """
    known = rows[rows.measured_s.gt(0) & rows.predicted_s.gt(0) & rows[scale].gt(0)]
    if known.empty:
        return pd.DataFrame(columns=CURVES)
    keys = _best_keys(known, scale, [*PARTS, *LAYERS])
    names = [key for key in keys if differs(known[key])]
    found = known.assign(series=_series_names(known, names), at=known[scale])
    found = found.reindex(columns=CURVES)
    means = found.groupby(["series", "at"], sort=False).mean(numeric_only=True).reset_index()
    order = means.groupby("series").agg(n=("at", "nunique"), longest=("measured_s", "max"))
    order = order[order.n > 1].sort_values(["n", "longest"], ascending=False, kind="stable")
    shown = order.index[:MAX_SERIES]
    return means[means.series.isin(shown)].sort_values(["series", "at"], ignore_index=True)


def time_parts(rows: pd.DataFrame, scale: str) -> tuple[str, pd.DataFrame]:
    """What the time of one series consists of at each scale: its name, and seconds of each part.

    Of the series with most scales, the first; parts beyond `MAX_PARTS` are joined.
    """
    part = next((name for name in PARTS if name in rows and differs(rows[name])), "")
    empty = pd.DataFrame(columns=TIME_PARTS)
    known = rows[rows.measured_s.gt(0) & rows[scale].gt(0)] if part and scale else rows.iloc[:0]
    if known.empty:
        return "", empty
    keys = [key for key in _best_keys(known, scale, []) if differs(known[key])]
    names = _series_names(known, keys)
    n_scales = known.groupby(names, sort=False)[scale].nunique()
    chosen = str(n_scales.index[int(n_scales.argmax())])
    found = known[names == chosen].assign(at=known[scale], part=known[part].astype(str))
    totals = found.groupby("part").measured_s.sum().sort_values(ascending=False, kind="stable")
    if len(totals) > MAX_PARTS:
        found["part"] = found.part.where(found.part.isin(totals.index[: MAX_PARTS - 1]), "the rest")
    order = [name for name in totals.index if name in set(found.part)]
    order += ["the rest"] if "the rest" in set(found.part) else []
    # A run that was not predicted in every layer still counts each part once at each scale.
    seconds = _seconds(found).reset_index(name="seconds")
    seconds["place"] = seconds.part.map({name: place for place, name in enumerate(order)})
    return chosen, seconds.sort_values(["at", "place"], ignore_index=True)[TIME_PARTS]


def _seconds(found: pd.DataFrame) -> pd.Series:
    """Seconds of a part: the sum over its layers, each the mean of its rows."""
    names = [name for name in ("layer", "phase") if name in found]
    means = found.groupby(["at", "part", *names], dropna=False, sort=False).measured_s.mean()
    return means.groupby(["at", "part"], sort=False).sum()


def _best_keys(rows: pd.DataFrame, scale: str, parts: Sequence[str]) -> list[str]:
    """Columns that have to agree within a series: words, and the batch that keeps most together."""
    left_out = {*NO_FEATURES, *PARTS, *LAYERS, scale} - set(parts)
    words = [str(c) for c in rows if c not in left_out and not is_number(rows[c])]
    # What follows from the scale, how two workers synchronise say, sets no series apart.
    words = [word for word in words if rows.groupby(scale)[word].nunique().max() > 1]
    batches = [name for name in BATCHES if name in rows and name != scale]
    choices = [[*words, batch] for batch in batches] or [words]
    return max(choices, key=lambda keys: _n_in_series(rows, keys, scale))


def _n_in_series(rows: pd.DataFrame, keys: list[str], scale: str) -> int:
    """How many rows have another of their series at another scale."""
    if not keys:
        return len(rows)
    n_scales = rows.groupby(keys, dropna=False)[scale].transform("nunique")
    return int((n_scales > 1).sum())


def _series_names(rows: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """A name for each row: what sets its series apart."""
    if not keys:
        return pd.Series("all runs", index=rows.index)
    columns = [
        f"{key.replace('_', ' ')} " + rows[key].map(format_number)
        if is_number(rows[key])
        else rows[key].astype(str)
        for key in keys
    ]
    joined = columns[0]
    for column in columns[1:]:
        joined = joined + ", " + column
    return joined


# --- errors over a feature --------------------------------------------------------------------


def error_bins(values: pd.Series, errors: pd.Series) -> pd.DataFrame:
    """Median and spread of the errors over a feature: at each value, or over a range of many.

    Returns
    -------
    DataFrame
        ``value`` (what it is called), ``at`` (its place), ``n, median, low, high`` (10th and 90th
        percentile).
    """
    known = values.notna() & errors.notna()
    values, errors = values[known], errors[known]
    numeric = is_number(values)
    if numeric and values.nunique() > 2 * N_BINS:
        by = pd.qcut(values.astype(float), N_BINS, duplicates="drop")
        inside = values.astype(float).groupby(by, observed=True)
        at, ends = inside.median().tolist(), zip(inside.min(), inside.max(), strict=True)
        names = [f"{format_number(start)} to {format_number(end)}" for start, end in ends]
    else:
        by = values
        found = [value for value, _ in errors.groupby(values, observed=True, sort=True)]
        at = [float(value) for value in found] if numeric else list(range(len(found)))
        names = [format_number(value) if numeric else str(value) for value in found]
    parts = errors.groupby(by, observed=True, sort=True)
    low, median, high = (parts.quantile(share).to_numpy() for share in (0.1, 0.5, 0.9))
    return pd.DataFrame({
        "value": names, "at": np.array(at, dtype=float), "n": parts.size().to_numpy(),
        "median": median, "low": low, "high": high,
    })  # fmt: skip


def hours_since_first(started: pd.Series) -> pd.Series:
    """Start times as hours since the first; missing where there is none."""
    times = pd.to_datetime(started, utc=True, errors="coerce", format="mixed")
    hours: pd.Series = (times - times.min()).dt.total_seconds() / 3600
    return hours
