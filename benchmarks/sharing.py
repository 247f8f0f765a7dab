"""Throughput of a cluster that fills the gaps of a burst-parallel plan with background jobs.

  python benchmarks/sharing.py [--shared FOLDER]

Exits with 1 if a foreground job is slowed by more than the target. Which gains lie in the range
that the paper reports is printed: it hangs on settings that the paper does not state.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lines import table
from sharing_cases import (
    LIMITS,
    LINKS,
    NETWORKS,
    PAIR,
    SETTING,
    SLACK,
    TARGET,
    Case,
    Outcome,
    background_of,
    best,
    interferences,
    pairs_model,
    problem_of,
)

from fitkit.display import format_quantity, format_share
from fitkit.planner.search import plan
from fitkit.planner.sharing import DEEPPOOL, Cluster, ForegroundJob, Interference, simulate

# arXiv 2112.10065v3, abstract: "with a single task when the cluster scale is large"
PAPER = 1.2, 2.3
SIZES = (8, 32, 256)
INSTANCES = "DeepPool's own costs, batch 32"
MEASURED = "Costs from the measured layers, batch 256"
RANGES = "One assumption changed at a time, otherwise 266 GB/s and as many samples as GPUs"

Variant = tuple[Case, int]
"""A case, and the samples of a step on each GPU."""


def text_of(base: Case) -> str:
    """The settings, in words."""
    keeps = f"{base.interference.foreground:.0%} and {base.interference.background:.0%}"
    rules = base.rules
    return f"""\
Strong scaling at a constant global batch; one burst-parallel job on all GPUs and, on each of them,
a background job: the same network at batch {base.background_batch} on that GPU alone, in pieces of
at least {base.piece_s * 1e3:g} ms that run to their end. The gain is samples a second of all jobs
over those of the foreground data-parallel, alone on the same GPUs; "in GPUs" counts each job in
units of its throughput alone on one GPU. Foreground and background on one GPU keep {keeps} of
their speed: two times {PAIR} on a P100 by the model fitted to Gavel's
pairs, which know no priorities; no pair was measured on an A100 nor with these networks. Rules: a
piece begins where the tasklet takes at most {rules.target:g} times its undisturbed time (a mean
with weight {rules.weight:g}, or the last one if that was over {rules.react_at:g}),
{rules.in_flight} in flight, none during an all-reduce; waits above {rules.receive_s * 1e6:g} µs are
left to pieces that fit. {SETTING["n_steps"]} steps after {SETTING["warm_up"]}, {SETTING["lanes"]}
GPUs run of each group of equal ones, seed {SETTING["seed"]}.

Of the plans under the amplification limits {", ".join(map(str, LIMITS[:-1]))} and none, the line
has the one with the largest gain among those whose shared step takes at most {SLACK:g} times as
long as the data-parallel step alone. "Data-parallel shared": the gain of background jobs beside the
data-parallel job. "Partition": the gain of a data-parallel job on the fewest GPUs that make it as
fast as the shared plan, background jobs alone on the others; none if all GPUs do not.

Batch 32 takes DeepPool's own costs, which hide nothing and have 240 µs for each transfer; batch
256 has the measured A100 times of all layers, a ring of {base.latency_s * 1e6:g} µs and the
bandwidth of the line, gradients hidden as the schedule allows. Of the paper only the range of
{PAPER[0]} to {PAPER[1]} is known, not its settings."""


# -- tables --------------------------------------------------------------------------------------

COLUMNS = (
    "network", "batch", "link", "GPUs", "limit", "data-parallel step", "plan's step",
    "slowed by", "foreground", "gain", "gain, in GPUs", "data-parallel shared", "partition",
)  # fmt: skip


def row(case: Case, link: str, outcome: Outcome) -> list[str]:
    """A line of the table."""
    dp, shared = outcome.data_parallel, outcome.shared
    limit = "none" if outcome.limit is None else f"{outcome.limit:g}"
    partition = outcome.partition
    return [
        case.network, str(dp.foregrounds[0].global_batch), link, str(case.n_gpus), limit,
        format_quantity(dp.foregrounds[0].iter_s, "s"), format_quantity(outcome.plan.iter_s, "s"),
        format_share(shared.slowdown - 1), f"{outcome.foreground:.2f}",
        f"{outcome.gain:.2f}", f"{outcome.gain_gpus:.2f}",
        f"{outcome.both_data_parallel.cluster_per_s / dp.cluster_per_s:.2f}",
        "none" if partition is None else f"{partition[1]:.2f} ({partition[0]} GPUs)",
    ]  # fmt: skip


def instance_cases(shared: Path, base: Case) -> Iterator[tuple[str, Case]]:
    """DeepPool's own costs, batch 32."""
    for network in NETWORKS:
        for link in LINKS:
            path = shared / f"deeppool/instances/{network}_B32_{link}.json"
            for n_gpus in (8, 16, 32):
                yield link, replace(base, network=network, n_gpus=n_gpus, instance=path)


