"""Knees, turning points and what is neither, planted and looked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from lines import Line, Section

from fitkit.models.knees import Knee, find_knee
from fitkit.models.turning_points import turning_point

TITLE = "Knees and turning points, planted"
TEXT = """
Times are a planted truth times lognormal noise, 3 repetitions at each of 1, 2, 4, 8, 12, 16, 20,
24 and 32 workers up to the largest said; 100 draws, `numpy.random.default_rng(s)`, s = 0 to 99.
The server's truth is max(1.6, 0.1 N), whose knee lies at 16; found means declared and within 25 %
of it. A line without a bar is harder than what was promised, or says what the promise costs: a
square, a power or a closed queue bends as a knee does, and noise hides the difference. Coverage is
the share of declared knees whose 90 % interval holds the truth. Extrapolation is the mean absolute
error of a declared knee's curve at four times the largest scale. Turning points are those of
8 / N + 0.12 N at 1, 2, 4, 6, 8, 12 and 16 nodes; the truth is 8. A constant has none, and no
scale of the server is faster than the one before it.
"""
DRAWS = range(100)
REPEATS = 3
SCALES = np.array([1.0, 2, 4, 8, 12, 16, 20, 24, 32])
KNEE = 16.0
NEAR = 0.25
TOTALS = np.array([1.0, 2, 4, 6, 8, 12, 16])
FASTEST = 8.0
LEVEL = 0.9
ALL_DATA = [(24.0, 0.05), (24.0, 0.15), (32.0, 0.05), (32.0, 0.15)]
SOME_DATA = [(24.0, 0.05), (32.0, 0.15)]

Truth = Callable[[np.ndarray], np.ndarray]


def server(n: np.ndarray) -> np.ndarray:
    """Service time 0.1 for each worker, compute 1.6."""
    return np.maximum(1.6, 0.1 * n)


def closed_queue(n: np.ndarray) -> np.ndarray:
    """Mean value analysis of the same server with random service: a rounded knee."""
    service, thinking = 0.1, 1.5
    waiting, cycles = 0.0, [0.0]
    for workers in range(1, int(n.max()) + 1):
        response = service * (1 + waiting)
        waiting = workers * response / (thinking + response)
        cycles.append(thinking + response)
    return np.array(cycles)[n.astype(int)]


PROMISED: dict[str, Truth] = {
    "logarithmic": lambda n: 1 + 0.3 * np.log2(n),
    "affine": lambda n: 1 + 0.05 * n,
}
HARD: dict[str, Truth] = {
    "constant": np.ones_like,
    "ring": lambda n: 1 + (n - 1) / n,
    "square root": lambda n: 1 + 0.4 * np.sqrt(n),
    "a + b / N": lambda n: 0.2 + 2 / n,
    "b / N + c N": lambda n: 8 / n + 0.12 * n,
    "a + b / N + c N": lambda n: 1 + 1 / n + 0.05 * n,
    "a + b / N + c N²": lambda n: 1 + 1 / n + 0.002 * n**2,
    "N log N": lambda n: 1 + 0.01 * n * np.log2(n),
    "power 1.5": lambda n: 1 + 0.01 * n**1.5,
    "square": lambda n: 1 + 0.002 * n**2,
    "closed queue": closed_queue,
}
OTHER_KNEES: dict[str, Truth] = {
    "server": server,
    "hinge of half the slope": lambda n: 1.6 + 0.05 * np.maximum(0, n - KNEE),
    "hinge of twice the slope": lambda n: 1.6 + 0.2 * np.maximum(0, n - KNEE),
    "server and a fixed 0.3": lambda n: server(n) + 0.3,
}


def measured(
    truth: Truth, scales: np.ndarray, noise: float, seed: int, repeats: int = REPEATS
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and times of a draw, shape ``(rows,)`` each."""
    n = np.repeat(scales, repeats)
    scatter = noise * np.random.default_rng(seed).standard_normal(len(n))
    return n, truth(n) * np.exp(scatter)


def answers(truth: Truth, largest: float, noise: float) -> list[Knee]:
    """What is said about each draw."""
    scales = SCALES[largest >= SCALES]
    return [find_knee(*measured(truth, scales, noise, seed)) for seed in DRAWS]


