"""Costs of a plan from fitted models: layer curves, NCCL's sizes, and VGG-16 on eight A100.

  python benchmarks/deeppool.py [--shared FOLDER]

Exits with 1 if a figure misses its bar.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from deeppool_data import a100_links, nccl_rows, profile, vgg_network
from lines import Line, Section, Sections, run, table

import fitkit
from fitkit.models.collective_curves import fit_line
from fitkit.planner.costs import CostSettings, ModelledCosts, Overlap, model_costs
from fitkit.planner.layer_curves import LayerTimes, MeasuredLayers
from fitkit.planner.network import Network, NetworkLayer
from fitkit.planner.search import plan
from fitkit.planner.uncertainty import assess, draws

LAYERS = "Layers at other batches, DeepPool"
LAYERS_TEXT = """
`deeppool/profiles/A100_inception.prof`: the 53 distinct layers of Inception-v3 on an A100, forward
and backward together. Curves through batches 1, 2, 4 ... 64; the 16 other batches (3, 5 to 7, 9 to
15, 59 to 63) are predicted. The network is all 107 profiled layers. Beside it the least-squares
line a + b batch of each layer, and the time of the nearest measured batch in proportion. The last
two lines ask another profile of the same layers (`inceptionLayerGpuProfileA100V2.txt`): intervals
of one session do not know how much sessions differ, which only repetitions in both would tell.
"""
NCCL = "Sizes that were left out, NCCL on A100"
NCCL_TEXT = """
`deeppool/comm/nccl_a100_sxm4_40gb.csv`, recipe `comms`: broadcast, reduce and send/receive on 2, 4
or 8 A100, seven tables of 32 sizes from 4 B to 8 GiB. One size is left out of all seven tables at
once; the smallest and the largest stand apart, since they are extrapolated. Then every second size
(8 B, 32 B ... 8 GiB) is left out. Beside it the line a + S/B of each table, and the constants of
DeepPool's artifact, 40 us + S / 266 GB/s.
"""
VGG = "VGG-16 on eight A100, data-parallel"
VGG_TEXT = """
Batch 32, 4 samples a GPU. Layers from `deeppool/profiles/A100_vgg.prof`, all-reduces from vTrain's
A100 tables (recipe `comms`), one for each of the 16 layers with parameters; every gradient is
counted, 138 million of 4 bytes. DeepPool's README has one measurement, which no fit sees. How much
of the synchronisation its runtime hides behind the backward pass is not known: the prediction
draws that share evenly from none to all, the models' own doubt on top. The figures are seconds of
a step; the bar says that the measured step has to lie within the interval.
"""
CERTAINTY_TEXT = """
The plan of least time for the same network, on 1, 2, 4 or 8 GPUs a layer, under 200 draws of the
curves: how often it is the best within a thousandth, and what a step loses where it is not.
"""
FITTED = (1, 2, 4, 8, 16, 32, 64)
# DeepPool's README (github.com/seojinpark/DeepPool, artifact line), log line of vgg16_8_32_2.0_DP:
# 1800 iterations, 13.57 ms/iter, no background job. Its autocast is on by default.
MEASURED_S = 13.57e-3
# What the public planner of that repository answers for these settings (design notes, run by us).
PUBLIC_PLANNER_S = 12.03e-3
PLANNER_TEXT = "three linear layers at 266 GB/s, without the ring's factor 2 (g - 1) / g = 1.75"
# NVIDIA's data sheet of the A100-SXM4-40GB: bytes a second of its memory.
MEMORY_BANDWIDTH = 1555e9
# SGD with momentum reads weight, gradient and momentum, and writes weight and momentum.
OPTIMIZER_ACCESSES = 5


# -- layers --------------------------------------------------------------------------------------


def layers(shared: Path, _: Path) -> Section:
    """Inception's layers at batches between the measured ones."""
    rows = profile(shared, "A100_inception.prof")
    rows["shape"] = rows.layer_type + rows.params + rows.input_dim
    n_of = rows.drop_duplicates("layer").groupby("shape", sort=False).layer.count()
    distinct = rows.drop_duplicates(["shape", "phase", "local_batch"]).assign(
        layer=lambda r: r["shape"]
    )
    both = distinct.pivot_table("duration_s", "layer", "local_batch", "sum").loc[n_of.index]
    asked = [batch for batch in both if batch not in FITTED]
    found = inception_times(distinct[distinct.local_batch.isin(FITTED)], n_of.index, asked)
    measured = both[asked].to_numpy()
    guesses = {"fitkit": np.array([one.seconds for one in found]), **_guesses(both, asked)}
    each = {name: np.abs(guess / measured - 1) for name, guess in guesses.items()}
    weights = n_of.to_numpy()
    whole = {
        name: np.abs(weights @ guess / (weights @ measured) - 1) for name, guess in guesses.items()
    }
    lines = [
        _line("a layer, mean", {name: float(e.mean()) for name, e in each.items()}, 0.026),
        _line("a layer, 90th percentile", {n: float(np.quantile(e, 0.9)) for n, e in each.items()}),
        _line("the network, mean", {name: float(e.mean()) for name, e in whole.items()}, 0.014),
        _line("the network, worst batch", {name: float(e.max()) for name, e in whole.items()}),
        Line("layers within their interval of 90 %", _coverage(found, measured), least=0.85),
        *_another_session(shared, distinct),
    ]  # fmt: skip
    return Section(LAYERS, LAYERS_TEXT, lines)


