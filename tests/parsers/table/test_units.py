"""Units: factors worked out by hand, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.parsers.table.units import BYTES, FLOP, PLAIN, TIME, Dimension, dimension_of, parse_unit


@pytest.mark.parametrize(
    ("text", "scale", "dimension"),
    [
        ("s", 1, TIME), ("ms", 1e-3, TIME), ("us", 1e-6, TIME), ("µs", 1e-6, TIME),
        ("μs", 1e-6, TIME), ("ns", 1e-9, TIME), ("min", 60, TIME), ("h", 3600, TIME),
        ("B", 1, BYTES), ("KB", 1000, BYTES), ("kB", 1000, BYTES), ("KiB", 1024, BYTES),
        ("MiB", 1048576, BYTES), ("GB", 1e9, BYTES), ("GiB", 2**30, BYTES), ("TB", 1e12, BYTES),
        ("TiB", 2**40, BYTES), ("Gbit", 1.25e8, BYTES), ("GB/s", 1e9, BYTES / TIME),
        ("Gbit/s", 1.25e8, BYTES / TIME), ("GB / s", 1e9, BYTES / TIME),
        ("MB/ms", 1e9, BYTES / TIME), ("FLOP", 1, FLOP), ("GFLOP", 1e9, FLOP),
        ("TFLOP", 1e12, FLOP), ("TFLOP/s", 1e12, FLOP / TIME), ("samples/s", 1, PLAIN / TIME),
        ("steps/min", 1 / 60, PLAIN / TIME), ("s/step", 1, TIME), ("samples", 1, PLAIN),
        ("%", 0.01, PLAIN),
    ],
)  # fmt: skip
def test_units_are_these(text: str, scale: float, dimension: Dimension) -> None:
    unit = parse_unit(text)
    assert unit.scale == pytest.approx(scale, rel=1e-15)
    assert unit.dimension == dimension


def test_whole_figures_become_the_nearest_number() -> None:
    figures = np.arange(1.0, 2_000.0)
    for text, exponent in (("ms", 3), ("us", 6), ("ns", 9)):
        nearest = [float(f"{figure:.0f}e-{exponent}") for figure in figures]
        assert parse_unit(text).convert(figures).tolist() == nearest


@pytest.mark.parametrize(
    ("text", "meant"),
    [("mS", "ms"), ("GFLOPS", "GFLOP"), ("gb", "GB"), ("GiB/MS", "ms"), ("mins", "min"),
     ("sec", None), ("", None), ("/", None), ("s/s/s", None), ("furlong", None)],
)  # fmt: skip
def test_other_words_are_refused(text: str, meant: str | None) -> None:
    with pytest.raises(ValueError, match="no unit") as caught:
        parse_unit(text)
    assert "there are ns us ms s min h d" in str(caught.value)
    if meant:
        assert f"did you mean {meant}? " in str(caught.value)


@pytest.mark.parametrize(
    ("column", "dimension"),
    [
        ("duration_s", TIME), ("n_bytes", BYTES), ("flop", FLOP), ("n_steps", PLAIN),
        ("alone_per_s", PLAIN / TIME), ("started_at", TIME), ("network", PLAIN),
    ],
)  # fmt: skip
def test_columns_hold_what_their_names_say(column: str, dimension: Dimension) -> None:
    assert dimension_of(column) == dimension


@pytest.mark.parametrize(
    ("dimension", "words"),
    [
        (PLAIN, "a plain number"), (TIME, "seconds"), (BYTES / TIME, "bytes per seconds"),
        (PLAIN / TIME, "1 per seconds"), (TIME * TIME, "seconds^2"), (BYTES * FLOP, "bytes FLOP"),
    ],
)  # fmt: skip
def test_dimensions_have_words(dimension: Dimension, words: str) -> None:
    assert str(dimension) == words
