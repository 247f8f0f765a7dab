"""Models by kind: how a saved model says which class reads it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

# Imported on use: a saved linear model is read without the modules of the others.
_KINDS = {
    "LinearModel": "linear",
    "OperatorModel": "operators",
    "CarriedModel": "carried",
    "NonlinearModel": "nonlinear",
    "CollectiveModel": "collectives",
    "SharingModel": "sharing",
    "FamilyModel": "family",
    "PooledModel": "pooling",
    "BoostedModel": "residual",
    "Blend": "blend",
    "ChosenModel": "selection",
    "StepComposition": "composition",
    "RunComposition": "run_composition",
}


def model_to_dict(model: Any) -> dict[str, Any]:
    """A fitted model as plain JSON values, with its kind."""
    return {"kind": type(model).__name__, **model.to_dict()}


def model_from_dict(state: Mapping[str, Any]) -> Any:
    """The model that `model_to_dict` described.

    Raises
    ------
    ValueError
        If the kind is unknown, or the model damaged.
    """
    try:
        kind = state["kind"]
        if kind not in _KINDS:
            raise ValueError(f"no kind of model {kind!r}; known: {', '.join(_KINDS)}")
        return getattr(import_module(f"fitkit.models.{_KINDS[kind]}"), kind).from_dict(state)
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"damaged model: {error!r}") from error
