"""What one process of a plan does: it is started by ``launch`` and told its job on stdin.

Each message is one line of JSON on what was standard output: ``step`` after each step, then
``result`` or ``error``. What the user's code prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from fitkit.errors import FitkitError

Job = Mapping[str, Any]


def main() -> None:
    """Do the job, and end with this process's parent if that ends before."""
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result = _perform(job, messages)
    except BaseException as error:  # noqa: BLE001 - the parent says it
        if job["is_verbose"]:
            traceback.print_exc()
        sys.stdout.flush()
        send(messages, "error", at=time.time(), **_described(error, job["network"]))
        os._exit(1)  # without waiting for others in the destructors of process groups
    send(messages, "result", **result)
    messages.close()


def send(messages: TextIO, kind: str, **content: Any) -> None:
    """Tell the parent something."""
    messages.write(json.dumps({"kind": kind, **content}) + "\n")


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


def _described(error: BaseException, network: str) -> dict[str, Any]:
    """An error in words, with the line of the user's file where it happened, if it was there."""
    if isinstance(error, FitkitError):
        return {"is_input": True, "what": str(error), "hint": error.hint}
    what = " ".join(f"{type(error).__name__}: {error}".split())
    file = Path(network.rpartition(":")[0]).resolve()
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == file
    ]
    where = f"{file.name}:{lines[-1]}: " if lines else ""
    return {"is_input": False, "what": where + what, "hint": ""}


def _task(name: str) -> Callable[..., dict[str, Any]]:
    if name == "profile":
        from fitkit.planner.execution.profiling import profile_rank

        return profile_rank
    if name == "compare":
        from fitkit.planner.execution.comparing import compare_rank

        return compare_rank
    from fitkit.planner.execution.running import run_rank

    return run_rank


def _perform(job: Job, messages: TextIO) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(job["n_threads"])
    device = torch.device("cpu")
    if job["backend"] == "nccl":
        device = torch.device("cuda", job["rank"])
        torch.cuda.set_device(device)
    dist.init_process_group(
        job["backend"],
        store=dist.FileStore(job["store"], job["n_ranks"]),
        rank=job["rank"],
        world_size=job["n_ranks"],
        timeout=timedelta(seconds=job["timeout_s"]),
    )
    try:
        perform = _task(job["task"])
        return perform(job, device, lambda **content: send(messages, "step", **content))
    finally:
        if sys.exc_info()[1] is None:
            dist.destroy_process_group()
