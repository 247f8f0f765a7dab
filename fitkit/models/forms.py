"""Times that are no plain sum of terms: overlap, rooflines, one server in turn, a knee, a curve.

A form is a function of the columns and of its coefficients; its docstring is what reports print.
Like a term it needs numpy only, and sees null as NaN. `NonlinearModel` fits it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.columns import Columns, MissingColumnError, known_or
from fitkit.models.terms import Resource, needed_columns, nodes, read_by, terms_named

Amount = Callable[[Columns], ArrayLike]
Seconds = Callable[[Columns, SimpleNamespace], ArrayLike]
Sensitivities = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

MAX_OVERLAP = 10.0  # above, a p-norm cannot be told from the maximum


@dataclass(frozen=True)
class Coefficient:
    """What a form is fitted with.

    Attributes
    ----------
    kind
        ``price``: seconds for one unit of ``amount``; ``size``: measured as ``amount`` is;
        ``number``: between ``low`` and ``high``, without a unit.
    start
        Where the fit starts, and what it stays at where the data say nothing: of a price, the
        share of the shortest time that the median amount costs; of a size, in median amounts;
        of a number, its value.
    """

    name: str
    unit: str
    resource: Resource
    start: float
    amount: Amount | None = None
    kind: Literal["price", "size", "number"] = "price"
    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True)
class Form:
    """A time as a function of columns and coefficients.

    Attributes
    ----------
    sensitivities
        Where they are known by formula: the time, shape ``(rows,)``, and its derivatives by the
        coefficients, shape ``(rows, coefficients)``, from the amounts, of that shape, and the
        coefficients' values; else differences are taken.
    """

    name: str
    coefficients: tuple[Coefficient, ...]
    seconds: Seconds
    meaning: str
    columns: tuple[str, ...]
    sensitivities: Sensitivities | None = None


FORMS: dict[str, Form] = {}


def form(*coefficients: Coefficient) -> Callable[[Seconds], Seconds]:
    """Register a function as a form under its own name.

    Raises
    ------
    ValueError
        If the name is taken, or the function has no docstring to print.
    """

    def register(seconds: Seconds) -> Seconds:
        name, doc = seconds.__name__, (seconds.__doc__ or "").strip()
        if not doc:
            raise ValueError(f"form {name!r} needs a docstring: reports print it")
        ones = SimpleNamespace(**{c.name: 1.0 for c in coefficients})
        amounts = [c.amount for c in coefficients if c.amount]
        columns = read_by(lambda x: seconds(x, ones), *amounts)
        _add(Form(name, coefficients, seconds, doc.partition("\n")[0], tuple(columns)))
        return seconds

    return register


def _add(new: Form) -> None:
    if new.name in FORMS:
        raise ValueError(f"there is a form {new.name!r} already")
    FORMS[new.name] = new


def form_named(name: str) -> Form:
    """The form of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in FORMS:
        raise ValueError(f"no form {name!r}; known: {', '.join(FORMS)}")
    return FORMS[name]


def amount_of(coefficient: Coefficient, X: Any, n_rows: int) -> np.ndarray:
    """What a price is paid for in each row, shape ``(n_rows,)``; ones for a number without unit."""
    if coefficient.amount is None:
        return np.ones(n_rows)
    try:
        with np.errstate(all="ignore"):  # what is no number is told by who asked
            values = coefficient.amount(Columns(X))
    except MissingColumnError:
        return np.full(n_rows, np.nan)
    return np.broadcast_to(np.asarray(values, dtype=float), (n_rows,))


def p_norm(one: ArrayLike, other: ArrayLike, exponent: float) -> np.ndarray:
    """Time of two things that overlap in part, ``(a^p + b^p)^(1/p)``: 1 adds, infinity is max.

    NaN where one of the two is NaN, infinite or negative.
    """
    a, b = (np.where(np.less(t, np.inf) & np.greater_equal(t, 0), t, np.nan) for t in (one, other))
    longer = np.maximum(a, b)
    ratio = np.minimum(a, b) / np.maximum(longer, np.finfo(float).tiny)
    return longer * (1 + ratio**exponent) ** (1 / exponent)


