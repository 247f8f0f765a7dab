"""What the tests of the verbs share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fitkit
from fitkit.cli import run


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        assert self.status in (0, 1, 3, 4), self.err
        return json.loads(self.out)

    @property
    def complaint(self) -> list[str]:
        """What is wrong, and what to do: nothing else is said."""
        assert "Traceback" not in self.err
        what, hint = self.err.splitlines()
        assert what.startswith("error: ")
        assert hint.startswith("  ")
        return [what.removeprefix("error: "), hint.strip()]


@pytest.fixture
def fitkit_run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line in this process."""

    def call(*arguments: Any) -> Outcome:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err, "colour, though it is no terminal"
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def command() -> list[str]:
    """The command in a process of its own."""
    return [sys.executable, "-m", "fitkit"]


@pytest.fixture
def fitkit_process(command: list[str]) -> Callable[..., Outcome]:
    """Run a command line in a process of its own."""

    def call(*arguments: Any, **options: Any) -> Outcome:
        done = subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, check=False, **options
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture(scope="session")
def step_model(sample_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of the sample runs."""
    path = tmp_path_factory.mktemp("model") / "step.json"
    where = 'framework == "pytorch" and instrument == "none"'
    fitkit.fit(sample_dataset, recipe="step", where=where).save(path)
    return path
