"""Where whole runs stop scaling: the fastest scale of their totals, the knees of their parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from fitkit.models.columns import Key, group_labels, keys, number_columns, rows_by_key
from fitkit.models.curves import Curve, batch_curves, over_nodes, run_curve
from fitkit.models.knees import MIN_SCALES, Knee, find_knee
from fitkit.models.parameters import number, plain
from fitkit.models.run_composition import RunComposition
from fitkit.models.turning_points import TurningPoint, turning_point, turning_point_of_draws

MIN_TOTALS = 3  # scales of which the fastest is looked for
_NUMBERS = (
    "n_workers", "n_nodes", "local_batch", "global_batch", "n_epochs", "steps_per_epoch",
    "init_s", "step_s", "total_s",
)  # fmt: skip


@dataclass(frozen=True)
class ScalingAnswer:
    """What is said of one group.

    Attributes
    ----------
    group
        Its name.
    what
        ``knee of init``, ``knee of step``; ``total``, the fastest scale of the measured totals, or
        ``total by the model``, that of the fitted ones.
    kind, batch, unit
        As of `Curve`.
    n_runs, n_scales, n_max
        What it rests on.
    status
        As of `Knee` or `TurningPoint`.
    at, low, high
        The knee and its interval, or the fastest scale; NaN without one.
    shares
        Share of the bootstrap's draws in which each scale is the fastest; in which the rule finds
        the knee again.
    words
        All this in words.
    """

    group: str
    what: str
    kind: str
    batch: float
    unit: str
    n_runs: int
    n_scales: int
    n_max: float
    status: str
    at: float
    low: float
    high: float
    words: str
    shares: Mapping[float, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        figures = {name: plain(value) for name, value in vars(self).items() if name != "shares"}
        return {**figures, "shares": [list(pair) for pair in self.shares.items()]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` described.

        Raises
        ------
        ValueError
            If a figure is infinite, or no number.
        """
        group, what, kind = (str(state[name]) for name in ("group", "what", "kind"))
        n_runs, n_scales = int(state["n_runs"]), int(state["n_scales"])
        at, low, high = (number(state[name]) for name in ("at", "low", "high"))
        shares = {number(scale): number(share) for scale, share in state["shares"]}
        return cls(
            group, what, kind, number(state["batch"]), str(state["unit"]), n_runs, n_scales,
            number(state["n_max"]), str(state["status"]), at, low, high, str(state["words"]),
            shares,
        )  # fmt: skip


