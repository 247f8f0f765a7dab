"""Layer times of eight image networks, one network left out: PipeDream's published profiles.

  python benchmarks/pipedream.py [--shared FOLDER]

A `graph.txt` holds a line for each node of a network and one for each edge:

  node5 -- Conv2d(64, 192, kernel_size=(5, 5), ...) -- forward_compute_time=3.128,
  backward_compute_time=5.612, activation_size=143327232.000, parameter_size=1229568.000
  <tab>node4 -- node5

Times are milliseconds, sizes bytes of 4-byte numbers. The GPU and the batch are not stated; the
batch is part of the activation size.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd

from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel
from fitkit.models.operators import OperatorModel

NETWORKS = (
    "alexnet", "densenet121", "inception_v3", "resnet18", "resnet50", "resnext50",
    "squeezenet1_0", "vgg16",
)  # fmt: skip
TERMS = (
    "fixed", "flops", "unfolded_input", "weights", "input_activations", "output_activations",
    "input_gradient", "output_gradients", "data_input",
)  # fmt: skip
PHASES = ("forward", "backward")
SHORTEST_S = 20e-6  # forward and backward together; less is not a measurement
_NUMBER = r"(\d+(?:\.\d+)?)"
_NODE = re.compile(
    rf"(node\d+) -- (.+) -- forward_compute_time={_NUMBER}, backward_compute_time={_NUMBER}, "
    rf"activation_size=(?:{_NUMBER}|\[([\d.; ]+)\]), parameter_size={_NUMBER}"
)
_EDGE = re.compile(r"\t(node\d+) -- (node\d+)")


@dataclass
class Node:
    """A node of a profile: seconds and bytes."""

    text: str
    forward_s: float
    backward_s: float
    output_bytes: float
    n_params: float
    inputs: list[str] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)

    @property
    def layer_type(self) -> str:
        """The class of its module."""
        return re.split(r"\W", self.text, maxsplit=1)[0]

    @property
    def is_timed(self) -> bool:
        """Whether its time is more than the noise of the clock."""
        return self.forward_s + self.backward_s > SHORTEST_S

    @property
    def weight_shape(self) -> tuple[int, ...] | None:
        """Outputs, inputs of each output, kernel; of convolutions and dense layers."""
        if self.layer_type == "Linear":
            inputs, outputs = map(int, re.findall(r"(?:in|out)_features=(\d+)", self.text))
            return outputs, inputs
        if self.layer_type == "Conv2d":
            channels = re.match(r"Conv2d\((\d+), (\d+), kernel_size=\((\d+), (\d+)\)", self.text)
            assert channels, self.text
            inputs, outputs, height, width = map(int, channels.groups())
            groups = re.search(r"groups=(\d+)", self.text)
            return outputs, inputs // int(groups[1] if groups else 1), height, width
        return None


def read_graph(path: Path) -> dict[str, Node]:
    """Nodes of a profile by name, with their edges.

    Raises
    ------
    ValueError
        If a line is neither a node nor an edge between nodes.
    """
    nodes: dict[str, Node] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := _NODE.fullmatch(line):
            name, text, forward, backward, size, sizes, parameters = found.groups()
            output = sum(map(float, (size or sizes).split(";")))
            times = float(forward) * 1e-3, float(backward) * 1e-3
            nodes[name] = Node(text, *times, output, float(parameters) / 4)
        elif found := _EDGE.fullmatch(line):
            edges.append((number, found[1], found[2]))
        else:
            raise ValueError(f"{path}:{number}: neither a node nor an edge: {line[:80]!r}")
    for number, source, target in edges:
        if not {source, target} <= set(nodes):
            raise ValueError(f"{path}:{number}: an edge of an unknown node")
        nodes[target].inputs.append(source)
        # The shape of a tensor is no gradient's way.
        if nodes[target].layer_type != "Size":
            nodes[source].consumers.append(target)
    return nodes


def layer_frame(network: str, nodes: dict[str, Node]) -> pd.DataFrame:
    """A row for each timed layer and phase, with the columns of the recipe ``layers``.

    What a profile does not time, such as an addition, falls to the layer behind it, which is
    therefore said to read what the addition reads. Backward, a layer adds up the gradients that
    its consumers send.
    """
    rows = []
    for name, node in nodes.items():
        if not node.is_timed or node.layer_type == "Input":
            continue
        before = [nodes[source] for source in node.inputs]
        is_first = any(source.layer_type == "Input" for source in before)
        direct = sum(source.output_bytes for source in before)
        shape = node.weight_shape
        flop = 2 * node.output_bytes / 4 * prod(shape[1:]) if shape else np.nan
        common = {
            "network": network,
            "layer": name,
            "layer_type": node.layer_type,
            "n_params": node.n_params,
            "weight_shape": "x".join(map(str, shape)) if shape else None,
            "input_bytes": sum(_read_bytes(source, nodes) for source in before),
            "output_bytes": node.output_bytes,
        }
        forward = {
            "phase": "forward", "flop": flop, "input_grad_bytes": 0.0, "output_grad_bytes": 0.0,
            "data_bytes": direct * is_first, "duration_s": node.forward_s,
        }  # fmt: skip
        backward = {
            "phase": "backward", "flop": flop * (1 if is_first else 2),
            "input_grad_bytes": direct * (not is_first),
            "output_grad_bytes": node.output_bytes * max(len(node.consumers), 1),
            "data_bytes": 0.0, "duration_s": node.backward_s,
        }  # fmt: skip
        rows += [{**common, **forward}, {**common, **backward}]
    return pd.DataFrame(rows)


def _read_bytes(node: Node, nodes: dict[str, Node]) -> float:
    if node.is_timed or not node.inputs:
        return node.output_bytes
    return sum(nodes[source].output_bytes for source in node.inputs)


def load(folder: Path) -> pd.DataFrame:
    """Layers of the eight image networks."""
    frames = [layer_frame(name, read_graph(folder / name / "graph.txt")) for name in NETWORKS]
    return pd.concat(frames, ignore_index=True)


def leave_one_network_out(layers: pd.DataFrame, model: GroupedModel) -> pd.DataFrame:
    """Measured and predicted time of each layer, phases together; NaN for an unseen type."""
    # A phase that the clock did not see took less than its last digit, a microsecond.
    seconds = layers.duration_s.clip(lower=1e-6).to_numpy()
    predicted = np.full(len(layers), np.nan)
    for name in NETWORKS:
        held = (layers.network == name).to_numpy()
        predicted[held] = model.fit(layers[~held], seconds[~held]).predict(layers[held])
    layers = layers.assign(predicted_s=predicted)
    by_layer = layers.groupby(["network", "layer", "layer_type"], sort=False)
    return by_layer[["duration_s", "predicted_s"]].sum(min_count=len(PHASES)).reset_index()


def figures(found: pd.DataFrame) -> dict[str, float]:
    """Errors in percent."""
    told = found.dropna(subset="predicted_s")
    error = 100 * (told.predicted_s / told.duration_s - 1)
    sums = told.groupby("network")[["duration_s", "predicted_s"]].sum()
    total = 100 * (sums.predicted_s / sums.duration_s - 1).abs()
    return {
        "layers": len(found),
        "refused": len(found) - len(told),
        "median APE, mean of networks": error.abs().groupby(told.network).median().mean(),
        "median APE, all layers": error.abs().median(),
        "MAPE": error.abs().mean(),
        "sum of a network, mean": total.mean(),
        "sum of a network, worst": total.max(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    folder = parser.parse_args().shared / "public_tables" / "pipedream_profiles"
    layers = load(folder)
    plain = ["fixed", "flops", "input_activations", "output_activations"]
    models = {
        "OperatorModel": OperatorModel(TERMS),
        "its terms alone": LinearModel(TERMS, undetermined="drop"),
        "FLOPs and activations": LinearModel(plain, undetermined="drop"),
    }
    by = ["layer_type", "phase"]
    rows = {
        name: figures(leave_one_network_out(layers, GroupedModel(by, model)))
        for name, model in models.items()
    }
    print(pd.DataFrame(rows).T.round(1).to_string())


if __name__ == "__main__":
    main()
