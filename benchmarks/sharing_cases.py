"""Cases of `benchmarks/sharing.py`: planning problems, background jobs, and how they are run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gavel import TRIAL
from trials import ingest

import fitkit
from fitkit.planner.costs import problem_from_models
from fitkit.planner.instances import read_instance
from fitkit.planner.layer_curves import MeasuredLayers
from fitkit.planner.network import Network, NetworkEdge, NetworkLayer
from fitkit.planner.plan import Plan, Schedule
from fitkit.planner.problem import Problem
from fitkit.planner.search import plan
from fitkit.planner.sharing import (
    BackgroundJob,
    Cluster,
    ForegroundJob,
    Interference,
    Rules,
    SharingResult,
    fitted_interference,
    simulate,
)
from fitkit.planner.sharing.stages import two_passes
from fitkit.planner.transfers import RingLink

TARGET = 1.1
SLACK = 1.1  # a shared plan's step, at most, over the data-parallel step alone
LIMITS = (1.5, 2.0, 3.0, 5.0, None)
SETTING = {"n_steps": 100, "warm_up": 40, "lanes": 4, "seed": 0}
NETWORKS = ("vgg16", "inception_v3")
LINKS = {"nvswitch_2128gbps": 266e9, "eth_100gbps": 12.5e9}
PROFILES = {"vgg16": "A100_vgg.prof", "inception_v3": "A100_inception.prof"}
OLDER = {
    "vgg16": "vggLayerGpuProfileA100.txt",
    "inception_v3": "inceptionLayerGpuProfileA100.txt",
}
PAIR = "ResNet-50 (batch size 16)"  # the smallest network for images at few samples that has pairs


@dataclass(frozen=True)
class Case:
    """What a figure depends on."""

    network: str = "vgg16"
    n_gpus: int = 8
    global_batch: int = 256
    bandwidth: float = LINKS["nvswitch_2128gbps"]
    latency_s: float = 40e-6
    overlap: float | str = "schedule"
    background_batch: int = 8
    piece_s: float = 0.5e-3
    interference: Interference = field(default_factory=lambda: Interference(0.5, 0.5))
    rules: Rules = field(default_factory=lambda: Rules(target=TARGET))
    has_two_passes: bool = False
    instance: Path | None = None
    slack: float = SLACK
    has_branches: bool = False

    def at(self, network: str, n_gpus: int, samples: int) -> Case:
        """The same of another network, on other GPUs, with so many samples of a step on each."""
        return replace(self, network=network, n_gpus=n_gpus, global_batch=samples * n_gpus)


@dataclass(frozen=True)
class Outcome:
    """The best plan of a case, run with background jobs, and what it is compared with."""

    plan: Plan
    limit: float | None
    data_parallel: SharingResult
    both_data_parallel: SharingResult
    shared: SharingResult
    partition: tuple[int, float] | None
    """GPUs of a data-parallel foreground that is as fast, and the gain with jobs on the others."""

    @property
    def gain(self) -> float:
        """Samples a second of all jobs, over those of the foreground data-parallel alone."""
        return self.shared.cluster_per_s / self.data_parallel.cluster_per_s

    @property
    def gain_gpus(self) -> float:
        """The same, every job in units of its throughput alone on one GPU."""
        return (self.shared.cluster_gpus or np.nan) / (self.data_parallel.cluster_gpus or np.nan)

    @property
    def foreground(self) -> float:
        """Samples a second of the foreground, over those data-parallel and alone."""
        return self.shared.foreground_per_s / self.data_parallel.foreground_per_s


# -- inputs --------------------------------------------------------------------------------------


def pairs_model(shared: Path, folder: Path) -> Any:
    """The model of `benchmarks/gavel.py`, fitted to all pairs."""
    dataset = ingest(shared / "public_tables/gavel/colocated_pairs.csv", "gavel_pairs", folder)
    return fitkit.fit(TRIAL.frame(dataset), "shared", statistic="median")


def interferences(model: Any) -> dict[str, Interference]:
    """What is assumed of two jobs on one A100, of which no pair was measured."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # said in the text
        for device in ("p100", "k80"):
            one = fitted_interference(model, PAIR, PAIR, device="A100", carried_from=device)
            found[f"Gavel, {device}"] = one
    p100 = found["Gavel, p100"]
    found["Gavel, p100, low end"] = p100.at_end(0)
    found["Gavel, p100, high end"] = p100.at_end(1)
    found["foreground preferred: 90 %, 20 %"] = Interference(0.9, 0.2)
    found["foreground starved: 25 %, 75 %"] = Interference(0.25, 0.75)
    return found