def _another_session(shared: Path, rows: pd.DataFrame) -> list[Line]:
    """How far the same layers at the same batches lie in the profile of another day."""
    again = pd.read_csv(shared / "deeppool/profiles/layers.csv")
    again = again.query("source == 'inceptionLayerGpuProfileA100V2.txt'")
    again = again.assign(layer=again.layer_type + again.params + again.input_dim)
    table = again.pivot_table("avg_ms", "layer", "batch_per_gpu", "median") * 1e-3
    found = inception_times(rows, table.index, table.columns)
    seconds = np.array([one.seconds for one in found])
    off = float(np.abs(seconds / table.to_numpy() - 1).mean())
    return [
        Line("another session at measured batches, a layer, mean", off),
        Line("another session, within the interval of 90 %", _coverage(found, table.to_numpy())),
    ]


def inception_times(
    rows: pd.DataFrame, names: Sequence[str], batches: Sequence[float]
) -> list[LayerTimes]:
    network = Network("inception_v3", tuple(NetworkLayer(name, "") for name in names), ())
    curves = MeasuredLayers.fit(rows)
    return curves.times(network, np.array(batches, dtype=float))[0]


def _guesses(both: pd.DataFrame, asked: Sequence[int]) -> dict[str, np.ndarray]:
    known, batches = np.array(FITTED, dtype=float), np.array(asked, dtype=float)
    times = both[list(FITTED)].to_numpy()
    coefficients = np.array([fit_line(known, own).estimates for own in times])
    nearest = np.abs(np.log(batches[:, None] / known)).argmin(axis=1)
    return {
        "line": coefficients[:, :1] + coefficients[:, 1:] * batches,
        "nearest_in_proportion": times[:, nearest] * batches / known[nearest],
    }


def _coverage(found: Sequence[LayerTimes], measured: np.ndarray) -> float:
    scatter = np.array([np.linalg.norm(one.loadings, axis=0) for one in found])
    seconds = np.array([one.seconds for one in found])
    return float((np.abs(np.log(measured / seconds)) <= 1.645 * scatter).mean())


def _line(name: str, figures: dict[str, float], bar: float | None = None) -> Line:
    others = dict(figures)
    return Line(name, others.pop("fitkit"), bar, others)


# -- collectives -----------------------------------------------------------------------------------


def nccl(shared: Path, _: Path) -> Section:
    """Each size from the others, and every second from those between."""
    rows = nccl_rows(shared)
    sizes = np.sort(rows.n_bytes.unique())
    apart = pd.concat(_errors(rows, rows.n_bytes == size) for size in sizes)
    ends = apart.n_bytes.isin([sizes[0], sizes[-1]])
    halves = _errors(rows, rows.n_bytes.isin(sizes[1::2]))
    lines = [
        *_both("a size inside, in turn", apart[~ends], 0.10),
        _line("4 B, from the larger ones", _means(apart[apart.n_bytes == sizes[0]]), 0.10),
        _line("8 GiB, from the smaller ones", _means(apart[apart.n_bytes == sizes[-1]]), 0.10),
        *_both("all sizes, each in turn", apart, 0.10),
        *_both("every second size", halves, 0.10),
    ]
    return Section(NCCL, NCCL_TEXT, lines)


