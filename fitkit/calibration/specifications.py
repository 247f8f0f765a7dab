"""Specifications: what data sheets say of two devices, as ratios of times by resource."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fitkit.errors import InputError

_RATES = ("memory_bytes_per_s", "link_intra_bytes_per_s", "link_inter_bytes_per_s")
_STORAGE = ("client_bytes_per_s", "aggregate_bytes_per_s")
_WORDS = ("name", "is", "source", "peak_flop_per_s", "memory_bytes", "storage")

# Below these it is another unit, such as GB/s: no device with such a sheet is so slow.
_LEAST = dict.fromkeys(_RATES, 1e8)
_LEAST_PEAK = 1e10
_MOST = 1e30
_TABLES = {
    "storage": "[storage] with client_bytes_per_s = 2e9",
    "peak_flop_per_s": "peak_flop_per_s = { fp32 = 67e12 }",
}


@dataclass(frozen=True)
class Device:
    """Rates of a device, its links and its storage.

    Attributes
    ----------
    peak_flop_per_s
        By precision: ``fp32``, ``tf32``, ``bf16``, ``fp16``.
    memory_bytes_per_s, link_intra_bytes_per_s, link_inter_bytes_per_s
        Bandwidth of its memory, to devices of the same node, and between nodes; NaN if unknown.
    memory_bytes
        Size of its memory.
    client_bytes_per_s, aggregate_bytes_per_s
        What one node reads from storage, and all of them together.
    names
        Other names that logs use.
    source
        Where the figures are from.
    """

    name: str
    peak_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes_per_s: float = float("nan")
    link_intra_bytes_per_s: float = float("nan")
    link_inter_bytes_per_s: float = float("nan")
    memory_bytes: float = float("nan")
    client_bytes_per_s: float = float("nan")
    aggregate_bytes_per_s: float = float("nan")
    names: tuple[str, ...] = ()
    source: str = ""

    def is_called(self, name: str) -> bool:
        """Whether a log means this device; case is no matter."""
        return name.casefold() in {each.casefold() for each in (self.name, *self.names)}


@cache
def devices() -> tuple[Device, ...]:
    """The devices that ship with the package."""
    text = files("fitkit.calibration").joinpath("devices.toml").read_text("utf-8")
    return tuple(_device(each, "devices.toml") for each in tomllib.loads(text)["device"])


def device_named(name: str) -> Device | None:
    """The shipped device of that name, if there is one."""
    return next((device for device in devices() if device.is_called(name)), None)


def read_specification(path: Path | str) -> Device:
    """A device from a TOML file, or a shipped one by its name.

    The keys are those of `Device`; ``peak_flop_per_s`` is a table by precision, ``storage`` one of
    ``client_bytes_per_s`` and ``aggregate_bytes_per_s``.

    Raises
    ------
    InputError
        If the file cannot be read, a key is unknown, a value is of another type, a rate is no
        positive number or too small for the unit, or nothing is told.
    """
    known = device_named(str(path))
    if known is not None and not Path(path).exists():
        return known
    try:
        state = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        names = ", ".join(device.name for device in devices())
        raise InputError(
            f"{path}: {error.strerror}", f"give a TOML file, or one of {names}"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: {error}", "give TOML: memory_bytes_per_s = 3.35e12") from error
    return _device({"name": Path(path).stem, **state}, str(path))


def _device(state: Mapping[str, Any], where: str) -> Device:
    storage, peaks = (_table(state, name, where) for name in ("storage", "peak_flop_per_s"))
    known = {*_RATES, *_WORDS}
    strange = sorted(set(state) - known) + sorted(set(storage) - {*_STORAGE})
    if strange:
        raise InputError(
            f"{where}: no key {strange[0]!r} of a device", f"known: {', '.join(sorted(known))}"
        )
    numbers = {name: state[name] for name in (*_RATES, "memory_bytes") if name in state} | storage
    names = state.get("is", ())
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise InputError(f"{where}: is = {names!r}", 'give a list of names: is = ["NVIDIA H100"]')
    for name in ("name", "source"):
        if not isinstance(state.get(name, ""), str):
            raise InputError(f"{where}: {name} = {state[name]!r}", "give a text in quotes")
    if not numbers and not peaks:
        raise InputError(f"{where}: the sheet tells nothing", "give memory_bytes_per_s = 3.35e12")
    return Device(
        name=state["name"],
        peak_flop_per_s={name: _rate(n, name, where, _LEAST_PEAK) for name, n in peaks.items()},
        names=tuple(names),
        source=state.get("source", ""),
        **{name: _rate(n, name, where, _LEAST.get(name, 0.0)) for name, n in numbers.items()},
    )


def _table(state: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    found = state.get(name, {})
    if not isinstance(found, Mapping):
        raise InputError(f"{where}: {name} = {found!r}", f"give a table: {_TABLES[name]}")
    return dict(found)


def _rate(value: Any, name: str, where: str, least: float) -> float:
    """A positive number that can be what it is said to be."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value < _MOST):
        raise InputError(f"{where}: {name} = {value!r}", "give a positive number")
    if value < least:
        unit = "FLOP/s" if least == _LEAST_PEAK else "bytes/s"
        raise InputError(
            f"{where}: {name} = {value!r} {unit} is less than any device has: which unit?",
            f"give {unit}, such as 900e9 of 900 {'GFLOP/s' if unit == 'FLOP/s' else 'GB/s'}",
        )
    return float(value)


