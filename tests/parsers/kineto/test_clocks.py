"""Ranks side by side: waiting, clocks that differ, ranks and collectives that are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.parsers.kineto.clocks import RankComms, compare
from fitkit.parsers.kineto.collectives import Collective
from fitkit.records import Comm, Step

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
SECOND = 1_000_000.0  # us


def rank_trace(make: Any, rank: int, late: float, ahead: float = 0.0, **keys: Any) -> Any:
    """Three all-reduces that this rank enters so late; all end together, on a clock ahead."""
    events = [make.step(5, ahead, ahead + 1000)]
    for k in range(3):
        end = ahead + 300 * k + 250 + 0.001 * rank
        events.append(make.kernel(NCCL, ahead + 300 * k + 100 + late, end))
    return make.trace(events, rank=rank, world_size=keys.pop("world_size", 2), **keys)


def figures(parsed: Any, rank: int) -> list[tuple[float, float]]:
    return [
        (round(one.duration_s * 1e6, 2), round(one.wait_s * 1e6, 2))
        for one in parsed.of(Comm, rank=rank)
    ]


def test_what_is_not_moving_is_waiting(make: Any, parse: Callable[..., Any]):
    """The last rank arrives 40 us after the first: all move for 110 us."""
    parsed = parse(rank_trace(make, 0, 0), rank_trace(make, 1, 40))
    assert figures(parsed, 0) == [(150, 40)] * 3
    assert figures(parsed, 1) == [(110, 0)] * 3
    assert not {"clock_offset", "wait_unknown", "missing_ranks"} & parsed.codes


@pytest.mark.parametrize("hosts", [("a", "b"), (None, None)])
def test_clocks_of_two_hosts_are_aligned(
    hosts: tuple[str | None, str | None], make: Any, parse: Callable[..., Any]
):
    """vllm PR 51881: the second host's clock is 5 s ahead."""
    traces = [rank_trace(make, 0, 0), rank_trace(make, 1, 40, 5 * SECOND)]
    for trace, host in zip(traces, hosts, strict=True):
        trace |= {"host_name": host} if host else {}
    parsed = parse(*traces)
    assert "is 5.000000 s" in parsed.text("clock_offset")
    assert figures(parsed, 0) == [(150, 40)] * 3
    assert figures(parsed, 1) == [(110, 0)] * 3
    one, other = (parsed.of(Comm, rank=rank)[0].started_at for rank in (0, 1))
    assert (other - one).total_seconds() == pytest.approx(40e-6, abs=2e-6)
    starts = [step.started_at for step in parsed.of(Step)]
    assert (starts[1] - starts[0]).total_seconds() == pytest.approx(0, abs=2e-6)
    assert parsed.run.n_nodes == (2 if all(hosts) else None)


def test_clocks_of_one_host_are_one(make: Any, parse: Callable[..., Any]):
    """Ends that differ tell when each process was woken, not what its clock says."""
    traces = [rank_trace(make, 0, 0, host_name="vm"), rank_trace(make, 1, 0, host_name="vm")]
    for event in traces[1]["traceEvents"]:
        event["dur"] += 20 if event["cat"] == "kernel" else 0
    parsed = parse(*traces)
    assert "clock_offset" not in parsed.codes
    assert figures(parsed, 1) == [(170, 0)] * 3
    assert parsed.run.n_nodes == 1


def test_missing_ranks(make: Any, parse: Callable[..., Any]):
    parsed = parse(rank_trace(make, 1, 0, world_size=12))
    assert parsed.text("missing_ranks") == (
        "traces of 1 of 12 ranks; missing: 0, 2, 3, 4, 5, 6, 7, 8, ..."
    )
    assert parsed.text("wait_unknown").startswith("3 of 3 collectives")
    assert [one.wait_s for one in parsed.of(Comm)] == [None] * 3
    assert parsed.run.n_workers == 12


def test_collectives_that_do_not_agree_are_not_compared(make: Any, parse: Callable[..., Any]):
    traces = [rank_trace(make, 0, 0), rank_trace(make, 1, 40)]
    traces[1]["traceEvents"].pop()
    parsed = parse(*traces)
    assert parsed.text("wait_unknown").startswith("5 of 5")
    sizes = {"Collective name": "allreduce", "In msg nelems": 10, "dtype": "Float"}
    traces = [rank_trace(make, 0, 0), rank_trace(make, 1, 40)]
    for k, trace in enumerate(traces):
        trace["traceEvents"][2]["args"] |= sizes | {"In msg nelems": 10 + k}
    assert parse(*traces).text("wait_unknown").startswith("6 of 6")


