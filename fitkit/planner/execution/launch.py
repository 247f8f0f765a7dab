"""Starting the processes of a plan on this machine, hearing them, and ending them all."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from fitkit.errors import FitkitError, InputError

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fitkit.planner.execution.rank import main; main()"
)
# glibc else gives large tensors back to the system whenever they are freed, and a layer behind an
# exchange takes up to three times as long for the page faults of getting them again.
_KEPT_BYTES = str(2**30)
_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES,
    "MALLOC_MMAP_THRESHOLD_": _KEPT_BYTES,
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
_GRACE_S = 1.0  # in which the rank that failed first is heard, when others fail after it
_END_S = 5.0
_Message = dict[str, Any]


def run_ranks(
    job: Mapping[str, Any],
    n_ranks: int,
    timeout_s: float,
    progress: Callable[[int], None] = lambda _step: None,
) -> list[_Message]:
    """Do a job on some ranks; return what each of them found.

    Whatever happens, no process and no file of it is left when this returns. Ranks find each
    other by a file in a folder that only this user can read, and talk over ports that the
    system chooses, on this machine alone.

    Parameters
    ----------
    job
        What ``rank.main`` does.
    n_ranks
        Processes.
    timeout_s
        Seconds without a sign of life of any rank after which all are ended; also the longest
        that a rank waits for others.
    progress
        Is called when rank 0 has finished a step, with its number.

    Raises
    ------
    InputError
        If torch is missing, or a rank found the network or the plan to be wrong.
    FitkitError
        If a rank failed or nothing was heard: with the rank.
    """
    if find_spec("torch") is None:
        raise InputError("running a plan needs PyTorch", "pip install 'fitkit[torch]'")
    inbox: queue.Queue[tuple[int, _Message | None]] = queue.Queue()
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="fitkit-run-") as folder, _interruptible():
        try:
            for rank in range(n_ranks):
                own: dict[str, Any] = {"rank": rank, "n_ranks": n_ranks, "timeout_s": timeout_s}
                own["store"] = str(Path(folder) / "store")
                own["is_verbose"] = logging.getLogger("fitkit").isEnabledFor(logging.DEBUG)
                processes.append(_start({**job, **own}, rank, inbox))
            return _collect(processes, inbox, timeout_s, progress)
        finally:
            _end(processes)


def _start(job: Mapping[str, Any], rank: int, inbox: Any) -> subprocess.Popen[bytes]:
    """Start a rank, tell it its job, and listen to it."""
    threads = str(job["n_threads"])
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **{name: os.environ.get(name, value) for name, value in _ENVIRONMENT.items()},
        **_loopback(),
    }
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)]
    process = subprocess.Popen(  # noqa: S603 - this Python and a program of ours
        words, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
    )
    with suppress(BrokenPipeError):  # it has ended, which its reader finds out
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
    threading.Thread(target=_listen, args=(process, rank, inbox), daemon=True).start()
    return process


def _loopback() -> dict[str, str]:
    """Gloo talks within this machine, whatever its name resolves to."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return {}
    with suppress(OSError, AttributeError):
        names = [name for _, name in socket.if_nameindex()]
        return {"GLOO_SOCKET_IFNAME": next(name for name in ("lo", "lo0") if name in names)}
    return {}


def _listen(process: subprocess.Popen[bytes], rank: int, inbox: Any) -> None:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    with suppress(ValueError):  # closed by the end of everything
        for line in process.stdout:
            inbox.put((rank, json.loads(line)))
    inbox.put((rank, None))


def _collect(
    processes: Sequence[subprocess.Popen[bytes]],
    inbox: Any,
    timeout_s: float,
    progress: Callable[[int], None],
) -> list[_Message]:
    """What each rank found, once all have ended; or the first failure, soon after it."""
    heard = _Heard(len(processes))
    while heard.n_ended < len(processes):
        rank, message = _next(inbox, timeout_s, heard.deadline)
        if rank < 0:
            break
        if message is None:
            heard.end(rank, processes[rank])
        elif message["kind"] == "step":
            if rank == 0:
                progress(message["number"])
        else:
            heard.word(rank, message)
    if heard.failures:
        raise heard.first_failure()
    return [heard.results[rank] for rank in range(len(processes))]


class _Heard:
    """The last words of ranks."""

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self.results: dict[int, _Message] = {}
        self.failures: dict[int, _Message] = {}
        self.deadline: float | None = None
        self.n_ended = 0

    def word(self, rank: int, message: _Message) -> None:
        """A result or an error."""
        if message["kind"] == "result":
            self.results[rank] = message
            return
        self.failures.setdefault(rank, message)
        if self.deadline is None:
            self.deadline = time.monotonic() + _GRACE_S

    def end(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        """A rank has ended, and if it said nothing it is to blame."""
        self.n_ended += 1
        if rank not in self.results and rank not in self.failures:
            self.word(rank, _death(process))

    def first_failure(self) -> FitkitError:
        """The failure that the others follow from."""
        rank, failure = min(self.failures.items(), key=lambda one: one[1]["at"])
        if failure["is_input"]:
            return InputError(failure["what"], failure["hint"])
        silent = [*{*range(self.n_ranks)} - {*self.failures} - {*self.results}]
        who = f"; ranks {silent} had not come as far" if silent else ""
        hint = failure["hint"] or f"all ranks were ended{who}; -vv shows where it happened"
        return FitkitError(f"rank {rank}: {failure['what']}", hint)


def _next(inbox: Any, timeout_s: float, deadline: float | None) -> tuple[int, _Message | None]:
    """The next message, or rank -1 if the grace is over."""
    left = timeout_s if deadline is None else max(0.0, deadline - time.monotonic())
    try:
        return inbox.get(timeout=left)
    except queue.Empty:
        if deadline is not None:
            return -1, None
        what = f"no rank has been heard of for {timeout_s:g} s"
        raise FitkitError(what, "a step may take longer with --timeout") from None


def _death(process: subprocess.Popen[bytes]) -> _Message:
    """What is known of a rank that ended without a word: it is the first cause of all others."""
    status = process.wait()
    how = f"ended with status {status}"
    if status < 0:
        with suppress(ValueError):
            how = f"was ended by {signal.Signals(-status).name}"
    hint = "the system may have ended it for want of memory" if status == -9 else ""
    return {"kind": "error", "is_input": False, "what": how, "hint": hint, "at": 0.0}


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """No process is left, however busy."""
    for process in processes:
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()  # it ends when it has nothing more to read
    limit = time.monotonic() + _END_S
    for process in processes:
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _interruptible() -> Iterator[None]:
    """A request to end lets this process clean up first, as Ctrl-C does."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {
        number: signal.signal(number, leave)
        for number in numbers
        if signal.getsignal(number) == signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
