"""Write the tables ``synthetic_*`` of nccl-tests: made-up times in the format of the tool.

A time is a latency plus the bytes over a bandwidth, with 2 % of noise. The same seed gives the same
bytes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

SEED = 20261130
DEVICE = "NVIDIA A100-SXM4-40GB"
LATENCY_US = {1: 18.0, 2: 35.0}  # by nodes
BANDWIDTH = {1: 220e9, 2: 80e9}  # bytes a second of a rank on its slowest link
SHARES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
REDUCES = ("all_reduce", "reduce_scatter")


def figure(microseconds: float) -> str:
    """A time as the tool prints it."""
    decimals = 0 if microseconds >= 10000 else 1 if microseconds >= 100 else 2
    return f"{microseconds:7.{decimals}f}"


def test(op: str, n_ranks: int, n_nodes: int, rng: random.Random) -> Iterator[str]:
    """One run of the program, without the launcher's prefix."""
    per_node = n_ranks // n_nodes
    yield (
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 268435456 step: 4(factor) warmup iters: 5 "
        "iters: 20 agg iters: 1 validate: 1 graph: 0"
    )
    yield "#"
    yield "# Using devices"
    for rank in range(n_ranks):
        host = f"node{rank // per_node:02d}"
        index = rank % per_node
        yield (
            f"#  Rank {rank:2d} Group  0 Pid {41000 + rank:6d} on {host:>10} device {index:2d} "
            f"[0x{7 + 8 * index:02x}] {DEVICE}"
        )
    yield "#"
    yield (
        "#                                                              out-of-place"
        "                       in-place          "
    )
    yield (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong"
    )
    yield (
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "     (us)  (GB/s)  (GB/s)       "
    )
    factor = SHARES[op] * (n_ranks - 1) / n_ranks
    mean: list[float] = []
    for power in range(10, 29, 2):
        size = 2**power
        halves = []
        for _ in range(2):
            seconds = LATENCY_US[n_nodes] * 1e-6 * (1 + 0.1 * n_ranks)
            seconds += size * factor / BANDWIDTH[n_nodes]
            seconds *= rng.gauss(1, 0.02)
            algbw = size / seconds / 1e9
            mean.append(algbw * factor)
            halves.append(f"{figure(seconds * 1e6)}  {algbw:6.2f}  {algbw * factor:6.2f}  {0:>5}")
        redop = "sum" if op in REDUCES else "none"
        yield f"{size:12d}  {size // 4:12d}  {'float':>8}  {redop:>6}  {-1:>6}  {'  '.join(halves)}"
    yield "# Out of bounds values : 0 OK"
    yield f"# Avg bus bandwidth    : {sum(mean) / len(mean):g} "
    yield "#"


def main(folder: Path) -> None:
    """Write every table into the folder."""
    rng = random.Random(SEED)  # noqa: S311 (no secret)
    for n_ranks, n_nodes in ((2, 1), (4, 1), (8, 1), (16, 2)):
        lines = [
            "# synthetic: written by make_synthetic.py, no real run",
            "# Collective test starting: all_reduce_perf",
            *test("all_reduce", n_ranks, n_nodes, rng),
        ]
        if n_nodes > 1:
            lines = [f"[1,0]<stdout>:{line}" for line in lines]
        path = folder / f"synthetic_all_reduce_n{n_ranks}.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["# synthetic: written by make_synthetic.py, no real run"]
    for op in ("all_gather", "reduce_scatter", "alltoall"):
        lines += [f"+ mpirun -np 8 ./build/{op}_perf -b 1K -e 256M -f 4", *test(op, 8, 1, rng)]
    (folder / "synthetic_suite_n8.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
