"""What the tests of the verbs share."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

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


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores signals, and so would what it starts."""
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) == signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, lambda *_: None)  # not inherited, as ignoring is
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


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
