"""Values of unknown type, as records and tables state them: bounded, so that tables hold them."""

from __future__ import annotations

import math

MANY = 1 << 53  # of anything: nonsense, and more than a table holds exactly
TOLERANCE = 0.05  # by which two statements of one quantity may differ


def number(value: object) -> float | None:
    """A finite number, also where it is text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def count(value: object) -> int | None:
    """A whole positive number that a table can hold; None for anything else."""
    found = number(value)
    if found is None or found != int(found) or not 0 < found < MANY:
        return None
    return int(found)


def text(value: object) -> str | None:
    """Text that says something; None for anything else."""
    return value if isinstance(value, str) and value else None


def disagree(stated: float, measured: float) -> bool:
    """Whether two statements of one quantity contradict each other: by more than 5 %."""
    return abs(stated - measured) > TOLERANCE * abs(measured)
