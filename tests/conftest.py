"""Fixtures that every test can use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real logs, which does not belong to the repository."""
    folder = Path(os.environ.get("FITKIT_SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        reason = f"no folder of real logs at {folder}; FITKIT_SHARED names it"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