def measured_cases(base: Case) -> Iterator[tuple[str, Case]]:
    """Costs from the measured layers, batch 256."""
    for network in NETWORKS:
        for link, bandwidth in LINKS.items():
            for n_gpus in (8, 16, 32, 64, 128, 256):
                yield link, replace(base, network=network, n_gpus=n_gpus, bandwidth=bandwidth)


def variations(base: Case, kept: Mapping[str, Interference]) -> dict[str, dict[str, Variant]]:
    """One assumption changed at a time: its values, and what each makes of a network and size."""

    def over(name: str, values: Mapping[str, Any]) -> dict[str, Variant]:
        return {text: (replace(base, **{name: value}), 1) for text, value in values.items()}

    speeds = {"12.5 GB/s": 12.5e9, "50 GB/s": 50e9, "266 GB/s": 266e9, "1.25 TB/s": 1.25e12}
    hidden = {"as the schedule allows": "schedule", "none": 0.0}
    passes = {"in one": False, "forward, then backward": True}
    rules = {
        "target held": base.rules,
        "target held, all of it used": replace(base.rules, looks_ahead=False),
        "DeepPool's": DEEPPOOL,
    }
    return {
        "samples of a step on a GPU": {f"{n}": (base, n) for n in (1, 2, 4, 32)},
        "bandwidth of a GPU": over("bandwidth", speeds),
        "latency of a call": over("latency_s", {"10 µs": 10e-6, "40 µs": 40e-6, "240 µs": 240e-6}),
        "gradients hidden behind the backward pass": over("overlap", hidden),
        "two jobs on a GPU": over("interference", kept),
        "samples of a background step": over("background_batch", {"2": 2, "8": 8, "32": 32}),
        "least piece of background work": over("piece_s", {"0.1 ms": 1e-4, "2 ms": 2e-3}),
        "passes": over("has_two_passes", passes),
        "branches": over("has_branches", {"in turn": False, "side by side": True}),
        "rules": over("rules", rules),
        "foreground slower by at most": over("slack", {"10 %": 1.1, "50 %": 1.5, "100 %": 2.0}),
    }


@dataclass(frozen=True)
class Gain:
    """The gain of one variant, in a cell of the table of ranges."""

    assumption: str
    value: str
    network: str
    n_gpus: int
    outcome: Outcome

    def __str__(self) -> str:
        slowed = self.outcome.shared.slowdown
        return f"{self.outcome.gain:.2f}" + (f", slowed {slowed - 1:.0%}" if self.is_over else "")

    @property
    def is_over(self) -> bool:
        """Whether the foreground is slowed by more than the target."""
        return self.outcome.shared.slowdown > TARGET


def gains(shared: Path, base: Case, kept: Mapping[str, Interference]) -> list[Gain]:
    """For each assumption and value the gain of each network on few, some and many GPUs."""
    return [
        Gain(assumption, value, network, n_gpus, best(shared, case.at(network, n_gpus, samples)))
        for assumption, values in variations(base, kept).items()
        for value, (case, samples) in values.items()
        for network in NETWORKS
        for n_gpus in SIZES
    ]


