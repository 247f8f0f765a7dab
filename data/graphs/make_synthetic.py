"""Write one small network in each format of graphs: made-up times in the form of each tool.

A layer takes 20 us and, forward, a microsecond for each ten thousand operations; backward takes
twice as long. There is no noise: the files are the same on every machine.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

LATENCY_US = 20.0
OPERATIONS_PER_US = 1e4
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Layer:
    """A layer of the network; dimensions are those of one sample."""

    name: str
    kind: str
    params: dict[str, object]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    n_params: int
    operations: int
    fed_by: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of its output for a sample."""
        return FLOAT_BYTES * math.prod(self.outputs)

    def forward_us(self, n_samples: int) -> float:
        """Microseconds of its forward pass."""
        return LATENCY_US + self.operations * n_samples / OPERATIONS_PER_US


def conv(name: str, channels: tuple[int, int], size: int, kernel: int, fed_by: str) -> Layer:
    """A convolution that keeps the image's size."""
    params = {
        "in_channels": channels[0], "kernel_size": kernel, "out_channels": channels[1],
        "padding": kernel // 2, "stride": 1,
    }  # fmt: skip
    weights = channels[0] * channels[1] * kernel * kernel
    return Layer(
        name, "conv2d", params, (channels[0], size, size), (channels[1], size, size),
        weights + channels[1], 2 * weights * size * size, (fed_by,) if fed_by else (),
    )  # fmt: skip


def relu(name: str, dims: tuple[int, ...], fed_by: str) -> Layer:
    """An activation."""
    params = {"inplace": True, "kernel_size": 1, "padding": 0, "stride": 1}
    return Layer(name, "ReLU2d", params, dims, dims, 0, math.prod(dims), (fed_by,))


def network() -> list[Layer]:
    """Two convolutions side by side between one before them and a classifier."""
    image = (8, 16, 16)
    pool = {"kernel_size": 4, "padding": 0, "stride": 4}
    linear = {"bias": True, "in_features": 128, "out_features": 10}
    return [
        conv("node1", (3, 8), 16, 3, ""),
        relu("node2", image, "node1"),
        conv("node3", (8, 8), 16, 3, "node2"),
        conv("node4", (8, 8), 16, 1, "node2"),
        Layer("node5", "add", {}, image, image, 0, 0, ("node3", "node4")),
        Layer("node6", "maxPool2d", pool, image, (8, 4, 4), 0, 8 * 16 * 16, ("node5",)),
        Layer("node7", "flatten", {"kernel_size": 1}, (8, 4, 4), (128,), 0, 0, ("node6",)),
        Layer("node8", "linear", linear, (128,), (10,), 1290, 2 * 1280, ("node7",)),
    ]


def pipedream(layers: list[Layer], n_samples: int = 4) -> str:
    """Nodes in no order, then edges; PipeDream times modules alone, so no addition."""
    torch = {
        "conv2d": "Conv2d({in_channels}, {out_channels}, kernel_size=({kernel_size}, "
        "{kernel_size}), stride=(1, 1), padding=({padding}, {padding}))",
        "ReLU2d": "ReLU(inplace)",
        "maxPool2d": "MaxPool2d(kernel_size=4, stride=4, padding=0, dilation=1, ceil_mode=False)",
        "linear": "Linear(in_features={in_features}, out_features={out_features}, bias=True)",
        "add": "Add(inplace)",
        "flatten": "View",
    }
    image = FLOAT_BYTES * n_samples * 3 * 16 * 16
    loading = "forward_compute_time=1.500, backward_compute_time=0.000"
    nodes = [f"node0 -- Input -- {loading}, activation_size={image}.000, parameter_size=0.000"]
    edges = ["\tnode0 -- node1"]
    for layer in layers:
        is_module = layer.kind not in ("add", "flatten")
        forward = layer.forward_us(n_samples) / 1e3 if is_module else 0.0
        nodes.append(
            f"{layer.name} -- {torch[layer.kind].format(**layer.params)} -- "
            f"forward_compute_time={forward:.3f}, backward_compute_time={2 * forward:.3f}, "
            f"activation_size={n_samples * layer.n_bytes}.000, "
            f"parameter_size={FLOAT_BYTES * layer.n_params}.000"
        )
        edges += [f"\t{src} -- {layer.name}" for src in layer.fed_by]
    return "\n".join([*nodes[::2], *nodes[1::2], *reversed(edges)])


def key(layer: Layer, n_samples: int) -> str:
    """What identifies a line of a profile of DeepPool."""
    params = json.dumps(layer.params, separators=(",", ":"))
    dims = json.dumps(list(layer.inputs), separators=(",", ":"))
    if len(layer.inputs) == 1:
        dims = dims.strip("[]")
    return f"{layer.kind}{params}[{n_samples}]{dims}".rjust(100)


