"""Which parameters the data determine, by name, and which single run would determine the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from fitkit.display import format_quantity, format_share
from fitkit.models.columns import known_numbers
from fitkit.models.designs import View, view_of
from fitkit.models.guard import doublings, measured_box
from fitkit.models.next_run import best, candidates, shown
from fitkit.models.parameters import number, plain

State = Literal["determined", "weak", "open below", "open above", "not determined", "not judged"]
_CLOSE = 2.0  # factor around the estimate within which a parameter is determined
_DEPENDENT = 1e-6  # of the largest singular value, below which directions are not measured
_TOLD = 0.03  # part of a parameter in such a direction from which on it is in doubt
_STRONG = 0.8  # correlation from which on another parameter is named
_INFINITE = 1e12  # condition from which on rounding alone is left
_FARTHEST = 64.0  # doublings
_NARROWED = 1.1  # factor by which a variance must fall for a run to be worth while


@dataclass(frozen=True)
class Determination:
    """What the data say of a parameter.

    Attributes
    ----------
    state
        ``determined``: to within a factor of two; ``weak``: not so well; ``open below`` or
        ``above``: it could be next to nothing, or any size; ``not determined``: both, or no row
        pays it, or it moves together with others; ``not judged``: a column is null, or no row is
        left over to judge the noise.
    low, high
        Values between which the data leave it; infinite where open above, NaN if not judged.
    rival
        The parameter that it trades off against most; empty where there is none.
    words
        All this in a few words.
    """

    term: str
    state: State
    estimate: float
    low: float
    high: float
    rival: str
    words: str


@dataclass(frozen=True)
class Suggestion:
    """A run that would tell more.

    Attributes
    ----------
    columns
        What to set.
    determines, narrows
        Parameters that it would determine, and others of which it would tell more.
    """

    columns: Mapping[str, float]
    determines: tuple[str, ...]
    narrows: tuple[str, ...]

    @property
    def words(self) -> str:
        """It, as a sentence."""
        run = ", ".join(f"{name} = {value:g}" for name, value in self.columns.items())
        told = [f"determine {', '.join(self.determines)}"] if self.determines else []
        told += [f"narrow {', '.join(self.narrows)}"] if self.narrows else []
        return f"a run with {run} would {' and '.join(told)}"


@dataclass(frozen=True)
class Identifiability:
    """What the data determine of a fitted model.

    Attributes
    ----------
    condition
        Of the weighted design, or of the derivatives of the log time, columns scaled to length
        one; infinite where columns depend on one another.
    parameters
        In the order of the model.
    suggestion
        The single run that would tell most of the rest; None where all are determined, or no run
        that can be set tells more.
    """

    condition: float
    parameters: tuple[Determination, ...]
    suggestion: Suggestion | None

    @property
    def undetermined(self) -> list[Determination]:
        """Parameters that are judged and not determined."""
        return [p for p in self.parameters if p.state not in ("determined", "not judged")]

    def lines(self) -> list[str]:
        """All in words: a line for each parameter, and the run."""
        found = [f"{p.term}: {p.words}" for p in self.parameters]
        return [*found, self.suggestion.words] if self.suggestion else found

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; what is infinite, or no number, is null."""
        return {
            "condition": plain(self.condition),
            "parameters": [
                {key: plain(value) for key, value in vars(p).items()} for p in self.parameters
            ],
            "suggestion": self.suggestion
            and {
                "columns": dict(self.suggestion.columns),
                "determines": list(self.suggestion.determines),
                "narrows": list(self.suggestion.narrows),
            },
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` described.

        Raises
        ------
        ValueError
            If a state is unknown.
        """
        condition = state["condition"]
        told = state["suggestion"]
        return cls(
            math.inf if condition is None else number(condition),
            tuple(_determination(each) for each in state["parameters"]),
            told
            and Suggestion(
                {str(name): number(value) for name, value in told["columns"].items()},
                tuple(map(str, told["determines"])),
                tuple(map(str, told["narrows"])),
            ),
        )


def _determination(each: Mapping[str, Any]) -> Determination:
    if each["state"] not in get_args(State):
        raise ValueError(f"state {each['state']!r}")
    high = number(each["high"])
    if each["state"] != "not judged" and math.isnan(high):
        high = math.inf
    return Determination(
        str(each["term"]), each["state"], number(each["estimate"]), number(each["low"]), high,
        str(each["rival"]), str(each["words"]),
    )  # fmt: skip


# -- judging -------------------------------------------------------------------------------


def judge(model: Any, X: Any, y: ArrayLike, level: float = 0.9) -> Identifiability | None:
    """Judge by the rows that a model was fitted to which of its parameters they determine.

    Parameters
    ----------
    model
        A fitted model. Of one that holds others, that whose parameters it shows is judged.
    X, y
        Rows and seconds, shapes ``(rows, ...)`` and ``(rows,)``.
    level
        Of the profile intervals.

    Returns
    -------
    Identifiability or None
        None for a model that has no sum of terms and no form.
    """
    rise = NormalDist().inv_cdf(0.5 + level / 2) ** 2
    view = view_of(_shown_model(model), X, np.asarray(y, dtype=float), rise)
    if view is None:
        return None
    judged = np.flatnonzero(np.isfinite(view.jacobian).all(axis=0))
    lengths = np.linalg.norm(view.jacobian[:, judged], axis=0)
    paid = judged[lengths > 0]
    condition, doubtful = _dependence(view.jacobian[:, paid])
    rivals = _rivals(view.jacobian[:, paid], doubtful)
    parameters = []
    for k in range(len(view.names)):
        at = int(np.flatnonzero(paid == k)[0]) if k in paid else -1
        partner, strength = rivals[at] if at >= 0 else (-1, 0.0)
        rival = view.names[paid[partner]] if partner >= 0 and strength >= _STRONG else ""
        together = at >= 0 and bool(doubtful[:, at].any())
        parameters.append(_determined(view, k, rival, together, condition))
    return Identifiability(condition, tuple(parameters), _suggestion(view, parameters, X))


def _shown_model(model: Any) -> Any:
    """The model whose parameters a model shows."""
    while True:
        if hasattr(model, "model_"):
            model = model.model_
        elif hasattr(model, "models_"):
            model = next(iter(model.models_.values()))
        else:
            return model


def _dependence(jacobian: np.ndarray) -> tuple[float, np.ndarray]:
    """Condition, and which parameters each direction without data moves, shape ``(dirs, n)``."""
    if not jacobian.shape[1]:
        return math.inf, np.zeros((0, 0), dtype=bool)
    scaled = jacobian / np.linalg.norm(jacobian, axis=0)
    _, values, right = np.linalg.svd(scaled, full_matrices=True)
    values = np.concatenate([values, np.zeros(right.shape[0] - len(values))])
    condition = float(values[0] / values[-1]) if values[-1] > values[0] / _INFINITE else math.inf
    empty = values <= _DEPENDENT * values[0]
    return condition, np.abs(right[empty]) > _TOLD


def _rivals(jacobian: np.ndarray, doubtful: np.ndarray) -> list[tuple[int, float]]:
    """For each parameter the one that it is correlated with most, and how strongly."""
    n = jacobian.shape[1]
    if n < 2:
        return [(-1, 0.0)] * n
    scaled = jacobian / np.linalg.norm(jacobian, axis=0)
    covariance = np.linalg.inv(scaled.T @ scaled + 1e-10 * np.eye(n))
    size = np.sqrt(np.diag(covariance))
    strength = np.abs(covariance / np.outer(size, size))
    np.fill_diagonal(strength, 0.0)
    for direction in doubtful:
        strength[np.ix_(direction, direction)] += 1.0 - np.eye(int(direction.sum()))
    partners = strength.argmax(axis=1)
    return [(int(k), float(strength[row, k])) for row, k in enumerate(partners)]


def _determined(view: View, k: int, rival: str, together: bool, condition: float) -> Determination:
    """What is said of one parameter."""
    name, estimate, low, high = view.names[k], view.estimates[k], view.low[k], view.high[k]
    nan = math.nan
    if not np.all(np.isfinite(view.jacobian[:, k])):
        said = "not judged: a column that it needs is null"
        return Determination(name, "not judged", estimate, nan, nan, "", said)
    if not np.any(view.jacobian[:, k]):
        said = "not determined: no run pays it"
        return Determination(name, "not determined", estimate, 0.0, math.inf, "", said)
    if together:
        size = "" if math.isinf(condition) else f" (condition {condition:.0e})"
        said = f"not determined: {name}, {rival} move together{size}"
        return Determination(name, "not determined", estimate, low, high, rival, said)
    if not (math.isfinite(view.noise) and not math.isnan(high)):
        said = "not judged: no row is left over to judge the noise"
        return Determination(name, "not judged", estimate, nan, nan, rival, said)
    state, said = _state(view, k)
    if state != "determined" and rival:
        said += f"; trades off against {rival}"
    return Determination(name, state, estimate, low, high, rival, said)


def _state(view: View, k: int) -> tuple[State, str]:
    estimate, low, high = view.estimates[k], view.low[k], view.high[k]
    if not estimate > 0:  # a term at its bound
        most = format_share(view.share(k, high))
        said = f"at most {format_quantity(high, view.units[k])}, {most} of the time"
        if view.share(k, high) <= view.nothing:
            return "determined", f"determined: nothing, {said}"
        return "open below", f"open below: {said}"
    if view.open_below[k] and view.open_above[k]:
        return "not determined", "not determined: any size fits as well"
    if view.open_below[k]:
        return "open below", f"open below: at most {high / estimate:.2g} times the estimate"
    if view.open_above[k]:
        return "open above", f"open above: at least {low / estimate:.2g} times the estimate"
    if high <= _CLOSE * estimate and low >= estimate / _CLOSE:
        within = max(high / estimate - 1, 1 - low / estimate)
        return "determined", f"determined (to within {within:.0%})"
    return "weak", f"weak: {low / estimate:.2g} to {high / estimate:.2g} times the estimate"


# -- the run that would tell more ----------------------------------------------------------


def _suggestion(view: View, parameters: Sequence[Determination], X: Any) -> Suggestion | None:
    wanted = np.array([p.state not in ("determined", "not judged") for p in parameters])
    rows = known_numbers(X, view.columns)
    others = candidates(rows, view.columns) if wanted.any() else None
    if others is None or not view.noise > 0:
        return None
    jacobian, further = view.with_candidates(others)
    usable = np.isfinite(further).all(axis=0) & np.isfinite(jacobian).all(axis=0)
    asked = wanted[usable]
    if not asked.any():
        return None
    jacobian, further = jacobian[:, usable] / view.noise, further[:, usable] / view.noise
    prior = np.full(int(usable.sum()), view.prior)
    row, after = best(jacobian, further, prior, asked, _effort(others, rows))
    before = np.diag(np.linalg.inv(jacobian.T @ jacobian + np.diag(prior**-2.0)))
    reach = NormalDist().inv_cdf(0.95) * np.sqrt(after)
    names = np.array(view.names)[usable]
    told = asked & (reach <= math.log(_CLOSE)) & (before > after * 1.05)
    narrowed = asked & ~told & (before > _NARROWED * after)
    if not (told | narrowed).any():
        return None
    return Suggestion(
        shown(others, row), tuple(names[told].tolist()), tuple(names[narrowed].tolist())
    )


def _effort(others: SimpleNamespace, rows: SimpleNamespace) -> np.ndarray:
    """Doublings outside of what was measured, and where none, the size of the run."""
    total = np.zeros(len(next(iter(vars(others).values()))))
    outside = doublings(measured_box(vars(rows)), vars(others), one_value_is_a_scale=True)
    for name, values in vars(others).items():
        total += np.minimum(outside[name], _FARTHEST)  # zero has no doublings
        total += 1e-3 * np.log2(np.maximum(values, 1.0))
    return total
