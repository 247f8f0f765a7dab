"""Values of Torque records: sizes, counts, what nodes are asked for."""

from __future__ import annotations

import pytest

from fitkit.parsers.torque.values import exit_of, read_count, read_request, read_size


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("18996kb", 18996 * 1024),
        ("12.27M", 12866028),  # 12.27 * 1048576 = 12866027.5
        ("1993mb", 1993 * 1024**2),
        ("2GB", 2 * 1024**3),
        ("512b", 512),
        ("3w", 24),
        ("2kw", 16384),
        ("664", 664 * 1024),
        ("0kb", 0),
    ],
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert read_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "kb", "20H|54J", "-3kb", "1e3kb", "16?", "9" * 14 + "pb"])
def test_other_texts_are_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        read_size(text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1_0", "9" * 12, "²"])
def test_other_texts_are_no_count(text: str) -> None:
    with pytest.raises(ValueError, match="not a count"):
        read_count(text)


@pytest.mark.parametrize(
    ("text", "kind", "n_devices"),
    [
        ("4:ppn=32", None, None),
        ("1024:ppn=16:xk", "xk", None),
        ("1024:ppn=32:xe+1024:ppn=16:xk", "mixed", None),
        ("2:ppn=32:xe+2:ppn=32:xe", "xe", None),
        ("13:hsw:ppn=20", "hsw", None),
        ("2:ppn=28:gpus=4:exclusive_process", None, 8),
        ("1:gpus=2+node7:gpus=1", None, 3),
        ("1:mpiprocs=48:ncpus=48:ngpus=4:mem=185547mb", None, 4),
        ("node07:ppn=4+node08:ppn=4", None, None),
        ("4:ppn=2:xe#shared", "xe", None),
    ],
)
def test_requests(text: str, kind: str | None, n_devices: int | None) -> None:
    assert read_request(text) == (kind, n_devices)


def test_a_long_list_of_hosts_by_name_is_no_request() -> None:
    assert read_request("+".join(f"node{i}" for i in range(1000))) is None


def test_codes_and_signals() -> None:
    assert [exit_of(status) for status in (0, 255, -11, 256 + 9, None)] == [
        (0, None), (255, None), (-11, None), (None, 9), (None, None),
    ]  # fmt: skip
