"""Which single further configuration would tell most of what the measured ones leave open."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np

from fitkit.models.guard import doublings, measured_box

_MOST = 400  # candidates
_DOUBLINGS = (2.0, 4.0)  # beyond the largest measured value
_SET = (
    "n_workers", "n_nodes", "n_ranks", "local_batch", "global_batch", "micro_batch", "n_bytes",
    "tensor_parallel", "pipeline_parallel", "hidden_size", "n_heads", "n_layers",
    "sequence_length",
)  # fmt: skip
# What a layer does follows from the network and grows with the batch.
_WITH_BATCH = (
    "flop", "input_bytes", "output_bytes", "input_grad_bytes", "output_grad_bytes", "data_bytes",
)  # fmt: skip
_PLACED = ("n_workers", "n_nodes")
# What is a multiple of which product, where it was in every measured run.
_MULTIPLES = (
    ("global_batch", ("n_workers",)), ("global_batch", ("local_batch",)),
    ("global_batch", ("micro_batch",)), ("local_batch", ("micro_batch",)),
    ("n_workers", ("tensor_parallel", "pipeline_parallel")), ("n_ranks", ("n_nodes",)),
    ("n_layers", ("pipeline_parallel",)), ("n_heads", ("tensor_parallel",)),
    ("hidden_size", ("n_heads",)),
)  # fmt: skip
_UNUSUAL = 1.0  # effort, in doublings, of a number of workers on a node that was never measured
_FARTHEST = 64.0  # doublings
_SWEEPS = 10  # of Gibbs' sampler between two draws that are used
_TAIL = 1e-12
_NEARLY = 0.9  # of the largest gain: the run that asks for the least is preferred


def candidates(rows: SimpleNamespace, names: Sequence[str]) -> SimpleNamespace | None:
    """Configurations around the measured ones, as columns; None where nothing can be set.

    Each column takes its smallest, middle and largest value and up to two doublings more, one
    that never varied its double and half as well; all are whole numbers. Every node has the same
    number of workers, one that was measured or half of the most, and the global batch is that of
    all workers.

    Parameters
    ----------
    rows
        Measured columns as numbers, shape ``(rows,)`` each.
    names
        Columns that the model reads.
    """
    known = {
        name: values for name in names
        if len(values := np.asarray(getattr(rows, name, ()))) and np.all(np.isfinite(values))
    }  # fmt: skip
    if any(name in known for name in (*_WITH_BATCH, "n_params")):
        return _scaled_batches(known)
    free = [name for name in known if name in _SET]
    if {"local_batch", "global_batch", "n_workers"} <= set(free):
        free.remove("global_batch")
    if not free or set(known) - set(_SET):
        return None
    grids = {name: _values(known[name]) for name in free}
    placed = set(_PLACED) <= set(grids)
    if placed:
        grids["n_workers"] = _per_node(known)
    found = dict(zip(free, np.array(_product(list(grids.values()))).T, strict=True))
    if placed:
        found["n_workers"] = found["n_workers"] * found["n_nodes"]
    if "global_batch" in known and "global_batch" not in free:
        found["global_batch"] = found["local_batch"] * found["n_workers"]
    possible = _possible(found, known)
    if not possible.any():
        return None
    return SimpleNamespace(**{name: values[possible] for name, values in found.items()})


def _values(measured: np.ndarray) -> list[float]:
    """Values to try of a column, ascending: all that can be set is counted."""
    least, most = float(measured.min()), float(measured.max())
    if least == most:
        halved = [most / 2] if most >= 2 and (most / 2).is_integer() else []
        return _whole([*halved, most, 2 * most])
    middle = float(np.sort(measured)[len(measured) // 2])
    return _whole([least, middle, most, *(most * factor for factor in _DOUBLINGS)])


def _whole(values: Sequence[float]) -> list[float]:
    return sorted({max(1.0, float(round(value))) for value in values})


def _per_node(known: Mapping[str, np.ndarray]) -> list[float]:
    """Workers to try on each node: as many as were measured, and half of the most."""
    measured = _measured_per_node(known)
    if not len(measured):
        return [1.0]
    most = float(measured[-1])
    halved = [most / 2] if (most / 2).is_integer() else []
    return _whole([float(measured[0]), float(measured[len(measured) // 2]), most, *halved])


def _measured_per_node(known: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whole numbers of workers on each node that were measured, ascending."""
    per_node = np.unique(known["n_workers"] / known["n_nodes"])
    return per_node[(per_node == np.round(per_node)) & (per_node >= 1)]


