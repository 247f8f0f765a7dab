"""What a network consists of: its modules, their parameters and weights."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Any

_LOGGER = logging.getLogger(__name__)


@dataclass
class Network:
    """The modules of a model.

    Attributes
    ----------
    layers
        One entry for each module: name, type, trained parameters that it owns, weight's shape.
        Wrappers come last.
    watched
        The modules themselves, in the same order; none if they cannot be watched.
    device_type
        Where the parameters are: ``cpu``, ``cuda``, ...
    facts
        What the log's first line says of it.
    """

    layers: list[dict[str, Any]]
    watched: list[Any]
    device_type: str
    facts: dict[str, Any] = field(default_factory=dict)


def describe(model: Any) -> Network:
    """Describe a model, without its wrappers for distributed training or compilation."""
    import torch

    wrappers, root = _unwrap(model)
    modules = dict(root.named_modules())
    parameters = list(root.parameters())
    first = parameters[0] if parameters else torch.zeros(0)
    refused = _refusal(torch, [model, *modules.values()])
    if refused:
        _LOGGER.warning("layers are not recorded: %s", refused)
    known = [p for p in parameters if p.requires_grad]
    facts: dict[str, Any] = {
        "network": type(root).__name__,
        "torch": torch.__version__,
        "n_threads": torch.get_num_threads(),
        "n_params": None if any(map(_is_lazy, known)) else sum(p.numel() for p in known),
        "precision": str(first.dtype).removeprefix("torch."),
        "device_type": first.device.type,
        "layers_missing": refused,
    }
    if first.device.type == "cuda":
        facts["device"] = torch.cuda.get_device_name(first.device)
    return Network(
        layers=[*_layers(modules), *map(_wrapper, wrappers)],
        watched=[] if refused else [*modules.values(), *wrappers],
        device_type=first.device.type,
        facts=facts,
    )


def place_of(rank: int | None, world_size: int | None) -> dict[str, Any]:
    """Rank and number of processes: what the user, torch.distributed or the launcher says."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        found = distributed.get_rank(), distributed.get_world_size()
    else:
        found = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    return {
        "rank": found[0] if rank is None else rank,
        "world_size": found[1] if world_size is None else world_size,
    }


def _wrapper(module: Any) -> dict[str, Any]:
    return {"name": _type(module), "type": _type(module), "n_params": 0, "is_wrapper": True}


def _type(module: Any) -> str:
    return type(module).__name__


def _unwrap(model: Any) -> tuple[list[Any], Any]:
    """Wrappers for parallel training from the outside in, and what they wrap."""
    import torch

    parallel = torch.nn.parallel
    wrappers: list[Any] = []
    while True:
        if isinstance(model, (parallel.DistributedDataParallel, parallel.DataParallel)):
            wrappers.append(model)
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
            model = model._orig_mod
        else:
            return wrappers, model


def _refusal(torch: Any, modules: list[Any]) -> str | None:
    """Why the calls of these modules cannot be watched, if they cannot."""
    for module in modules:
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None):
            return "a part of the model is compiled, and its modules run as one kernel"
        if isinstance(module, torch.jit.ScriptModule):
            return "a part of the model is a script, whose modules are not called from Python"
    return None


def _layers(modules: dict[str, Any]) -> list[dict[str, Any]]:
    owned: set[int] = set()  # a parameter that several modules share belongs to the first
    layers = []
    for name, module in modules.items():
        parameters = dict(module.named_parameters(recurse=False))
        layer: dict[str, Any] = {"name": name or _type(module), "type": _type(module)}
        if not any(map(_is_lazy, parameters.values())):
            mine = [p for p in parameters.values() if p.requires_grad and id(p) not in owned]
            layer["n_params"] = sum(p.numel() for p in mine)
            layer["weight_shape"] = _weight_shape(parameters)
        owned.update(map(id, parameters.values()))
        layers.append({key: value for key, value in layer.items() if value is not None})
    return layers


def _weight_shape(parameters: dict[str, Any]) -> list[int] | None:
    """Dimensions of the parameter ``weight``, or else of the first matrix."""
    matrices = [parameter for parameter in parameters.values() if parameter.dim() > 1]
    weight = parameters.get("weight", matrices[0] if matrices else None)
    return None if weight is None else list(weight.shape)


def _is_lazy(parameter: Any) -> bool:
    """Whether a parameter has no shape before the first step."""
    return type(parameter).__name__.startswith("Uninitialized")
