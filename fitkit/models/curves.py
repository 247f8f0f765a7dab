"""Runs over a growing number of workers: at a constant batch of each, of all, or as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["weak", "strong", "as measured"]
_BATCH: dict[Kind, str] = {"weak": "local_batch", "strong": "global_batch"}


class Curve(NamedTuple):
    """Rows of one group over its scale.

    Attributes
    ----------
    kind
        ``weak`` keeps the batch of a worker, ``strong`` that of all; ``as measured``, where the
        batch follows neither.
    batch
        The one that is kept; NaN if none is.
    rows
        Positions, in the order of scale and time.
    scale
        Workers, or nodes, of each, shape ``(rows,)``.
    unit
        Which of the two.
    """

    kind: Kind
    batch: float
    rows: np.ndarray
    scale: np.ndarray
    unit: str = "workers"

    @property
    def scales(self) -> np.ndarray:
        """Distinct scales, ascending."""
        return np.unique(self.scale)


def batch_curves(
    columns: dict[str, np.ndarray], times: np.ndarray, rows: np.ndarray, min_scales: int
) -> Iterator[Curve]:
    """Weak and strong curves of some rows that have enough numbers of workers.

    Where a number of workers was measured on several numbers of nodes, the runs on the fewest
    count.

    Parameters
    ----------
    columns
        ``n_workers, n_nodes, local_batch, global_batch`` of all rows, NaN where unknown.
    times
        Seconds of all rows.
    """
    if _n_scales(columns["n_workers"][rows]) < min_scales:
        return
    for kind, name in _BATCH.items():
        for batch, same in _by_value(columns[name][rows]):
            # Of each number of workers some row is left; most batches have too few to begin with.
            if _n_scales(columns["n_workers"][rows[same]]) < min_scales:
                continue
            chosen = _densest(rows[same], columns["n_workers"], columns["n_nodes"])
            workers = columns["n_workers"][chosen]
            order = np.lexsort((times[chosen], workers))
            yield Curve(kind, batch, chosen[order], workers[order])


def _n_scales(workers: np.ndarray) -> int:
    return len(set(workers[np.isfinite(workers)].tolist()))


def _by_value(values: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """Each finite value, ascending, and where it stands, in order."""
    order = np.argsort(values, kind="stable")
    order = order[np.isfinite(values[order])]
    in_order = values[order]
    begins = np.flatnonzero(np.diff(in_order, prepend=np.nan) != 0)
    for first, last in zip(begins, [*begins[1:], len(order)][: len(begins)], strict=True):
        yield float(in_order[first]), order[first:last]


def _densest(rows: np.ndarray, workers: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Those of some rows that ran their number of workers on the fewest nodes it ran on."""
    rows = rows[np.isfinite(workers[rows])]
    _, scale = np.unique(workers[rows], return_inverse=True)
    known = np.where(np.isfinite(nodes[rows]), nodes[rows], 0.0)
    fewest = np.full(scale.max(initial=-1) + 1, np.inf)
    np.minimum.at(fewest, scale, known)
    return rows[known == fewest[scale]]


def over_nodes(columns: dict[str, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, str]:
    """The scale of some rows: their nodes if these took as many values as the workers did."""
    nodes, workers = columns["n_nodes"][rows], columns["n_workers"][rows]
    if np.all(np.isfinite(nodes)) and len(np.unique(nodes)) >= len(np.unique(workers)):
        return nodes, "nodes"
    return workers, "workers"


def run_curve(
    columns: dict[str, np.ndarray], times: np.ndarray, rows: np.ndarray, min_scales: int
) -> Curve | None:
    """The curve of whole runs: the one of most scales; all rows, if no batch has enough.

    None where there are fewer than ``min_scales`` scales even so.
    """
    found = [*batch_curves(columns, times, rows, min_scales)]
    if found:
        best = max(found, key=lambda curve: (len(curve.scales), len(curve.rows)))
        scale, unit = over_nodes(columns, best.rows)
        return best._replace(scale=scale, unit=unit)
    scale, unit = over_nodes(columns, rows)
    known = np.isfinite(scale)
    rows, scale = rows[known], scale[known]
    if len(np.unique(scale)) < min_scales:
        return None
    order = np.lexsort((times[rows], scale))
    return Curve("as measured", float("nan"), rows[order], scale[order], unit)