def _product(grids: Sequence[list[float]]) -> list[tuple[float, ...]]:
    """All combinations; of too many, the first and last values of the longest grids alone."""
    while np.prod([len(grid) for grid in grids]) > 10 * _MOST:
        longest = max(range(len(grids)), key=lambda k: len(grids[k]))
        grids[longest].pop(len(grids[longest]) // 2)
    every = list(itertools.product(*grids))
    return [every[k] for k in np.unique(np.linspace(0, len(every) - 1, _MOST).astype(int))]


def _possible(found: Mapping[str, np.ndarray], known: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which candidates divide as all measured runs did: a node's share, a worker's share."""
    possible = np.ones(len(next(iter(found.values()))), dtype=bool)
    for many, parts in _MULTIPLES:
        names = {many, *parts}
        if names <= set(found) and bool(_divides(known, many, parts).all()):
            possible &= _divides(found, many, parts)
    return possible


def _divides(columns: Mapping[str, np.ndarray], many: str, parts: Sequence[str]) -> np.ndarray:
    product = np.prod([columns[part] for part in parts], axis=0)
    return np.asarray(np.fmod(columns[many], product) == 0)


def _scaled_batches(known: Mapping[str, np.ndarray]) -> SimpleNamespace | None:
    """Measured layers at other batches: only the batch of a layer can be set."""
    if "local_batch" not in known:
        return None
    batch = known["local_batch"]
    wanted = np.array(_values(batch))
    rows = np.unique(np.linspace(0, len(batch) - 1, _MOST // len(wanted)).astype(int))
    factors = (wanted[:, None] / batch[rows]).ravel()
    found = {name: np.tile(values[rows], len(wanted)) for name, values in known.items()}
    for name in ("local_batch", *_WITH_BATCH):
        if name in found:
            found[name] = found[name] * factors
    return SimpleNamespace(**found)


def shown(columns: SimpleNamespace, row: int) -> dict[str, float]:
    """What a candidate asks to be set: not what follows from it."""
    return {name: float(values[row]) for name, values in vars(columns).items() if name in _SET}


def effort(others: SimpleNamespace, rows: SimpleNamespace) -> np.ndarray:
    """Doublings outside of what was measured, and where none, the size of the run.

    Parameters
    ----------
    others, rows
        Candidates and measured rows.

    Returns
    -------
    ndarray
        Shape ``(candidates,)``.
    """
    total = np.zeros(len(next(iter(vars(others).values()))))
    outside = doublings(measured_box(vars(rows)), vars(others), one_value_is_a_scale=True)
    for name, values in vars(others).items():
        total += np.minimum(outside[name], _FARTHEST)  # zero has no doublings
        total += 1e-3 * np.log2(np.maximum(values, 1.0))
    if set(_PLACED) <= set(vars(others)):
        per_node = others.n_workers / others.n_nodes
        total += _UNUSUAL * ~np.isin(per_node, _measured_per_node(vars(rows)))
    return total


def covariance(jacobian: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Covariance of parameters by rows and by what is believed without them.

    The inverse of J'J + diag(prior)^-2, by the singular values of J in units of the prior: a
    direction that the rows do not tell, or that rounding alone seems to tell, keeps the variance of
    the prior, however small the noise of the others.

    Parameters
    ----------
    jacobian
        Derivatives in standard deviations of the noise, shape ``(rows, parameters)``.
    prior
        Standard deviations without any row, shape ``(parameters,)``.
    """
    n_rows, n = jacobian.shape
    _, found, right = np.linalg.svd(np.linalg.qr(jacobian * prior, mode="r"))
    values = np.zeros(n)
    values[: len(found)] = found
    values[values <= max(n_rows, n) * np.finfo(float).eps * values.max(initial=0.0)] = 0.0
    along = right.T * prior[:, None]
    return np.asarray((along / (1 + values**2)) @ along.T)


def best(
    jacobian: np.ndarray,
    others: np.ndarray,
    prior: np.ndarray,
    asked: np.ndarray,
    effort: np.ndarray,
) -> tuple[int, np.ndarray]:
    """The candidate that reduces the log variance of what is asked most, and variances with it.

    A further row changes the inverse of the information by a matrix of rank one (Sherman and
    Morrison); the sum of the log variances of some parameters is a criterion of D-optimality
    (Atkinson, Donev and Tobias, Optimum Experimental Designs, 2007, section 10.3).

    Parameters
    ----------
    jacobian, others
        Derivatives of the measured rows and of the candidates in standard deviations of the
        noise, shapes ``(rows, parameters)`` and ``(candidates, parameters)``.
    prior
        Standard deviations of what is believed without data, shape ``(parameters,)``.
    asked
        Which parameters count, shape ``(parameters,)``.
    effort
        What is preferred of nearly equal ones: the smallest, shape ``(candidates,)``.
    """
    before = covariance(jacobian, prior)
    moved, variances = others @ before, np.diag(before)
    after = variances - moved**2 / (1 + np.sum(moved * others, axis=1))[:, None]
    after = np.maximum(after, 1e-12 * variances)
    gains = np.log(variances / after)[:, asked].sum(axis=1)
    gains = np.where(np.isfinite(gains), gains, -np.inf)
    near = np.flatnonzero(gains >= _NEARLY * gains.max())
    chosen = int(near[np.lexsort((-gains[near], effort[near]))[0]])
    return chosen, after[chosen]


def plausible(jacobian: np.ndarray, prior: np.ndarray, values: np.ndarray, n: int) -> np.ndarray:
    """Parameters that the rows leave possible, none below zero; always the same ones.

    Draws of a normal distribution cut off at zero, by Gibbs' sampler along the axes of its
    ellipsoid (Robert, Statistics and Computing 5, 1995): along these, parameters that only move
    together move freely.

    Parameters
    ----------
    jacobian, prior
        As for `covariance`.
    values
        Where the rows put them, 0 or above, shape ``(parameters,)``.
    n
        Draws.

    Returns
    -------
    ndarray
        Shape ``(n, parameters)``.
    """
    variances, axes = np.linalg.eigh(covariance(jacobian, prior))
    steps = axes * np.sqrt(np.maximum(variances, 0.0))
    draw, normal = np.random.default_rng(0), NormalDist()
    place, away, found = np.maximum(values, 0.0), np.zeros(len(values)), []
    for _ in range(n * _SWEEPS):
        for k, step in enumerate(steps.T):
            bounds = -place[step != 0] / step[step != 0]
            above = step[step != 0] > 0
            low = away[k] + max(bounds[above], default=-np.inf)
            high = away[k] + min(bounds[~above], default=np.inf)
            ends = normal.cdf(low), normal.cdf(high)
            share = ends[0] + draw.random() * (ends[1] - ends[0])
            moved = normal.inv_cdf(min(max(share, _TAIL), 1 - _TAIL))
            moved = min(max(moved, low), high)
            place, away[k] = np.maximum(place + (moved - away[k]) * step, 0.0), moved
        found.append(place)
    return np.array(found[_SWEEPS - 1 :: _SWEEPS])
