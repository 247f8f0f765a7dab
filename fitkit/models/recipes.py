"""Recipes: the models by name, each built of parts that a reader can follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from fitkit.models.collectives import CollectiveModel, link_classes
from fitkit.models.columns import UNKNOWN, Key, key_text, number_columns
from fitkit.models.estimator import Estimator
from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel
from fitkit.models.matching import named_layer
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.operators import OperatorModel
from fitkit.models.pooling import PooledModel
from fitkit.models.residual import BoostedModel
from fitkit.models.run_composition import RunComposition
from fitkit.models.run_models import pooled_run, run_model
from fitkit.models.run_parts import SECONDS, with_parts
from fitkit.models.selection import ChosenModel, Question
from fitkit.models.sharing import SharingModel

if TYPE_CHECKING:
    import pandas as pd

    from fitkit.models.pooled_composition import PooledComposition

# What must be the same for two measurements to be of one thing.
_PLACE = ("framework", "device", "system", "instrument", "precision", "n_threads")
_WHOLE_BITS = 32.0  # of a value that is not quantised
_ROUNDING = 1e-3  # of a quotient that is a whole number
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
    model
        The unfitted model of a group, for a question.
    words
        Columns that the model reads as text.
    apart
        Those of the words whose values were each measured over a range of their own.
    optional
        Columns that the model reads where they are known, row by row.
    work
        Columns that measure the work; the first that is known counts. Perfect scaling is time in
        proportion to it.
    axes
        Columns of which larger values than the measured ones are asked for: along them held-out
        rows tell how predictions err. What lies beyond along others counts along the first.
    counts
        Features that the time is in proportion to by construction: any number of them may be
        asked for.
    measured
        Columns of the times of parts, which the model is fitted to beside the target.
    completed
        Adds to a frame, whose groups are named, the columns that others imply.
    pooled
        What groups of few configurations are fitted with, together with related ones.
    """

    name: str
    row: str
    target: str
    groups: tuple[str, ...]
    features: tuple[str, ...]
    model: Callable[..., Estimator]
    words: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    work: tuple[str, ...] = ("local_batch",)
    cpu_target: str = "cpu_s"
    axes: tuple[str, ...] = ("n_workers", "local_batch")
    counts: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    completed: Callable[[pd.DataFrame, Sequence[str]], pd.DataFrame] | None = None
    pooled: PooledModel | PooledComposition | None = None

    @property
    def configuration(self) -> tuple[str, ...]:
        """Columns in which the repetitions of a measurement agree."""
        return tuple(dict.fromkeys((*self.groups, *self.features)))

    @property
    def places(self) -> tuple[str, ...]:
        """Columns that tell apart what has a measured range of its own."""
        return (*self.groups, *self.apart)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns that the model reads as numbers."""
        read = self.estimator("interpolation").columns
        return tuple(name for name in read if name not in (*self.groups, *self.words))

    def prepare(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add the grouping columns that a frame lacks; what is unknown stays null.

        Raises
        ------
        ValueError
            If the frame has none of the columns that the model needs.
        """
        known = [name for name in self.features if name in frame.columns]
        if not known:
            raise ValueError(
                f"recipe {self.name} needs some of the columns {', '.join(self.features)}"
            )
        columns = {str(name): frame[name].to_numpy() for name in frame.columns}
        missing = {name: None for name in self.groups if name not in frame.columns}
        frame = frame.assign(**missing, **self.implied(columns, len(frame)))
        if "layer_group" in self.groups:
            frame["layer_group"] = layer_groups(frame)
        return frame if self.completed is None else self.completed(frame, self.groups)

    def implied(self, columns: Mapping[str, Any], n_rows: int) -> dict[str, np.ndarray]:
        """Columns of a frame that others imply, where they are null.

        The batch of a worker is its part of the global one; ranks on one node use its own link.
        Workers that average after blocks synchronise less than once in a minibatch; where nothing
        is said of blocks or bits, they do so once, and send whole values.
        """
        found: dict[str, np.ndarray] = {}
        if {"local_batch", "global_batch", "n_workers"} <= set(self.features):
            x = number_columns(columns, ("local_batch", "global_batch", "n_workers"), n_rows)
            part = x.global_batch / np.where(x.n_workers > 0, x.n_workers, np.nan)
            if np.any(np.isnan(x.local_batch) & ~np.isnan(part)):
                found["local_batch"] = np.where(np.isnan(x.local_batch), part, x.local_batch)
        if "topology" in self.words:
            found["topology"] = link_classes(columns, n_rows)
        if "synchronisations" in self.features:
            found |= _synchronised({**columns, **found}, n_rows)
        if "n_steps" in self.features and "n_steps" in columns:
            found["steps_per_epoch"] = _steps_per_epoch(columns, n_rows)
        return found

    def contradictions(self, columns: Mapping[str, Any], n_rows: int) -> np.ndarray:
        """What rows say that cannot be and is not used, in words, shape ``(n_rows,)``; else empty.

        A global batch is what the workers have, once or, where gradients are accumulated, several
        times.
        """
        said = np.full(n_rows, "", dtype=object)
        names = ("local_batch", "n_workers", "global_batch")
        if not set(names) <= {*self.features, *columns} or "global_batch" in self.columns:
            return said
        x = number_columns(columns, names, n_rows)
        with np.errstate(all="ignore"):
            times = x.global_batch / (x.local_batch * x.n_workers)
            odd = np.isfinite(times) & (np.abs(times - np.maximum(np.round(times), 1)) > _ROUNDING)
        for row in np.flatnonzero(odd).tolist():
            n, batch = x.n_workers[row], x.local_batch[row]
            whole = f"global_batch {x.global_batch[row]:g}"
            said[row] = f"{whole} is no multiple of {n:g} times {batch:g} and is not used"
        return said

    def estimator(
        self, question: Question, target: str = "", proven: Mapping[Key, Proven] | None = None
    ) -> GroupedModel:
        """The unfitted model of all groups.

        Parameters
        ----------
        target
            Column to fit; that of a part has the model of the part.
        proven
            By group what is known of its knees, see `fitkit.models.run_models.run_model`.

        Raises
        ------
        ValueError
            If the question is unknown.
        """
        if question not in get_args(Question):
            raise ValueError(f"question {question!r}; known: {', '.join(get_args(Question))}")
        own = {key: self.model(question, *known) for key, known in (proven or {}).items()}
        default, part = self.model(question), target.removesuffix("_s")
        if target not in self.measured:
            return GroupedModel(list(self.groups), default, own, self.pooled)
        whole = {key: cast(RunComposition, model) for key, model in {**own, (): default}.items()}
        parts = {key: model.parts[part][1] for key, model in whole.items()}
        return GroupedModel(list(self.groups), parts.pop(()), parts)