# -- forms of named terms ------------------------------------------------------------------


def overlapped(
    name: str, meaning: str, compute: Sequence[str], comm: Sequence[str], shares: Sequence[float]
) -> Form:
    """Two sums of terms that overlap: ``(compute^p + comm^p)^(1/p)``, p from 1 to 10.

    The overlap exponent is that of Pollux (Qiao et al., OSDI 2021, equation 11).

    Parameters
    ----------
    shares
        Start of each term, compute first, see `Coefficient`.
    """
    terms = terms_named([*compute, *comm])
    prices = tuple(
        Coefficient(term.name, term.unit, term.resource, share, term.function)
        for term, share in zip(terms, shares, strict=True)
    )
    exponent = Coefficient("overlap", "", "device", 2.0, None, "number", 1.0, MAX_OVERLAP)

    def seconds(x: Columns, c: SimpleNamespace) -> ArrayLike:
        given = vars(c)
        parts = [
            sum((given[t.name] * t.function(x) for t in part if given[t.name]), start=0.0)
            for part in (terms[: len(compute)], terms[len(compute) :])
        ]
        return p_norm(parts[0], parts[1], c.overlap)

    def sensitivities(amounts: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        exponent, prices = values[-1], amounts[:, :-1] * values[:-1]
        parts = np.array([prices[:, : len(compute)].sum(1), prices[:, len(compute) :].sum(1)])
        whole = p_norm(parts[0], parts[1], exponent)
        share = parts / np.maximum(whole, np.finfo(float).tiny)
        slopes = share ** (exponent - 1)
        logs = np.log(np.where(share > 0, share, 1.0))
        derivatives = np.empty_like(amounts)
        derivatives[:, : len(compute)] = amounts[:, : len(compute)] * slopes[0][:, None]
        derivatives[:, len(compute) : -1] = amounts[:, len(compute) : -1] * slopes[1][:, None]
        derivatives[:, -1] = whole * (slopes * share * logs).sum(0) / exponent
        return whole, derivatives

    columns = tuple(needed_columns([term.name for term in terms]))
    new = Form(name, (*prices, exponent), seconds, meaning, columns, sensitivities)
    _add(new)
    return new


# Starts, and so what is believed where the data do not tell: time in proportion to the work, with a
# twentieth of it fixed; the links cost a fifth of the shortest step and less.
_COMPUTE = {"fixed": 0.05, "per_sample": 0.95}
_LINKS = {
    "across_devices": 0.2, "across_nodes": 0.2, "ring_devices": 0.07, "ring_nodes": 0.2,
    "log_nodes": 0.07, "log_workers_across": 0.04, "pair_sharing": 0.04, "log_pair_workers": 0.04,
}  # fmt: skip
_SERIAL = {"devices_per_node": 0.04, "other_nodes": 0.02}

OVERLAPPED_STEP = overlapped(
    "overlapped_step",
    "Compute and synchronisation overlap; two kinds of link; no cost grows as their number does.",
    tuple(_COMPUTE), tuple(_LINKS), (*_COMPUTE.values(), *_LINKS.values()),
)  # fmt: skip
OVERLAPPED_SERIAL_STEP = overlapped(
    "overlapped_serial_step",
    "Compute and synchronisation overlap; two kinds of link; devices and nodes also take turns.",
    tuple(_COMPUTE), (*_LINKS, *_SERIAL),
    (*_COMPUTE.values(), *_LINKS.values(), *_SERIAL.values()),
)  # fmt: skip


# -- forms with a formula of their own -----------------------------------------------------


def _traffic(x: Columns) -> ArrayLike:
    """Bytes that a call moves: activations in and out, and single-precision weights."""
    return x.input_bytes + x.output_bytes + 4.0 * x.n_params


@form(
    Coefficient("launch", "s", "host", 0.3, lambda x: 1.0),
    Coefficient("per_flop", "s/FLOP", "device", 0.5, lambda x: x.flop),
    Coefficient("per_byte", "s/byte", "memory", 0.3, _traffic),
    Coefficient("overlap", "", "device", 2.0, None, "number", 1.0, MAX_OVERLAP),
)
def roofline(x: Columns, c: SimpleNamespace) -> ArrayLike:
    """Launch, then arithmetic and memory traffic at the same time, the longer one counts most.

    Williams, Waterman and Patterson, Communications of the ACM 52, 2009; the corner is rounded by
    a p-norm.
    """
    return c.launch + p_norm(c.per_flop * x.flop, c.per_byte * _traffic(x), c.overlap)


@form(
    Coefficient("fixed", "s", "host", 0.5, lambda x: 1.0),
    Coefficient("per_sample", "s/sample", "device", 0.5, lambda x: x.local_batch),
    # So large that a queue is seen in half of the rows: where there is none, nothing pulls at it.
    Coefficient("service", "s/worker", "link_inter", 1.0, lambda x: x.n_workers),
    Coefficient("update", "s", "host", 0.05, lambda x: 1.0),
)
def serial_server(x: Columns, c: SimpleNamespace) -> ArrayLike:
    """One server serves the workers in turn: the slower of a worker's own cycle and of its queue.

    Asymptotic bounds of a closed queue (Denning and Buzen, ACM Computing Surveys 10, 1978):
    max(t_compute + s, N s) + t_update.
    """
    own = c.fixed + c.per_sample * x.local_batch + c.service
    return np.maximum(own, c.service * x.n_workers) + c.update


@form(
    Coefficient("fixed", "s", "host", 0.5, lambda x: 1.0),
    Coefficient("per_sample", "s/sample", "device", 0.5, lambda x: x.local_batch),
    Coefficient("per_worker", "s/worker", "link_inter", 0.05, lambda x: x.n_workers),
    Coefficient("knee", "workers", "link_inter", 1.0, lambda x: x.n_workers, "size"),
)
def hinge(x: Columns, c: SimpleNamespace) -> ArrayLike:
    """Flat in the workers up to a knee, then growing with each of them."""
    return (
        c.fixed + c.per_sample * x.local_batch + c.per_worker * np.maximum(0, x.n_workers - c.knee)
    )


def _data_set(x: Columns) -> np.ndarray:
    """Bytes that every node reads; where nothing tells how many, the data set counts as one."""
    return known_or(x, "dataset_bytes", 1.0)


@form(
    Coefficient("launch", "s", "host", 0.3, lambda x: 1.0),
    Coefficient("own_reading", "s/byte", "storage", 0.7, _data_set),
    Coefficient("knee", "nodes", "storage", 1.0, nodes, "size"),
)
def shared_file_system(x: Columns, c: SimpleNamespace) -> ArrayLike:
    """Every node reads the data set: at its own pace, until the file system is busy with all.

    a + max(D / b, D N / B), with b of a client and B of the file system; the knee lies at B / b.
    The bounds are those of a single server (Denning and Buzen, ACM Computing Surveys 10, 1978);
    the phase is the one that arXiv 1612.00521 calls initialisation.
    """
    return c.launch + c.own_reading * _data_set(x) * np.maximum(1.0, nodes(x) / c.knee)


@form(
    Coefficient("latency", "s", "link_inter", 0.5, lambda x: 1.0),
    Coefficient("per_byte", "s/byte", "link_inter", 0.5, lambda x: x.n_bytes),
    Coefficient("half_size", "bytes", "link_inter", 1.0, lambda x: x.n_bytes, "size"),
    Coefficient("sharpness", "", "link_inter", 1.0, None, "number", 0.25, 4.0),
)
def bandwidth_curve(x: Columns, c: SimpleNamespace) -> ArrayLike:
    """Latency and a bandwidth that grows with the message, B(S) = B / (1 + (S0 / S)^q)."""
    with np.errstate(divide="ignore"):
        loss = np.where(x.n_bytes > 0, (c.half_size / x.n_bytes) ** c.sharpness, 0.0)
    return c.latency + c.per_byte * x.n_bytes * (1 + loss)
