"""RunComposition: the time of a run from what happens once, in each epoch, and in each step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.columns import column, n_rows, number_columns, record, take
from fitkit.models.estimator import Estimator, checked_times, fresh, require_fitted
from fitkit.models.kinds import model_from_dict, model_to_dict
from fitkit.models.parameters import Parameter, number, plain

if TYPE_CHECKING:
    import pandas as pd


Occurrence = Literal["once", "each_epoch", "each_step"]


class RunComposition(Estimator):
    r"""A run as what happens once, what each epoch repeats, and its steps.

    .. math:: T = \sum_{i \in \mathrm{once}} t_i + E \Bigl(\sum_{j \in \mathrm{epoch}} t_j
        + S \sum_{k \in \mathrm{step}} t_k \Bigr)

    with ``n_epochs`` :math:`E` and ``steps_per_epoch`` :math:`S`. Each part is a model of its
    own, fitted to its own measurements, so a part can be exchanged, and a reader sees which one
    dominates: reading the data at the start, for instance, where many nodes share a file system.

    Parameters
    ----------
    once
        Unfitted models by part, such as ``init``, ``launch``, ``teardown``.
    each_epoch
        Of parts such as ``eval``, ``checkpoint``, ``wait``.
    each_step
        Of the step, or of the parts of a step that do not overlap.
    lacking
        What to do with a part that no run measured: ``raise`` a `FitError` that names it, or
        ``drop`` it.
    unless
        By part another that makes it superfluous: it is fitted only where no run measured that.

    Attributes
    ----------
    models_ : dict
        The fitted model of each part.
    unexplained_ : float
        Median share of the measured totals beyond the sum of the parts; NaN if no total was
        given. It is stated, not predicted.

    Examples
    --------
    >>> runs = pd.DataFrame({"n_workers": [1, 2, 4], "init_s": [10.0, 20, 40], "step_s": 0.1})
    >>> model = RunComposition(
    ...     once={"init": LinearModel(["fixed", "server_fan_in"])},
    ...     each_step={"step": LinearModel(["fixed"])},
    ... ).fit(runs)
    >>> asked = pd.DataFrame({"n_workers": [8], "n_epochs": 2, "steps_per_epoch": 100})
    >>> float(model.predict(asked)[0].round(6))  # 80 s, then 200 steps
    100.0
    """

    def __init__(
        self,
        once: Mapping[str, Estimator] | None = None,
        each_epoch: Mapping[str, Estimator] | None = None,
        each_step: Mapping[str, Estimator] | None = None,
        lacking: Literal["raise", "drop"] = "raise",
        unless: Mapping[str, str] | None = None,
    ) -> None:
        self.once = once
        self.each_epoch = each_epoch
        self.each_step = each_step
        self.lacking = lacking
        self.unless = unless

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that its parts read, and the counts."""
        own = [name for _, model in self.parts.values() for name in model.columns]
        return tuple(dict.fromkeys((*own, "n_epochs", "steps_per_epoch")))

    @property
    def parts(self) -> dict[str, tuple[Occurrence, Estimator]]:
        """How often each part occurs, and its unfitted model.

        Raises
        ------
        ValueError
            If there is none, or one is there twice.
        """
        groups = {"once": self.once, "each_epoch": self.each_epoch, "each_step": self.each_step}
        found: dict[str, tuple[Occurrence, Estimator]] = {}
        for often, models in groups.items():
            for name, model in (models or {}).items():
                if name in found:
                    raise ValueError(f"part {name} is in {found[name][0]} and in {often}")
                found[name] = (cast(Occurrence, often), model)
        if not found:
            raise ValueError("a run without parts: give once, each_epoch or each_step")
        return found

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Fit each part to its own times.

        Parameters
        ----------
        X
            A run a row: the columns that the models read, and ``<part>_s``, the seconds of one
            occurrence of each part; null where it was not measured.
        y
            Measured seconds of the whole runs, if known, shape ``(rows,)``. Then also
            ``n_epochs`` and ``steps_per_epoch`` are needed, as far as a part occurs so often.

        Raises
        ------
        ValueError
            If there is no part, a part is there twice, or a time is not a positive number.
        FitError
            If a part was not measured in any run, or cannot be fitted; the message names it.
        """
        rows = record(X)
        self.models_: dict[str, Any] = {}
        for name, (known, times) in self._measured(rows, n_rows(X)).items():
            try:
                fitted = fresh(self.parts[name][1]).fit(take(rows, known), times)
            except FitError as error:
                raise FitError(f"part {name}: {error}", error.hint) from error
            self.models_[name] = fitted
        self._settle()
        self.n_obs_, self.unexplained_ = n_rows(X), float("nan")
        if y is not None:
            total = checked_times(y)
            with np.errstate(invalid="ignore"):
                shares = (total - self.predict(X)) / total
            self.unexplained_ = float(np.nanmedian(shares)) if np.isfinite(shares).any() else np.nan
        return self

    def _measured(
        self, rows: SimpleNamespace, n_rows: int
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Of each part that is to be fitted the rows that measured it, and their seconds."""
        names = {name: f"{name}_s" for name in self.parts}
        for name in names.values() if self.lacking == "raise" else ():
            column(rows, name)
        seconds = vars(number_columns(vars(rows), list(names.values()), n_rows))
        known = {name: _measured_rows(seconds[of_part], of_part) for name, of_part in names.items()}
        if self.lacking == "drop":
            known = {name: at for name, at in known.items() if len(at)}
        if not known:
            raise FitError("no run measured any part", f"give some of {', '.join(names.values())}")
        return {
            name: (known[name], seconds[names[name]][known[name]]) for name in self._needed(known)
        }

    def _needed(self, known: Collection[str]) -> list[str]:
        """Those of the measured parts that no other makes superfluous."""
        others = self.unless or {}
        return [name for name in known if others.get(name) not in known]

    def _of(self, models: Mapping[str, Any], lacking: Literal["raise", "drop"]) -> RunComposition:
        """A composition of those models of parts, each as often as here."""
        groups: dict[Occurrence, dict[str, Estimator]] = {k: {} for k in get_args(Occurrence)}
        for name, model in models.items():
            groups[self.parts[name][0]][name] = model
        return RunComposition(groups["once"], groups["each_epoch"], groups["each_step"], lacking)

    def fitted_of(self, models: Mapping[str, Any], n_obs: int) -> RunComposition:
        """The fitted composition of fitted models of its parts."""
        whole = self._of(models, "drop")
        whole.models_, whole.n_obs_, whole.unexplained_ = dict(models), n_obs, float("nan")
        whole._settle()
        return whole

    def _settle(self) -> None:
        """What follows from the fitted models."""
        kinds = {model.intervals_by for model in self.models_.values()}
        self.intervals_by = "posterior" if kinds == {"posterior"} else "theory"

    def settled(self) -> RunComposition:
        """A composition of what its parts settled on; those that were dropped stay out."""
        require_fitted(self, "models_")
        settled = {name: model.settled() for name, model in self.models_.items()}
        return self._of(settled, "drop")

    def _counts(self, X: Any) -> dict[str, np.ndarray]:
        """Occurrences of each part in each run, shape ``(rows,)``."""
        require_fitted(self, "models_")
        often = {name: self.parts[name][0] for name in self.models_}
        counts = {"once": np.ones(n_rows(X))}
        if {"each_epoch", "each_step"} & set(often.values()):
            counts["each_epoch"] = _count(X, "n_epochs")
        if "each_step" in often.values():
            counts["each_step"] = counts["each_epoch"] * _count(X, "steps_per_epoch")
        return {name: np.broadcast_to(counts[how], (n_rows(X),)) for name, how in often.items()}

    def part_seconds(self, X: Any) -> dict[str, np.ndarray]:
        """Seconds that each part takes in the whole of each run, shape ``(rows,)`` each."""
        counts = self._counts(X)
        return {name: counts[name] * model.predict(X) for name, model in self.models_.items()}

    def shares(self, X: Any) -> dict[str, np.ndarray]:
        """Share of each part in each run, shape ``(rows,)`` each; together one."""
        parts = self.part_seconds(X)
        total = np.sum(list(parts.values()), axis=0)
        return {name: seconds / total for name, seconds in parts.items()}

    def predict(self, X: Any) -> np.ndarray:
        """Seconds of each run, shape ``(rows,)``; NaN where a column is null."""
        return np.asarray(np.sum(list(self.part_seconds(X).values()), axis=0))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new run falls into, shapes ``(rows,)``; in seconds.

        The parts err independently: the distances of their bounds add up as the root of the
        sum of squares. The occurrences of one part err together, since they share its
        parameters: their distances add up. NaN where a part has no interval.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        counts, seconds = self._counts(X), self.part_seconds(X)
        below, above = np.zeros(n_rows(X)), np.zeros(n_rows(X))
        for name, model in self.models_.items():
            low, high = model.predict_interval(X, level)
            below += (seconds[name] - counts[name] * low) ** 2
            above += (counts[name] * high - seconds[name]) ** 2
        total = self.predict(X)
        return np.maximum(total - np.sqrt(below), 0.0), total + np.sqrt(above)

    def drawn(self, X: Any) -> np.ndarray:
        """Seconds of each run by every draw of the parts' parameters, shape ``(draws, rows)``."""
        counts = self._counts(X)
        parts = [counts[name] * model.drawn(X) for name, model in self.models_.items()]
        return np.asarray(sum(parts))

    def disagreement(self, X: Any) -> np.ndarray:
        """Log of the longest by the shortest time that equally good forms of the parts may give.

        Shape ``(rows,)``. A part weighs as much as it takes of the run.
        """
        shares = self.shares(X)
        factors = [
            shares[name] * np.exp(np.minimum(model.disagreement(X), 50.0))
            for name, model in self.models_.items()
        ]
        return np.log(np.sum(factors, axis=0))

    @property
    def description(self) -> str:
        """How the fits of its parts came about."""
        said = {name: model.description for name, model in self.models_.items()}
        return "; ".join(f"{name}: {words}" for name, words in said.items() if words)

    @property
    def parameters_(self) -> list[Parameter]:
        """Parameters of all parts; the name of each begins with that of its part."""
        require_fitted(self, "models_")
        return [
            replace(p, term=f"{name}: {p.term}")
            for name, model in self.models_.items()
            for p in model.parameters_
        ]

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters of all parts: ``part`` and the columns of the models' own."""
        require_fitted(self, "models_")
        import pandas as pd

        frames = [model.params_.assign(part=name) for name, model in self.models_.items()]
        whole = pd.concat(frames, ignore_index=True)
        return whole[["part", *(name for name in whole.columns if name != "part")]]

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "models_")
        return {
            "parts": [
                {"name": name, "occurs": how, "model": model_to_dict(self.models_[name])}
                for name, (how, _) in self.parts.items()
                if name in self.models_
            ],
            "n_obs": self.n_obs_,
            "unexplained": plain(self.unexplained_),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If a part occurs in no way that we know.
        """
        groups: dict[str, dict[str, Any]] = {"once": {}, "each_epoch": {}, "each_step": {}}
        for part in state["parts"]:
            if part["occurs"] not in groups:
                raise ValueError(f"part {part['name']} occurs {part['occurs']!r}")
            groups[part["occurs"]][str(part["name"])] = model_from_dict(part["model"])
        model = cls(groups["once"], groups["each_epoch"], groups["each_step"])
        model.models_ = {name: fitted for name, (_, fitted) in model.parts.items()}
        model._settle()
        model.n_obs_, model.unexplained_ = int(state["n_obs"]), number(state["unexplained"])
        return model


def _measured_rows(times: np.ndarray, name: str) -> np.ndarray:
    """Positions of the known times of a part."""
    if np.any(times <= 0):
        raise ValueError(f"{name} must be positive, or null where it was not measured")
    return np.flatnonzero(np.isfinite(times))


def _count(X: Any, name: str) -> np.ndarray:
    column(X, name)
    counts = getattr(number_columns(vars(record(X)), (name,), n_rows(X)), name)
    if np.any(counts < 0):
        raise ValueError(f"{name} must be a count from 0")
    return np.asarray(counts)