def _synchronised(columns: Mapping[str, Any], n_rows: int) -> dict[str, np.ndarray]:
    """How often the workers of a run synchronise, and with how many bits a value."""
    names = ("local_batch", "block_samples", "synchronisations", "gradient_bits")
    x = number_columns(columns, names, n_rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_block = x.local_batch / x.block_samples
    told = np.where(np.isfinite(of_block), of_block, 1.0)
    return {
        "synchronisations": np.where(np.isnan(x.synchronisations), told, x.synchronisations),
        "gradient_bits": np.where(np.isnan(x.gradient_bits), _WHOLE_BITS, x.gradient_bits),
    }


def _steps_per_epoch(columns: Mapping[str, Any], n_rows: int) -> np.ndarray:
    """Steps of an epoch, also from those of the whole run."""
    x = number_columns(columns, ("n_epochs", "n_steps", "steps_per_epoch"), n_rows)
    epochs = np.where(np.isnan(x.n_epochs), 1.0, x.n_epochs)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.isnan(x.steps_per_epoch), x.n_steps / epochs, x.steps_per_epoch)


def layer_groups(frame: pd.DataFrame) -> list[str]:
    """What shares parameters: layers of one type if their shapes are known, else the layer."""
    columns = [
        frame[name].map(key_text) if name in frame.columns else [UNKNOWN] * len(frame)
        for name in ("layer_type", "input_bytes", "network", "layer")
    ]
    return [
        named_layer(network, layer, kind) if size == UNKNOWN else kind
        for kind, size, network, layer in zip(*columns, strict=True)
    ]


# By part with a proven knee its form, and how many configurations there are to choose by.
Proven = tuple[Mapping[str, str], int]


def _terms(*names: str) -> LinearModel:
    return LinearModel(list(names), "select", undetermined="drop")


