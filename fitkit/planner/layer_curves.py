"""Time of each layer against the batch of one GPU: from measured rows, or from a fitted model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError
from fitkit.models.collective_curves import SizeCurve, fit_curve
from fitkit.planner.network import Network, NetworkLayer

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

PHASES = ("forward", "backward", "optimizer")
_BORROWED = 4.0  # a layer's own scatter counts against so many degrees of freedom of all layers'
_NAMED = 5  # layers in a warning
_UNSURE = 0.7  # log sd of a time that is not measured but taken from others: a factor of two


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """What a model says of one layer at some batches; arrays have an entry for each batch.

    Attributes
    ----------
    seconds
        Forward and backward together, and the optimizer where it was measured for layers.
    is_extrapolated
        Beyond what was measured.
    loadings
        The doubt: log factors are independent standard normal values times these rows, shape
        ``(sources, batches)``.
    forward_s
        The forward part, if known.
    """

    seconds: Floats
    is_extrapolated: NDArray[np.bool_]
    loadings: Floats
    forward_s: Floats | None = None

    def called(self, n_calls: float) -> LayerTimes:
        """Of so many calls in a step."""
        forward = None if self.forward_s is None else self.forward_s * n_calls
        return replace(self, seconds=self.seconds * n_calls, forward_s=forward)


class LayerModel(Protocol):
    """Whatever tells the times of the layers of a network."""

    def times(
        self, network: Network, batches: Floats, *, estimate_missing: bool = False
    ) -> tuple[list[LayerTimes], tuple[str, ...]]:
        """Times of each layer at those samples of one GPU, and warnings.

        Raises
        ------
        InputError
            If a layer has no time: with its name.
        """


@dataclass(frozen=True, eq=False)
class LayerCurve:
    """Seconds of one layer over its batch.

    Attributes
    ----------
    curve
        Through the median of each measured batch, never falling; between two of them in the
        proportions of the line a + b·batch below it, beyond them parallel to that line.
    noise
        Log standard deviation of each point, shape ``(batches,)``.
    drift
        Log standard deviation of a time one doubling beyond the measured batches.
    forward_share
        Forward part at each batch of the curve; None if phases were not told apart.
    """

    curve: SizeCurve
    noise: Floats
    drift: float
    forward_share: Floats | None = None

    def times(self, batches: Floats) -> LayerTimes:
        """What it says of those batches."""
        known = np.log2(self.curve.sizes)
        asked = np.log2(batches)
        inside = np.clip(asked, known[0], known[-1])
        seconds = np.asarray(self.curve.seconds(batches), dtype=float)
        weights = np.array([np.interp(inside, known, one) for one in np.eye(len(known))])
        weights /= np.linalg.norm(weights, axis=0)  # no surer between two batches than at them
        # Errors beyond the measured batches grow as those of a random walk in the doublings.
        beyond = self.drift * np.sqrt(np.abs(asked - inside))
        share = self.forward_share
        forward = None if share is None else seconds * np.interp(inside, known, share)
        loadings = np.vstack([self.noise[:, None] * weights, beyond])
        return LayerTimes(seconds, asked != inside, loadings, forward)


@dataclass(frozen=True, eq=False)
class MeasuredLayers:
    """A curve for each layer that was measured, by its name.

    Examples
    --------
    >>> rows = pd.DataFrame({"layer": "fc", "local_batch": [1.0, 2, 4], "duration_s": [3, 4, 6]})
    >>> layers = MeasuredLayers.fit(rows)
    >>> network = Network("net", (NetworkLayer("fc", "Linear"),), ())
    >>> times, warnings = layers.times(network, np.array([3.0, 8.0]))
    >>> times[0].seconds.round(6).tolist(), times[0].is_extrapolated.tolist()
    ([5.0, 10.0], [False, True])
    """

    curves: Mapping[str, LayerCurve]
    single: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Batch and seconds of layers that were measured at one batch only."""
    warnings: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls, rows: pd.DataFrame, *, device: str | None = None, network: str | None = None
    ) -> MeasuredLayers:
        """Curves of measured times.

        The scatter of a layer is that of its repetitions or, where no layer has any, what is left
        when each batch is predicted from the two beside it, which two measurements and a half
        make (as in `fitkit.models.CollectiveModel`); with few batches, mostly that of all layers.

        Parameters
        ----------
        rows
            ``layer``, ``local_batch``, ``duration_s`` of a call and, if known, ``phase``,
            ``device``, ``network``; several rows of a layer, batch and phase are repetitions.
        device, network
            Take rows of these only.

        Raises
        ------
        ValueError
            If a column is missing, or rows of several devices or networks are left.
        InputError
            If a time is negative or missing, or all of a layer's are zero: with the layer.
        """
        table = _table(_selected(rows, {"device": device, "network": network}))
        curves: dict[str, SizeCurve] = {}
        single, warnings = {}, list(_lacking_phases(table))
        rows_of = {str(name): own for name, own in table.groupby("layer", sort=False)}
        for name, own in rows_of.items():
            batches, seconds = (own[c].to_numpy(dtype=float) for c in ("local_batch", "total"))
            curve = fit_curve(batches, seconds)
            if len(curve.sizes) == 1:
                single[name] = float(curve.sizes[0]), float(curve.times[0])
                continue
            curves[name] = curve
            stray = sorted(set(batches) - set(curve.sizes))
            if stray:
                said = ", ".join(f"{batch:g}" for batch in stray)
                warnings.append(f"layer {name}: its time at batch {said} is out of line, not used")
        noise, drift = _scatter(table, curves), _drift(curves)
        found = {
            name: LayerCurve(curve, noise[name], drift, _forward_share(rows_of[name], curve))
            for name, curve in curves.items()
        }
        return cls(found, single, tuple(warnings))

    def times(
        self, network: Network, batches: Floats, *, estimate_missing: bool = False
    ) -> tuple[list[LayerTimes], tuple[str, ...]]:
        """Times of each layer of a network; see `LayerModel`.

        Parameters
        ----------
        estimate_missing
            A layer without a curve takes the time per operation, else per byte, of the measured
            layers of its type, or of all; in proportion to its batch if it has one measurement.
        """
        found: list[LayerTimes] = []
        estimated: dict[str, list[str]] = {}
        for layer in network.layers:
            if layer.name in self.curves:
                times = self.curves[layer.name].times(batches)
            elif estimate_missing:
                times, how = self._estimate(network, layer, batches)
                estimated.setdefault(how, []).append(layer.name)
            else:
                raise self._missing(network, layer)
            found.append(times.called(layer.n_calls))
        said = (f"not measured, {how}: {named(names)}" for how, names in estimated.items())
        return found, (*self.warnings, *said)

    def _seconds(self, name: str, batches: Floats) -> Floats:
        """Times of a layer that was measured, be it at one batch."""
        if name in self.curves:
            return self.curves[name].times(batches).seconds
        batch, once = self.single[name]
        return once / batch * batches

    def _missing(self, network: Network, layer: NetworkLayer) -> InputError:
        known = {**self.curves, **self.single} if layer.name not in self.single else self.curves
        names = [one.name for one in network.layers if one.name not in known]
        more = f"; {len(names)} of {len(network.layers)} layers lack one" if names[1:] else ""
        what = "has no measured time"
        if layer.name in self.single:
            what = f"was measured at batch {self.single[layer.name][0]:g} only"
        return InputError(
            f"{network.name}: layer {layer.name} ({layer.layer_type}) {what}{more}",
            "measure it; or --estimate-missing, estimate_missing=True: flagged as extrapolated",
        )

    def _estimate(
        self, network: Network, layer: NetworkLayer, batches: Floats
    ) -> tuple[LayerTimes, str]:
        unsure = np.full((1, len(batches)), _UNSURE)
        is_outside = np.ones(len(batches), dtype=bool)
        if layer.name in self.single:
            batch, once = self.single[layer.name]
            how = f"in proportion from batch {batch:g}, the only measured one"
            return LayerTimes(once / batch * batches, is_outside, unsure), how
        known = [one for one in network.layers if one.name in (*self.curves, *self.single)]
        alike = [one for one in known if one.layer_type == layer.layer_type]
        for donors, whose in (
            (alike, f"the other {layer.layer_type} layers"),
            (known, "all layers"),
        ):
            for measure, words in ((_flop, "an operation"), (_bytes, "a byte")):
                able = [one for one in donors if measure(one)]
                amount = measure(layer)
                if able and amount:
                    seconds = np.array([self._seconds(one.name, batches) for one in able])
                    rates = seconds / np.array([[measure(d)] for d in able])
                    # No kernel takes less than the shortest one that was measured.
                    own = np.maximum(np.median(rates, axis=0) * amount, seconds.min(axis=0))
                    how = f"estimated from the time of {words} in {whose}"
                    return LayerTimes(own, is_outside, unsure), how
        raise self._missing(network, layer)


