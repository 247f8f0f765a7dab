"""CNTK runs: what they are from their files, against values worked out from their text."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.cntk import CntkParser
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Phase, Step

GOOD = "Minibatch[ 1- 2]: loss = 2.5 * 64;\nFinished Epoch[1]: loss = 2.3 * 64 2s (32 samples/s);\n"
EVENT = '{"pid":1,"tid":1,"name":"__Get Minibatch","cat":"PERF","ph":"B","ts":1}'
FAILED = ["workers_unproven", "failed", "failed", "incomplete"]
PARSER = CntkParser()
Read = Callable[..., Any]


def test_a_data_parallel_run(real: Read) -> None:
    parsed = real("mlp_dp_n2_mb256")
    run = parsed.run
    assert (run.framework, run.build[:12]) == ("cntk", "ae9c9c7c5f9e")  # Python says no version
    assert (run.network, run.n_params, run.n_nodes, run.n_workers) == ("mlp", 178_110, 1, 2)
    assert (run.global_batch, run.local_batch, run.precision) == (256, 128.0, "float32")
    assert (run.instrument, run.state, parsed.notes) == ("none", "completed", [])
    assert [row[:4] for row in parsed.steps(1)] == [
        (1, 0, 16, 4096),
        (2, 16, 16, 4096),
        (3, 32, 16, 4096),
    ]
    epochs = [(p.rank, p.epoch) for p in parsed.of(Phase, phase="epoch", parent="train")]
    assert sorted(epochs) == [(rank, epoch) for rank in (0, 1) for epoch in (1, 2, 3)]
    assert Counter(p.phase for p in parsed.of(Phase)) == {"epoch": 6, "init": 2, "train": 2}


def test_block_momentum_prints_the_counts_of_one_worker(real: Read) -> None:
    # Its lines say 512 samples in 4 minibatches and 2048 in an epoch; it was given 4096 to read.
    parsed = real("mlp_bm_n2")
    assert parsed.run.sync_method == "block_momentum"
    assert (parsed.run.global_batch, parsed.run.local_batch) == (256, 128.0)
    assert parsed.steps() == [
        (1, 0, 16, 4096, 3.627),
        (2, 16, 16, 4096, 0.567),
        (3, 32, 16, 4096, 0.619),
    ]


def test_synchronisation_lines_alone_are_not_block_momentum(shared: Path, log: Read) -> None:
    path = shared / "cntk" / "real_runs" / "mlp_cv_test_heartbeat_n2" / "train.logrank0"
    lines = path.read_text().splitlines(keepends=True)
    stops = [i + 1 for i, line in enumerate(lines) if line.startswith("Distributed training")]
    assert len(stops) == 12
    # Killed between the line of a synchronisation and that of its minibatches.
    batches = {log("".join(lines[:stop])).run.global_batch for stop in stops[1:]}
    assert batches == {256}


def test_a_rank_that_only_waits_is_no_worker(real: Read) -> None:
    starved, shared_out = real("starved_worker_n2"), real("norandomize_n2")
    assert (starved.run.n_workers, starved.run.n_effective_workers) == (2, 1)
    assert (starved.run.global_batch, starved.run.local_batch) == (128, 128.0)
    assert "starved_worker" in starved.codes
    assert (shared_out.run.n_workers, shared_out.run.n_effective_workers) == (2, 2)
    assert (shared_out.run.global_batch, shared_out.run.local_batch) == (256, 128.0)
    assert "starved_worker" not in shared_out.codes


def test_summaries_alone_do_not_tell_transfer_from_waiting(real: Read) -> None:
    parsed = real("starved_worker_n2")
    (comm,) = parsed.of(Phase, phase="comm", rank=1)
    assert (comm.n, comm.duration_s) == (72, pytest.approx(6.060872))
    assert (comm.min_s, comm.max_s) == (pytest.approx(0.001007), pytest.approx(0.735679))
    assert "wait_unknown" in parsed.codes
    assert "wait_unknown" not in real("cnn_dp_n2_mb128").codes  # it has traces
    assert "wait_unknown" not in real("mlpbig_dp_n1_mb128").codes  # it has one rank


def test_a_killed_run_keeps_what_it_did(real: Read) -> None:
    parsed = real("killed_midepoch_n2")
    assert parsed.steps(0) == [(1, 0, 16, 4096, 7.335), (2, 16, 4, 1024, None)]
    assert parsed.steps(1) == [(1, 0, 16, 4096, 6.724), (2, 16, 4, 1024, None)]
    assert parsed.run.state == "incomplete"
    (failed, incomplete) = [note[2:] for note in parsed.notes]
    assert failed[0] == "failed"
    assert failed[1].startswith("mpirun detected that one or more processes exited with non-zero")
    assert incomplete == ("incomplete", "no end line; 1 epochs finished")


@pytest.mark.parametrize(
    ("name", "state", "codes", "n_steps"),
    [
        ("nan_loss_n1", "completed", ["nan_loss"], [8, 8]),
        ("diverged_n1", "completed", [], [16, 16]),
        ("geometric_freq0_n1", "completed", ["no_times"], []),
        ("failed_double_reader_n2", "incomplete", FAILED, []),
        ("ragged_last_mb_n2", "completed", [], [14, 13]),  # 4200 and 3800 samples by 300
        ("tagged_first4_nometric_n1", "completed", [], [32, 32]),
        ("trainer_loop_n2", "completed", ["wait_unknown"], [16, 16, 16]),
    ],
)
def test_odd_runs(real: Read, name: str, state: str, codes: list[str], n_steps: list[int]) -> None:
    parsed = real(name)
    assert (parsed.run.state, parsed.codes) == (state, codes)
    rows = parsed.steps()
    assert [row[2] for row in rows] == n_steps
    assert [row[0] for row in rows] == [1, 2, 3][: len(rows)]


def test_a_failed_run_is_a_run_without_steps(real: Read) -> None:
    parsed = real("failed_double_reader_n2")
    assert parsed.of(Step) == []
    assert parsed.of(Phase) == []
    assert (parsed.run.precision, parsed.run.n_params) == ("float64", 178_110)


def test_what_the_user_says_wins(read: Read, tmp_path: Path) -> None:
    (tmp_path / "train.logrank0").write_text(GOOD)
    parsed = read(tmp_path, n_workers=4, network="lenet", precision="float16")
    assert (parsed.run.n_workers, parsed.run.local_batch) == (4, 8.0)
    assert (parsed.run.network, parsed.run.precision) == ("lenet", "float16")


def test_two_logs_of_a_rank_are_not_one_run(read: Read, tmp_path: Path) -> None:
    for name in ("a.logrank0", "b.logrank0"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(ParseError, match=r"^b\.logrank0:1: progress of rank 0, as in a\.logr") as e:
        read(tmp_path)
    assert "a folder of its own" in e.value.hint


@pytest.mark.parametrize(
    "head",
    [
        b"noise\r Minibatch[   1-   4]: loss = 2.3 * 64;\r",
        b"noise\r\nFinished Epoch[1 of 3]: loss = 2.3 * 64",
        b"CNTKCommandTrainBegin: train\n",
        b"CNTK Performance Profiler Summary Report\n",
        b"x)Validating --> ol.x = Times (W0, features) : [] -> []\n",
        b"requestnodes [MPIWrapper]: using 4 out of 4 MPI nodes\n",
        b"Redirecting log to file train.logrank0\n",
        b"Training 178110 parameters in 6 parameter tensors.\n",
        b"[1,0]<stdout>:CNTKCommandTrainEnd: train\n",
        EVENT.encode(),
    ],
)
def test_recognises_what_only_cntk_writes(head: bytes) -> None:
    assert PARSER.recognises(head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"a text on Minibatch[ 1- 4]: lines and CNTKCommandTrain\n",
        rb'_SIGNS = re.compile(r"Validating --> |^ ?Minibatch\[ *\d+- *\d+\]: ")',
        b"Finished epoch 3\nTraining 3 parameters\n",
        bytes(range(256)) * 8,
    ],
)
def test_recognises_nothing_else(head: bytes) -> None:
    assert not PARSER.recognises(head)


def test_one_run_is_one_folder() -> None:
    files = [SourceFile(Path(p), p) for p in ("a/logrank1", "b/logrank0", "a/logrank0")]
    assert PARSER.group(files) == [(files[2], files[0]), (files[1],)]


def test_a_rank_whose_logs_are_missing_is_named(data: Path) -> None:
    folder = data / "cntk" / "mlpbig_dp_n2_mb128_rep1"
    others = ("_1.json.gz", "_1.txt", "rank1", ".toml")
    paths = [path for path in sorted(folder.iterdir()) if not path.name.endswith(others)]
    files = tuple(SourceFile(path, path.name) for path in paths)
    source = Source("run", files)
    list(CntkParser().parse(source))
    assert {code for _, _, code, _ in source.problems.notes} == {"missing_ranks", "wait_unknown"}


def test_a_cut_trace_gives_way_to_its_whole_summary(data: Path, tmp_path: Path, read: Read) -> None:
    folder = data / "cntk" / "mlpbig_dp_n2_mb256_rep1"
    for path in folder.iterdir():
        content = path.read_bytes()
        if path.name.endswith("_detail_1.json.gz"):
            content = gzip.decompress(content)
            (tmp_path / path.name.removesuffix(".gz")).write_bytes(content[: len(content) // 2])
        elif path.name != "run.toml":
            (tmp_path / path.name).write_bytes(content)
    parsed = read(tmp_path)
    assert {"truncated", "wait_unknown"} <= set(parsed.codes)
    assert [row[0] for row in parsed.steps(1)] == [1, 2]  # by epoch, as its log has them
    assert all(p.duration_s >= -0.002 for p in parsed.of(Phase))
    assert [p.phase for p in parsed.of(Phase, rank=1, phase="compute")] == ["compute"]


def test_traces_alone_tell_who_computes(shared: Path, tmp_path: Path, read: Read) -> None:
    folder = shared / "cntk" / "real_runs" / "cnn_dp_n2_mb512"
    for path in folder.glob("*_detail_*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    parsed = read(tmp_path)
    assert (parsed.run.n_workers, parsed.run.n_effective_workers) == (2, 2)
    assert "workers_unproven" not in parsed.codes


def test_an_unknown_method_is_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "train.logrank0").write_text(GOOD)
    with pytest.raises(ParseError, match="sync_method = 'block-momentum'") as caught:
        read(tmp_path, sync_method="block-momentum")
    assert "block_momentum" in caught.value.hint


def test_rank_files_may_end_in_a_suffix(read: Read, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"train.logrank{rank}.txt").write_text(GOOD)
        (tmp_path / f"out_rank_{rank}.log").write_text(GOOD)
    families = PARSER.group([SourceFile(path, path.name) for path in sorted(tmp_path.iterdir())])
    assert [[file.name for file in family] for family in families] == [
        ["out_rank_0.log", "out_rank_1.log"], ["train.logrank0.txt", "train.logrank1.txt"],
    ]  # fmt: skip
