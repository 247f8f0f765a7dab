"""Reading a plan that ``fitkit plan -o plan.json`` wrote, with its baselines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitkit.errors import InputError, ParseError
from fitkit.planner.plan import Plan, PlannedLayer, Schedule

_HINT = "fitkit plan -o plan.json writes one"
Json = Mapping[str, Any]


def read_plan(path: Path | str) -> Plan:
    """Read a plan from its JSON file.

    Raises
    ------
    InputError
        If the file cannot be read or is no plan: with the layer and the key.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ParseError(path, getattr(error, "lineno", 0), "not JSON", _HINT) from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", _HINT) from error
    try:
        return plan_from_json(document)
    except InputError as error:
        raise ParseError(path, 0, error.message, error.hint or _HINT) from None


def plan_from_json(document: object) -> Plan:
    """A plan from the JSON document of ``fitkit plan``; the frontier is not read.

    A baseline of which only the time and the GPUs are known becomes one layer.

    Raises
    ------
    InputError
        If a key is missing or has no sense: with the layer.
    """
    if not isinstance(document, Mapping) or not document.get("layers"):
        raise InputError("a plan without layers")
    schedule = _schedule(document, "the plan")
    batch = _number(document, "global_batch", "the plan")
    if batch < 1 or batch != int(batch):
        raise InputError(f"the plan: global_batch is {batch:g}, not a number of samples")
    listed = document.get("baselines") or {}
    if not isinstance(listed, Mapping):
        raise InputError("the plan: baselines is not an object")
    baselines = {
        str(name): _schedule(one, f"baseline {name}") for name, one in listed.items() if one
    }
    return Plan(
        schedule.iter_s,
        schedule.gpu_s,
        schedule.layers,
        instance=str(document.get("instance") or "plan"),
        n_gpus=_count(document, "the plan") if "n_gpus" in document else _last(schedule) + 1,
        global_batch=int(batch),
        baselines=baselines,
    )


def _last(schedule: Schedule) -> int:
    return max(gpu for layer in schedule.layers for gpu in layer.gpus)


def _schedule(document: object, where: str) -> Schedule:
    if not isinstance(document, Mapping):
        raise InputError(f"{where} is not an object")
    iter_s = _number(document, "iter_s", where)
    if not iter_s > 0:
        raise InputError(f"{where}: iter_s is {iter_s:g}: a step takes some time")
    listed = document.get("layers")
    if not listed:
        n_gpus = _count(document, where)
        listed = [{"name": "whole step", "n_gpus": n_gpus, "start_s": 0.0, "end_s": iter_s}]
    if not isinstance(listed, list):
        raise InputError(f"{where}: layers is not a list")
    layers = tuple(_layer(layer, number, where) for number, layer in enumerate(listed))
    latest = max(layers, key=lambda layer: layer.end_s)
    if latest.end_s > iter_s * (1 + 1e-6):
        text = f"layer {latest.name} ends at {latest.end_s:g} s, after the step of {iter_s:g} s"
        raise InputError(f"{where}: {text}")
    gpu_s = document.get("gpu_s")
    return Schedule(iter_s, gpu_s if isinstance(gpu_s, float) else math.nan, layers)


def _layer(layer: object, number: int, plan: str) -> PlannedLayer:
    if not isinstance(layer, Mapping):
        raise InputError(f"{plan}: layer {number} is not an object")
    name = str(layer.get("name", number))
    where = f"{plan}: layer {name}"
    n_gpus = _count(layer, where)
    start_s, end_s = _number(layer, "start_s", where), _number(layer, "end_s", where)
    if not 0 <= start_s <= end_s:
        raise InputError(f"{where} runs from {start_s:g} to {end_s:g} s")
    transfer_s, sync_s = (
        _number(layer, key, where) if key in layer else 0.0 for key in ("transfer_s", "sync_s")
    )
    rest_s = max(end_s - start_s - transfer_s - sync_s, 0.0)
    compute_s = _number(layer, "compute_s", where) if "compute_s" in layer else rest_s
    if min(transfer_s, sync_s, compute_s) < 0:
        raise InputError(f"{where} has a negative time")
    gpus = layer.get("gpus")
    if gpus is not None and not isinstance(gpus, list | tuple):
        raise InputError(f"{where}: gpus is {gpus!r}, not a list")
    gpus = tuple(range(n_gpus)) if gpus is None else tuple(gpus)
    if len(gpus) != n_gpus or not all(type(gpu) is int and gpu >= 0 for gpu in gpus):
        raise InputError(f"{where} has {n_gpus} GPUs and runs on {list(gpus)}")
    return PlannedLayer(
        number, name, str(layer.get("layer_type", "layer")), n_gpus, start_s, end_s, transfer_s,
        compute_s, sync_s, 1.0, gpus,
        bool(layer.get("is_extrapolated", False)),
    )  # fmt: skip


def _count(record: Json, where: str) -> int:
    value = _number(record, "n_gpus", where)
    if value < 1 or value != int(value):
        raise InputError(f"{where}: n_gpus is {value:g}")
    return int(value)


def _number(record: Json, key: str, where: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: {key} is {value!r}, not a number")
    return float(value)
