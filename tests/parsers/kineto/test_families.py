"""Which files are one run: names of ranks and processes, worlds, executions, cycles."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitkit.parsers.kineto.families import families, label_of, rank_in_name
from fitkit.parsers.source import SourceFile


def head(rank: int | None = None, world: int | None = None, backend: str = "nccl") -> bytes:
    if world is None:
        return b'{"schemaVersion": 1, "traceEvents": ['
    ours = f'"rank": {rank}, ' if rank is not None else ""
    return (
        f'{{"distributedInfo": {{"backend": "{backend}", {ours}"world_size": {world}}}, '
        '"traceEvents": ['
    ).encode()


def grouped(files: dict[str, bytes], graphs: tuple[str, ...] = ()) -> list[list[str]]:
    sources = [SourceFile(Path("/runs") / name, name) for name in files]
    found = families(sources, [name in graphs for name in files], list(files.values()))
    return sorted(sorted(str(f.path.relative_to("/runs")) for f in family) for family in found)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json", 34), ("kineto_rank0.pt.trace.json", 0),
        ("worker3_step_12.1694128201557.pt.trace.json", 3), ("RANK_7.json", 7),
        ("trace_rank01.json", 1), ("resnet50_num_workers_4__worker0.16232.json", 0),
        ("host_4711.1694128201557.pt.trace.json", None), ("crank2.json", None),
        ("rank_not_found.json", None), ("rank12345678.json", None),
    ],
)  # fmt: skip
def test_ranks_in_names(name: str, rank: int | None):
    assert rank_in_name(name) == rank


def test_the_beginning_wins_over_the_name():
    label = label_of("rank3.json", head(5, 8))
    assert (label.rank, label.world_size, label.backend) == (5, 8, "nccl")
    assert label_of("rank3.json", head()).rank == 3
    compact = b'{"distributedInfo":{"backend":"nccl","rank":1,"world_size":2},"traceEvents":['
    assert label_of("a.json", compact).rank == 1  # HTA 0.5.0 needs a blank there


def test_ranks_of_one_run():
    names = [f"worker{k}_step_12.16941282015{k}0.pt.trace.json" for k in range(3)]
    assert grouped({name: head(k, 3) for k, name in enumerate(names)}) == [names]


def test_folders_are_runs_of_their_own():
    files = {f"{folder}/rank{k}.json": head(k, 2) for folder in "ab" for k in (0, 1)}
    assert grouped(files) == [["a/rank0.json", "a/rank1.json"], ["b/rank0.json", "b/rank1.json"]]


def test_tensorboard_names_differ_by_host_and_process():
    files = {
        "node1_11.1700000000001.pt.trace.json": head(0, 4),
        "node1_12.1700000000002.pt.trace.json": head(1, 4),
        "node2_11.1700000000003.pt.trace.json": head(2, 4),
        "node2_12.1700000000001.pt.trace.json": head(3, 4),
    }
    assert grouped(files) == [list(files)]
    # The same ranks later, in other processes, are another execution; a second window is not.
    later = {
        "node1_91.1700000900001.pt.trace.json": head(0, 4),
        "node1_92.1700000900002.pt.trace.json": head(1, 4),
    }
    window = {"node1_11.1700000050001.pt.trace.json": head(0, 4)}
    assert grouped(files | later | window) == [sorted([*files, *window]), list(later)]


def test_processes_without_a_world_are_apart():
    files = {f"vm_{pid}.1700000000{pid}.pt.trace.json": head() for pid in (100, 200)}
    cycle = {"vm_100.1700000999999.pt.trace.json": head()}
    assert grouped(files | cycle) == [
        ["vm_100.1700000000100.pt.trace.json", "vm_100.1700000999999.pt.trace.json"],
        ["vm_200.1700000000200.pt.trace.json"],
    ]


def test_other_worlds_and_other_names_are_other_runs():
    files = {
        "rank0.json": head(0, 2), "rank1.json": head(1, 4), "rank2.json": head(2, 4, "gloo"),
        "eager_trace.json": head(0, 2), "b200_trace.json": head(0, 2),
        "resnet50_num_workers_0__worker0.16231.json": head(),
        "resnet50_num_workers_4__worker0.16232.json": head(),
    }  # fmt: skip
    assert grouped(files) == sorted([name] for name in files)


def test_names_alone_tell_ranks_when_the_world_stands_at_the_end():
    assert grouped({"rank0.json": head(), "rank1.json": head()}) == [["rank0.json", "rank1.json"]]


def test_execution_traces_join_the_trace_of_their_rank():
    files = {name: head(k % 2, 2) for k, name in enumerate(
        ["kineto_rank0.pt.trace.json", "kineto_rank1.pt.trace.json", "et_rank0.json"])}  # fmt: skip
    assert grouped(files, ("et_rank0.json",)) == [sorted(files)]
    files = {
        "simple_add_trace.json": head(0, 1), "simple_mul_trace.json": head(),
        "simple_add_et.json": b"", "other_et.json": b"",
    }  # fmt: skip
    assert grouped(files, ("simple_add_et.json", "other_et.json")) == [
        ["other_et.json"], ["simple_add_et.json", "simple_add_trace.json"],
        ["simple_mul_trace.json"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        ["trace_16.json", "trace_8.json"], ["trace0.json", "trace1.json"],
        ["rank0_12.json", "rank0_6.json"], ["rank0_trace_1.json", "rank0_trace_2.json"],
        ["trace_rank0_1.json", "trace_rank0_2.json"], ["net_trace_1.json", "net_trace_2.json"],
    ],
)  # fmt: skip
def test_numbers_of_cycles(names: list[str]):
    assert grouped({name: head(0, 2) for name in names}) == [names]
    other = {names[0]: head(0, 2), names[1]: head(0, 4)}
    assert grouped(other) == [[name] for name in names]


def test_numbers_of_models_are_none():
    names = ["resnet18.json", "resnet50.json", "vit_1_trace.json", "vit_2_trace.json"]
    assert grouped({name: head() for name in names}) == [[name] for name in names]
