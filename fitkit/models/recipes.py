"""Recipes: the models by name, each a list of terms that a reader can follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitkit.models.columns import is_null, key_text
from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel

if TYPE_CHECKING:
    import pandas as pd

# What must be the same for two measurements to be of one thing.
_PLACE = ("framework", "device", "system", "instrument", "precision", "n_threads")
_NETWORK = ("framework", "network", "n_params", *_PLACE[1:])


@dataclass(frozen=True)
class Recipe:
    """A model by name.

    Attributes
    ----------
    name
        What users type.
    row
        What one row of its frame is.
    target, cpu_target
        Columns of the wall-clock and of the CPU time.
    groups
        Columns that tell apart what has parameters of its own.
    features
        Columns that, with the groups, make up a configuration.
    terms
        Terms of every group, the most certain first.
    work
        Columns that measure the work; the first that is known counts. Perfect scaling is time in
        proportion to it.
    """

    name: str
    row: str
    target: str
    groups: tuple[str, ...]
    features: tuple[str, ...]
    terms: tuple[str, ...]
    work: tuple[str, ...] = ("local_batch",)
    cpu_target: str = "cpu_s"

    @property
    def configuration(self) -> tuple[str, ...]:
        """Columns in which the repetitions of a measurement agree."""
        return tuple(dict.fromkeys((*self.groups, *self.features)))

    def prepare(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the grouping columns that a frame lacks; what is unknown stays null.

        Raises
        ------
        ValueError
            If the frame has none of the columns that the terms need.
        """
        known = [name for name in self.features if name in frame.columns]
        if not known:
            raise ValueError(
                f"recipe {self.name} needs some of the columns {', '.join(self.features)}"
            )
        frame = frame.assign(**{name: None for name in self.groups if name not in frame.columns})
        if "layer_group" in self.groups:
            frame["layer_group"] = layer_groups(frame)
        return frame

    def estimator(self) -> GroupedModel:
        """The unfitted model."""
        return GroupedModel(list(self.groups), LinearModel(list(self.terms), undetermined="drop"))


def layer_groups(frame: pd.DataFrame) -> list[str]:
    """What shares parameters: layers of one type if their shapes are known, else the layer."""
    columns = [
        frame[name] if name in frame.columns else [None] * len(frame)
        for name in ("layer_type", "input_bytes", "network", "layer")
    ]
    return [
        f"{key_text(net)}/{key_text(name)}" if is_null(size) else key_text(kind)
        for kind, size, net, name in zip(*columns, strict=True)
    ]


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="step",
            row="a measured configuration",
            target="step_s",
            groups=_NETWORK,
            features=("n_workers", "n_nodes", "local_batch", "global_batch", "placement"),
            terms=("fixed", "per_sample", "server_fan_in", "log_workers"),
        ),
        Recipe(
            name="phases",
            row="a phase of a run",
            target="duration_s",
            groups=(*_NETWORK, "phase"),
            features=("n_workers", "n_nodes", "local_batch", "global_batch", "placement"),
            terms=("fixed", "per_sample", "server_fan_in"),
        ),
        Recipe(
            name="layers",
            row="a layer, phase and batch",
            target="duration_s",
            groups=(*_PLACE, "layer_group", "phase"),
            features=(
                "network", "layer", "layer_type", "local_batch", "flop", "n_params",
                "weight_shape", "input_bytes", "output_bytes", "input_grad_bytes",
            ),
            terms=(
                "fixed", "flops", "weights", "input_activations", "output_activations",
                "input_gradient", "per_sample",
            ),
            work=("flop", "input_bytes", "local_batch"),
        ),
    )
}  # fmt: skip


def recipe_named(name: str) -> Recipe:
    """The recipe of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in RECIPES:
        raise ValueError(f"no recipe {name!r}; known: {', '.join(RECIPES)}")
    return RECIPES[name]
