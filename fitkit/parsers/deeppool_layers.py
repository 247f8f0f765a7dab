"""A layer of DeepPool's profiles: what its parameters and dimensions say about sizes and work."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from fitkit.parsers.values import MANY

_VALUE_BYTES = 4  # of an activation: DeepPool's own cost model counts single precision
_LARGEST = 1 << 24  # of a dimension


class Sizes(TypedDict, total=False):
    """Columns of ``layers`` that follow from parameters and dimensions."""

    flop: float | None
    n_params: int
    weight_shape: str | None
    input_bytes: float
    output_bytes: float | None
    input_grad_bytes: float | None


@dataclass(frozen=True)
class ProfiledLayer:
    """A line of a profile; dimensions are those of one sample."""

    line: int
    name: str
    kind: str
    key: str
    """Kind, parameters and dimensions as the line has them, without the batch."""
    n_samples: int
    input_dims: tuple[int, ...]
    output_dims: tuple[int, ...] | None
    """None where the parameters do not tell them."""
    weight_dims: tuple[int, ...]
    """Output, input, then the kernel; empty without weights."""
    n_params: int
    both_s: float
    forward_s: float | None = None
    backward_s: float | None = None
    median_s: float | None = None
    p90_s: float | None = None

    def joined(self, after: ProfiledLayer) -> ProfiledLayer:
        """The layer and the activation after it as one; quantiles do not add up."""
        return replace(
            self,
            name=f"{self.name}+{after.name}",
            kind=f"{self.kind}+{after.kind}",
            output_dims=after.output_dims,
            both_s=self.both_s + after.both_s,
            forward_s=_sum(self.forward_s, after.forward_s),
            backward_s=_sum(self.backward_s, after.backward_s),
            median_s=None,
            p90_s=None,
        )

    def sizes(self, phase: str, *, is_first: bool) -> Sizes:
        """Sizes and work of one call.

        The work is that of the product with the weights, two operations for each of them and
        position of the output; backward does it for the weights, and once more for the input
        unless the layer is the first one.
        """
        input_bytes = float(_VALUE_BYTES * self.n_samples * math.prod(self.input_dims))
        output_bytes = None
        if self.output_dims is not None:
            output_bytes = float(_VALUE_BYTES * self.n_samples * math.prod(self.output_dims))
        passes = {"forward": 1, "backward": 1 if is_first else 2}
        passes["compute"] = sum(passes.values())
        return Sizes(
            flop=None if self._flop is None else passes[phase] * self._flop,
            n_params=self.n_params,
            weight_shape="x".join(map(str, self.weight_dims)) or None,
            input_bytes=input_bytes,
            output_bytes=output_bytes,
            input_grad_bytes=0.0 if phase == "forward" or is_first else input_bytes,
        )

    @property
    def _flop(self) -> float | None:
        if not self.weight_dims or self.output_dims is None:
            return None
        positions = math.prod(self.output_dims[1:])
        return 2.0 * math.prod(self.weight_dims) * positions * self.n_samples


def layer_of(
    line: int, index: int, kind: str, params: str, n_samples: int, dims: str,
    figures: Sequence[float],
) -> ProfiledLayer | None:  # fmt: skip
    """A layer from the parts of its line; None where they are not what DeepPool writes.

    Parameters
    ----------
    params, dims
        JSON: the parameters, and the dimensions of the input of one sample.
    figures
        Milliseconds of both passes and microseconds of each; or milliseconds of both: mean,
        median, 90th and 99th percentile.
    """
    try:
        known = json.loads(params)
        sizes = json.loads(dims)
        inputs = tuple(sizes) if isinstance(sizes, list) else (sizes,)
        weights, outputs, n_params = _geometry(kind, known, inputs)
    except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError):
        return None
    volume = n_samples * max(math.prod(inputs), math.prod(outputs or (1,)), n_params)
    if n_samples < 1 or min(inputs) < 1 or volume * _VALUE_BYTES >= MANY:
        return None
    layer = ProfiledLayer(
        line, f"{kind}_{index}", kind, f"{kind}{params}{dims}", n_samples, inputs, outputs,
        weights, n_params, figures[0] / 1e3,
    )  # fmt: skip
    if len(figures) == 3:
        return replace(layer, forward_s=figures[1] / 1e6, backward_s=figures[2] / 1e6)
    return replace(layer, median_s=figures[1] / 1e3, p90_s=figures[2] / 1e3)


_Geometry = tuple[tuple[int, ...], tuple[int, ...] | None, int]


def _geometry(kind: str, params: Mapping[str, Any], inputs: tuple[int, ...]) -> _Geometry:
    """Dimensions of the weights and of the output of a sample, and the trained parameters.

    Convolutions have one bias for each output channel, as torch's have unless it is said.
    """
    if kind == "linear":
        rows, columns = _whole(params["out_features"]), _whole(params["in_features"])
        return (rows, columns), (rows,), rows * columns + (rows if params.get("bias") else 0)
    if kind == "conv2d":
        kernel = _pair(params["kernel_size"])
        rows, columns = _whole(params["out_channels"]), _whole(params["in_channels"])
        weights = (rows, columns, *kernel)
        return weights, (rows, *_slid(params, inputs)), math.prod(weights) + rows
    if kind in ("maxPool2d", "avgPool2d"):
        return (), (inputs[0], *_slid(params, inputs)), 0
    if kind == "adAvgPool2d":
        height, width = _whole(params["output_height"]), _whole(params["output_width"])
        return (), (inputs[0], height, width), 0
    if kind == "flatten":
        return (), (math.prod(inputs),), 0
    if kind.startswith("ReLU") or kind == "concat":  # a concat states what it makes
        return (), inputs, 0
    return (), None, 0


def _slid(params: Mapping[str, Any], inputs: tuple[int, ...]) -> tuple[int, ...]:
    """Positions of a kernel that is moved over the last two dimensions (torch.nn.Conv2d)."""
    windows = zip(
        inputs[1:], _pair(params["kernel_size"]), _pair(params["padding"]),
        _pair(params["stride"]), strict=True,
    )  # fmt: skip
    found = tuple(
        (size + 2 * padding - kernel) // stride + 1 for size, kernel, padding, stride in windows
    )
    if min(found) < 1:
        raise ValueError("the kernel is larger than the input")
    return found


def _pair(value: Any) -> tuple[int, int]:
    first, second = value if isinstance(value, list) else (value, value)
    return _whole(first, least=0), _whole(second, least=0)


def _whole(value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
        raise ValueError(f"{value!r} is no such number")
    return value


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