@cache
def network_and_layers(shared: Path, name: str) -> tuple[Network, MeasuredLayers]:
    """The graph of an instance with the measured times of its layers at all batches.

    An activation joins the layer before it: the profiles charge a convolution's backward pass to
    it. What the profile lacks (concatenations, the last layers of Inception) has the times of an
    older one, without CUDA graphs and with a third of them forward.
    """
    path = shared / f"deeppool/instances/{name}_B32_nvswitch_2128gbps.json"
    instance = json.loads(path.read_text(encoding="utf-8"))
    times = _measured(shared, OLDER[name]) | _measured(shared, PROFILES[name])
    layers: list[NetworkLayer] = []
    rows: list[pd.DataFrame] = []
    joined: dict[int, int] = {}
    for layer in instance["layers"]:
        kind, out = layer["name"], _bytes(layer["output_dim"])
        if kind.startswith("ReLU") or kind == "flatten":
            number = joined[layer["prev"][0]]
            layers[number] = replace(layers[number], output_bytes=out)
        else:
            number = len(layers)
            n_params = _n_params(kind, layer["params"])
            layers.append(NetworkLayer(f"{number} {kind}", kind, n_params, output_bytes=out))
        joined[layer["id"]] = number
        rows.append(times[_key(kind, layer)].assign(layer=layers[number].name))
    summed = pd.concat(rows).groupby(["layer", "local_batch", "phase"], sort=False)
    ends = sorted({(joined[edge["src"]], joined[edge["dst"]]) for edge in instance["edges"]})
    edges = tuple(
        NetworkEdge(src, dst, layers[src].output_bytes) for src, dst in ends if src != dst
    )
    measured = MeasuredLayers.fit(summed.duration_s.sum().reset_index())
    return Network(name, tuple(layers), edges), measured


def _measured(shared: Path, source: str) -> dict[str, pd.DataFrame]:
    """Times of each kind of layer in a profile, forward and backward."""
    rows = pd.read_csv(shared / "deeppool/profiles/layers.csv")
    rows = rows[rows.source == source]
    older = rows.avg_ms * 1e3
    forward_us = rows.fw_us.where(rows.fw_us.notna(), older / 3)
    backward_us = rows.bw_us.where(rows.bw_us.notna(), older * 2 / 3)
    columns = ["layer_type", "params", "input_dim", "batch_per_gpu"]
    timed = rows[columns].assign(forward=forward_us * 1e-6, backward=backward_us * 1e-6)
    parts = timed.melt(columns, var_name="phase", value_name="duration_s")
    parts["key"] = [
        _key(row.layer_type, {"params": json.loads(row.params), "input_dim": json.loads(row.dim)})
        for row in parts.rename(columns={"input_dim": "dim"}).itertuples()
    ]
    means = parts.groupby(["key", "batch_per_gpu", "phase"], as_index=False).duration_s.median()
    means = means.rename(columns={"batch_per_gpu": "local_batch"})
    return {key: own.drop(columns="key") for key, own in means.groupby("key")}


def _key(kind: str, layer: Mapping[str, Any]) -> str:
    return json.dumps([kind, layer["params"], layer["input_dim"]], sort_keys=True)


def _bytes(dims: Any) -> float:
    return 4.0 * float(np.prod(dims))


