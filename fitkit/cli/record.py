"""fitkit record."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import click

from fitkit.cli import BAD_INPUT, complain
from fitkit.cli.options import common, one_line, print_json, say, warn
from fitkit.recorder.setting import LOGS, Setting, first_free, run_folder

_STDERR = 2
_SOON_S = 0.5  # a signal to a group reaches all of it within milliseconds
_NOT_FOUND, _NOT_EXECUTABLE, _SIGNALLED = 127, 126, 128  # as shells say it
_FORWARDED = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example: fitkit record -d logs -- torchrun --nproc_per_node=2 train.py --epochs 1",
)
@click.option(
    "-d", "--directory", "folder", type=click.Path(path_type=Path, file_okay=False),
    default="fitkit-record", show_default=True,
    help="Folder of the logs, the last one if several are given; made if missing.",
)  # fmt: skip
@click.option("--network", metavar="NAME", help="Name of the network; else its class.")
@click.option(
    "--local-batch", type=click.IntRange(min=1), metavar="N",
    help="Samples a step and worker; else what the network is called with.",
)  # fmt: skip
@click.option(
    "--microbench", is_flag=True,
    help="Time a standard set of operators and collectives on this machine instead, in about a "
    "minute and a half; -d may name a dataset then, which they are ingested into.",
)  # fmt: skip
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND")
@common
def command(
    folder: Path,
    network: str | None,
    local_batch: int | None,
    microbench: bool,
    command_line: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> int:
    """Run a PyTorch program with fitkit's recorder switched on.

    COMMAND runs unchanged, and so does every Python process that it starts. The first network
    that a process trains is recorded from its second optimizer step on: a log for each rank,
    which fitkit ingest reads. The exit status is that of COMMAND. With --json, what COMMAND
    prints goes to standard error. A run goes to a folder of its own: the second one in the
    same place to run2.

    With --microbench there is no COMMAND: its logs are what fitkit calibrate takes as probes of
    this machine.
    """
    if microbench:
        return _microbench(folder, command_line, as_json, quiet)
    if not command_line:
        raise click.UsageError("Missing argument 'COMMAND...'; or give --microbench.")
    folder.mkdir(parents=True, exist_ok=True)
    before = {*folder.rglob(LOGS)}
    setting = Setting(str(folder.absolute()), first_free(folder), network, local_batch)
    try:
        status = _run(command_line, setting.environment(), _STDERR if as_json else None)
    except FileNotFoundError:
        return complain(f"{command_line[0]}: command not found", "check the path", _NOT_FOUND)
    except PermissionError:
        return complain(f"{command_line[0]}: cannot be executed", "", _NOT_EXECUTABLE)
    finally:
        with suppress(OSError):
            folder.rmdir()  # if nothing is in it
    logs = {str(path): _steps(path) for path in sorted({*folder.rglob(LOGS)} - before)}
    if as_json:
        rows = [{"path": path, "n_steps": n} for path, n in logs.items()]
        print_json({"folder": str(folder), "status": status, "logs": rows})
    _report(folder, logs, status, quiet)
    return status


def _microbench(folder: Path, command_line: Sequence[str], as_json: bool, quiet: bool) -> int:
    """Time the operators into a folder of logs, or into a dataset that is there already."""
    if command_line:
        raise click.UsageError("--microbench runs no COMMAND: leave it out.")
    if find_spec("torch") is None:
        return complain(*_nothing(has_failed=False), BAD_INPUT)
    from fitkit.recorder.microbench import measure  # here, so that recording a command is quick

    say("timing operators and collectives: about a minute and a half", quiet)
    is_dataset = (folder / "_fitkit.json").is_file()
    with TemporaryDirectory() as place:
        logs = Path(place) if is_dataset else _free(folder)
        missing = measure(logs)
        written = {path.relative_to(logs): _steps(path) for path in sorted(logs.rglob(LOGS))}
        if is_dataset:
            from fitkit.ingestion import ingest

            ingest(logs, folder)
    warn(missing)
    if as_json:
        rows = [{"path": str(path), "n_steps": n} for path, n in written.items()]
        print_json({"folder": str(folder), "status": 0, "logs": rows, "missing": missing})
    say(f"timed: {len(written)} logs in {shlex.quote(str(folder if is_dataset else logs))}", quiet)
    if not is_dataset:
        say(f"next: fitkit ingest {shlex.quote(str(logs))} -d probes-parquet", quiet)
    return 0


def _free(folder: Path) -> Path:
    """The folder, or the first one in it that has no log."""
    return next(
        place
        for place in (run_folder(folder, number) for number in count(1))
        if not any(place.rglob(LOGS))
    )


def _run(command_line: Sequence[str], environment: Mapping[str, str], stdout: int | None) -> int:
    """Exit status of the command, as a shell would say it."""
    with _forwarding() as forward_to:
        child = subprocess.Popen(command_line, env=environment, stdout=stdout)  # noqa: S603
        forward_to(child)
        status = child.wait()
    return _SIGNALLED - status if status < 0 else status


@contextmanager
def _forwarding() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Signals to this process reach the command that it is given, whose end is waited for.

    Those that come while the command is being started reach it then.
    """
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []
    group = _Group()

    def forward(number: int, _frame: FrameType | None) -> None:
        if group.has_signal():
            return
        if not children:
            early.append(number)
        for child in children:
            child.send_signal(number)

    def forward_to(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        for number in early:
            child.send_signal(number)

    before = {
        number: signal.signal(number, forward)
        for number in _FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup wants it
    }
    try:
        yield forward_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        group.close()


class _Group:
    """Tells whether a signal came to the whole process group, and so to the command by itself.

    Ctrl-C in a terminal, a shell's ``kill %1`` and cluster schedulers signal a group; a signal
    does not say so. A process in the group that does nothing but wait is ended by those alone.
    """

    def __init__(self) -> None:
        self._witnesses = [_witness()] if os.name == "posix" else []  # the last one is alive

    def has_signal(self) -> bool:
        """Whether the group had the signal that this process has."""
        if not self._witnesses:
            return False
        witness = self._witnesses[-1]
        output = [] if witness.stdout is None else [witness.stdout]
        if not select.select(output, [], [], _SOON_S)[0]:  # readable when it has ended
            return False
        if witness is self._witnesses[-1]:  # else a signal meanwhile has called another one
            self._witnesses.append(_witness())
        return True

    def close(self) -> None:
        """End the witnesses."""
        for witness in self._witnesses:
            witness.kill()
            with witness:
                pass  # waits, and closes the pipes


def _witness() -> subprocess.Popen[bytes]:
    """A process that ends with this one, or with the group."""
    words = [sys.executable, "-I", "-S", "-c", "input()"]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=nothing)  # noqa: S603


def _steps(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(line.startswith(b'{"kind":"step"') for line in lines)


def _report(folder: Path, logs: Mapping[str, int], status: int, quiet: bool) -> None:
    """What was recorded and what to do with it; or that nothing was."""
    if not any(logs.values()):
        what, hint = _nothing(has_failed=status != 0)
        if status:
            complain(f"the command ended with status {status}, and {what}", hint, status)
        else:
            warn([what])
            say(f"  {one_line(hint)}")
        return
    for path, n_steps in logs.items():
        say(f"recorded: {path} ({n_steps} step{'s' if n_steps != 1 else ''})", quiet)
    say(f"next: fitkit ingest {shlex.quote(str(folder))} -d runs-parquet", quiet)


def _nothing(has_failed: bool) -> tuple[str, str]:
    """Why nothing was recorded, as far as it can be told from here, and what to do."""
    if find_spec("torch") is None:
        return (
            f"nothing was recorded: {sys.executable} has no torch",
            "pip install 'fitkit[torch]' in the environment that the command trains in",
        )
    return (
        "nothing was recorded: no two optimizer steps of a PyTorch network were seen",
        "what it printed above may say why"
        if has_failed
        else "the command must train in a Python that finds fitkit, without -I, -E or -S",
    )
