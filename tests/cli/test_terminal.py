"""What a terminal, a pipe and an impatient user see: colour, closed readers, interrupts."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.cli import run
from fitkit.dataset import Dataset

Run = Callable[..., Any]


# --- colour ---------------------------------------------------------------------------------


def on_a_terminal(call: list[str], **environment: str) -> str:
    """What a command writes to a terminal."""
    import pty

    reader, terminal = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    process = subprocess.Popen(
        call, stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL,
        env=clean | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment,
    )  # fmt: skip
    os.close(terminal)
    parts = []
    while True:
        try:
            part = os.read(reader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    os.close(reader)
    return b"".join(parts).decode()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_shows_colour_unless_no_color_is_set(
    command: list[str], step_model: Path
) -> None:
    colours = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|9[0-7]|38)[0-9;]*m")
    wrong = [*command, "predict", "none", "--at", "local_batch=4"]
    assert "\x1b[31merror: \x1b[0m" in on_a_terminal(wrong)
    assert "\x1b" not in on_a_terminal(wrong, NO_COLOR="1")
    right = [*command, "predict", str(step_model), "--at", "local_batch=4"]
    assert "\x1b[1m" in on_a_terminal(right)
    assert not colours.search(on_a_terminal(right, NO_COLOR="1"))


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_names_with_brackets_and_line_breaks_are_shown_on_a_terminal(
    command: list[str], tmp_path: Path, log_text: Callable[..., str]
) -> None:
    for name in ("[/red]", "[bold]", "line\nbreak \x1b[2J"):
        path = tmp_path / "logs" / name / "t.log"
        path.parent.mkdir(parents=True)
        path.write_text(log_text(2, model=name[1]))
    shown = on_a_terminal([*command, "ingest", str(tmp_path / "logs"), "-d", str(tmp_path / "ds")])
    assert "error" not in shown
    assert "\x1b[2J" not in shown
    assert Dataset(tmp_path / "ds").counts()["runs"] == 3


# --- pipes and interrupts -------------------------------------------------------------------


def with_no_reader(call: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard output nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(call, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", [[], ["--json"], ["--help"]])
def test_output_that_nobody_reads_is_no_error(
    command: list[str], step_model: Path, words: list[str]
) -> None:
    at = ["--at", "local_batch=4", "--at", "n_workers=1"]
    done = with_no_reader([*command, "predict", str(step_model), *at, *words])
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_leaves_early_is_no_error(command: list[str], sample_dataset: Path) -> None:
    process = subprocess.Popen(
        [*command, "show", str(sample_dataset), "steps", "--limit", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def test_a_check_that_fails_fails_though_nobody_reads(
    command: list[str], sample_dataset: Path
) -> None:
    where = 'framework == "pytorch" and instrument == "none"'
    arguments = ["--where", where, "--folds", "2", "--max-mape", "0"]
    done = with_no_reader([*command, "validate", str(sample_dataset), *arguments])
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: MAPE ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
def test_output_that_cannot_be_written_is_an_error(command: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*command, "doctor", "--json"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 3
    assert done.stderr.decode().splitlines()[0] == "error: No space left on device"
    assert len(done.stderr.splitlines()) == 2


def test_output_that_cannot_show_a_character_shows_another(
    sample_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in ([], ["--json"]):
        shown = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
        assert run(["show", str(sample_dataset), *words]) == 0
        assert shown.getvalue().isascii()
        assert b"tinygpt" in shown.getvalue()


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_an_interrupt_is_one_line_and_a_hint(command: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*command, "ingest", "-", "-d", str(tmp_path / "ds")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"x" * (1 << 20))  # returns when the command is reading
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.decode().split("\n")[-3:] == [
        "error: interrupted", "  run it again; what an ingest has finished is kept", "",
    ]  # fmt: skip
    assert b"Traceback" not in err
