"""Configurations inside of what was measured: where a model may be asked what it knows."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

from fitkit.models.domain import Domain
from fitkit.models.guard import Box

_VALUES = {"n_nodes": 7, "local_batch": 9}
_OTHER_VALUES = 5
_MOST = 2_000
_PLACED = ("n_nodes", "n_workers")


def measured_grid(domain: Domain) -> SimpleNamespace:
    """Combinations of values inside a domain, evenly spaced in doublings; whole numbers.

    A node has as many workers as the largest measured ones, or parts of that.
    """
    found = box_grid(domain.box)
    hull = domain.hull
    if hull is not None and set(hull.columns) <= set(vars(found)):
        inside = hull.leverage(vars(found)) <= hull.limit
        if inside.any():
            found = SimpleNamespace(**{name: v[inside] for name, v in vars(found).items()})
    return found


def box_grid(box: Box, per_node: int | None = None) -> SimpleNamespace:
    """Combinations of values inside a box.

    Parameters
    ----------
    per_node
        Devices of a node of a cluster on which they are to be run: each node then gets the same
        whole number of workers, up to that. By default nodes may differ, as measured ones do.
    """
    placed = all(name in box for name in _PLACED)
    axes: dict[str, list[Any]] = {
        name: _spaced(box, name) for name in box if not (placed and name in _PLACED)
    }
    if {"local_batch", "global_batch", "n_workers"} <= set(box):
        axes.pop("global_batch")
    if placed:
        axes["_place"] = _places(box) if per_node is None else _even_places(box, per_node)
    while np.prod([len(values) for values in axes.values()]) > _MOST:
        longest = max(axes, key=lambda name: len(axes[name]))
        axes[longest] = axes[longest][::2]
    cells = list(itertools.product(*axes.values()))
    columns = {
        name: np.array([cell[k] for cell in cells], dtype=float)
        for k, name in enumerate(axes)
        if name != "_place"
    }
    if placed:
        pairs = np.array([cell[-1] for cell in cells], dtype=float)
        columns.update(dict(zip(_PLACED, pairs.T, strict=True)))
    if "global_batch" in box and "global_batch" not in columns:
        columns["global_batch"] = columns["local_batch"] * columns["n_workers"]
    return SimpleNamespace(**columns)


def _spaced(box: Box, name: str) -> list[float]:
    low, high = box[name]
    if low <= 0:
        return sorted({low, high})
    n = _VALUES.get(name, _OTHER_VALUES)
    values = np.round(np.geomspace(low, high, n)) if low >= 1 else np.geomspace(low, high, n)
    return sorted({float(np.clip(value, low, high)) for value in values})


def _places(box: Box) -> list[tuple[float, float]]:
    """Numbers of nodes with numbers of workers, none with less than one worker a node."""
    low, high = box["n_workers"]
    most = high / max(box["n_nodes"][1], 1.0)
    found = set()
    for nodes in _spaced(box, "n_nodes"):
        shares = {1.0, 1.5, *np.geomspace(1, max(most, 1.0), 5).tolist(), 0.75 * most}
        for workers in (round(share * nodes) for share in shares):
            if max(low, nodes) <= workers <= high:
                found.add((nodes, float(workers)))
    return sorted(found) or [(box["n_nodes"][1], high)]


def _even_places(box: Box, per_node: int) -> list[tuple[float, float]]:
    """Numbers of nodes with numbers of workers, as many on each node."""
    low, high = box["n_workers"]
    shares = np.unique(np.round(np.geomspace(1, per_node, _OTHER_VALUES))).tolist()
    return sorted(
        (nodes, share * nodes)
        for nodes in _spaced(box, "n_nodes")
        for share in shares
        if low <= share * nodes <= high
    )