def _n_params(kind: str, params: Mapping[str, Any]) -> int:
    if kind == "conv2d":
        size = params["kernel_size"]
        height, width = size if isinstance(size, list) else (size, size)
        return int((params["in_channels"] * height * width + 1) * params["out_channels"])
    if kind == "linear":
        return int((params["in_features"] + 1) * params["out_features"])
    return 0


@cache
def _problem(
    shared: Path, network: str, global_batch: int, link: tuple[float, float], overlap: Any
) -> Problem:
    found, layers = network_and_layers(shared, network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # said in the text
        return problem_from_models(
            found, layer_model=layers, comm_model=RingLink(*link), n_gpus=global_batch,
            global_batch=global_batch, overlap=overlap,
        )  # fmt: skip


def problem_of(shared: Path, case: Case) -> Problem:
    """The planning problem of a case: an instance as it is, or from the measured layers."""
    if case.instance is not None:
        return read_instance(case.instance)
    link = case.latency_s, case.bandwidth
    return _problem(shared, case.network, case.global_batch, link, case.overlap)


def background_of(shared: Path, case: Case) -> BackgroundJob:
    """The same network on one GPU."""
    batch = case.background_batch
    problem = problem_of(shared, case if case.instance else replace(case, global_batch=batch))
    return BackgroundJob.of_problem(problem, batch, piece_s=case.piece_s)


# -- running -------------------------------------------------------------------------------------


@cache
def _plans(problem: Problem, n_gpus: int, has_branches: bool) -> dict[float | None, Plan]:
    return {
        limit: plan(problem, n_gpus=n_gpus, amplification=limit, parallel_branches=has_branches)
        for limit in LIMITS
    }


@cache
def _static(problem: Problem, n_gpus: int) -> Schedule:
    return plan(problem, n_gpus=n_gpus, gpu_counts=[n_gpus])


def best(shared: Path, case: Case) -> Outcome:
    """Of the plans under all limits, the one with most throughput that is fast enough."""
    problem = problem_of(shared, case)
    background = background_of(shared, case)
    plans = _plans(problem, case.n_gpus, case.has_branches)
    alone = next(iter(plans.values())).baselines["data_parallel"]
    data_parallel = _run(case, alone, None, problem)
    both = _run(case, alone, background, problem)
    found: dict[float | None, SharingResult] = {}
    seen: dict[tuple[int, ...], float | None] = {}
    for limit, one in plans.items():
        widths = tuple(layer.n_gpus for layer in one.layers)
        if widths in seen or one.iter_s > case.slack * alone.iter_s:
            continue
        seen[widths] = limit
        schedule = two_passes(one) if case.has_two_passes else one
        found[limit] = _run(case, schedule, background, problem)
    fast = {
        limit: result
        for limit, result in found.items()
        if result.foregrounds[0].iter_s <= case.slack * alone.iter_s
    } or found
    limit = max(fast, key=lambda k: fast[k].cluster_per_s)
    step_s = fast[limit].foregrounds[0].iter_s
    partition = _partition(case, problem, background, step_s)
    return Outcome(plans[limit], limit, data_parallel, both, fast[limit], partition)


def _run(
    case: Case, schedule: Schedule, background: BackgroundJob | None, problem: Problem
) -> SharingResult:
    one_s = _static(problem, 1).iter_s
    batch = problem.global_batch
    job = ForegroundJob(problem.name, schedule, batch, batch / one_s)
    backgrounds = [(background, None)] if background else []
    cluster = Cluster(case.n_gpus, [(job, 1)], backgrounds, case.interference, case.rules)
    return simulate(cluster, **SETTING)


def _partition(
    case: Case, problem: Problem, background: BackgroundJob, step_s: float
) -> tuple[int, float] | None:
    counts = [n for n in problem.layers[0].n_gpus.tolist() if n <= case.n_gpus]
    for n in counts:
        own_s = _static(problem, n).iter_s
        if own_s <= step_s:
            alone_s = _static(problem, case.n_gpus).iter_s
            per_s = problem.global_batch / own_s + (case.n_gpus - n) * background.alone_per_s
            return n, per_s / (problem.global_batch / alone_s)
    return None
