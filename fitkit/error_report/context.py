"""What the runs of a report say besides their errors: how they scale, where their time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fitkit.error_report.plain import records


@dataclass(frozen=True)
class Context:
    """Time over the scale and what it consists of, for the page of a report.

    The same curve has the same ``series`` in every frame.

    Attributes
    ----------
    scale
        What ``at`` counts: a column of the report's rows; empty without a curve.
    curves
        ``series, at, measured_s, predicted_s, low_s, high_s`` of the held-out rows.
    knees
        ``series, what, at, low, high, text``: from where on a time grows with the scale, or
        (``what`` is ``total``) where it is least; without one ``at`` is null, the text says why.
    bottlenecks
        ``series, at, bottleneck, share, runner_up, runner_up_share, n_runs``: what takes most of
        the time at each scale, the main curve first.
    parts_of
        The curve that ``time_parts`` is of.
    time_parts
        ``at, part, seconds`` of the main curve.
    breakdown, layers
        ``label, phase, share`` of each set-up, the latter by type of layer and phase.
    crossings
        Where a part passes half of the time, in words.
    """

    scale: str = ""
    curves: pd.DataFrame = field(default_factory=pd.DataFrame)
    knees: pd.DataFrame = field(default_factory=pd.DataFrame)
    bottlenecks: pd.DataFrame = field(default_factory=pd.DataFrame)
    parts_of: str = ""
    time_parts: pd.DataFrame = field(default_factory=pd.DataFrame)
    breakdown: pd.DataFrame = field(default_factory=pd.DataFrame)
    layers: pd.DataFrame = field(default_factory=pd.DataFrame)
    crossings: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """The frames as lists of objects."""
        return {
            name: records(value) if isinstance(value, pd.DataFrame) else value
            for name, value in vars(self).items()
        }
