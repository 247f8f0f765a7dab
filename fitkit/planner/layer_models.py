"""Time of each layer by a fitted model of recipe ``layers``."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitkit.errors import InputError
from fitkit.models.performance import PerformanceModel
from fitkit.planner.layer_curves import PHASES, LayerModel, LayerTimes, MeasuredLayers
from fitkit.planner.network import Network

Floats = NDArray[np.float64]
_LEVEL = 0.9
_SCALED = ("flop", "input_bytes", "output_bytes", "input_grad_bytes", "output_grad_bytes")


@dataclass(frozen=True, eq=False)
class ModelledLayers:
    """The layers of any network by a model that was fitted to layers.

    The intervals of the model are its doubt: the errors of a layer at all its batches go
    together, those of two layers do not.

    Parameters
    ----------
    model
        Fitted with recipe ``layers``.
    device
        Whose times; not needed where one was measured.

    Raises
    ------
    ValueError
        If the model is of another recipe.
    """

    model: PerformanceModel
    device: str | None = None

    def __post_init__(self) -> None:
        if self.model.recipe.name != "layers":
            name = self.model.recipe.name
            raise ValueError(f"a model of recipe {name!r}: times of layers need recipe 'layers'")

    @property
    def phases(self) -> list[str]:
        """Phases that the model knows, in the order of a step."""
        place = self.model.recipe.groups.index("phase")
        known = {key[place] for key in self.model.estimator.groups_}
        return [phase for phase in PHASES if phase in known]

    def times(
        self, network: Network, batches: Floats, *, estimate_missing: bool = False
    ) -> tuple[list[LayerTimes], tuple[str, ...]]:
        """Times of each layer of a network; see `LayerModel`.

        Parameters
        ----------
        estimate_missing
            Also answer where the model would refuse, since it lies too far outside.
        """
        phases = self.phases
        asked = self._rows(network, batches, phases)
        found = self._predicted(asked, estimate_missing)
        shape = len(network.layers), len(phases), len(batches)
        seconds = found["predicted_s"].reshape(shape)
        lacking = np.argwhere(~np.isfinite(seconds))
        if len(lacking):
            layer, phase, batch = lacking[0].tolist()
            raise InputError(
                f"{network.name}: layer {network.layers[layer].name}, {phases[phase]} at batch "
                f"{batches[batch]:g}: {found['reason'].reshape(shape)[layer, phase, batch]}",
                "measure it and fit again, or ask for estimates, which are flagged",
            )
        outside = (found["status"].reshape(shape) != "inside").any(axis=1)
        z = NormalDist().inv_cdf(0.5 + _LEVEL / 2)
        with np.errstate(invalid="ignore"):
            scatter = np.log(found["high_s"] / found["predicted_s"]).reshape(shape) / z
        doubt = (np.nan_to_num(scatter) * seconds).sum(axis=1) / seconds.sum(axis=1)
        forward = seconds[:, phases.index("forward")] if "forward" in phases else None
        times = [
            LayerTimes(
                seconds[i].sum(axis=0), outside[i], doubt[i][None],
                None if forward is None else forward[i],
            ).called(layer.n_calls)
            for i, layer in enumerate(network.layers)
        ]  # fmt: skip
        unsure = int(np.isnan(scatter).any(axis=(1, 2)).sum())
        said = f"{unsure} layers have no interval: draws keep their times as they are"
        return times, (said,) if unsure else ()

    def _rows(
        self, network: Network, batches: Floats, phases: list[str]
    ) -> dict[str, NDArray[Any]]:
        """Columns of a row for each layer, phase and batch."""
        layers, has_input = network.layers, {edge.dst for edge in network.edges}
        given = [self._sizes(network, i, i in has_input) for i in range(len(layers))]
        n_each = len(phases) * len(batches)
        batch = np.tile(batches, len(layers) * len(phases))
        phase = np.tile(np.repeat(np.array(phases, dtype=object), len(batches)), len(layers))
        columns: dict[str, NDArray[Any]] = {
            name: np.repeat(np.array([sizes[name] for sizes in given], dtype=float), n_each)
            for name in given[0]
        }
        for name in _SCALED:
            columns[name] = columns[name] * batch
        # Backward has a second product where an earlier layer needs the gradient of the input.
        twice = (phase == "backward") & (columns["input_grad_bytes"] > 0)
        columns["flop"] = columns["flop"] * (1.0 + twice)
        if not self._forward_says_gradients():
            columns["input_grad_bytes"][phase != "backward"] = 0.0
        words = {
            "layer": [one.name for one in layers],
            "layer_type": [o.layer_type for o in layers],
        }
        for name, values in words.items():
            columns[name] = np.repeat(np.array(values, dtype=object), n_each)
        columns["network"] = np.full(len(batch), network.name, dtype=object)
        if self.device is not None:
            columns["device"] = np.full(len(batch), self.device, dtype=object)
        return {**columns, "phase": phase, "local_batch": batch}

    def _forward_says_gradients(self) -> bool:
        """Whether rows of forward calls held the size of the input's gradient, as some logs do."""
        ranges = [
            box["input_grad_bytes"]
            for key, box in self.model.boxes.items()
            if "forward" in key and "input_grad_bytes" in box
        ]
        return any(high > 0 for _, high in ranges)

    def _sizes(self, network: Network, index: int, has_input: bool) -> dict[str, float]:
        """Sizes of one sample; NaN where unknown."""
        layer = network.layers[index]
        known = {
            "flop": layer.flop, "n_params": layer.n_params,
            "input_bytes": layer.input_bytes, "output_bytes": layer.output_bytes,
        }  # fmt: skip
        sizes = {name: np.nan if value is None else float(value) for name, value in known.items()}
        sizes["input_grad_bytes"] = sizes["input_bytes"] if has_input else 0.0
        leaving = [edge for edge in network.edges if edge.src == index]
        sizes["output_grad_bytes"] = sizes["output_bytes"] * len(leaving)
        return sizes

    def _predicted(
        self, asked: dict[str, NDArray[Any]], estimate_missing: bool
    ) -> dict[str, NDArray[Any]]:
        """Predictions; a layer that is known by its name alone is asked for by its batch alone."""
        boxes = self.model.boxes.values()
        unread = set(self.model.recipe.columns) - {name for box in boxes for name in box}
        n_rows = len(asked["local_batch"])
        asked = {name: values for name, values in asked.items() if name not in unread}
        found = self.model.predict_columns(
            asked, n_rows, level=_LEVEL, allow_extrapolation=estimate_missing
        )
        sizes = set(self.model.recipe.columns) - {"local_batch"}
        plain = {name: values for name, values in asked.items() if name not in sizes}
        refused = found["status"] == "refused"
        if refused.any() and len(plain) < len(asked):
            again = self.model.predict_columns(
                {name: values[refused] for name, values in plain.items()},
                int(refused.sum()), level=_LEVEL, allow_extrapolation=estimate_missing,
            )  # fmt: skip
            better = again["status"] != "refused"
            places = np.flatnonzero(refused)[better]
            for name, values in again.items():
                found[name][places] = values[better]
        return found


def layer_model(
    data: LayerModel | PerformanceModel | pd.DataFrame, device: str | None = None
) -> LayerModel:
    """A model of layer times from what a user has: a fitted model, or measured rows."""
    if isinstance(data, PerformanceModel):
        return ModelledLayers(data, device)
    if isinstance(data, pd.DataFrame):
        return MeasuredLayers.fit(data, device=device)
    return data
