"""Protocols of a message: planted lines are found, and those of a real network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import FitError
from fitkit.models.protocols import Protocol, ProtocolCurve, fit_protocols
from fitkit.parsers.pingpong import PingpongParser
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Comm

SIZES = 2.0 ** np.arange(3, 20)


def planted(limits: list[int]) -> np.ndarray:
    """Times of three ways of sending, each 4 us dearer and a third of the price a byte."""
    place = np.searchsorted(np.array([SIZES[i] for i in limits]), SIZES, side="right")
    return 4e-6 * (place + 1) + 3e-9 / 3.0**place * SIZES


@given(st.integers(3, 7), st.integers(10, 14), st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_planted_breaks_are_found(first: int, second: int, seed: int) -> None:
    noise = np.random.default_rng(seed).lognormal(0, 0.002, (3, len(SIZES)))
    curve = fit_protocols(np.tile(SIZES, 3), (planted([first, second]) * noise).ravel(), 0.01)
    assert curve.breaks == [(SIZES[i - 1], SIZES[i]) for i in (first, second)]
    for place, one in enumerate(curve.protocols):
        assert one.latency_s == pytest.approx(4e-6 * (place + 1), rel=0.05)
    np.testing.assert_allclose(curve.predict(SIZES), planted([first, second]), rtol=0.01)


def test_one_line_is_enough_for_one_protocol() -> None:
    curve = fit_protocols(SIZES, 1e-6 + 1e-9 * SIZES)
    (one,) = curve.protocols
    assert (one.smallest, one.largest, curve.breaks) == (8, 524288, [])
    assert one.latency_s == pytest.approx(1e-6)
    assert one.inverse_bandwidth == pytest.approx(1e-9)
    assert curve.text == "8 to 524,288 bytes: 1.00×10⁻⁶ s + 1.00×10⁻⁹ s/byte"


def test_between_two_protocols_the_nearer_one_counts() -> None:
    curve = ProtocolCurve((Protocol(1, 100, 1.0, 0.0), Protocol(400, 800, 2.0, 0.0)), 0.0)
    np.testing.assert_array_equal(curve.predict([1, 199, 200, 201, 9999]), [1, 1, 1, 2, 2])


def test_times_that_no_line_holds_are_still_drawn() -> None:
    curve = fit_protocols([1.0, 2.0, 3.0, 4.0], [4.0, 1.0, 4.0, 1.0])
    assert curve.error == pytest.approx(1 - 20 / 17 / 4)  # of (1/4 + 1) / (1/16 + 1) = 20/17
    assert len(curve.protocols) == 1


@pytest.mark.parametrize(
    ("sizes", "times", "tolerance"),
    [([1.0, 0.0], [1.0, 1.0], 0.1), ([1.0, 2.0], [1.0, np.nan], 0.1), ([1.0, 2.0], [1.0, 1.0], 0)],
)
def test_what_is_not_positive_is_refused(
    sizes: list[float], times: list[float], tolerance: float
) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        fit_protocols(sizes, times, tolerance)


def test_one_size_is_too_few() -> None:
    with pytest.raises(FitError, match="1 sizes: a line needs two"):
        fit_protocols([8.0, 8.0], [1.0, 1.1])


@pytest.fixture(scope="module")
def gemini(shared: Path) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and median seconds between two nodes of Blue Waters, one pair at a time."""
    path = shared / "hpc" / "bluewaters_pingpong_ppn1_off_node.out"
    source = Source(path.name, (SourceFile(path, path.name),))
    rows = [row for row in PingpongParser().parse(source) if isinstance(row, Comm)]
    sizes = np.array([row.n_bytes for row in rows], dtype=float)
    times = np.array([row.duration_s for row in rows])
    return SIZES, np.array([np.median(times[sizes == size]) for size in SIZES])


def test_breaks_of_the_gemini_network_are_found(gemini: tuple[np.ndarray, np.ndarray]) -> None:
    curve = fit_protocols(*gemini)
    # The origin of the data names limits of 500 and 8,000 bytes; 2 to 4 KiB shows beside them.
    assert curve.breaks == [(512, 1024), (2048, 4096), (8192, 16384)]
    assert curve.error < 0.02


def test_sizes_inside_a_protocol_are_predicted(gemini: tuple[np.ndarray, np.ndarray]) -> None:
    sizes, times = gemini
    inside = [at for at, size in enumerate(sizes) if 8 < size < 512 or 16384 < size < 524288]
    assert len(inside) == 9
    for at in inside:
        curve = fit_protocols(np.delete(sizes, at), np.delete(times, at))
        assert curve.predict(sizes[at]) == pytest.approx(times[at], rel=0.02)
