"""Parameter: what a fit says about one coefficient, and how it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["positive", "zero", "undetermined", "unknown"]
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
    """

    term: str
    estimate: float
    std_err: float
    ci_low: float
    ci_high: float
    unit: str
    status: Status


def parameter_frame(parameters: Sequence[Parameter]) -> pd.DataFrame:
    """Parameters as a frame: ``term, estimate, std_err, ci_low, ci_high, unit, status``."""
    import pandas as pd  # here, so that predicting needs numpy alone

    names = ["term", *_FIGURES, "unit", "status"]
    return pd.DataFrame([vars(parameter) for parameter in parameters], columns=names)


def parameters_to_json(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    """Parameters as plain JSON values; an unknown figure is null."""
    return [{key: plain(value) for key, value in vars(p).items()} for p in parameters]


def parameters_from_json(state: Sequence[Mapping[str, Any]]) -> list[Parameter]:
    """Parameters that `parameters_to_json` described.

    Raises
    ------
    ValueError
        If a figure is infinite, or a status is unknown.
    """
    found = []
    for p in state:
        if p["status"] not in get_args(Status):
            raise ValueError(f"status {p['status']!r}")
        figures = {key: number(p[key]) for key in _FIGURES}
        found.append(
            Parameter(term=str(p["term"]), unit=str(p["unit"]), status=p["status"], **figures)
        )
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
