"""Plans on DeepPool's published problems: proven optima, and the CPU time of a search.

  python benchmarks/planning.py [--shared FOLDER] [--repeats N]

Exits with 1 if a figure misses its bar.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from deeppool_data import a100_links, profile, vgg_network
from lines import Line, Section, Sections, run

import fitkit
from fitkit.planner.costs import problem_from_models
from fitkit.planner.instances import read_instance
from fitkit.planner.plan import Plan
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem
from fitkit.planner.search import plan

OPTIMA = "Proven optima, DeepPool's problems"
OPTIMA_TEXT = """
`deeppool/instances` and `deeppool/reference_plans`: VGG-16 and Inception-v3 at batch 16 and 32 on
two networks, 1 to 32 GPUs, amplification limits 1.5 to 99 and data-parallel. The largest
difference from the published optimum over all records (ms with four decimals, from costs in us
with three: a ten-thousandth of a ms may be rounding), layers over the limit that was asked for,
and times that a plan got slower when GPUs were added. Beside it what DeepPool's own planner found:
its plan, layers one after another, against the same optimum.
"""
TIMES = "CPU time of a search"
TIMES_TEXT = """
`plan(problem)` on problems in memory, with its baselines; median of {repeats} after one more to
warm up, one thread. Eleven options are 1 to 1,024 GPUs at batch 1,024: VGG-16 from fitted layer
curves and collectives, Inception-v3 from its published costs drawn out in a line beyond 32 samples
a GPU. Both stand for time alone. Beside it the median that DeepPool's planner took on the same
problem (`search_s_median`, all limits, on a 2-core EPYC; with 11 options the design page's runs).
"""
ROUNDING_S = 1e-7
NETWORKS = ("vgg16", "inception_v3")
LATENCY_S = 240e-6  # of one direction, in the published problems
# DeepPool's planner on 1024 GPUs at batch 1024 (design/planner.md, section 5, run by us).
REFERENCE_1024 = {"VGG-16, 11 options": 0.11, "Inception-v3, 11 options": 11.2}

Record = dict[str, Any]


# -- optima ----------------------------------------------------------------------------------------


def problems(shared: Path, network: str) -> Iterator[tuple[Problem, list[Record]]]:
    """Each published problem of a network and its records."""
    for path in sorted((shared / "deeppool/instances").glob(f"{network}_*.json")):
        records = json.loads((shared / "deeppool/reference_plans" / path.name).read_text())
        yield read_instance(path), records["results"]


def optima(shared: Path, _: Path) -> Section:
    lines: list[Line] = []
    for network in NETWORKS:
        lines += _gaps(shared, network)
    lines += [_layers_over(shared), _slower_with_more(shared)]
    return Section(OPTIMA, OPTIMA_TEXT, lines)


def _gaps(shared: Path, network: str) -> Iterator[Line]:
    """The largest difference from each kind of optimum that is published of a network."""
    kinds = {
        "fastest": ("serial_optimum_ms", _unlimited),
        "fastest within the limit": ("limit_feasible_optimum_ms", _limited),
        "fastest at the same GPU-time": ("best_ms_at_same_gpu_ms", _within_budget),
    }
    for name, (key, find) in kinds.items():
        gaps, others = [], []
        for problem, records in problems(shared, network):
            for record in (one for one in records if key in one["exact"]):
                optimum_s = record["exact"][key] * 1e-3
                gaps.append(abs(find(problem, record).iter_s - optimum_s))
                others.append(record["evaluated"]["serial_ms"] * 1e-3 - optimum_s)
        if gaps:
            title = f"{network}, {name}, {len(gaps)} records: largest difference"
            yield Line(title, max(gaps), ROUNDING_S, {"DeepPool": max(others)}, unit="s")


def _unlimited(problem: Problem, record: Record) -> Plan:
    return plan(problem, n_gpus=record["total_gpus"])


def _limited(problem: Problem, record: Record) -> Plan:
    n_gpus, limit = record["total_gpus"], record["amplification_limit"]
    return plan(problem, n_gpus=n_gpus, amplification=limit)


def _within_budget(problem: Problem, record: Record) -> Plan:
    budget = record["evaluated"]["serial_gpu_ms"] * 1e-3 + ROUNDING_S
    return plan(problem, n_gpus=record["total_gpus"], gpu_time_budget=budget)


def _layers_over(shared: Path) -> Line:
    ours = theirs = 0
    for problem, records in problems(shared, "vgg16"):
        for record in (one for one in records if one["mode"] == "burst"):
            limit = record["amplification_limit"]
            layers = _limited(problem, record).layers
            ours += sum(layer.amplification > limit * (1 + 1e-9) for layer in layers)
            theirs += record["evaluated"]["layers_over_limit"]
    return Line("vgg16, layers over the limit", ours, 0, {"DeepPool": theirs}, unit="layers")


def _slower_with_more(shared: Path) -> Line:
    """Pairs of neighbouring GPU counts of which the larger one's plan is slower."""
    counts: Counter[str] = Counter()
    for network in NETWORKS:
        for problem, records in problems(shared, network):
            burst = [one for one in records if one["mode"] == "burst"]
            for limit in {one["amplification_limit"] for one in burst}:
                of_limit = [one for one in burst if one["amplification_limit"] == limit]
                of_limit.sort(key=lambda one: one["total_gpus"])
                ours = [_limited(problem, one).iter_s for one in of_limit]
                theirs = [one["deeppool"]["iter_ms"] for one in of_limit]
                counts["ours"] += int((np.diff(ours) > 0).sum())
                counts["theirs"] += int((np.diff(theirs) > 0).sum())
    title = "plans slower with twice the GPUs, same limit"
    return Line(title, counts["ours"], 0, {"DeepPool": counts["theirs"]}, unit="plans")


# -- CPU time --------------------------------------------------------------------------------------


def times(repeats: int, shared: Path, folder: Path) -> Section:
    vgg, inception = (shared / f"deeppool/instances/{name}_B32_nvswitch_2128gbps.json"
                      for name in NETWORKS)  # fmt: skip
    chain, fitted = read_instance(vgg), fitted_vgg(shared, folder)
    graph, wide = read_instance(inception), drawn_out(read_instance(inception))
    constant = replace(fitted, step_s=1e-3)
    bars = {
        "VGG-16, 11 options": 5e-3,
        "VGG-16, 11 options, frontier": 0.1,
        "Inception-v3, 8 GPUs": 0.05,
        "Inception-v3, 11 options": 0.2,
    }
    others = {
        "VGG-16, 8 GPUs": _reference(shared, "vgg16", 8),
        "Inception-v3, 8 GPUs": _reference(shared, "inception_v3", 8),
    } | REFERENCE_1024
    searches: dict[str, Callable[[], Plan]] = {
        "VGG-16, 8 GPUs": partial(plan, chain, n_gpus=8),
        "VGG-16, 8 GPUs, limit 2": partial(plan, chain, n_gpus=8, amplification=2.0),
        "VGG-16, 11 options": partial(plan, fitted),
        "VGG-16, 11 options, frontier": partial(plan, fitted, frontier=True),
        "the same, 1 ms of a step whatever the plan": partial(plan, constant, frontier=True),
        "Inception-v3, 8 GPUs": partial(plan, graph, n_gpus=8),
        "Inception-v3, 8 GPUs, frontier": partial(plan, graph, n_gpus=8, frontier=True),
        "Inception-v3, 8 GPUs, lanes": partial(plan, graph, n_gpus=8, parallel_branches=True),
        "Inception-v3, 11 options": partial(plan, wide),
        "Inception-v3, 11 options, frontier": partial(plan, wide, frontier=True),
        "Inception-v3, 11 options, lanes": partial(plan, wide, parallel_branches=True),
    }
    lines = []
    for name, search in searches.items():
        other = {"DeepPool": others[name]} if name in others else {}
        lines.append(Line(name, cpu_s(search, repeats), bars.get(name), other, unit="s"))
    return Section(TIMES, TIMES_TEXT.format(repeats=repeats), lines)


def cpu_s(search: Callable[[], Plan], repeats: int) -> float:
    """Median CPU time of a search."""
    search()
    taken = []
    for _ in range(repeats):
        started = process_time()
        search()
        taken.append(process_time() - started)
    return statistics.median(taken)


def _reference(shared: Path, network: str, n_gpus: int) -> float:
    path = shared / f"deeppool/reference_plans/{network}_B32_nvswitch_2128gbps.json"
    records = json.loads(path.read_text())["results"]
    return statistics.median(
        one["deeppool"]["search_s_median"]
        for one in records
        if one["total_gpus"] == n_gpus and one["mode"] == "burst"
    )


def fitted_vgg(shared: Path, folder: Path) -> Problem:
    """VGG-16 at batch 1,024 on 1 to 1,024 GPUs, from curves asked far beyond their data."""
    rows = profile(shared, "A100_vgg.prof")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
        return problem_from_models(
            vgg_network(rows),
            layer_model=rows,
            comm_model=a100_links(shared, folder),
            n_gpus=1024,
            global_batch=1024,
        )


def drawn_out(problem: Problem, global_batch: int = 1024) -> Problem:
    """A published problem at a larger batch: times and transfers drawn out in a straight line.

    What moves between two layers grows with the difference of the samples that their GPUs hold.
    """
    n_gpus = 2 ** np.arange(int(np.log2(global_batch)) + 1)
    samples = global_batch / n_gpus
    known = problem.global_batch / problem.layers[0].n_gpus
    layers = []
    for layer in problem.layers:
        slope = max(0.0, float(layer.compute_s[0] - layer.compute_s[1]) / (known[0] - known[1]))
        inside = np.interp(samples, known[::-1], layer.compute_s[::-1])
        compute_s = inside + slope * np.maximum(0.0, samples - known[0])
        sync_s = np.where(n_gpus > 1, layer.sync_s[-1], layer.sync_s[0])
        whole = float(compute_s[0] + sync_s[0])
        layers.append(LayerCosts(layer.name, layer.layer_type, n_gpus, compute_s, sync_s, whole))
    differ = np.abs(samples[:, None] - samples)
    most = np.maximum(samples[:, None], samples)
    edges = []
    for edge in problem.edges:
        slope = (float(edge.transfer_s[0, 1]) - 2 * LATENCY_S) / (known[0] - known[1])
        moved_s = np.where(differ > 0, 2 * LATENCY_S + slope * differ, 0.0)
        edges.append(EdgeCosts(edge.src, edge.dst, moved_s, 2 * LATENCY_S + slope * most))
    return Problem(problem.name, global_batch, tuple(layers), tuple(edges))


# -- command line ----------------------------------------------------------------------------------


def sections(repeats: int) -> Sections:
    """What there is to print, by name."""
    return {"planning_optima": optima, "planning_times": partial(times, repeats)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--repeats", type=int, default=11)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        missed = list(run(sections(given.repeats), given.shared, Path(folder)))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