def named(names: Sequence[str]) -> str:
    """The first few of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _flop(layer: NetworkLayer) -> float:
    return layer.flop or 0.0


def _bytes(layer: NetworkLayer) -> float:
    return (layer.input_bytes or 0.0) + (layer.output_bytes or 0.0)


# -- rows ----------------------------------------------------------------------------------------


def _selected(rows: pd.DataFrame, wanted: Mapping[str, str | None]) -> pd.DataFrame:
    for name in ("layer", "local_batch", "duration_s"):
        if name not in rows:
            raise ValueError(f"no column {name!r}; there are {', '.join(map(str, rows.columns))}")
    for name, value in wanted.items():
        if value is not None and name not in rows:
            raise ValueError(f"no column {name!r} to choose {value} by")
        if value is not None:
            rows = rows[rows[name] == value]
        known = sorted(map(str, rows[name].dropna().unique())) if name in rows else []
        if len(known) > 1:
            raise ValueError(f"rows of several: say which {name}, {', '.join(known)}")
    if rows.empty:
        said = ", ".join(f"{name} {value}" for name, value in wanted.items() if value is not None)
        raise InputError(f"no layer was measured{' on ' if said else ''}{said}")
    return rows


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each layer, batch and repetition: its phases, and ``total``."""
    values = rows[["layer", "local_batch", "duration_s"]].assign(
        phase=rows.get("phase", "total"),
        layer=rows.layer.astype(str),
    )
    odd = sorted(set(values.phase) - {*PHASES, "total"})
    if odd:
        raise ValueError(f"phase {odd[0]!r}: a layer has {', '.join(PHASES)}")
    wrong = values[~(values.duration_s >= 0) | ~(values.local_batch > 0)]
    if len(wrong):
        row = wrong.iloc[0]
        where = f"layer {row.layer}, batch {row.local_batch:g}"
        raise InputError(f"{where}: a time of {row.duration_s} s cannot be")
    key = ["layer", "local_batch"]
    values["repetition"] = values.groupby([*key, "phase"]).cumcount()
    # In the order of the file, and a repetition only where every phase of the layer has it.
    wide = values.pivot_table("duration_s", [*key, "repetition"], "phase", "first")
    phases = wide.notna().groupby("layer").transform("any")
    wide = wide[(wide.notna() | ~phases).all(axis=1)]
    wide = wide.assign(total=wide.sum(axis=1)).reset_index()
    zero = wide[~(wide.total > 0)]
    if len(zero):
        row = zero.iloc[0]
        raise InputError(f"layer {row.layer}, batch {row.local_batch:g}: its time is zero")
    lost = set(values.layer) - set(wide.layer)
    if lost:
        raise InputError(f"layer {min(lost)}: no batch has a time of every phase")
    return wide


