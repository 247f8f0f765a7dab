"""Whole networks on a GPU where ten operators were timed: NeuSight's labels, A100 to V100."""

from __future__ import annotations

import ast
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from lines import Line, Section

import fitkit
from fitkit.calibration.layer_design import suggest_layer_probes
from fitkit.calibration.operators import calibrate_layers
from fitkit.models.performance import PerformanceModel

TITLE = "Whole networks, A100 to V100, NeuSight"
TEXT = """
`public_tables/neusight_labels`, recipe `layers`: every operator of a network in training, forward,
and backward with the accumulation of gradients. Each of the three networks that were measured on
the V100 is left out in turn, on both GPUs. The source is fitted to the other networks on the A100;
`suggest_layer_probes` chooses ten operators of the two others from their sizes and the source
alone, and their times on the V100 calibrate it. The error is that of the sum over all operators
of the network left out. One factor is the median ratio of the ten times to what the source predicts
for them; the A100's own sum is that of its measured times. Ten random operators, the first of
`RandomState(s).permutation(rows)`, s = 0 to 9, of those that launch a kernel, are printed apart.
"""
SOURCE, TARGET = "NVIDIA_A100_80GB_PCIe", "Tesla_V100-PCIE-32GB"
NETWORKS = ("bert_large-train-512-2", "bert_large-train-512-8", "gpt2_large-train-1024-1")
N_PROBES, N_SEEDS, BAR = 10, 10, 0.08
_BYTES = 4.0
_FUNCTION = re.compile(r"<(?:built-in )?(?:function|method) (\w+)")
_NO_KERNEL = {
    "size", "getitem", "getattr", "view", "permute", "transpose", "expand", "dim", "eq", "gt",
    "lt", "floordiv", "split", "unsqueeze", "squeeze", "reshape", "finfo", "len", "_assert",
}  # fmt: skip
_EMBEDDING = re.compile(r"embed|\bwte\b|\bwpe\b")
_WORDS = re.compile(r"word|wte|embed_tokens|shared")
_MODULES = {
    "LayerNorm": re.compile(r"LayerNorm|\.ln_|layer_norm"),
    "Dropout": re.compile(r"drop"),
    "Activation": re.compile(r"activation|\.act\b|pooler.activation"),
    "Embedding": _EMBEDDING,
}
PHASES = {"forward": ("fw_latency",), "backward": ("bw_latency", "acc_latency")}


def load(shared: Path, device: str) -> pd.DataFrame:
    """Operators of all networks of a GPU in both phases; seconds."""
    folder = shared / "public_tables/neusight_labels" / device
    parts = [_network(path, device) for path in sorted(folder.glob("*.csv.gz"))]
    return pd.concat(parts, ignore_index=True)


def _network(path: Path, device: str) -> pd.DataFrame:
    table = pd.read_csv(path)
    operators = table.to_dict("records")
    n_words = max(ast.literal_eval(str(op["output_shape"]))[-1] for op in operators[-3:])
    rows = []
    for k, op in enumerate(operators):
        sizes = _sizes(op, n_words)
        for phase, columns in PHASES.items():
            seconds = 1e-3 * sum(float(op[name]) for name in columns)
            if seconds > 0:
                rows.append(
                    {"layer": f"{k} {op['Name']}", "phase": phase, **sizes} | {"s": seconds}
                )
    frame = pd.DataFrame(rows).rename(columns={"s": "duration_s"})
    backward = frame.phase == "backward"
    frame.loc[backward, "flop"] *= 2.0  # a gradient each of the input and of the weights
    network = path.name.removesuffix(".csv.gz")
    return frame.assign(network=network, device=device, framework="pytorch", precision="float32")


