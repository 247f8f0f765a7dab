"""torchrun: starts, restarts, failures and the end; NCCL's word on ranks and machines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.training_log import TrainingLogParser
from fitkit.records import Run

Read = Callable[..., Any]
AGENT = "I1130 23:49:{:09.6f} 31066 torch/distributed/elastic/agent/server/api.py:715] "
BLOCK = """============================================================
job.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_23:50:12
  host      : node2
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 31096)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 31096
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_23:50:12
  host      : node1
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 31097)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 31097
============================================================
  host      : elsewhere
"""


def test_the_root_cause(read: Read) -> None:
    found = read(BLOCK)
    assert found.run.state == "incomplete"
    assert found.said("failed_rank") == (
        "rank 3 (local_rank: 1) on node1 failed first: exit code -9 (SIGKILL) "
        "at 2026-11-30 23:50:12"
    )
    assert found.codes == [(None, "no_times"), (13, "failed_rank")]
    cut = "".join(BLOCK.splitlines(keepends=True)[:16])
    assert read(cut).said("failed_rank") == (
        "rank unknown on node1 failed first: exit code unknown at 2026-11-30 23:50:12"
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "E1130 11:36:54.339000 19496 torch/distributed/elastic/multiprocessing/api.py:1002] ",
        "[rank0]:E1130 11:36:54.339000 torch/distributed/elastic/multiprocessing/api.py:826] ",
        "[2024-01-10 12:00:00,123] torch.distributed.elastic.multiprocessing.api: [ERROR] ",
        "ERROR:torch.distributed.elastic.multiprocessing.api:",
    ],
)
def test_a_failure_in_one_line(read: Read, prefix: str) -> None:
    line = f"{prefix}failed (exitcode: 1) local_rank: 2 (pid: 19636) of binary: /usr/bin/python\n"
    found = read(line)
    # It may have been restarted: the launcher says so at a level that is not on by default.
    assert found.run.state is None
    assert found.said("failed_rank") == ("rank unknown (local_rank: 2) failed first: exit code 1")


def test_restarts_and_the_end(read: Read) -> None:
    log = (
        AGENT.format(10) + "[default] Rendezvous'ing worker group\n"
        + AGENT.format(10.5) + "[default] Rendezvous complete for workers. Result:\n"
        + AGENT.format(10.5) + "  restart_count=0\n"
        + AGENT.format(10.5) + "  group_world_size=2\n"
        + AGENT.format(10.5) + "  global_world_sizes=[8, 8, 8, 8]\n"
        + AGENT.format(11.25) + "[default] Starting worker group\n"
        + AGENT.format(20) + "failed (exitcode: 1) local_rank: 2 (pid: 1) of binary: x\n"
        + AGENT.format(20) + "[default] Worker group FAILED. 3/3 attempts left; will restart worker"
        " group\n"
        + AGENT.format(21) + "[default] Rendezvous'ing worker group\n"
        + AGENT.format(23) + "[default] Starting worker group\n"
        + AGENT.format(50) + "[default] worker group successfully finished. Waiting 300 seconds for"
        " other agents to finish.\n"
        + AGENT.format(50) + "Done waiting for other agents. Elapsed: 0.25 seconds\n"
    )  # fmt: skip
    found = read(log)
    assert [p.duration_s for p in found.phases(phase="launch")] == [1.25, 2.0]
    assert [p.duration_s for p in found.phases(phase="teardown")] == [0.25]
    assert (found.run.n_nodes, found.run.n_devices, found.run.state) == (2, 8, "completed")
    assert found.codes == [(None, "no_times"), (8, "restarted")]


def test_options_of_older_versions_have_no_prefix(read: Read) -> None:
    log = (
        "INFO:torch.distributed.launcher.api:Starting elastic_operator with launch configs:\n"
        "  entrypoint       : job.py\n  min_nodes        : 2\n  max_nodes        : 2\n"
        "  nproc_per_node   : 4\n  run_id           : x\n"
    )
    run = read(log).run
    assert (run.n_nodes, run.n_devices) == (2, 8)
    assert read(log.replace("max_nodes        : 2", "max_nodes        : 3")).run.n_nodes is None


def test_a_signal_ends_the_launcher(read: Read) -> None:
    log = AGENT.format(10) + "Received Signals.SIGTERM death signal, shutting down workers\n"
    found = read(log)
    assert (found.run.state, found.codes[-1]) == ("incomplete", (1, "terminated"))


def test_dated_stamps_tell_the_start(read: Read) -> None:
    log = "[2024-01-10 12:00:00,123] torch.distributed.run: [WARNING] \n"
    assert read(log, tz="Europe/Oslo").run.started_at == datetime(
        2024, 1, 10, 11, 0, 0, 123000, UTC
    )
    for odd in ("[2024-01-40 12:00:00,123]", "[0001-01-01 00:00:00,000]"):
        assert read(log.replace(log[:25], odd), tz="Asia/Tokyo").run.started_at is None


def test_nccl_tells_ranks_and_machines(read: Read) -> None:
    line = (
        "{rank}: node{node:03d}:2031605:2032369 [0] NCCL INFO comm 0x155424008fb0 rank {rank} "
        "nranks {n} cudaDev 0 busId 1000 - Init COMPLETE\n"
    )
    log = BLOCK + "".join(line.format(rank=rank, node=rank // 2, n=4) for rank in range(4))
    small = line.format(rank=0, node=0, n=2)
    run = read(log + small).run
    assert (run.n_devices, run.n_nodes, run.n_workers) == (4, 2, 4)
    one = read(BLOCK + line.format(rank=0, node=0, n=4)).run
    assert (one.n_devices, one.n_nodes) == (4, None)  # the others may be elsewhere


def test_runs_of_our_own(sample: Callable[[str], Any]) -> None:
    done = sample("torchrun_ok")
    assert (done.run.state, done.run.n_devices, done.run.n_nodes) == ("completed", 2, 1)
    # From 23:49:06.871 to 23:49:07.086.
    assert [round(p.duration_s, 6) for p in done.phases(phase="launch")] == [0.215]
    restarted = sample("torchrun_restart")
    assert restarted.run.state == "incomplete"
    assert [code for _, code in restarted.codes] == ["no_times", "restarted", "failed_rank"]
    assert [round(p.duration_s, 6) for p in restarted.phases(phase="launch")] == [0.345, 0.197]


def test_consoles_of_our_runs(shared: Path) -> None:
    states = {}
    for path in (shared / "pytorch" / "real_runs" / "torchrun_console").glob("*.txt"):
        file = SourceFile(path, path.name)
        assert TrainingLogParser().recognises(file.head())
        source = Source("job", (file,))
        (run,) = (r for r in TrainingLogParser().parse(source) if isinstance(r, Run))
        states[path.name] = (
            run.state,
            [c for _, _, c, _ in source.problems.notes if c != "no_timezone"],
        )
    assert states == {
        "calib_gpt_b2.console.txt": ("incomplete", ["no_times", "failed_rank"]),
        "vgg_w2_b32.console.txt": (None, ["no_times"]),
    }