def _both(name: str, found: pd.DataFrame, bar: float) -> list[Line]:
    tables = found.groupby(["op", "n_ranks"])[["fitkit", "line", "deeppool"]].mean()
    return [
        _line(f"{name}, mean", _means(found), bar),
        _line(f"{name}, worst table", tables.max().to_dict(), bar),
    ]


def _means(found: pd.DataFrame) -> dict[str, float]:
    return found[["fitkit", "line", "deeppool"]].mean().to_dict()


def _errors(rows: pd.DataFrame, held: pd.Series) -> pd.DataFrame:
    """Absolute errors on the held-out rows."""
    known, test = rows[~held], rows[held].copy()
    model = fitkit.fit(known, "comms")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # the two ends
        test["fitkit"] = model.predict(test, allow_extrapolation=True).predicted_s
    for key, own in test.groupby(["op", "n_ranks"]):
        of_table = known[(known.op == key[0]) & (known.n_ranks == key[1])]
        latency, inverse = fit_line(
            of_table.n_bytes.to_numpy(), of_table.duration_s.to_numpy()
        ).estimates
        test.loc[own.index, "line"] = latency + inverse * own.n_bytes
    test["deeppool"] = 40e-6 + test.n_bytes / 2.66e11
    names = ["fitkit", "line", "deeppool"]
    test[names] = test[names].div(test.duration_s, axis=0).sub(1).abs()
    return test


# -- VGG-16 ----------------------------------------------------------------------------------------


def vgg_costs(shared: Path, folder: Path) -> ModelledCosts:
    rows = profile(shared, "A100_vgg.prof")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # all-reduces below 1 MiB
        return model_costs(
            vgg_network(rows), layer_model=rows, comm_model=a100_links(shared, folder),
            n_gpus=8, global_batch=32, gpu_counts=[8],
        )  # fmt: skip


def _with_overlap(costs: ModelledCosts, overlap: Overlap) -> ModelledCosts:
    return replace(costs, settings=CostSettings(overlap=overlap))


def data_parallel(costs: ModelledCosts, level: float = 0.9) -> tuple[float, float, float]:
    """Seconds of the step with the only option of every layer, and its interval."""
    choice = [0] * len(costs.layers)
    found = [problem.evaluate(choice)[0] for problem in draws(costs)]
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail]).tolist()
    return costs.problem().evaluate(choice)[0], low, high


def unknown_overlap(costs: ModelledCosts) -> tuple[float, float, float]:
    """Median and interval of 90 % where the hidden share is anything from none to all."""
    choice = [0] * len(costs.layers)
    shares = np.random.default_rng(1).uniform(size=200)
    found = []
    for problem, share in zip(draws(costs, len(shares)), shares.tolist(), strict=True):
        sync = sum(float(layer.sync_s[0]) for layer in problem.layers)
        found.append(problem.evaluate(choice)[0] - share * sync)
    low, middle, high = np.quantile(found, [0.05, 0.5, 0.95]).tolist()
    return middle, low, high


def vgg(shared: Path, folder: Path) -> Section:
    """The step beside its measurement, and what it is made of."""
    costs = vgg_costs(shared, folder)
    middle, low, high = unknown_overlap(costs)
    lines = [
        Line("predicted step", middle, unit="s"),
        Line("interval of 90 %, from; at most the measured one", low, MEASURED_S, unit="s"),
        Line("to; at least the measured one", high, unit="s", least=MEASURED_S),
        Line("measured, DeepPool's README", MEASURED_S, unit="s"),
        Line("the public planner", PUBLIC_PLANNER_S, unit="s"),
    ]  # fmt: skip
    for name, overlap in (
        ("nothing hidden", 0.0),
        ("hidden as a free link could, see `hidden_share`", "schedule"),
        ("all hidden", 1.0),
    ):
        seconds, low, high = data_parallel(_with_overlap(costs, overlap))
        lines.append(Line(f"{name} ({1e3 * low:.2f} to {1e3 * high:.2f} ms)", seconds, unit="s"))
    return Section(VGG, VGG_TEXT, lines)


