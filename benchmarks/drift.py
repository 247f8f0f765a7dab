"""Whether sweeps in increasing order on a drifting machine are flagged, and others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from lines import Line, Section

from fitkit.drift import Drift, drift_test

TITLE = "Run time confounded with the order of measuring"
TEXT = """
Synthetic sweeps over 1 to 64 workers in doublings, 100 of each design and noise, seed 0. The time
is 2 / N + 0.1 + 0.02 log2 N seconds, the noise is a normal one of its logarithm, runs start after
one another at distances that vary by 20 %, and a drift is linear: 30 % from the first start to the
last. *In a row*: every size three times running. *Sentinel*: every size once, and size 8 at the
start, in the middle and at the end. *Passes*: the whole sweep three times. *Once*: every size
once. Shuffled sweeps have the same runs in random order; the sentinel keeps its places. Flagged is
`drift`, `confounded` and `possibly confounded`: the last is what is said of an order that follows
the size where repetitions do not exclude a drift. A line gives the worst of the noises 2, 5 and
10 %.
"""
SIZES = 2 ** np.arange(7)
NOISES = (0.02, 0.05, 0.1)
DRAWS = 100
DRIFT = 0.3
NOT_FLAGGED, FALSELY_FLAGGED = 0.1, 0.05  # the bars


def in_a_row(sizes: np.ndarray) -> np.ndarray:
    """Every size three times running."""
    return np.repeat(sizes, 3)


def with_sentinel(sizes: np.ndarray) -> np.ndarray:
    """Every size once, and size 8 at the start, in the middle and at the end."""
    half = len(sizes) // 2
    return np.concatenate([[8], sizes[:half], [8], sizes[half:], [8]])


def in_passes(sizes: np.ndarray) -> np.ndarray:
    """The whole sweep three times."""
    return np.tile(sizes, 3)


def once(sizes: np.ndarray) -> np.ndarray:
    """Every size once."""
    return sizes


DESIGNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "in a row": in_a_row,
    "sentinel": with_sentinel,
    "passes": in_passes,
    "once": once,
}


def order_of(design: str, shuffled: bool, draw: np.random.Generator) -> np.ndarray:
    """Sizes in the order in which a sweep measures them, shape ``(runs,)``."""
    if not shuffled:
        return DESIGNS[design](SIZES)
    if design == "sentinel":
        return with_sentinel(draw.permutation(SIZES))
    return draw.permutation(DESIGNS[design](SIZES))


def sweep(sizes: np.ndarray, drift: float, noise: float, draw: np.random.Generator) -> Drift:
    """What is said of a sweep over sizes in that order."""
    starts = np.cumsum(draw.uniform(0.8, 1.2, len(sizes)))
    place = (starts - starts[0]) / (starts[-1] - starts[0])
    times = (2 / sizes + 0.1 + 0.02 * np.log2(sizes)) * (1 + drift) ** place
    times *= np.exp(noise * draw.standard_normal(len(sizes)))
    return drift_test(starts, times, sizes, {"n_workers": sizes})


@cache
def verdicts(design: str, noise: float, *, shuffled: bool, drift: float) -> Counter[str]:
    """How often each verdict is given in the draws."""
    draw = np.random.default_rng(0)
    found = (sweep(order_of(design, shuffled, draw), drift, noise, draw) for _ in range(DRAWS))
    return Counter(one.verdict for one in found)


def flagged(found: Counter[str]) -> float:
    """Share of the draws that were flagged."""
    return 1 - (found["no drift"] + found["not determined"]) / found.total()


def section(shared: Path, folder: Path) -> Section:
    """Sweeps that were not flagged and should be, and the reverse, with what was said instead."""
    lines = []
    for design in DESIGNS:
        found = [verdicts(design, noise, shuffled=False, drift=DRIFT) for noise in NOISES]
        missed = max(1 - flagged(one) for one in found)
        lines.append(Line(f"{design}, increasing, drift: not flagged", missed, NOT_FLAGGED))
    for design in DESIGNS:
        found = [verdicts(design, noise, shuffled=True, drift=0.0) for noise in NOISES]
        false = max(map(flagged, found))
        lines.append(Line(f"{design}, shuffled, no drift: flagged", false, FALSELY_FLAGGED))
    return Section(TITLE, TEXT, [*lines, *_said()])


def _said() -> list[Line]:
    """Lines without a bar: what is said where both answers would be honest."""
    lines = []
    for name, verdict, shuffled, drift in (
        ("increasing, drift: confounded", "confounded", False, DRIFT),
        ("increasing, no drift: that there is none", "no drift", False, 0.0),
        ("shuffled, drift: that there is one", "drift", True, DRIFT),
    ):
        for design in ("sentinel", "passes"):
            found = [verdicts(design, k, shuffled=shuffled, drift=drift)[verdict] for k in NOISES]
            lines += [
                Line(f"{design}, {name}, {noise:.0%} noise", count / DRAWS)
                for noise, count in zip(NOISES, found, strict=True)
            ]
    return lines


def main() -> None:
    """Print the table alone."""
    from lines import show

    show(section(Path(), Path()))


if __name__ == "__main__":
    main()
