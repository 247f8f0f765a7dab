"""The plan that is run: what ``fitkit plan -o plan.json`` writes, as far as running needs it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fitkit.errors import InputError, ParseError

_HINT = "fitkit plan -o plan.json writes one"


@dataclass(frozen=True)
class PlannedWidth:
    """A layer's ranks, and how long the plan says that it takes in a step."""

    name: str
    n_gpus: int
    planned_s: float


@dataclass(frozen=True)
class ExecutionPlan:
    """How many ranks each layer of a chain runs on at a constant global batch."""

    name: str
    global_batch: int
    iter_s: float
    gpu_s: float
    layers: tuple[PlannedWidth, ...]

    @property
    def widths(self) -> list[int]:
        """Ranks of each layer."""
        return [layer.n_gpus for layer in self.layers]

    @property
    def n_ranks(self) -> int:
        """Ranks that the plan uses at all."""
        return max(self.widths)


def read_plan(path: Path) -> ExecutionPlan:
    """Read a plan.

    Raises
    ------
    InputError
        If the file is missing, is no plan, or plans what ``run-plan`` cannot run: layers side
        by side, or on other GPUs than the first ones: with the layer.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ParseError(path, getattr(error, "lineno", 0), "not JSON", _HINT) from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", _HINT) from error
    if not isinstance(document, dict) or not document.get("layers"):
        raise ParseError(path, 0, "a plan without layers", _HINT)
    try:
        return plan_of(document)
    except InputError as error:
        raise ParseError(path, 0, str(error), error.hint or _HINT) from error


def plan_of(document: Mapping[str, Any]) -> ExecutionPlan:
    """A plan from the JSON document that describes it.

    Raises
    ------
    InputError
        If a key is missing or has no sense, or layers run side by side.
    """
    layers = tuple(_layer(index, layer) for index, layer in enumerate(document["layers"]))
    _check_order(document["layers"])
    batch = _number(document, "global_batch", "the plan")
    if batch != int(batch) or batch < 1:
        raise InputError(f"global_batch is {batch}")
    for layer in layers:
        if layer.n_gpus > batch:
            what = f"layer {layer.name} is planned on {layer.n_gpus} GPUs"
            raise InputError(f"{what}, but the global batch has {int(batch)} samples")
    iter_s, gpu_s = (_number(document, key, "the plan") for key in ("iter_s", "gpu_s"))
    return ExecutionPlan(str(document.get("instance", "")), int(batch), iter_s, gpu_s, layers)


def match_layers(planned: Sequence[str], found: Sequence[str], *, by_position: bool) -> None:
    """Check that a plan's layers are those of a network.

    Parameters
    ----------
    planned, found
        Names of the plan's layers and of the network's.
    by_position
        Whether only their number has to agree: plans from profiles name layers by type.

    Raises
    ------
    InputError
        If they are not the same: with the first one that differs.
    """
    pairs = zip(planned, found, strict=False)
    differ = None if by_position else next((p for p in enumerate(pairs) if len({*p[1]}) > 1), None)
    if len(planned) != len(found):
        more, names = ("network", found) if len(found) > len(planned) else ("plan", planned)
        index = min(len(planned), len(found)) if differ is None else differ[0]
        what = f"the plan has {len(planned)} layers and the network {len(found)}"
        hint = f"the first one that only the {more} has seems to be {names[index]}"
        raise InputError(what, hint)
    if differ is not None:
        index, (one, other) = differ
        what = f"layer {index} is {one} in the plan and {other} in the network"
        raise InputError(what, "--by-position runs it all the same, layer by layer")


def _layer(index: int, layer: Any) -> PlannedWidth:
    if not isinstance(layer, Mapping):
        raise InputError(f"layer {index} is no object")
    name = str(layer.get("name", index))
    where = f"layer {name}"
    n_gpus = _number(layer, "n_gpus", where)
    if n_gpus != int(n_gpus) or n_gpus < 1:
        raise InputError(f"{where}: n_gpus is {n_gpus}")
    gpus = layer.get("gpus")
    if gpus is not None and not isinstance(gpus, (list, tuple)):
        raise InputError(f"{where}: gpus is {gpus!r}, not a list")
    if gpus is not None and [*gpus] != [*range(int(n_gpus))]:
        what = f"{where} runs on GPUs {gpus}: run-plan runs layers on the first ones only"
        raise InputError(what, "it runs plans of chains")
    start_s, end_s = (_number(layer, key, where) for key in ("start_s", "end_s"))
    return PlannedWidth(name, int(n_gpus), end_s - start_s)


def _check_order(layers: Sequence[Mapping[str, Any]]) -> None:
    for one, other in pairwise(layers):
        if other["start_s"] < one["end_s"] - 1e-9 - 1e-6 * abs(one["end_s"]):
            what = f"layer {other.get('name')} begins before layer {one.get('name')} ends"
            raise InputError(what, "run-plan runs sequential networks")


def _number(record: Mapping[str, Any], key: str, where: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{where}: {key} is {value!r}, not a number")
    return value
