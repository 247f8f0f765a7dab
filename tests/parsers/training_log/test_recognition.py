"""Which files are training logs, and which of them belong together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.source import SourceFile
from fitkit.parsers.training_log import TrainingLogParser

Read = Callable[..., Any]
PARSER = TrainingLogParser()
FOLDER = Path(__file__).parents[3] / "data" / "training_log"
SAMPLES = {path.name: path.read_bytes() for path in sorted(FOLDER.glob("*.log"))}


def test_there_are_samples() -> None:
    assert len(SAMPLES) == 8


@pytest.mark.parametrize("name", SAMPLES)
def test_recognises_its_own(name: str) -> None:
    assert PARSER.recognises(SAMPLES[name])
    assert PARSER.recognises(b"0: noise\r\n" + SAMPLES[name])
    assert PARSER.recognises(SAMPLES[name].replace(b"\n", b"\r"))


@pytest.mark.parametrize(
    "head",
    [
        b"", b"noise", b"\0\xff" * 99, b"eta: 0:10", b"time: 5", b"Train: 0 [ 1/2 (50%)] Loss: 1",
        b"iteration        2/    1000 | lm loss: 6 |", b'{"name": "torch/distributed/x.py(1): f"}',
        b":::MLLOG {}\n  iteration 2/ 10 | elapsed time per iteration (ms): 1.0 |",
        b"2026-11-30 11:07:27,429 [rank0] INFO epoch 0\nRoot Cause (first observed failure):",
        b"+ python -m torch.distributed.launch a.py", b"size(B),count,type,time(ns),busbw(GB/s)",
        b"time (ms) | x", b"  File torch/distributed/run.py, line 1028, in main",
        b"node1:5:5 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 busId 1000 - Init COMPLETE",
    ],
)  # fmt: skip
def test_other_files_are_not_claimed(head: bytes) -> None:
    assert not PARSER.recognises(head)


def test_a_line_beyond_its_limit_tells_nothing() -> None:
    line = b"Train: 0 [  50/1251 (  4%)]  Time: 0.350s, 2925.71/s  (0.410s, 2497.56/s)"
    assert PARSER.recognises(line)
    assert not PARSER.recognises(b"x" * 5000 + line)


def test_none_of_the_shared_files_is_claimed_beside_the_consoles(shared: Path) -> None:
    folders = ["hpc", "cntk/quiet_runs", "public_tables", "deeppool", "pytorch/mlperf_logs"]
    paths = [p for name in folders for p in sorted((shared / name).rglob("*")) if p.is_file()]
    heads = {path: SourceFile(path, path.name).head(1 << 16) for path in paths}
    assert len(heads) > 300
    assert [path for path, head in heads.items() if PARSER.recognises(head)] == []


def test_files_of_one_job_belong_together(tmp_path: Path) -> None:
    names = [
        "a.out", "a.err", "b.out", "job.o123", "job.e123", "job.o124", "c.log", "d.out.gz",
        "logs/x/attempt_0/0/stdout.log", "logs/x/attempt_0/1/stderr.log",
        "logs/y/attempt_0/0/stdout.log",
    ]  # fmt: skip
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    families = PARSER.group([SourceFile(tmp_path / name, name) for name in names])
    assert [[file.label for file in family] for family in families] == [
        ["a.out", "a.err"], ["b.out"], ["job.o123", "job.e123"], ["job.o124"], ["c.log"],
        ["d.out.gz"], names[8:10], names[10:],
    ]  # fmt: skip


def test_streams_of_one_job_are_one_run(read: Read) -> None:
    line = " iteration {:8d}/      20 | elapsed time per iteration (ms): 100.0 |\n"
    files = {
        "job.out": line.format(10) + line.format(20),
        "job.err": "noise\nRoot Cause (first observed failure):\n[0]:\n  rank      : 2\n",
    }
    found = read(files)
    assert (len(found.steps), found.run.state) == (2, "incomplete")
    assert ("job.err", 2, "failed_rank") in [note[:3] for note in found.notes]


def test_ranks_do_not_mix(read: Read) -> None:
    line = "{}: Train: 0 [{:>4d}/1251 (  4%)]  Time: {:.3f}s, 1024.00/s  (1.000s, 1024.00/s)\n"
    log = "".join(line.format(rank, at, 1 + rank) for at in (0, 50) for rank in (1, 0))
    found = read(log)
    assert [(s.rank, s.first_step, s.duration_s) for s in found.steps] == [
        (0, 0, 1.0), (0, 50, 1.0), (1, 0, 2.0), (1, 50, 2.0),
    ]  # fmt: skip


def test_the_first_program_states_the_steps(read: Read) -> None:
    # Megatron-DeepSpeed prints both.
    log = (
        "time (ms) | fwd: 30.00 | bwd: 50.00 | step: 10.00\n" * 2
        + " iteration        2/      20 | elapsed time per iteration (ms): 100.0 |\n"
    )
    found = read("  log_interval ..... 2\n" + log)
    assert found.groups == [(0, 2, 0.2)]
    assert found.parts(step=1) == {"forward": 0.03, "backward": 0.05, "optimizer": 0.01, "other": 0}