def prof(layers: list[Layer], batches: tuple[int, ...] = (4, 2)) -> str:
    """Both passes; where a ReLU follows, it has the backward pass of the convolution, too."""
    lines = []
    for n_samples in batches:
        total = 0.0
        moved = 0
        profiled = [layer for layer in layers if layer.kind != "add"]
        for index, layer in enumerate(profiled):
            forward = round(layer.forward_us(n_samples))
            backward, moved = 2 * forward + moved, 0
            if index + 1 < len(profiled) and profiled[index + 1].kind == "ReLU2d":
                moved, backward = backward - 2, 2
            lines.append(
                f"{key(layer, n_samples)} {(forward + backward) / 1e3:7.3f} {forward:9d} "
                f"{backward:9d}"
            )
            total += (forward + backward) / 1e3
        lines.append(f"{'SUM(avg)':>100}  {total:.3f}")
    return "\n".join(lines) + "\n"


def old_profile(layers: list[Layer], batches: tuple[int, ...] = (4, 2)) -> str:
    """Mean and quantiles of both passes; a ReLU is a part of what is before it."""
    lines = []
    for n_samples in batches:
        lines.append(f"{'#config  avg(ms)    p50     p90     p99':>130}")
        total = 0.0
        for layer in layers:
            if layer.kind in ("add", "ReLU2d"):
                continue
            mean = round(3 * layer.forward_us(n_samples) / 1e3, 3)
            quantiles = " ".join(f"{mean * share:7.3f}" for share in (1.0, 0.98, 1.1, 1.3))
            lines.append(f"{key(layer, n_samples)} {quantiles}")
            total += mean
        lines.append(f"{'SUM(avg)':>100}  {total:.3f}")
    return "\n".join(lines) + "\n"


def piper(layers: list[Layer], n_samples: int = 4) -> str:
    """Costs on one device, and with convolutions and the classifier split over two."""
    numbers = {layer.name: index for index, layer in enumerate(layers)}
    nodes = []
    for layer in layers:
        ways = {}
        for degree in (1, 2):
            share = degree if layer.n_params else 1
            seconds = 3 * layer.forward_us(n_samples) / 1e6 if layer.kind != "add" else 0.0
            ways[str(degree)] = [
                {
                    "id": name,
                    "timePerSample": seconds * more / share,
                    "parameterSize": FLOAT_BYTES * layer.n_params / share,
                    "memoryUsageA": n_samples * layer.n_bytes,
                    "memoryUsageB": 2.0 * FLOAT_BYTES * layer.n_params / share,
                    "syncTimeFw": {}, "syncTimeBw": {},
                }
                for name, more in (("vanilla", 1.0), ("activation recomp", 4 / 3))
            ]  # fmt: skip
        nodes.append({"id": numbers[layer.name], "name": layer.kind, "TMPCs": ways})
    edges = [
        {
            "sourceId": numbers[src],
            "destId": numbers[layer.name],
            "communicationCost": float(n_samples * FLOAT_BYTES * math.prod(layer.inputs)),
        }
        for layer in layers
        for src in layer.fed_by
    ]
    head = {"maxDevices": 8, "maxMemoryPerDevice": 16e9, "bandwidth": 25e9, "mbsInBatch": 64}
    return json.dumps({**head, "nodes": nodes, "edges": edges}, indent=1) + "\n"


def graph(layers: list[Layer], n_samples: int = 4) -> str:
    """Rows of our own tables."""
    rows = []
    for layer in layers:
        sizes = {
            "n_params": layer.n_params,
            "flop": n_samples * layer.operations if layer.n_params else None,
            "input_bytes": n_samples * FLOAT_BYTES * math.prod(layer.inputs),
            "output_bytes": n_samples * layer.n_bytes,
        }
        seconds = layer.forward_us(n_samples) / 1e6
        for phase, times in (("forward", 1), ("backward", 2)):
            row = {"layer": layer.name, "layer_type": layer.kind, "phase": phase, **sizes}
            if layer.kind != "add":
                row["duration_s"] = round(times * seconds, 12)
            if phase == "backward" and sizes["flop"]:
                row["flop"] = sizes["flop"] * (2 if layer.fed_by else 1)
            rows.append({name: value for name, value in row.items() if value is not None})
    edges = [
        {
            "src": src,
            "dst": layer.name,
            "n_bytes": n_samples * FLOAT_BYTES * math.prod(layer.inputs),
        }
        for layer in layers
        for src in layer.fed_by
    ]
    run = {"network": "synthetic", "device": "X100", "local_batch": float(n_samples)}
    parts = {"format": "fitkit.graph/1", "run": run, "layers": rows, "edges": edges}
    return json.dumps(parts, indent=1) + "\n"


def main(folder: Path) -> None:
    """Write all files into a folder."""
    layers = network()
    files = {
        "synthetic_pipedream.txt": pipedream(layers),
        "X100_synthetic.prof": prof(layers),
        "syntheticLayerGpuProfileX100.txt": old_profile(layers),
        "synthetic_piper.json": piper(layers),
        "synthetic_graph.json": graph(layers),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
