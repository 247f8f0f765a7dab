"""Memory that one GPU needs for a layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fitkit.planner.network import NetworkLayer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MemoryRule:
    """What is held for each parameter, and that the output of a layer waits for backward.

    Parameters
    ----------
    weight_bytes, gradient_bytes
        Of one parameter.
    optimizer_bytes
        Of one parameter: 0 for plain SGD, 4 with momentum, 8 for Adam (all float32).
    activation_copies
        How often the output is held; 1, or 2 where its gradient is there at the same time.

    Raises
    ------
    ValueError
        If one of them is negative.
    """

    weight_bytes: float = 4.0
    gradient_bytes: float = 4.0
    optimizer_bytes: float = 4.0
    activation_copies: float = 1.0

    def __post_init__(self) -> None:
        held = self.weight_bytes, self.gradient_bytes, self.optimizer_bytes, self.activation_copies
        if not min(held) >= 0:
            raise ValueError("bytes of a parameter, and copies, are 0 or more")

    def layer_bytes(self, layer: NetworkLayer, batches: Floats) -> Floats | None:
        """Bytes on one GPU at those samples of it; None where a size of the layer is unknown."""
        if layer.n_params is None or layer.output_bytes is None:
            return None
        each = self.weight_bytes + self.gradient_bytes + self.optimizer_bytes
        held = self.activation_copies * layer.output_bytes * layer.n_calls * batches
        return np.asarray(each * layer.n_params + held, dtype=float)
