"""Layers of a network as records: shapes and operations, joined to what the profiler measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fitkit.parsers.cntk.network import Network, Node
from fitkit.parsers.cntk.profiler import Profile
from fitkit.parsers.statistics import call_statistics
from fitkit.records import Edge, Layer, Record, Run

_ELEMENT_BYTES = {"float16": 2, "float32": 4, "float64": 8}
_PARAMETER = "LearnableParameter"


def layer_records(
    run: Run, network: Network, profiles: Mapping[int, Profile], first_rank: int
) -> Iterator[Record]:
    """Yield the layers of every rank that was profiled, and the edges between them.

    Shapes alone are the same on every rank: without a profile they come once.

    Parameters
    ----------
    first_rank
        Whose layers the shapes are where no rank was profiled.
    """
    for rank in sorted(profiles) or [first_rank]:
        calls = profiles[rank].calls if rank in profiles else {}
        for index, node in enumerate(network.layers()):
            for phase in ("forward", "backward"):
                times = calls.get((node.name, phase), [])
                if times or phase == "forward":
                    yield _layer(run, rank, network, node, index, phase, times)
    for source, target in network.edges():
        yield Edge(run.run_id, source.name, target.name, _bytes(run, [source]))


def _layer(
    run: Run,
    rank: int,
    network: Network,
    node: Node,
    index: int,
    phase: str,
    times: Sequence[float],
) -> Layer:
    per_sample = network.product_flop(node)
    batch = run.local_batch
    needs_input = phase == "backward" and network.needs_input_gradient(node)
    gradients = 1 + needs_input if phase == "backward" else 1
    weights = network.weights(node)
    inputs = network.activations(node)
    flop = None
    if per_sample is not None and batch:
        flop = per_sample * gradients * (batch if node.is_batched else 1)
    return Layer(
        run_id=run.run_id,
        rank=rank,
        layer=node.name,
        layer_type=node.op,
        phase=phase,
        n=len(times),
        layer_index=index,
        local_batch=batch,
        flop=flop,
        n_params=network.n_params(node),
        weight_shape="x".join(map(str, weights.dimensions)) if weights else None,
        input_bytes=_bytes(run, inputs),
        output_bytes=None if node.op == _PARAMETER else _bytes(run, [node]),
        input_grad_bytes=_bytes(run, inputs if needs_input else []),
        **call_statistics(times),
    )


def _bytes(run: Run, nodes: Sequence[Node]) -> float | None:
    """Activations of the nodes in one call; CNTK computes in float32 unless it says otherwise."""
    if run.local_batch is None or any(node.shape is None for node in nodes):
        return None
    width = _ELEMENT_BYTES.get(run.precision or "float32", 4)
    return float(sum(n.size * width * (run.local_batch if n.is_batched else 1) for n in nodes))
