"""Parameter: what a fit says about one coefficient, and how it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["positive", "zero", "undetermined", "unknown"]
Method = Literal["normal theory", "bootstrap", ""]
_FIGURES = ("estimate", "std_err", "ci_low", "ci_high")


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter with its uncertainty.

    Attributes
    ----------
    std_err
        Standard error by the noise model of the fit.
    ci_low, ci_high
        Confidence bounds; which kind, the model says that was fitted.
    status
        ``positive``; ``zero``: the data put it at the bound; ``undetermined``: the data cannot
        tell its term from others, it was left out; ``unknown``: a column it needs is null.
    method
        How the bounds were found: ``normal theory``; ``bootstrap`` over configurations, see
        `fitkit.models.bootstrap`; or empty, where the model has its own way, or there are none.
    """

    term: str
    estimate: float
    std_err: float
    ci_low: float
    ci_high: float
    unit: str
    status: Status
    method: Method = ""


def parameter_frame(parameters: Sequence[Parameter]) -> pd.DataFrame:
    """Parameters as a frame: the columns are the fields of `Parameter`, in their order."""
    import pandas as pd  # here, so that predicting needs numpy alone

    names = ["term", *_FIGURES, "unit", "status", "method"]
    return pd.DataFrame([vars(parameter) for parameter in parameters], columns=names)


def parameters_to_json(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    """Parameters as plain JSON values; an unknown figure is null."""
    return [{key: plain(value) for key, value in vars(p).items()} for p in parameters]


def parameters_from_json(state: Sequence[Mapping[str, Any]]) -> list[Parameter]:
    """Parameters that `parameters_to_json` described.

    Raises
    ------
    ValueError
        If a figure is infinite, or a status or a method is unknown.
    """
    found = []
    for p in state:
        if p["status"] not in get_args(Status):
            raise ValueError(f"status {p['status']!r}")
        method = p.get("method", "")  # older files do not tell
        if method not in get_args(Method):
            raise ValueError(f"method {method!r}")
        estimate, std_err, low, high = (number(p[key]) for key in _FIGURES)
        term, unit = str(p["term"]), str(p["unit"])
        found.append(Parameter(term, estimate, std_err, low, high, unit, p["status"], method))
    return found


def plain(value: Any) -> Any:
    """A value for JSON, which has no NaN: null stands for it."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def number(value: float | None) -> float:
    """A figure from JSON, null as NaN.

    Raises
    ------
    ValueError
        If it is infinite.
    """
    figure = float("nan") if value is None else float(value)
    if np.isinf(figure):
        raise ValueError("a number is infinite")
    return figure