class RunScaling:
    """Knees and fastest scales of the groups of some runs.

    Parameters
    ----------
    columns
        Of runs with their parts, see `fitkit.models.run_parts.with_parts`; repetitions are rows of
        their own.
    groups
        Columns that tell the groups apart.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], groups: Sequence[str]) -> None:
        n_rows = max(map(len, columns.values()), default=0)
        self._numbers = vars(number_columns(columns, _NUMBERS, n_rows))
        self._all = columns
        self._rows_of = rows_by_key(keys(SimpleNamespace(**columns), groups))
        self._labels = group_labels(self._rows_of, groups)
        self._curves: dict[Key, Curve] = {}
        for key, rows in self._rows_of.items():
            totals = self._numbers["total_s"]
            curve = run_curve(self._numbers, totals, rows[np.isfinite(totals[rows])], MIN_TOTALS)
            if curve is not None:
                self._curves[key] = curve

    # -- knees -----------------------------------------------------------------------------

    def knees(self) -> Iterator[tuple[Key, str, Curve, Knee]]:
        """Group, part, what was looked at, and what was found."""
        for key, rows in self._rows_of.items():
            for part, curve in (("init", self._starts(rows)), ("step", self._steps(rows))):
                if curve is not None and len(curve.scales) >= MIN_SCALES:
                    times = self._numbers[f"{part}_s"][curve.rows]
                    yield key, part, curve, find_knee(curve.scale, times, unit=curve.unit)

    def _starts(self, rows: np.ndarray) -> Curve | None:
        """All runs that tell their start: their batches do not matter to it."""
        rows = rows[np.isfinite(self._numbers["init_s"][rows])]
        scale, unit = over_nodes(self._numbers, rows)
        known = np.isfinite(scale)
        if not known.any():
            return None
        return Curve("as measured", math.nan, rows[known], scale[known], unit)

    def _steps(self, rows: np.ndarray) -> Curve | None:
        """Runs of the batch of a worker that was measured at most scales."""
        times = self._numbers["step_s"]
        known = rows[np.isfinite(times[rows])]
        curves = batch_curves(self._numbers, times, known, MIN_SCALES)
        weak = [curve for curve in curves if curve.kind == "weak"]
        return max(weak, key=lambda c: (len(c.scales), len(c.rows)), default=None)

    # -- totals ----------------------------------------------------------------------------

    def measured(self) -> Iterator[ScalingAnswer]:
        """The fastest scale of each group by its measured totals."""
        for key, curve in self._curves.items():
            found = turning_point(curve.scale, self.totals(curve), unit=curve.unit)
            yield self._answer(key, "total", curve, found)

    def modelled(
        self, models: Mapping[Key, Any], columns: Sequence[str]
    ) -> Iterator[ScalingAnswer]:
        """The fastest of the measured scales of each group by its fitted model.

        Parameters
        ----------
        models
            Fitted compositions by group.
        columns
            What they read.
        """
        for key, curve in self._curves.items():
            if isinstance(models.get(key), RunComposition):
                totals = models[key].drawn(self._asked(curve, columns))
                if np.all(np.isfinite(totals) & (totals > 0)):
                    found = turning_point_of_draws(curve.scales, totals, unit=curve.unit)
                    yield self._answer(key, "total by the model", curve, found)

    def samples(self, rows: np.ndarray) -> np.ndarray:
        """Samples that runs trained on; NaN where a count is unknown."""
        x = self._numbers
        return np.asarray((x["n_epochs"] * x["steps_per_epoch"])[rows] * self._batches(rows))

    def _batches(self, rows: np.ndarray) -> np.ndarray:
        """Samples in a step, all workers together."""
        x = self._numbers
        alone = x["local_batch"] * x["n_workers"]
        return np.asarray(np.where(np.isnan(x["global_batch"]), alone, x["global_batch"])[rows])

    def totals(self, curve: Curve) -> np.ndarray:
        """Seconds of each run, had all trained on as many samples as the median one.

        As they are where the batch follows no rule: then the number of samples is what it took.
        """
        totals, start = (self._numbers[name][curve.rows] for name in ("total_s", "init_s"))
        samples = self.samples(curve.rows)
        if curve.kind == "as measured" or not np.all(samples > 0):
            return totals
        start = np.where(np.isfinite(start), start, 0.0)
        return np.asarray(start + (totals - start) * np.median(samples) / samples)

    def _asked(self, curve: Curve, columns: Sequence[str]) -> SimpleNamespace:
        """A row for each scale, all of the same work."""
        by_scale = [curve.rows[curve.scale == scale] for scale in curve.scales]
        first = np.array([rows[0] for rows in by_scale])
        asked = vars(
            number_columns({k: v[first] for k, v in self._all.items()}, columns, len(first))
        )
        counts = {
            name: np.array([_median(self._numbers[name][rows]) for rows in by_scale])
            for name in ("n_epochs", "steps_per_epoch")
        }
        samples = self.samples(curve.rows)
        if curve.kind != "as measured" and np.all(samples > 0):
            epochs = _median(self._numbers["n_epochs"][curve.rows])
            counts["n_epochs"] = np.full(len(first), epochs)
            of_epoch = float(np.median(samples)) / epochs
            counts["steps_per_epoch"] = of_epoch / self._batches(first)
        return SimpleNamespace(**{**asked, **counts})

    # -- answers ---------------------------------------------------------------------------

    def knee_answer(self, key: Key, part: str, curve: Curve, knee: Knee) -> ScalingAnswer:
        """A knee in words and figures."""
        return self._answer(key, f"knee of {part}", curve, knee)

    def _answer(
        self, key: Key, what: str, curve: Curve, found: Knee | TurningPoint
    ) -> ScalingAnswer:
        figures = (math.nan,) * 3
        shares: Mapping[float, float] = {}
        if isinstance(found, Knee):
            figures = (found.at, found.low, found.high)
            shares = {found.at: found.share} if found.status == "knee" else {}
        else:
            shares = found.shares
            if found.status == "turning point":
                figures = (found.at, min(found.candidates), max(found.candidates))
        return ScalingAnswer(
            self._labels[key], what, curve.kind, curve.batch, curve.unit, len(curve.rows),
            len(curve.scales), float(curve.scales[-1]), found.status, *figures, found.text, shares,
        )  # fmt: skip


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan
