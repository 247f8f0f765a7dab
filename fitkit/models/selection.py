"""ChosenModel: of several models the one that answers the question best, or all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.blend import Blend
from fitkit.models.columns import drawn_rows, known_numbers, n_rows, sorted_rows, take
from fitkit.models.estimator import Estimator, checked_times, fresh, require_fitted
from fitkit.models.kinds import model_from_dict, model_to_dict
from fitkit.models.parameters import Parameter
from fitkit.splits import Fold, k_fold, scale_chain

if TYPE_CHECKING:
    pass

Question = Literal["interpolation", "scale-up"]
MIN_ROWS = 30  # with fewer, held-out errors scatter too much to choose by
_FOLDS = 5
_NEARLY = 2.0  # times the least error: so good a form could be the right one
_MOST = 2_000  # rows; of more, so many drawn at random choose as well
ALL = "blend"


class ChosenModel(Estimator):
    """A choice among models by their error on rows held out from the training rows.

    How rows are held out is the question: at random for ``interpolation``, the larger scales for
    ``scale-up``, since a model that is best inside the measured range may be worst beyond it. The
    geometric mean of all candidates takes part. Chosen is the first, simplest one whose error
    exceeds the least by no more than one standard error of their difference (Breiman et al.,
    Classification and Regression Trees, 1984). Below 30 rows nothing is chosen: the geometric
    mean of all stands.

    Parameters
    ----------
    candidates
        Models by name, the simplest first.
    question
        ``interpolation`` or ``scale-up``.
    scale
        Column whose larger values are held out for ``scale-up``.

    Attributes
    ----------
    choice_ : str
        Name of the candidate, or ``blend``.
    reason_ : str
        Why, with the errors.
    """

    def __init__(
        self,
        candidates: Mapping[str, Estimator],
        question: Question = "interpolation",
        scale: str = "n_workers",
    ) -> None:
        self.candidates = candidates
        self.question = question
        self.scale = scale

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that its candidates read, and the scale where that is asked for."""
        own = [c for model in self.candidates.values() for c in model.columns]
        return tuple(dict.fromkeys([*own, self.scale] if self.question == "scale-up" else own))

    # -- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Choose, and fit what was chosen to all rows.

        Raises
        ------
        ValueError
            If the question is unknown, a candidate is called ``blend``, the scale holds words, or
            a time is not a positive number.
        FitError
            If no candidate can be fitted.
        """
        _check(self.question, self.candidates)
        rows, times = sorted_rows(X, checked_times(y), self.columns)
        self.best_ = tuple(self.candidates)
        self.choice_, self.reason_ = self._choose(rows, times)
        blend = Blend(dict(self.candidates))
        chosen = blend if self.choice_ == ALL else self.candidates[self.choice_]
        try:
            self.model_ = fresh(chosen).fit(rows, times)
        except FitError:
            self.choice_, self.reason_ = ALL, f"{self.choice_} could not be fitted to all rows"
            self.model_ = fresh(blend).fit(rows, times)
        self.n_obs_, self.dof_ = len(times), self.model_.dof_
        self.noise_ = self.model_.noise_
        self.rivals_ = {} if self.choice_ == ALL else self._rivals(rows, times)
        return self

    def _rivals(self, rows: SimpleNamespace, times: np.ndarray) -> dict[str, Any]:
        """The other candidates that are nearly as good, fitted to all rows."""
        found = {}
        for name in self.best_:
            if name != self.choice_:
                with suppress(FitError):
                    found[name] = fresh(self.candidates[name]).fit(rows, times)
        return found

    def _choose(self, rows: SimpleNamespace, times: np.ndarray) -> tuple[str, str]:
        if len(times) < MIN_ROWS:
            return ALL, f"{len(times)} configurations are too few to choose by, {MIN_ROWS} needed"
        rows, times = drawn_rows(rows, times, _MOST)
        folds = self._folds(rows, len(times))
        if not folds:
            return ALL, f"fewer than three values of {self.scale} up to a quarter of its largest"
        errors = self._held_out_errors(folds, rows, times)
        if not errors:
            return ALL, "no candidate could be fitted without the held-out rows"
        means = {name: float(values.mean()) for name, values in errors.items()}
        best = min(means, key=lambda name: means[name])
        good = {name for name, mean in means.items() if mean <= _NEARLY * means[best]}
        self.best_ = tuple(name for name in self.candidates if name in good)
        name = next(name for name in errors if _as_good(errors[name], errors[best]))
        listed = ", ".join(f"{name} {mean:.1%}" for name, mean in means.items())
        how = "at random" if self.question == "interpolation" else f"by larger {self.scale}"
        return name, f"mean error of rows held out {how}: {listed}; the simplest of the best"

    def _folds(self, rows: SimpleNamespace, n_rows: int) -> list[Fold]:
        if self.question == "interpolation":
            return k_fold(n_rows, _FOLDS)
        scale = known_numbers(rows, [self.scale])
        return scale_chain(getattr(scale, self.scale, np.full(n_rows, np.nan)))

    def _held_out_errors(
        self, folds: Sequence[Fold], rows: SimpleNamespace, times: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Absolute log errors of the held-out rows by candidate, those of the mean last."""
        parts: dict[str, list[np.ndarray]] = {name: [] for name in self.candidates}
        for fold in folds:
            train, test = np.flatnonzero(fold.train), np.flatnonzero(fold.test)
            for name in list(parts):
                try:
                    model = fresh(self.candidates[name]).fit(take(rows, train), times[train])
                except FitError:
                    del parts[name]
                    continue
                with np.errstate(divide="ignore", invalid="ignore"):
                    parts[name].append(np.log(model.predict(take(rows, test)) / times[test]))
        logs = {name: np.concatenate(each) for name, each in parts.items()}
        logs = {name: each for name, each in logs.items() if np.all(np.isfinite(each))}
        if len(logs) > 1:
            logs[ALL] = np.mean(list(logs.values()), axis=0)
        return {name: np.abs(each) for name, each in logs.items()}

    # -- using it --------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``."""
        require_fitted(self, "model_")
        return self.model_.predict(X)

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, in seconds."""
        require_fitted(self, "model_")
        return self.model_.predict_interval(X, level)

    def settled(self) -> Any:
        """What was chosen, as it settled itself."""
        return self.model_.settled()

    def disagreement(self, X: Any) -> np.ndarray:
        """Log of the longest by the shortest time that the best forms give, shape ``(rows,)``.

        The best are those whose held-out error is at most twice the least; below 30 rows, where
        nothing can be judged, all.
        """
        require_fitted(self, "model_")
        forms = dict(self.rivals_)
        if isinstance(self.model_, Blend):
            forms |= {n: m for n, m in self.model_.models_.items() if n in self.best_}
        elif forms:
            forms[self.choice_] = self.model_
        if len(forms) < 2:
            return np.zeros(n_rows(X))
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = [np.log(model.predict(X)) for model in forms.values()]
        return np.ptp(logs, axis=0)

    @property
    def description(self) -> str:
        """What was chosen, and why."""
        if self.choice_ == ALL:
            return f"{self.model_.description}: {self.reason_}"
        return f"{self.choice_}: {self.reason_}"

    @property
    def parameters_(self) -> list[Parameter]:
        """Those of what was chosen."""
        require_fitted(self, "model_")
        return self.model_.parameters_

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "model_")
        return {
            "question": self.question,
            "scale": self.scale,
            "choice": self.choice_,
            "reason": self.reason_,
            "n_obs": self.n_obs_,
            "best": list(self.best_),
            "model": model_to_dict(self.model_),
            "rivals": {name: model_to_dict(model) for name, model in self.rivals_.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        chosen, choice = model_from_dict(state["model"]), str(state["choice"])
        if choice == ALL and not isinstance(chosen, Blend):
            raise ValueError(f"choice {choice!r}, but the model is a {type(chosen).__name__}")
        candidates = dict(chosen.models) if choice == ALL else {choice: chosen}
        model = cls(candidates, state["question"], str(state["scale"]))
        _check(model.question, candidates)
        model.choice_, model.reason_ = choice, str(state["reason"])
        model.model_, model.n_obs_ = chosen, int(state["n_obs"])
        model.best_ = tuple(map(str, state["best"]))
        model.rivals_ = {str(n): model_from_dict(each) for n, each in state["rivals"].items()}
        model.dof_, model.noise_ = chosen.dof_, chosen.noise_
        return model


def _check(question: str, candidates: Mapping[str, Estimator]) -> None:
    if question not in get_args(Question):
        raise ValueError(f"question {question!r}; known: {', '.join(get_args(Question))}")
    if ALL in candidates:
        raise ValueError(f"no candidate can be called {ALL!r}: it is the mean of all")


def _as_good(errors: np.ndarray, least: np.ndarray) -> bool:
    """Whether errors exceed the least by no more than one standard error of the difference."""
    difference = errors - least
    return bool(difference.mean() <= difference.std() / np.sqrt(len(difference)))
