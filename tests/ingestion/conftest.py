"""What the tests of ingestion share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

LogText = Callable[..., str]


@pytest.fixture
def logs(tmp_path: Path, log_text: LogText) -> Path:
    """A folder with one run of two ranks and one of a single rank."""
    folder = tmp_path / "logs"
    for name in ("wide", "single"):
        (folder / name).mkdir(parents=True)
    for rank in (0, 1):
        text = log_text(4, rank=rank, batch=4)
        (folder / "wide" / f"train_rank{rank}.log").write_text(text)
    (folder / "single" / "train.log").write_text(log_text(3))
    return folder


@pytest.fixture
def ds(tmp_path: Path) -> Path:
    """Where the dataset is to be."""
    return tmp_path / "ds"