def show_ranges(found: Sequence[Gain]) -> None:
    """All gains, then for each network and size the range and the assumption that decides it."""
    cells: dict[tuple[str, str], list[str]] = {}
    for one in found:
        cells.setdefault((one.assumption, one.value), []).append(str(one))
    places = [f"{network} on {n_gpus} GPUs" for network in NETWORKS for n_gpus in SIZES]
    table(["assumption", "value", *places], [[*key, *row] for key, row in cells.items()])
    rows = []
    for network in NETWORKS:
        for n_gpus in SIZES:
            own = [one for one in found if (one.network, one.n_gpus) == (network, n_gpus)]
            rows.append([network, str(n_gpus), *_range(own)])
    columns = ["network", "GPUs", "least", "most", "in the paper's range with", "decided by"]
    table(columns, rows)


def _range(own: Sequence[Gain]) -> list[str]:
    kept = [one for one in own if not one.is_over]
    values = [one.outcome.gain for one in kept]
    spread: dict[str, list[float]] = {}
    for one in kept:
        spread.setdefault(one.assumption, []).append(one.outcome.gain)
    ranked = sorted(spread, key=lambda name: max(spread[name]) - min(spread[name]), reverse=True)
    inside = [f"{one.assumption} {one.value}" for one in kept if _is_in_range(one)]
    return [
        f"{min(values):.2f}", f"{max(values):.2f}", "; ".join(inside) or "none",
        "; ".join(ranked[:2]),
    ]  # fmt: skip


def _is_in_range(one: Gain) -> bool:
    return PAPER[0] <= one.outcome.gain <= PAPER[1]


def show_speed(shared: Path, base: Case) -> None:
    """What a simulation takes, by the size of the cluster."""
    rows = []
    background = background_of(shared, base)
    for n_gpus, batch, copies in ((8, 256, 1), (8, 256, 512), (256, 256, 1), (1024, 1024, 4)):
        problem = problem_of(shared, replace(base, global_batch=batch))
        job = ForegroundJob.of_plan(plan(problem, n_gpus=n_gpus, amplification=2.0))
        cluster = Cluster(
            job.n_gpus * copies, [(job, copies)], [(background, None)], base.interference
        )
        began = time.process_time()
        simulate(cluster, **SETTING)
        taken = format_quantity(time.process_time() - began, "s")
        rows.append([f"{cluster.n_gpus:,}", f"{copies} × {job.n_gpus:,}", taken])
    table(["GPUs", "foreground jobs", "CPU time"], rows)


def show_inside(found: Sequence[tuple[Case, Outcome]]) -> None:
    """How many lines of a table lie in the paper's range, by network."""
    for network in NETWORKS:
        own = [outcome.gain for case, outcome in found if case.network == network]
        inside = sum(PAPER[0] <= gain <= PAPER[1] for gain in own)
        above = sum(gain > PAPER[1] for gain in own)
        print(f"* {network}: {inside} of {len(own)} lines in the paper's range, {above} above it.")
    print()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = Path(__file__).parents[1].parent / "shared"
    parser.add_argument("--shared", type=Path, default=default, help="folder of public data")
    parser.add_argument("--no-ranges", action="store_true", help="leave the assumptions out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = interferences(pairs_model(arguments.shared, Path(folder)))
    base = Case(interference=kept["Gavel, p100"])
    print(f"## Background jobs in the gaps of a plan\n\n{text_of(base)}\n")
    found = []
    for title, cases in (
        (INSTANCES, instance_cases(arguments.shared, base)),
        (MEASURED, measured_cases(base)),
    ):
        print(f"### {title}\n")
        own = [(link, case, best(arguments.shared, case)) for link, case in cases]
        table(COLUMNS, [row(case, link, outcome) for link, case, outcome in own])
        show_inside([(case, outcome) for _, case, outcome in own])
        found += [(case, outcome) for _, case, outcome in own]
    if not arguments.no_ranges:
        print(f"### {RANGES}\n")
        show_ranges(gains(arguments.shared, base, kept))
    print("### CPU time of one simulation, VGG-16\n")
    show_speed(arguments.shared, base)
    slowed = [case for case, outcome in found if not outcome.shared.is_within_target]
    for case in slowed:
        text = f"{case.network} on {case.n_gpus} GPUs is slowed by more than the target"
        print(text, file=sys.stderr)
    sys.exit(bool(slowed))


if __name__ == "__main__":
    main()
