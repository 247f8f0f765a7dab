"""Costs of a network that were measured on this machine, as a problem for the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fitkit.planner.execution.laps import BACKWARD, FORWARD, OTHER, SYNC
from fitkit.planner.problem import EdgeCosts, Floats, LayerCosts, Problem

CLOCKS = ("cpu", "wall")
_MICRO = 1e6


@dataclass(frozen=True)
class Curve:
    """Seconds of a message by its bytes: a line between measured sizes, and on from them."""

    n_bytes: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, n_bytes: float) -> float:
        """Seconds of a size; no message takes none."""
        if n_bytes <= 0:
            return 0.0
        return float(np.interp(n_bytes, self.n_bytes, self.seconds))


@dataclass(frozen=True)
class MeasuredCosts:
    """What the layers and the communication of a network cost, by one clock.

    Attributes
    ----------
    network
        Its name.
    global_batch
        Samples of a step.
    clock
        ``cpu``: processor time of the busiest rank; ``wall``.
    layers
        Name, type, bytes of the gradients and of a sample's output of each layer.
    forward_s, backward_s, packing_s
        For each width, seconds of each layer; packing makes one message of its gradients.
    all_reduce
        A curve for each width.
    exchange
        A curve for each change of the width: bytes of the global batch, there and back.
    step_s
        What is no layer's: loss, optimizer.
    """

    network: str
    global_batch: int
    clock: str
    layers: tuple[Mapping[str, Any], ...]
    forward_s: Mapping[int, tuple[float, ...]]
    backward_s: Mapping[int, tuple[float, ...]]
    packing_s: Mapping[int, tuple[float, ...]]
    all_reduce: Mapping[int, Curve]
    exchange: Mapping[tuple[int, int], Curve]
    step_s: float

    @property
    def widths(self) -> list[int]:
        """Widths that were measured, ascending."""
        return sorted(self.forward_s)

    def problem(self) -> Problem:
        """As the planner takes it."""
        layers = tuple(self._layer(index) for index in range(len(self.layers)))
        edges = tuple(EdgeCosts(i, i + 1, self._table(i)) for i in range(len(layers) - 1))
        return Problem(self.network, self.global_batch, layers, edges, self.step_s)

    def instance(self) -> dict[str, Any]:
        """As ``fitkit plan --instance`` reads it, in microseconds."""
        problem = self.problem()
        pairs = enumerate(zip(self.layers, problem.layers, strict=True))
        return {
            "model": self.network,
            "global_batch": self.global_batch,
            "total_gpus": problem.max_gpus,
            "clock": self.clock,
            "step_us": self.step_s * _MICRO,
            "layers": [self._row(index, *pair) for index, pair in pairs],
            "edges": [
                {
                    "src": edge.src,
                    "dst": edge.dst,
                    "xfer_us": (edge.transfer_s * _MICRO).tolist(),
                    "xfer_no_gpu_overlap_us": (edge.transfer_s * _MICRO).tolist(),
                }
                for edge in problem.edges
            ],
            "notes": "measured by fitkit run-plan --profile; microseconds",
        }

    def _layer(self, index: int) -> LayerCosts:
        forward_s = self._values(self.forward_s, index)
        compute_s = forward_s + self._values(self.backward_s, index)
        compute_s = np.maximum(compute_s, 1e-9)  # a clock may not have moved within a layer
        n_bytes = self.layers[index]["grad_bytes"]
        sync_s = self._values(self.packing_s, index)
        sync_s += [self.all_reduce[g].at(n_bytes) if g > 1 else 0.0 for g in self.widths]
        return LayerCosts(
            name=self.layers[index]["name"],
            layer_type=self.layers[index]["layer_type"],
            n_gpus=np.array(self.widths),
            compute_s=compute_s,
            sync_s=sync_s,
            reference_s=float(compute_s[0] + sync_s[0]),
            forward_s=np.minimum(forward_s, compute_s),
        )

    def _values(self, times: Mapping[int, tuple[float, ...]], index: int) -> Floats:
        return np.array([times[width][index] for width in self.widths])

    def _table(self, index: int) -> Floats:
        """Seconds from each width of a layer to each width of the next one."""
        n_bytes = self.layers[index]["output_bytes"] * self.global_batch
        return np.array([
            [0.0 if src == dst else self.exchange[src, dst].at(n_bytes) for dst in self.widths]
            for src in self.widths
        ])  # fmt: skip

    def _row(self, index: int, layer: Mapping[str, Any], costs: LayerCosts) -> dict[str, Any]:
        assert costs.forward_s is not None  # noqa: S101 - measured
        return {
            "id": index,
            "name": layer["name"],
            "params": {"type": layer["layer_type"], "grad_bytes": layer["grad_bytes"]},
            "prev": [index - 1] if index else [],
            "gpus": costs.n_gpus.tolist(),
            "batch_per_gpu": [-(-self.global_batch // g) for g in self.widths],
            "compute_us": (costs.compute_s * _MICRO).tolist(),
            "fw_us": (costs.forward_s * _MICRO).tolist(),
            "bw_us": ((costs.compute_s - costs.forward_s) * _MICRO).tolist(),
            "profiled": [True] * len(self.widths),
            "sync_us": (costs.sync_s * _MICRO).tolist(),
            "no_parallel_us": costs.reference_s * _MICRO,
        }


def costs_of(
    ranks: Sequence[Mapping[str, Any]], network: str, global_batch: int, clock: str
) -> MeasuredCosts:
    """Put together what ranks have measured.

    A layer takes as long as on the ranks with the largest share, in the median of these;
    communication as long as on the rank that it takes longest.

    Raises
    ------
    ValueError
        If the clock is unknown.
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock {clock!r}: one of {', '.join(CLOCKS)}")
    column = -1 if clock == "cpu" else -2
    layers = tuple(ranks[0]["layers"])
    parts = {width: _parts(ranks, width, global_batch, column) for width, _ in ranks[0]["widths"]}
    forward_s, backward_s, packing_s = (
        {g: tuple(p.get((part, i), 0.0) for i in range(len(layers))) for g, p in parts.items()}
        for part in (FORWARD, BACKWARD, SYNC)
    )
    return MeasuredCosts(
        network=network,
        global_batch=global_batch,
        clock=clock,
        layers=layers,
        forward_s=forward_s,
        backward_s=backward_s,
        packing_s=packing_s,
        all_reduce=_curves(ranks, "all_reduce", column),
        exchange=_curves(ranks, "exchange", column),
        step_s=median(p[OTHER, -1] for p in parts.values()),
    )


def _parts(
    ranks: Sequence[Mapping[str, Any]], width: int, global_batch: int, column: int
) -> dict[tuple[str, int], float]:
    """Seconds of each part of each layer on a width."""
    n_busiest = global_batch % width or width
    times: dict[tuple[str, int], list[float]] = {}
    for rank in ranks[:n_busiest]:
        for row in dict(rank["widths"])[width]:
            times.setdefault((row[0], row[1]), []).append(row[column])
    return {key: median(values) for key, values in times.items()}


def _curves(ranks: Sequence[Mapping[str, Any]], what: str, column: int) -> dict[Any, Curve]:
    """A curve for each width or change of it, of the rank that each size takes longest."""
    found: dict[Any, dict[float, float]] = {}
    for rank in ranks:
        for *widths, rows in rank[what]:
            curve = found.setdefault(widths[0] if len(widths) == 1 else tuple(widths), {})
            for row in rows:
                curve[row[0]] = max(curve.get(row[0], 0.0), row[column])
    return {
        key: Curve(tuple(sorted(curve)), tuple(curve[n] for n in sorted(curve)))
        for key, curve in found.items()
    }