def _lacking_phases(table: pd.DataFrame) -> tuple[str, ...]:
    """What to say of layers of which only a part was measured."""
    if "backward" not in table or "forward" not in table:
        return ()
    known = table.groupby("layer", sort=False)[["forward", "backward"]].count() > 0
    return tuple(
        f"{', '.join(known.index[~known[phase]])}: no {phase} time, counted as none"
        for phase in ("forward", "backward")
        if not known[phase].all()
    )


def _forward_share(own: pd.DataFrame, curve: SizeCurve) -> Floats | None:
    if "forward" not in own or own.forward.isna().any():
        return None
    share = (own.forward / own.total).groupby(own.local_batch).median()
    return np.asarray(share.loc[curve.sizes].to_numpy(dtype=float))


# -- scatter -------------------------------------------------------------------------------------


def _scatter(table: pd.DataFrame, curves: Mapping[str, SizeCurve]) -> dict[str, Floats]:
    """Log standard deviation of each point of each curve."""
    logs = np.log(table.total)
    groups = [table.layer, table.local_batch]
    counts = logs.groupby(groups).size()
    away = logs - logs.groupby(groups).transform("mean")
    squares = (away**2).groupby(table.layer).sum()
    spare = counts.groupby("layer").sum() - counts.groupby("layer").size()
    if not spare.sum():  # no repetition: the mean of two neighbours adds half a variance
        errors = {name: _left_out_errors(curve) for name, curve in curves.items()}
        squares = {name: float((e**2).sum()) / 1.5 for name, e in errors.items()}
        spare = {name: len(e) for name, e in errors.items()}
    names = list(curves)
    total = sum(float(squares[name]) for name in names)
    pooled = total / max(sum(float(spare[name]) for name in names), 1.0)
    return {
        name: np.sqrt(
            (float(squares[name]) + _BORROWED * pooled)
            / (float(spare[name]) + _BORROWED)
            / counts[name].loc[curves[name].sizes].to_numpy(dtype=float)
        )
        for name in names
    }


def _left_out_errors(curve: SizeCurve) -> Floats:
    return np.asarray(np.log(curve.times[1:-1]) - curve.left_out())


def _drift(curves: Mapping[str, SizeCurve]) -> float:
    """Log standard deviation of a time one doubling beyond: each largest batch from the others."""
    errors: Sequence[float] = [
        float(np.log(fit_curve(c.sizes[:-1], c.times[:-1]).seconds(c.sizes[-1:])[0] / c.times[-1]))
        / np.sqrt(np.log2(c.sizes[-1] / c.sizes[-2]))
        for c in curves.values()
        if len(c.sizes) > 2
    ]
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else _UNSURE
