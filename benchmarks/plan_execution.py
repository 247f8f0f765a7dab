"""Print how well steps under plans are predicted, and whether they train as one process does.

  python benchmarks/plan_execution.py [--rounds N] [--network FILE.py:function] [--global-batch N]

Measures the layers and the communication of a network, plans with that, runs plans on real
processes of this machine, and compares. Exits with 1 if a prediction is off by more than 20 % in
processor time, or parameters differ from those of one process. Needs PyTorch. A machine that does
other work, too, gives other figures from round to round; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from lines import table

from fitkit.display import format_quantity, format_share
from fitkit.planner.execution import Comparison, RunOptions, compare_plans, profile_network
from fitkit.planner.problem import Problem
from fitkit.planner.search import plan

BAR, SAME = 0.20, 1e-5
TEXT = """
{network}, global batch {batch}, up to {gpus} ranks on gloo, one thread each. In each of {rounds}
rounds the layers and the communication are measured alone, then {steps} steps of each plan, after
{warm_up} of warm-up. Predicted: the step from processor times of layers on their share of the batch
and of messages by their size. Measured: processor time of a step on the rank that uses most, all
its threads. Both are means without the slowest tenth. The error is the median of the rounds' and
may be {bar} at most. Difference: the largest one of any parameter from training in one process on
the same data, after three steps; {same:.0e} at most.
"""


def choices(problem: Problem) -> dict[str, list[int]]:
    """Ranks of each layer: what the planner finds, and plans that try everything else."""
    n, widest = len(problem.layers), problem.max_gpus
    split = _first_dense(problem)
    return {
        "the planner's": [layer.n_gpus for layer in plan(problem).layers],
        "one rank": [1] * n,
        "data-parallel": [widest] * n,
        "wide, then narrow": [widest if i < split else 1 for i in range(n)],
        "narrow, wide, narrow": [widest if n // 4 <= i < split else 1 for i in range(n)],
    }


def _first_dense(problem: Problem) -> int:
    """Where the layers begin that have more parameters than work."""
    types = [layer.layer_type for layer in problem.layers]
    return types.index("Flatten") if "Flatten" in types else len(types) // 2


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--network", default="vgg-small")
    parser.add_argument("--input-shape", default="3,32,32")
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1)
    arguments = parser.parse_args()
    shape = [int(part) for part in arguments.input_shape.split(",")]
    options = RunOptions(arguments.steps, arguments.warm_up, "gloo", tuple(shape))
    widths = range(1, arguments.gpus + 1)
    costs = profile_network(arguments.network, widths, arguments.global_batch, options)
    chosen = choices(costs.problem())
    found = compare_plans(
        arguments.network, [*chosen.values()], arguments.global_batch, options,
        n_rounds=arguments.rounds,
    )  # fmt: skip
    print(f"## Plans on real processes\n\n{_text(arguments)}\n")
    missed = show(dict(zip(chosen, found, strict=True)))
    for name in missed:
        print(f"misses its bar: {name}", file=sys.stderr)
    return 1 if missed else 0


def _text(arguments: argparse.Namespace) -> str:
    return TEXT.strip().format(
        network=arguments.network, batch=arguments.global_batch, gpus=arguments.gpus,
        steps=arguments.steps, warm_up=arguments.warm_up, rounds=arguments.rounds,
        bar=format_share(BAR), same=SAME,
    )  # fmt: skip


def show(found: dict[str, Comparison]) -> list[str]:
    """Print a row for each plan; return those that miss a bar."""
    rows, missed = [], []
    for name, one in found.items():
        holds = abs(one.error) <= BAR and one.difference <= SAME
        missed += [] if holds else [name]
        rows.append([
            name, _widths(one.widths), _median(one.predicted_s), _median(one.measured_s),
            format_share(one.error, signed=True),
            " to ".join(format_share(edge(one.errors), signed=True) for edge in (min, max)),
            _median(one.wall_s), f"{one.difference:.0e}", "yes" if holds else "**no**",
        ])  # fmt: skip
    columns = ["plan", "ranks × layers", "predicted", "measured", "error", "rounds", "wall clock",
               "difference", "holds"]  # fmt: skip
    table(columns, rows)
    return missed


def _widths(widths: Sequence[int]) -> str:
    """Layers on the same number of ranks together: ``2×11 1×6``."""
    return " ".join(f"{width}×{len([*group])}" for width, group in groupby(widths))


def _median(values: Sequence[float]) -> str:
    return format_quantity(median(values), "s")


if __name__ == "__main__":
    sys.exit(main())
