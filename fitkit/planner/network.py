"""The network as a graph of layers: what is computed, and what moves between them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fitkit.display import format_share
from fitkit.errors import InputError
from fitkit.parsers.layer_graph import apart, topological_order
from fitkit.planner.network_rows import LayerRows, RunRows, read_run

if TYPE_CHECKING:
    from fitkit.dataset import Dataset

_MOST_NAMED = 5
Edges = dict[tuple[str, str], float | None]


@dataclass(frozen=True)
class NetworkLayer:
    """One layer; sizes are for one sample unless they say otherwise."""

    name: str
    layer_type: str
    n_params: int | None = None
    """Trained parameters of the whole layer."""
    flop: float | None = None
    """Floating-point operations of a sample, forward."""
    input_bytes: float | None = None
    output_bytes: float | None = None
    n_calls: float = 1.0
    """Calls in a step, mostly one; sizes and work of the layer are those of a call."""


@dataclass(frozen=True)
class NetworkEdge:
    """Activations that move from a layer to another: bytes for one sample, forward."""

    src: int
    dst: int
    n_bytes: float | None = None


@dataclass(frozen=True)
class Network:
    """Layers in topological order and the edges between them."""

    name: str
    layers: tuple[NetworkLayer, ...]
    edges: tuple[NetworkEdge, ...]
    warnings: tuple[str, ...] = ()
    """What was left out, or taken for granted, when it was read."""
    run_id: str | None = None
    """The run that it was read from."""


def network_of(
    dataset: Dataset, run_id: str | None = None, *, in_sequence: bool = False
) -> Network:
    """The network that a run trained, from the tables ``layers`` and ``edges``.

    A layer that no log timed although it timed others, and that trains nothing, such as an input,
    an addition or a choice of an output, joins the layer before or behind it: it is free and moves
    nothing. A module that contains others has no edge; it is left out, and named in
    ``warnings`` with its share of the time.

    Parameters
    ----------
    dataset
        What was ingested: a recorder's log, a profiler's trace with its execution trace, a CNTK
        log, or a graph in one of the formats of ``docs/formats/graphs.md``.
    run_id
        The run, or the name of its network; not needed where one network is in the dataset.
    in_sequence
        Take the layers one after another where the log states no edge: only for a network
        without branches, which nothing in such a log can tell.

    Raises
    ------
    InputError
        If no run has layers or several networks have; if an edge names a layer without a row, a
        layer or a part of the network is joined to no other, or the edges go around in a circle,
        with the names; if there are no edges and ``in_sequence`` is not said, or a layer does not
        take what the one before it makes; if the samples of a call are not known.
    """
    run = read_run(dataset, run_id)
    edges, warnings = _edges(run) if run.edges else _chain(run, in_sequence)
    alone, said = _unconnected(run, edges)
    warnings += said
    rows = {name: one for name, one in run.layers.items() if name not in alone}
    order = _order(run, rows, edges)
    free = _free(run, order)
    if free:
        warnings.append(f"not timed and nothing to train, so free: {_some(free)}")
    edges = _without(order, edges, free)
    order = [name for name in order if name not in free]
    place = {name: index for index, name in enumerate(order)}
    return Network(
        run.network,
        tuple(_layer(run, rows[name]) for name in order),
        tuple(
            NetworkEdge(place[src], place[dst], n_bytes)
            for (src, dst), n_bytes in sorted(
                edges.items(), key=lambda one: (place[one[0][0]], place[one[0][1]])
            )
        ),
        tuple(warnings),
        run.run_id,
    )


def _layer(run: RunRows, rows: LayerRows) -> NetworkLayer:
    scale = 1.0 / run.samples(rows) if rows.has_sizes else 1.0
    return NetworkLayer(
        rows.name,
        rows.layer_type,
        rows.n_params,
        None if rows.flop is None else rows.flop * scale,
        None if rows.input_bytes is None else rows.input_bytes * scale,
        None if rows.output_bytes is None else rows.output_bytes * scale,
        run.calls(rows),
    )


# -- edges -----------------------------------------------------------------------------------------


def _edges(run: RunRows) -> tuple[Edges, list[str]]:
    """Bytes for one sample between layers that have a row; edges to itself are left out."""
    missing = sorted({name for pair in run.edges for name in pair if name not in run.layers})
    if missing:
        raise InputError(
            f"{run.network}: edges name {_some(missing)}, of which no layer is known",
            "ingest the whole log: a part of the layers is missing",
        )
    found: Edges = {}
    for (src, dst), n_bytes in run.edges.items():
        if src == dst:
            continue  # calls of one layer after another, on the same GPUs
        found[src, dst] = _sample_bytes(run, run.layers[src], run.layers[dst], n_bytes)
    own = [src for src, dst in run.edges if src == dst]
    said = [f"feed themselves, which moves nothing: {_some(own)}"] if own else []
    unknown = [f"{src} to {dst}" for (src, dst), n_bytes in found.items() if n_bytes is None]
    if unknown:
        said.append(f"the bytes from {_some(unknown)} are not known")
    return found, said


def _sample_bytes(
    run: RunRows, src: LayerRows, dst: LayerRows, n_bytes: float | None
) -> float | None:
    """What moves for a sample, all calls of a step; what the first layer makes if no edge says."""
    if n_bytes is not None:
        return n_bytes * run.calls(dst) / run.samples(dst)
    if src.output_bytes is not None:
        return src.output_bytes * run.calls(src) / run.samples(src)
    return None


def _chain(run: RunRows, in_sequence: bool) -> tuple[Edges, list[str]]:
    """The layers one after another, if that is asked for and what one makes the next one takes."""
    sized = [one for one in run.layers.values() if one.input_bytes is not None]
    chain = sized or list(run.layers.values())  # modules that contain others state no input
    broken = next(
        (
            (one, after)
            for one, after in pairwise(chain)
            if one.output_bytes is not None
            and after.input_bytes is not None
            and abs(one.output_bytes - after.input_bytes) > 0.5
        ),
        None,
    )
    if not in_sequence:
        fits = "no layer contradicts that they follow one another" if broken is None else ""
        hint = (
            f"{fits}: in_sequence (--in-sequence) takes them so"
            if fits
            else "record the edges, too"
        )
        raise InputError(f"{run.network}: run {run.run_id} has layers but no edges", hint)
    if broken is not None:
        one, after = broken
        raise InputError(
            f"{run.network}: layer {after.name} takes {after.input_bytes:.0f} bytes a call, but "
            f"{one.name} before it makes {one.output_bytes:.0f}: the layers are not in sequence",
            "the network has branches: give its edges, as in schemas/graph.schema.json",
        )
    found: Edges = {}
    for one, after in pairwise(chain):
        n_bytes = after.input_bytes if after.input_bytes is not None else one.output_bytes
        found[one.name, after.name] = None if n_bytes is None else n_bytes / run.samples(after)
    return found, ["no edges: the layers were taken one after another, without branches"]


def _unconnected(run: RunRows, edges: Edges) -> tuple[set[str], list[str]]:
    """Layers that no edge touches and that may be left out, and what to say of it.

    Raises
    ------
    InputError
        If such a layer trains parameters, or the network falls into parts.
    """
    if len(run.layers) == 1:
        return set(), []
    touched = {name for pair in edges for name in pair}
    alone = [one for one in run.layers.values() if one.name not in touched]
    lost = [one.name for one in alone if one.n_params]
    parts = apart([name for name in run.layers if name in touched], edges)
    if lost or len(parts) > 1:
        what = _some(lost or [part[0] for part in parts[1:]])
        text = "has" if len(lost) == 1 else "have"
        raise InputError(
            f"{run.network}: disconnected: {what} {text} no edge to the rest of the network",
            "what feeds a layer must be known; is the file cut?",
        )
    whole = sum(one.seconds for one in run.layers.values())
    share = sum(one.seconds for one in alone) / whole if whole else 0.0
    if not alone:
        return set(), []
    text = (
        f"no edge leads to or from {_some([one.name for one in alone])}: left out, with "
        f"{format_share(share)} of the time of all layers"
    )
    return {one.name for one in alone}, [text]


def _order(run: RunRows, rows: dict[str, LayerRows], edges: Edges) -> list[str]:
    try:
        return topological_order(list(rows), edges)
    except ValueError as error:
        often = [one.name for one in rows.values() if run.calls(one) > 1]
        hint = "the data of a network go around in no circle"
        if often:
            hint = (
                f"a step calls {_some(often)} several times; a plan has one place for a layer: "
                "record them as modules of their own"
            )
        raise InputError(f"{run.network}: {error}", hint) from error


# -- layers that compute nothing -------------------------------------------------------------------


def _free(run: RunRows, order: list[str]) -> set[str]:
    """Layers that were not timed although others were, and that train and multiply nothing."""
    rows = [run.layers[name] for name in order]
    if not any(one.is_timed for one in rows):
        return set()
    return {one.name for one in rows if not (one.is_timed or one.n_params or one.flop)}


def _without(order: list[str], edges: Edges, free: set[str]) -> Edges:
    """The edges between the others.

    A free layer joins the only one that feeds it, else the only one that it feeds, else the last
    of those that feed it, to which the others then lead (as the recorder does with an addition
    between modules). Without either it is left out.
    """
    place = {name: index for index, name in enumerate(order)}
    left = dict(edges)
    for name in order:
        if name not in free:
            continue
        before = sorted((src for src, dst in left if dst == name), key=lambda one: place[one])
        after = sorted((dst for src, dst in left if src == name), key=lambda one: place[one])
        host = after[0] if len(before) != 1 and len(after) == 1 else before[-1] if before else None
        for src in before:
            n_bytes = left.pop((src, name))
            if host not in (None, src) and after:
                _add(left, src, str(host), n_bytes)
        for dst in after:
            n_bytes = left.pop((name, dst))
            if before and host not in (None, dst):
                _add(left, str(host), dst, n_bytes)
    return left


def _add(edges: Edges, src: str, dst: str, n_bytes: float | None) -> None:
    earlier = edges.get((src, dst), 0.0)
    edges[src, dst] = None if earlier is None or n_bytes is None else earlier + n_bytes


def _some(names: list[str] | set[str]) -> str:
    shown = sorted(names) if isinstance(names, set) else list(names)
    rest = len(shown) - _MOST_NAMED
    return ", ".join(shown[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
