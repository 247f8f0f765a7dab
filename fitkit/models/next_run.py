"""Which single further configuration would tell most of what the measured ones leave open."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np

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
_NEARLY = 0.9  # of the largest gain: the run that asks for the least is preferred


def candidates(rows: SimpleNamespace, names: Sequence[str]) -> SimpleNamespace | None:
    """Configurations around the measured ones, as columns; None where nothing can be set.

    Each column takes its smallest, middle and largest value and up to two doublings more, one
    that never varied its double and half as well; counts are whole, nodes have no more workers
    than were measured on one, and the global batch is that of all workers.

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
    grids = [_values(known[name]) for name in free]
    found = dict(zip(free, np.array(_product(grids), dtype=float).T, strict=True))
    if "global_batch" in known and "global_batch" not in free:
        found["global_batch"] = found["local_batch"] * found["n_workers"]
    possible = _possible(found, known)
    if not possible.any():
        return None
    return SimpleNamespace(**{name: values[possible] for name, values in found.items()})


def _values(measured: np.ndarray) -> list[float]:
    """Values to try of a column, ascending."""
    least, most = float(measured.min()), float(measured.max())
    if least == most:
        halved = [most / 2] if most >= 2 and (most / 2).is_integer() else []
        return [*halved, most, 2 * most]
    middle = float(np.sort(measured)[len(measured) // 2])
    return sorted({least, middle, most, *(most * factor for factor in _DOUBLINGS)})


def _product(grids: Sequence[list[float]]) -> list[tuple[float, ...]]:
    """All combinations; of too many, the first and last values of the longest grids alone."""
    while np.prod([len(grid) for grid in grids]) > 10 * _MOST:
        longest = max(range(len(grids)), key=lambda k: len(grids[k]))
        grids[longest].pop(len(grids[longest]) // 2)
    every = list(itertools.product(*grids))
    return [every[k] for k in np.unique(np.linspace(0, len(every) - 1, _MOST).astype(int))]


def _possible(found: Mapping[str, np.ndarray], known: Mapping[str, np.ndarray]) -> np.ndarray:
    rows = len(next(iter(found.values())))
    possible = np.ones(rows, dtype=bool)
    if {"n_workers", "n_nodes"} <= set(found):
        per_node = found["n_workers"] / found["n_nodes"]
        most = float(np.max(known["n_workers"] / known["n_nodes"]))
        possible &= (per_node >= 1) & (per_node <= max(most, 1.0))
    whole = [v for name, v in found.items() if name.startswith("n_") or name.endswith("_parallel")]
    for values in whole:
        possible &= (values == np.round(values)) & (values >= 1)
    return possible


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
    information = jacobian.T @ jacobian + np.diag(prior**-2.0)
    covariance = np.linalg.inv(information)
    moved = others @ covariance
    after = np.diag(covariance) - moved**2 / (1 + np.sum(moved * others, axis=1))[:, None]
    after = np.maximum(after, 1e-12 * np.diag(covariance))
    gains = np.log(np.diag(covariance) / after)[:, asked].sum(axis=1)
    gains = np.where(np.isfinite(gains), gains, -np.inf)
    near = np.flatnonzero(gains >= _NEARLY * gains.max())
    chosen = int(near[np.lexsort((-gains[near], effort[near]))[0]])
    return chosen, after[chosen]