def _step(question: Question) -> Estimator:
    """Sums of terms and overlapping sums, the better or all of them; trees for the rest."""
    candidates = {
        "terms": _terms(
            "fixed", "per_sample", "log_workers", "ring_devices", "across_devices",
            "across_nodes", "log_nodes", "pair_sharing", "log_pair_workers",
        ),
        "overlapped": NonlinearModel("overlapped_step"),
        "overlapped in turn": NonlinearModel("overlapped_serial_step"),
    }  # fmt: skip
    chosen = ChosenModel(candidates, question)
    return BoostedModel(chosen, ["local_batch", "n_workers", "n_nodes", "devices_per_node"])


def _pipeline(question: Question) -> Estimator:
    """A physical form; trees where kernels of a shape are faster or slower than it says."""
    form = NonlinearModel("pipelined_transformer")
    return BoostedModel(form, ["hidden_size", "micro_batch", "tensor_parallel"])


def _phases(question: Question) -> Estimator:
    return _terms("fixed", "per_sample", "server_fan_in")


def _layers(question: Question) -> Estimator:
    return OperatorModel(
        [
            "fixed", "flops", "unfolded_input", "weights", "input_activations",
            "output_activations", "input_gradient", "output_gradients", "data_input", "per_sample",
        ]
    )  # fmt: skip


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="step",
            row="a measured configuration",
            target="step_s",
            groups=(*_NETWORK, "family"),
            features=("n_workers", "n_nodes", "local_batch", "global_batch"),
            model=_step,
            pooled=PooledModel([*_NETWORK, "family"], ["network", "device", "system"]),
        ),
        Recipe(
            name="phases",
            row="a phase of a run",
            target="duration_s",
            groups=(*_NETWORK, "phase"),
            features=("n_workers", "n_nodes", "local_batch", "global_batch"),
            model=_phases,
        ),
        Recipe(
            name="layers",
            row="a layer, phase and batch",
            target="duration_s",
            groups=(*_PLACE, "layer_group", "phase"),
            features=(
                "network", "layer", "layer_type", "local_batch", "flop", "n_params",
                "weight_shape", "input_bytes", "output_bytes", "input_grad_bytes",
                "output_grad_bytes", "data_bytes",
            ),
            model=_layers,
            work=("flop", "input_bytes", "local_batch"),
            axes=("local_batch", "flop"),
        ),
        Recipe(
            name="comms",
            row="a collective",
            target="duration_s",
            groups=_PLACE,
            features=("op", "topology", "n_ranks", "n_nodes", "n_bytes"),
            words=("op", "topology"),
            apart=("op", "topology"),
            optional=("topology", "n_nodes"),
            model=lambda question: CollectiveModel(),
            work=("n_bytes",),
            axes=("n_ranks", "n_bytes"),
        ),
        Recipe(
            name="pipeline",
            row="a transformer trained with data, tensor and pipeline parallelism",
            target="step_s",
            groups=_PLACE,
            features=(
                "n_workers", "tensor_parallel", "pipeline_parallel", "micro_batch", "global_batch",
                "hidden_size", "n_heads", "n_layers", "sequence_length",
            ),
            model=_pipeline,
            work=("global_batch",),
            axes=("n_workers", "hidden_size"),
        ),
        Recipe(
            name="run",
            row="a run",
            target="total_s",
            groups=(*_NETWORK, "family"),
            features=(
                "n_workers", "n_nodes", "local_batch", "global_batch", "n_epochs", "n_steps",
                "steps_per_epoch", "dataset_bytes", "gradient_bytes", "gradient_bits",
                "block_samples", "synchronisations",
            ),
            model=run_model,
            work=("worker_samples", "local_batch"),
            axes=("n_workers", "n_nodes"),
            counts=("n_epochs", "steps_per_epoch"),
            measured=SECONDS,
            completed=with_parts,
            pooled=pooled_run([*_NETWORK, "family"], ["network", "device", "system"]),
        ),
        Recipe(
            name="shared",
            row="two jobs on one device",
            target="normalised_throughput",
            groups=("device", "system", "n_workers"),
            features=("job", "neighbour"),
            words=("job", "neighbour"),
            model=lambda question: SharingModel(),
            work=(),
            axes=(),
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