def declared(found: list[Knee]) -> list[Knee]:
    """Those that are a knee."""
    return [knee for knee in found if knee.status == "knee"]


def server_lines() -> list[Line]:
    """The server's knee: found, how near, how it goes on, and never where it is not seen."""
    lines = []
    for largest, noise, missed in ((24.0, 0.05, 0.05), (32.0, 0.05, None), (32.0, 0.15, 0.15)):
        found = answers(server, largest, noise)
        knees = declared(found)
        where = f"server to {largest:g}, {noise:.0%} noise"
        away = np.array([abs(knee.at / KNEE - 1) for knee in knees])
        near = float((away <= NEAR).sum()) / len(found)
        at = np.array(4 * largest)
        errors = [abs(float(knee.predict(at) / server(at)) - 1) for knee in knees]
        bar = 0.05 if noise < 0.1 else None
        lines += [
            Line(f"{where}: not found", 1 - near, missed),
            Line(f"{where}: median error of the knee", float(np.median(away)), 0.1),
            Line(f"{where}: extrapolated 4x", float(np.mean(errors)), bar),
        ]
    for noise in (0.05, 0.15):
        found = answers(server, 16, noise)
        share = len(declared(found)) / len(found)
        lines.append(Line(f"server to 16, {noise:.0%} noise: declared", share, 0.0))
        told = sum(knee.status == "not determined" for knee in found) / len(found)
        lines.append(Line(f"server to 16, {noise:.0%} noise: not determined", told))
    return lines


def false_lines() -> list[Line]:
    """Knees declared where there is none."""
    lines = []
    for name, truth in (PROMISED | HARD).items():
        bar = 0.02 if name in PROMISED else None
        for largest, noise in ALL_DATA if name in PROMISED else SOME_DATA:
            found = answers(truth, largest, noise)
            share = len(declared(found)) / len(found)
            lines.append(Line(f"{name} to {largest:g}, {noise:.0%} noise: declared", share, bar))
    return lines


def coverage_lines() -> list[Line]:
    """Declared knees whose interval holds the truth."""
    lines = []
    for name, truth in OTHER_KNEES.items():
        for largest, noise in ((24.0, 0.05), (32.0, 0.05), (32.0, 0.15)):
            knees = declared(answers(truth, largest, noise))
            held = float(np.mean([knee.low <= KNEE <= knee.high for knee in knees]))
            words = f"{name} to {largest:g}, {noise:.0%} noise: coverage of {len(knees)}"
            lines.append(Line(words, held))
    return lines


def turning_lines() -> list[Line]:
    """Candidates that hold the fastest scale, and how many they are."""
    lines = []
    for noise in (0.02, 0.05, 0.15):
        points = [
            turning_point(*measured(HARD["b / N + c N"], TOTALS, noise, seed), level=LEVEL)
            for seed in DRAWS
        ]
        where = f"turning point, {noise:.0%} noise"
        lost = float(np.mean([FASTEST not in point.candidates for point in points]))
        size = float(np.mean([len(point.candidates) for point in points]))
        told = float(np.mean([point.status == "not determined" for point in points]))
        lines += [
            Line(f"{where}: truth is no candidate", lost, 0.15),
            Line(f"{where}: candidates, mean number", size, unit="scales"),
            Line(f"{where}: not determined", told),
        ]
    return [*lines, *flat_lines()]


def flat_lines() -> list[Line]:
    """Turning points declared where no scale is faster than the one before it."""
    lines = []
    for name, truth in (("constant", np.ones_like), ("server", server)):
        for repeats in (2, 3, 10):
            points = [
                turning_point(*measured(truth, SCALES, 0.05, seed, repeats)) for seed in DRAWS
            ]
            share = float(np.mean([point.status == "turning point" for point in points]))
            words = f"turning point of the {name} to 32, 5% noise, {repeats} repetitions: declared"
            lines.append(Line(words, share, 0.05 if name == "constant" else 0.1))
    return lines


def section(_shared: Path, _folder: Path) -> Section:
    """All lines; nothing is read."""
    return Section(
        TITLE, TEXT, [*server_lines(), *false_lines(), *coverage_lines(), *turning_lines()]
    )


def main() -> None:
    """Print the table alone."""
    from lines import show

    show(section(Path(), Path()))


if __name__ == "__main__":
    main()
