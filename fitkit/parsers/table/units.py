"""Units of measurement: what a table's figures are in, and what they count as once stored."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np

from fitkit.schema import unit as stored_unit


@dataclass(frozen=True)
class Dimension:
    """Powers of second, byte and floating-point operation; counts have none."""

    s: int = 0
    byte: int = 0
    flop: int = 0

    def __mul__(self, other: Dimension) -> Dimension:
        return Dimension(self.s + other.s, self.byte + other.byte, self.flop + other.flop)

    def __truediv__(self, other: Dimension) -> Dimension:
        return Dimension(self.s - other.s, self.byte - other.byte, self.flop - other.flop)

    def __str__(self) -> str:
        powers = {"bytes": self.byte, "FLOP": self.flop, "seconds": self.s}
        above = [_power(name, power) for name, power in powers.items() if power > 0]
        below = [_power(name, -power) for name, power in powers.items() if power < 0]
        if not above and not below:
            return "a plain number"
        return " per ".join([" ".join(above) or "1", *below])


def _power(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


PLAIN, TIME, BYTES, FLOP = Dimension(), Dimension(s=1), Dimension(byte=1), Dimension(flop=1)
_STORED = {
    None: PLAIN, "s": TIME, "UTC": TIME, "byte": BYTES, "FLOP": FLOP, "1/s": PLAIN / TIME,
}  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """A unit: a figure in it times ``up / down`` is one in seconds, bytes or operations.

    Two factors, because ``9 / 1000`` is the number nearest to 0.009, and ``9 * 1e-3`` is not.
    """

    name: str
    up: float
    down: float
    dimension: Dimension

    @property
    def scale(self) -> float:
        """What one of it is, in seconds, bytes or operations."""
        return self.up / self.down

    def convert(self, figures: np.ndarray) -> np.ndarray:
        """Figures in it as figures in seconds, bytes or operations."""
        return figures * self.up / self.down


_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {f"{letter}i": 1024.0**n for n, letter in enumerate("KMGTP", 1)}
_COUNTS = ("sample", "image", "sequence", "token", "step", "iteration", "epoch", "call", "request")
UNITS: dict[str, tuple[float, float, Dimension]] = {
    "s": (1, 1, TIME), "ms": (1, 1e3, TIME), "us": (1, 1e6, TIME), "ns": (1, 1e9, TIME),
    "min": (60, 1, TIME), "h": (3600, 1, TIME), "d": (86400, 1, TIME),
    **{f"{prefix}B": (up, 1, BYTES) for prefix, up in (_DECIMAL | _BINARY).items()},
    **{f"{prefix}bit": (up, 8, BYTES) for prefix, up in _DECIMAL.items()},
    **{f"{prefix}FLOP": (up, 1, FLOP) for prefix, up in _DECIMAL.items()},
    "1": (1, 1, PLAIN), "%": (1, 100, PLAIN),
    **{name + end: (1, 1, PLAIN) for name in _COUNTS for end in ("", "s")},
}  # fmt: skip
_MICRO = str.maketrans("µμ", "uu")  # the micro sign and the Greek letter


def parse_unit(text: str) -> Unit:
    """Read a unit such as ``ms``, ``GiB``, ``Gbit/s``, ``TFLOP/s`` or ``samples/s``.

    Raises
    ------
    ValueError
        If it is none; the message says which there are.

    Examples
    --------
    >>> unit = parse_unit("GB/s")
    >>> unit.scale, str(unit.dimension)
    (1000000000.0, 'bytes per seconds')
    """
    above, slash, below = text.translate(_MICRO).replace(" ", "").partition("/")
    up, down, dimension = _look_up(above, text)
    if slash:
        other_up, other_down, other = _look_up(below, text)
        up, down, dimension = up * other_down, down * other_up, dimension / other
    return Unit(text, up, down, dimension)


def _look_up(part: str, text: str) -> tuple[float, float, Dimension]:
    if part in UNITS:
        return UNITS[part]
    near = difflib.get_close_matches(part, UNITS, 1) or [
        name for name in UNITS if name.lower() == part.lower()
    ]
    meant = f"did you mean {near[0]}? " if near else ""
    raise ValueError(
        f"no unit {text!r}; {meant}there are ns us ms s min h d, B bit FLOP with k M G T P, B with "
        "Ki Mi Gi Ti, samples and other counts, and quotients of two such as GB/s"
    )


def dimension_of(column: str) -> Dimension:
    """What a column of fitkit's tables counts, read off the end of its name."""
    return _STORED[stored_unit(column)]