def test_groups_are_compared_apart(make: Any, parse: Callable[..., Any]):
    """Of four ranks two pairs have a group each; all are in the first."""
    traces = []
    for rank in range(4):
        pair = {"Process Group Name": str(1 + rank // 2), "Group size": 2,
                "Collective name": "allreduce"}  # fmt: skip
        whole = {"Process Group Name": "0", "Group size": 4, "Collective name": "allreduce"}
        events = [
            make.step(0, 0, 1000),
            make.kernel(NCCL, 10 + rank, 100, **pair), make.kernel(NCCL, 200 + rank, 300, **whole),
        ]  # fmt: skip
        traces.append(make.trace(events, rank=rank, world_size=4))
    parsed = parse(*traces)
    waits = {r: [round(one.wait_s * 1e6) for one in parsed.of(Comm, rank=r)] for r in range(4)}
    assert waits == {0: [1, 3], 1: [0, 2], 2: [1, 1], 3: [0, 0]}


def pairs(make: Any, listed: bool) -> list[Any]:
    """Two pairs of ranks whose groups have one name; the second pair is late."""
    group = {"Process Group Name": "tp", "Group size": 2, "Collective name": "allreduce"}
    traces = []
    for rank, late in enumerate((0, 30, 100, 150)):
        events = [make.step(0, 0, 1000), make.kernel(NCCL, 10 + late, 200 + late // 100, **group)]
        trace = make.trace(events, rank=rank, world_size=4, host_name="vm")
        if listed:
            ranks = [0, 1] if rank < 2 else [2, 3]
            trace["distributedInfo"]["pg_config"] = [
                {"pg_name": "tp", "pg_size": 2, "ranks": ranks}
            ]
        traces.append(trace)
    return traces


def test_groups_of_one_name_are_told_by_their_ranks(make: Any, parse: Callable[..., Any]):
    parsed = parse(*pairs(make, listed=True))
    waits = [round(one.wait_s * 1e6) for one in parsed.of(Comm)]
    assert waits == [30, 0, 50, 0]
    assert "wait_unknown" not in parsed.codes


def test_more_ranks_than_the_group_has_are_not_compared(make: Any, parse: Callable[..., Any]):
    parsed = parse(*pairs(make, listed=False))
    assert [one.wait_s for one in parsed.of(Comm)] == [None] * 4
    assert parsed.text("wait_unknown").startswith("4 of 4 collectives")


starts = st.lists(
    st.tuples(*[st.integers(0, 1000)] * 3, st.integers(1, 1000)), min_size=1, max_size=8
)


offsets_ns = st.integers(-(10**6), 10**6).map(lambda n: n * 10_000)


@given(starts, st.tuples(offsets_ns, offsets_ns, offsets_ns))
def test_offsets_of_any_size_change_nothing(
    drawn: list[tuple[int, int, int, int]], offsets: tuple[int, int, int]
):
    """Arrivals of three ranks and a moving time, one collective after another."""

    def run(ahead: tuple[int, ...]) -> list[RankComms]:
        ranks = []
        for rank in range(3):
            calls, now = [], 0
            for *arrivals, moving in drawn:
                end = now + max(arrivals) + moving
                start = now + arrivals[rank]
                calls.append(Collective("all_reduce", start + ahead[rank], end + ahead[rank], 0))
                now = end
            ranks.append(RankComms(rank, f"rank {rank}", calls, [0] * len(calls)))
        return ranks

    found = compare(run(offsets), 3)
    for k, (*arrivals, _) in enumerate(drawn):
        waits = [found.wait_ns[rank, k] for rank in range(3)]
        if found.offset_ns:
            assert waits == [max(arrivals) - one for one in arrivals]
    if not any(offsets):
        assert found.offset_ns == {}
    if len(drawn) >= 3 and len(set(offsets)) > 1:
        assert [found.offset_ns[f"rank {r}"] for r in range(3)] == [
            one - offsets[0] for one in offsets
        ]  # fmt: skip
