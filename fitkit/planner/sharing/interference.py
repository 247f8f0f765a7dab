"""What a foreground and a background job keep of their speed while they share a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from fitkit.errors import ExtrapolationWarning, InputError

if TYPE_CHECKING:
    from fitkit.models.performance import PerformanceModel


@dataclass(frozen=True)
class Interference:
    """Speed of each job beside the other, as a share of its speed alone.

    The foreground is slowed by 1 + sigma = 1 / ``foreground``; the background keeps rho =
    ``background``. With a half each they take turns.

    Raises
    ------
    ValueError
        If the foreground's share is not above 0 and up to 1, or the background's not 0 to 1.
    """

    foreground: float
    background: float
    source: str = "given"
    foreground_range: tuple[float, float] | None = None
    background_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not (0 < self.foreground <= 1 and 0 <= self.background <= 1):
            text = f"{self.foreground:g} and {self.background:g}"
            raise ValueError(f"shares of the speed alone must be above 0 and up to 1, not {text}")

    def at_end(self, end: int) -> Self:
        """The low (0) or the high (1) end of both intervals; itself where there are none."""
        if self.foreground_range is None or self.background_range is None:
            return self
        low, high = self.foreground_range[end], self.background_range[end]
        return type(self)(min(low, 1.0), min(high, 1.0), f"{self.source}, {('low', 'high')[end]}")


def fitted_interference(
    model: PerformanceModel, foreground: str, background: str, *, device: str,
    carried_from: str | None = None, level: float = 0.9,
) -> Interference:  # fmt: skip
    """What two jobs keep beside each other, from a fitted ``shared`` model.

    Measured pairs know no priorities between the two; where the GPU prefers the foreground, as
    DeepPool's streams ask it to, it keeps more than this and the background less.

    Parameters
    ----------
    model
        Fitted with recipe ``shared``.
    foreground, background
        Jobs as the pairs name them.
    device
        The cluster's GPU.
    carried_from
        The GPU of the pairs, where it is another and they are to be carried over: with a warning.
    level
        Of the intervals.

    Raises
    ------
    InputError
        If the model is of another recipe, has no pairs of the GPU, or does not know a job.
    """
    if model.recipe.name != "shared":
        text = f"a model of recipe {model.recipe.name}, not of recipe shared"
        raise InputError(text, "fitkit fit PAIRS --recipe shared -o MODEL.json makes one")
    measured_on = devices_of(model)
    of = carried_from or device
    if of not in measured_on:
        known = ", ".join(measured_on)
        text = f"no pairs were measured on {of}; these were on {known}"
        raise InputError(text, "measure pairs there, or carry those of a named GPU over knowingly")
    if of != device:
        text = f"interference measured on {of} is carried to {device}: nothing says that it holds"
        warnings.warn(text, ExtrapolationWarning, stacklevel=2)
    asked = {"job": [foreground, background], "neighbour": [background, foreground]}
    found = _predict(model, asked, of, level)
    shares, low, high = (found[name] for name in ("predicted_s", "low_s", "high_s"))
    return Interference(
        min(float(shares[0]), 1.0),
        min(float(shares[1]), 1.0),
        f"{foreground} beside {background} on {of}" + ("" if of == device else ", carried over"),
        (float(low[0]), float(high[0])),
        (float(low[1]), float(high[1])),
    )


def devices_of(model: PerformanceModel) -> list[str]:
    """The GPUs that a ``shared`` model has pairs of."""
    where = model.recipe.places.index("device")
    return sorted({str(key[where]) for key in model.boxes})


def _predict(
    model: PerformanceModel, asked: Mapping[str, Sequence[str]], device: str, level: float
) -> dict[str, np.ndarray]:
    columns = {name: np.array(words, dtype=object) for name, words in asked.items()}
    columns["device"] = np.array([device] * 2, dtype=object)
    found = model.predict_columns(columns, 2, level=level)
    for job, reason in zip(asked["job"], found["reason"], strict=True):
        if reason or not np.isfinite(found["predicted_s"]).all():
            text = f"{device}: no share of {job}: {reason or 'not measured'}"
            raise InputError(text, "name a job as the pairs do: fitkit show DATASET pairs")
    return found