class Specifications:
    """What is known of the hardware of a source and of a target.

    Parameters
    ----------
    target, source
        Devices; None to look them up by the names that the measurements give.
    """

    def __init__(self, target: Device | None = None, source: Device | None = None) -> None:
        self.target = target
        self.source = source

    def ratios(self, source: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, float]:
        """By resource how many times as long as on the source it takes; empty where not known.

        Parameters
        ----------
        source, asked
            Values of the columns that tell groups apart, of both sides.
        """
        old = self.source or device_named(source.get("device", ""))
        new = self.target or device_named(asked.get("device", ""))
        if old is None or new is None:
            return {}
        return time_ratios(old, new, asked.get("precision", ""))

    def unused(self, source: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
        """Why the sheets that were given move nothing, if so: a sentence.

        Parameters
        ----------
        source, asked
            As of `ratios`.
        """
        if (self.target is None and self.source is None) or self.ratios(source, asked):
            return []
        old = self.source or device_named(source.get("device", ""))
        new = self.target or device_named(asked.get("device", ""))
        if old is None:
            why = f"nothing is known of the old device {source.get('device', '?')}: --source-spec"
        elif new is None:
            why = f"nothing is known of the new device {asked.get('device', '?')}: --spec"
        else:
            return [f"the data sheets of {old.name} and {new.name} have no rate in common"]
        return [f"the data sheet moves nothing, {why} says it"]


def time_ratios(old: Device, new: Device, precision: str = "") -> dict[str, float]:
    """By resource how many times as long a unit takes on a new device; only what both tell.

    A step is partly bound by arithmetic and partly by memory, and nothing tells the parts: the
    device as such has the geometric mean of both ratios. Of the precisions that both have, that
    which is named counts, else the geometric mean of all.
    """
    common = [name for name in old.peak_flop_per_s if name in new.peak_flop_per_s]
    chosen = [name for name in common if name == precision] or common
    ratios = {name: _ratio(old, new, name) for name in (*_RATES, *_STORAGE)}
    logs = [np.log(old.peak_flop_per_s[p] / new.peak_flop_per_s[p]) for p in chosen]
    parts = [float(np.exp(np.mean(logs)))] if logs else []
    memory = ratios["memory_bytes_per_s"]
    parts += [memory] if np.isfinite(memory) else []
    found = {
        "device": float(np.exp(np.mean(np.log(parts)))) if parts else np.nan,
        "memory": memory,
        "link_intra": ratios["link_intra_bytes_per_s"],
        "link_inter": ratios["link_inter_bytes_per_s"],
        "storage": ratios["client_bytes_per_s"],
    }
    return {name: ratio for name, ratio in found.items() if np.isfinite(ratio)}


def _ratio(old: Device, new: Device, name: str) -> float:
    return float(getattr(old, name) / getattr(new, name))
