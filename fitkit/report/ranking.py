"""Which of many curves are spoken of and drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd


def ranked(frame: pd.DataFrame, first: Sequence[str] = ()) -> list[str]:
    """Names of curves, most telling first: most scales, widest reach, most runs.

    Parameters
    ----------
    frame
        ``series, at, n_runs``.
    first
        Curves that come before all others, in their order.
    """
    if frame.empty:
        return []
    points = frame.drop_duplicates(["series", "at"])
    points = points.assign(at=points["at"].astype(float).where(points["at"].gt(0)))
    order = points.groupby("series").agg(
        n=("at", "nunique"), low=("at", "min"), high=("at", "max"), runs=("n_runs", "sum")
    )
    reach = np.log((order.high / order.low).to_numpy(dtype=float))
    order["reach"] = np.nan_to_num(reach)
    places = {name: place for place, name in enumerate(first)}
    order["place"] = [places.get(str(name), len(places)) for name in order.index]
    order = order.reset_index().sort_values(
        ["place", "n", "reach", "runs", "series"], ascending=[True, False, False, False, True]
    )
    return [str(name) for name in order.series]


def unlike(names: Sequence[str]) -> list[str]:
    """The same names, the first of each group before the second of any.

    Curves of one group differ in what is kept, which is the last part of their name.
    """
    seen: Counter[str] = Counter()
    turns = []
    for name in names:
        group = name.rsplit(" · ", 1)[0] if "batch" in name.rsplit(" · ", 1)[-1] else name
        turns.append(seen[group])
        seen[group] += 1
    return [name for _, name in sorted(zip(turns, names, strict=True), key=lambda pair: pair[0])]
