"""Training a transformer with data, tensor and pipeline parallelism: where a step's time goes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.columns import Columns
from fitkit.models.forms import Coefficient, form, p_norm

_OVERLAP = 2.0  # of kernels with the launching of the next ones: between a sum and a maximum
_HALF = 2  # bytes of a number in half precision


def micro_batches(x: Columns) -> np.ndarray:
    """Micro-batches that pass one pipeline in a step."""
    return x.global_batch / (x.n_workers * x.micro_batch)


def pipeline_slots(x: Columns) -> np.ndarray:
    """Times that a stage's duration passes in a step: micro-batches, then the pipeline drains.

    The bubble, (p - 1) / m of the work, is that of D. Narayanan et al., SC 2021, section 2.2.1.
    """
    return micro_batches(x) + x.pipeline_parallel - 1.0


def _layers(x: Columns) -> np.ndarray:
    """Layers whose times follow one another in a step."""
    return pipeline_slots(x) * x.n_layers / x.pipeline_parallel


def _activation_bytes(x: Columns) -> np.ndarray:
    """What one layer hands to the next for a micro-batch."""
    return _HALF * x.micro_batch * x.sequence_length * x.hidden_size


def _layer_flop(x: Columns) -> np.ndarray:
    """Forward and backward of one layer on one device, for a micro-batch.

    Narayanan et al., SC 2021, appendix: 96 b s h^2 (1 + s / 6 h) with activations computed
    twice, three quarters of it without.
    """
    tokens, hidden = x.micro_batch * x.sequence_length, x.hidden_size
    return tokens * (72 * hidden**2 + 12 * x.sequence_length * hidden) / x.tensor_parallel


def _tensor_bytes(x: Columns) -> np.ndarray:
    """What a device sends in the four ring all-reduces of a layer, two forward, two backward."""
    return 8 * (x.tensor_parallel - 1) / x.tensor_parallel * _activation_bytes(x)


def _stage_bytes(x: Columns) -> np.ndarray:
    """Activations to the next stage and their gradient back."""
    return 2 * (x.pipeline_parallel > 1) * _activation_bytes(x)


def _output_size(x: Columns) -> np.ndarray:
    """Numbers that enter one device's part of the output layer, for a micro-batch."""
    return x.micro_batch * x.sequence_length * x.hidden_size / x.tensor_parallel


def _params(x: Columns) -> np.ndarray:
    """Trained parameters of the layers of one device: 12 h^2 in each layer."""
    parts = x.pipeline_parallel * x.tensor_parallel
    return 12 * x.hidden_size**2 * x.n_layers / parts


def _gradient_bytes(x: Columns) -> np.ndarray:
    """What a device sends in the ring all-reduce of the gradient."""
    return 2 * (x.n_workers - 1) / x.n_workers * _HALF * _params(x)


@form(
    Coefficient("per_flop", "s/FLOP", "device", 0.5, lambda x: _layers(x) * _layer_flop(x)),
    Coefficient(
        "activations", "s/byte", "memory", 0.2, lambda x: _layers(x) * _activation_bytes(x)
    ),
    Coefficient("launch", "s/layer", "host", 0.5, lambda x: _layers(x)),
    Coefficient(
        "tensor_hop", "s", "link_intra", 0.05, lambda x: _layers(x) * (x.tensor_parallel - 1.0)
    ),
    Coefficient(
        "tensor_ring", "s/byte", "link_intra", 0.05, lambda x: _layers(x) * _tensor_bytes(x)
    ),
    Coefficient(
        "stage_link", "s/byte", "link_inter", 0.02, lambda x: pipeline_slots(x) * _stage_bytes(x)
    ),
    Coefficient("output", "s/number", "device", 0.1, lambda x: micro_batches(x) * _output_size(x)),
    Coefficient("gradient_ring", "s/byte", "link_inter", 0.05, lambda x: _gradient_bytes(x)),
    Coefficient("optimizer", "s/param", "memory", 0.02, lambda x: _params(x)),
    Coefficient("fixed", "s", "host", 0.02, lambda x: 1.0),
)
def pipelined_transformer(x: Columns, c: SimpleNamespace) -> ArrayLike:
    """Layers in pipeline stages with a bubble, the output layer, gradients, the optimizer.

    A layer takes the longer of its kernels and of their launches; the latency of the tensor-
    parallel all-reduces counts with the launches, since both are paid however small the
    micro-batch is. Every micro-batch waits for the output layer, which only the last stage has.
    """
    kernels = c.per_flop * _layer_flop(x) + c.activations * _activation_bytes(x)
    launches = c.launch + c.tensor_hop * (x.tensor_parallel - 1.0)
    layer = p_norm(kernels + c.tensor_ring * _tensor_bytes(x), launches, _OVERLAP)
    sending = pipeline_slots(x) * c.stage_link * _stage_bytes(x)
    output = micro_batches(x) * c.output * _output_size(x)
    update = c.gradient_ring * _gradient_bytes(x) + c.optimizer * _params(x)
    return _layers(x) * layer + sending + output + update + c.fixed
