"""What probes must not be: of several devices, in other units, all of one size, contradictory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from fitkit.calibration.prior import Prior
from fitkit.errors import FitError
from fitkit.models.columns import UNKNOWN, Key, key_text
from fitkit.models.guard import Box

_MACHINE = ("device", "system", "precision")
# Of measured by expected time: no hardware is so much faster or slower, but a unit is.
_UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds", 1 / 60: "minutes"}
_NEAR_UNIT = np.log(6.0)  # log by which a ratio may differ from that of the units
_SLOWER, _FASTER = np.log(20.0), np.log(200.0)  # what hardware explains: the new is rarely slow
_LONELY = np.log(30.0)  # log by which one probe may differ from what the others say
_SAME_SPREAD = 1.5  # times of one configuration may differ by that factor
_CONTRADICTS = (5.0, np.log(3.0))  # stated deviations, and log error, of one probe by the others
_SIZES = ("local_batch", "n_workers", "n_nodes")
_OPTIONAL = ("n_nodes",)  # a target may have one node only, and then the workers tell enough


def refuse_mixed_devices(keys: Sequence[Key], names: Sequence[str]) -> None:
    """Refuse probes of more than one machine.

    Raises
    ------
    FitError
        If they differ in device, system or precision; the values are named.
    """
    for name in _MACHINE:
        if name not in names:
            continue
        position = list(names).index(name)
        values = sorted({key[position] for key in keys})
        if len(values) > 1:
            shown = ", ".join("unknown" if value == UNKNOWN else value for value in values)
            raise FitError(
                f"the probes are of more than one {name}: {shown}",
                f"calibrate to one {name} at a time, with --where '{name} == \"{values[-1]}\"'",
            )


def refuse_unlike_repeats(times: Sequence[np.ndarray], labels: Sequence[str]) -> None:
    """Refuse repetitions of a configuration that are hardly of one thing.

    Raises
    ------
    FitError
        If times of a configuration differ by more than a factor of 1.5; it is named.
    """
    for own, label in zip(times, labels, strict=True):
        if len(own) > 1 and own.max() > _SAME_SPREAD * own.min():
            raise FitError(
                f"contradictory probes: {label} took {own.min():.3g} s and {own.max():.3g} s",
                "measure it again, or leave out the run that something disturbed",
            )


def refuse_wrong_units(
    prior: Prior, rows: SimpleNamespace, logs: np.ndarray, labels: Sequence[str]
) -> None:
    """Refuse times that are off by the factor of a unit.

    Raises
    ------
    FitError
        If all times, or some beside the others, look like another unit than seconds.
    """
    expected = prior.law.log_times(prior.law.amounts(rows), prior.center)
    ratios = logs - expected
    middle = float(np.median(ratios))
    if not -_FASTER < middle < _SLOWER:
        raise FitError(
            f"the probes take {np.exp(middle):.3g} times what the model expects: no hardware is so "
            f"{'slow' if middle > 0 else 'fast'}{_unit(middle)}",
            "give times in seconds",
        )
    for k in np.flatnonzero(np.abs(ratios - middle) > _LONELY).tolist():
        away = ratios[k] - middle
        raise FitError(
            f"{labels[k]} takes {np.exp(away):.3g} times what the other probes make one "
            f"expect{_unit(away)}",
            "give all times in seconds, or leave the probe out",
        )


def _unit(log_ratio: float) -> str:
    near = {unit: abs(log_ratio - np.log(factor)) for factor, unit in _UNITS.items()}
    unit = min(near, key=lambda name: near[name])
    return f"; are they {unit}?" if near[unit] < _NEAR_UNIT else ""


def refuse_one_size(
    rows: SimpleNamespace, source: Box, *, is_prior_enough: bool = False
) -> list[str]:
    """Refuse probes that are all of one size, of which the source was measured at several.

    Parameters
    ----------
    source
        Measured range of each column on the source.
    is_prior_enough
        Take what the probes do not tell from the source, and say so.

    Returns
    -------
    list of str
        What the probes do not tell, a sentence each.

    Raises
    ------
    FitError
        If nothing tells how the time changes with a size; the runs to make are named.
    """
    single = {}
    for name in _SIZES:
        values = np.unique(getattr(rows, name, np.empty(0)))
        low, high = source.get(name, (1.0, 1.0))
        if len(values) == 1 and np.isfinite(values[0]) and low < high:
            other = high if abs(np.log(values[0] / high)) > abs(np.log(values[0] / low)) else low
            single[name] = (float(values[0]), float(other))
    said = [f"{name} is {value:g} in every probe" for name, (value, _) in single.items()]
    open_ = {name: other for name, (_, other) in single.items() if name not in _OPTIONAL}
    if open_ and not is_prior_enough:
        runs = " and one with ".join(f"{name} = {other:g}" for name, other in open_.items())
        raise FitError(
            f"the probes cannot tell how the time grows: {', '.join(said)}",
            f"also run one with {runs}; or take it from the source: --allow-prior",
        )
    return [f"{text}: how the time changes with it is what the source says" for text in said]


def refuse_contradictions(
    errors: np.ndarray, ratios: np.ndarray, labels: Sequence[str], without: Callable[[int], float]
) -> None:
    """Refuse a probe that the others rule out.

    A wrong probe makes right ones look wrong, too: where one is off, that is to blame without
    which the others agree best.

    Parameters
    ----------
    errors
        Error of each probe where it is left out, by the stated deviation.
    ratios
        Logarithm of what the others say by what was measured.
    without
        How little the probes agree if that one is left out.

    Raises
    ------
    FitError
        If one is off by five deviations and a factor of three; it is named.
    """
    deviations, least = _CONTRADICTS
    off = (np.abs(errors) > deviations) & (np.abs(ratios) > least)
    if off.any():
        k = min(range(len(ratios)), key=without)
        raise FitError(
            f"contradictory probes: {labels[k]} took {np.exp(-ratios[k]):.3g} times what the "
            "others and the source make one expect",
            "measure it again, or leave it out",
        )


def labels_of(frame: dict[str, np.ndarray], names: Sequence[str]) -> list[str]:
    """Each configuration in words, by the columns in which the probes differ."""
    shown = [name for name in names if name in frame]
    differ = [name for name in shown if len({key_text(v) for v in frame[name].tolist()}) > 1]
    columns = differ or shown
    n_rows = len(next(iter(frame.values()))) if frame else 0
    return [
        ", ".join(f"{name} {key_text(frame[name][k])}" for name in columns) for k in range(n_rows)
    ]