def _sizes(op: dict[str, object], n_words: int) -> dict[str, object]:
    """Kind, work, weights and bytes of an operator, from its name and the shapes around it.

    A table of words has as many rows as the last layer has outputs, another one as many as the
    sequence has places; its gradient is written whole.
    """
    inputs = [tuple(shape) for shape in ast.literal_eval(str(op["input_shapes"]))]
    output = tuple(ast.literal_eval(str(op["output_shape"])))
    kind = _kind(op, inputs, output)
    n_out, n_in = math.prod(output), sum(math.prod(shape) for shape in inputs)
    flop, weights = math.nan, 0.0
    if kind == "MatMul":
        flop = 2.0 * n_out * inputs[0][-1]
    elif kind == "Linear":
        depth = inputs[-1][0] if len(inputs) > 1 else inputs[0][-1]
        weights = float(depth * output[-1])
        n_in = n_out // output[-1] * depth
        flop = 2.0 * n_out * depth
    elif kind == "LayerNorm":
        weights = 2.0 * output[-1]
    elif kind == "Embedding":
        is_words = _WORDS.search(str(op["target"])) is not None
        weights = float((n_words if is_words else inputs[0][-1]) * output[-1])
    return {
        "layer_type": kind,
        "flop": flop,
        "n_params": weights,
        "input_bytes": _BYTES * n_in,
        "output_bytes": _BYTES * n_out,
        "input_grad_bytes": 0.0 if kind == "Embedding" else _BYTES * n_in,
    }


def _kind(op: dict[str, object], inputs: list[tuple[int, ...]], output: tuple[int, ...]) -> str:
    target = str(op["target"])
    if op["op"] == "call_module":
        named = (kind for kind, words in _MODULES.items() if words.search(target))
        return next(named, "Linear" if len(inputs[0]) > 1 else "Other")
    found = _FUNCTION.search(target)
    name = found[1] if found else target
    if name in _NO_KERNEL or math.prod(output) == 1:
        return "no kernel"
    return {"addmm": "Linear", "matmul": "MatMul", "bmm": "MatMul", "baddbmm": "MatMul"}.get(
        name, name
    )


def section(shared: Path, _: Path) -> Section:
    """Every network from operators of the two others."""
    source, target = load(shared, SOURCE), load(shared, TARGET)
    lines, found = [], []
    for network in NETWORKS:
        model = fitkit.fit(source[source.network != network], "layers", statistic="median")
        test = target[target.network == network]
        others = target[target.network.isin(NETWORKS) & (target.network != network)]
        own = float(source[source.network == network].duration_s.sum())
        designed = suggest_layer_probes(model, others, N_PROBES)
        found.append(_errors(model, designed, test, own))
        rest = dict(found[-1])
        lines.append(Line(network, rest.pop("fitkit"), BAR, rest))
        drawn = [_errors(model, _probes(others, s), test, own)["fitkit"] for s in range(N_SEEDS)]
        lines.append(Line(f"{network}: ten random operators, mean", float(np.mean(drawn))))
    mean = pd.DataFrame(found).mean().to_dict()
    lines.append(Line("mean of the three", mean.pop("fitkit"), BAR, mean))
    return Section(TITLE, TEXT, lines)


def _probes(rows: pd.DataFrame, seed: int) -> pd.DataFrame:
    kernels = rows[rows.layer_type != "no kernel"]
    return kernels.iloc[np.random.RandomState(seed).permutation(len(kernels))[:N_PROBES]]


def _errors(
    model: PerformanceModel, probes: pd.DataFrame, test: pd.DataFrame, own: float
) -> dict[str, float]:
    measured = test.duration_s.sum()
    seconds = _ask(calibrate_layers(model, probes), test)
    on_source = _ask(model, probes.assign(device=SOURCE))
    factor = float(np.median(probes.duration_s / on_source))
    guess = factor * _ask(model, test.assign(device=SOURCE)).sum()
    return {
        "fitkit": abs(seconds.sum(skipna=False) / measured - 1),
        "one_factor": abs(guess / measured - 1),
        "sum_of_the_A100": abs(own / measured - 1),
    }


def _ask(model: PerformanceModel, rows: pd.DataFrame) -> pd.Series:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # asked for here
        return model.predict(rows, allow_extrapolation=True).predicted_s