def show_gap(shared: Path, folder: Path) -> None:
    """Print the terms of the step, and what is known of each."""
    costs = vgg_costs(shared, folder)
    problem = costs.problem()
    compute = sum(float(layer.compute_s[0]) for layer in problem.layers)
    sync = sum(float(layer.sync_s[0]) for layer in problem.layers)
    n_params = sum(layer.n_params or 0 for layer in costs.network.layers)
    small = [
        own.sync_s[0]
        for own, layer in zip(problem.layers, costs.network.layers, strict=True)
        if 0 < 4 * (layer.n_params or 0) < 2**20
    ]
    linear = sum(one.n_params or 0 for one in costs.network.layers if one.layer_type == "linear")
    optimizer = OPTIMIZER_ACCESSES * 4 * n_params / MEMORY_BANDWIDTH
    exposed = data_parallel(_with_overlap(costs, "schedule"))[0] - compute
    megabytes = f"{4e-6 * n_params:.0f} MB"
    below = f"{len(small)} of them, {1e3 * sum(small):.2f} ms, are below the table's first MiB"
    traffic = f"{OPTIMIZER_ACCESSES} x {megabytes} of memory traffic"
    rows = [
        ("measured", MEASURED_S, "one log line, 1,800 iterations"),
        ("layers, forward and backward", compute, "profile at batch 4 in float32/TF32"),
        ("left to explain", MEASURED_S - compute, ""),
        ("synchronisation, nothing hidden", sync, f"{megabytes} in 16 all-reduces; {below}"),
        (
            "the part that a free link could not hide",
            exposed,
            "what the runtime hides is not known",
        ),
        ("optimizer", optimizer, f"not in the profile: {traffic}, if it is SGD with momentum"),
        ("launch of the step, loss, input", None, "not measured by anything public"),
        ("autocast", None, "on by default in the artifact, not in the profile: shorter by it"),
        ("link", None, "vTrain's node and DeepPool's are two machines of 8 A100"),
        ("synchronisation of the public planner", 4 * linear / 2.66e11, PLANNER_TEXT),
    ]
    print("What the step is made of, term by term; what has no time is not known.\n")
    shown = [[name, "" if s is None else f"{1e3 * s:.2f} ms", text] for name, s, text in rows]
    table(["term", "time", "what is known"], shown)


def show_certainty(shared: Path, folder: Path) -> None:
    """Print how sure the best plan of VGG-16 is, and what would change it."""
    rows = profile(shared, "A100_vgg.prof")
    links, network = a100_links(shared, folder), vgg_network(rows)
    shown = []
    for name, overlap in (("nothing hidden", 0.0), ("hidden as a free link could", "schedule")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
            costs = model_costs(
                network, layer_model=rows, comm_model=links, n_gpus=8, global_batch=32,
                settings=CostSettings(overlap=overlap),
            )  # fmt: skip
        found = plan(costs.problem(), n_gpus=8)
        sure = assess(found, draws(costs))
        times = (found.baselines["data_parallel"].iter_s, sure.iter_s, sure.low_s, sure.high_s)
        parallel, *own = [f"{1e3 * seconds:.2f}" for seconds in times]
        telling = [f"{one.name} ({one.share:.0%})" for one in sure.informants]
        shown.append([
            name, parallel, f"{own[0]} ({own[1]} to {own[2]})", f"{sure.best_share:.0%}",
            f"{1e6 * sure.regret_if_not_s:.0f}; {1e6 * sure.regret_if_not_p95_s:.0f}",
            ", ".join(telling) or "none",
        ])  # fmt: skip
    print(CERTAINTY_TEXT.strip() + "\n")
    names = ["synchronisation", "data-parallel, ms", "best plan, ms", "is the best",
             "regret if not, us; 95th percentile", "layers whose times decide"]  # fmt: skip
    table(names, shown)


# -- command line ----------------------------------------------------------------------------------


def sections() -> Sections:
    """What there is to print, by name."""
    return {"deeppool_layers": layers, "deeppool_nccl": nccl, "deeppool_vgg": vgg}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    shared = parser.parse_args().shared
    with tempfile.TemporaryDirectory() as folder:
        missed = list(run(sections(), shared, Path(folder)))
        show_gap(shared, Path(folder))
        show_certainty(shared, Path(folder))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
