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
from fitkit.models.columns import known_numbers, take
from fitkit.models.designs import View, view_of
from fitkit.models.intervals import t_quantile
from fitkit.models.next_run import best, candidates, covariance, effort, plausible, shown
from fitkit.models.parameters import number, plain

State = Literal["determined", "weak", "open below", "open above", "not determined", "not judged"]
_CLOSE = 2.0  # factor around the estimate within which a parameter is determined
_DEPENDENT = 1e-6  # of the largest singular value, below which directions are not measured
_TOLD = 0.03  # part of a parameter in such a direction from which on it is in doubt
_STRONG = 0.8  # correlation from which on another parameter is named
_INFINITE = 1e12  # condition from which on rounding alone is left
_UNRELATED = 1e5  # standard deviations, by which a direction without data is as good as free
_QUIET = 1e-6  # of the largest time, below which noise is rounding
_SMALLEST = 0.2  # part of the values that a parameter may have for which no promise is made
_TRIALS, _BROKEN = 8, 1  # fits with the run that are tried, and how many may break a promise
_SPREAD = 2.0  # sizes by which a parameter that no run pays may differ from what is believed
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
    why_none
        Why no run is suggested though not all is determined; else empty.
    """

    condition: float
    parameters: tuple[Determination, ...]
    suggestion: Suggestion | None
    why_none: str = ""

    @property
    def undetermined(self) -> list[Determination]:
        """Parameters that are judged and not determined."""
        return [p for p in self.parameters if p.state not in ("determined", "not judged")]

    def lines(self) -> list[str]:
        """All in words: a line for each parameter, and the run."""
        found = [f"{p.term}: {p.words}" for p in self.parameters]
        return [*found, self.next_run] if self.next_run else found

    @property
    def next_run(self) -> str:
        """The run that would tell more, or why none is suggested; empty if nothing is open."""
        if self.suggestion:
            return self.suggestion.words
        return f"no run is suggested: {self.why_none}" if self.why_none else ""

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
            "why_none": self.why_none,
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
            str(state.get("why_none", "")),  # older files do not tell
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
    parameters, condition = _parameters(view)
    return Identifiability(condition, tuple(parameters), *_suggestion(view, parameters, X))


def _parameters(view: View) -> tuple[list[Determination], float]:
    """What is said of each parameter, and the condition."""
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
    return parameters, condition


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
    _, values, right = np.linalg.svd(np.linalg.qr(scaled, mode="r"))
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
    found = covariance(scaled, np.full(n, _UNRELATED))
    size = np.sqrt(np.diag(found))
    strength = np.abs(found / np.outer(size, size))
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


def _suggestion(
    view: View, parameters: Sequence[Determination], X: Any
) -> tuple[Suggestion | None, str]:
    """The run, or why there is none; neither where all is determined."""
    wanted = np.array([p.state not in ("determined", "not judged") for p in parameters])
    if not math.isfinite(view.noise):
        return None, "no row is left over to judge the noise by"
    if not wanted.any():
        return None, ""
    rows = known_numbers(X, view.columns)
    others = candidates(rows, view.columns)
    if others is None:
        return None, "no column that the model reads can be set by itself"
    jacobian, further = view.with_candidates(others)
    usable = np.isfinite(further).all(axis=0) & np.isfinite(jacobian).all(axis=0)
    asked = wanted[usable]
    if not asked.any():
        return None, "a column that the rest needs is null"
    noise = max(view.noise, _QUIET * float(np.abs(jacobian[:, usable]).max()))
    jacobian, further = jacobian[:, usable] / noise, further[:, usable] / noise
    prior = np.full(int(usable.sum()), view.prior)
    row, after = best(jacobian, further, prior, asked, effort(others, rows))
    before = np.diag(covariance(jacobian, prior))
    names = np.array(view.names)[usable]
    sure = _would_be_determined(view, usable, np.sqrt(after), len(jacobian) + 1)
    told = asked & sure & (before > after * 1.05)
    run = take(others, np.array([row]))
    told[told] = _kept(view, jacobian, np.flatnonzero(usable), np.flatnonzero(told), run)
    narrowed = asked & ~told & (before > _NARROWED * after)
    if not (told | narrowed).any():
        return None, "of the runs that were tried none tells more of the rest"
    columns = shown(others, row)
    return Suggestion(columns, tuple(names[told].tolist()), tuple(names[narrowed].tolist())), ""


def _kept(
    view: View, jacobian: np.ndarray, usable: np.ndarray, told: np.ndarray, run: SimpleNamespace
) -> np.ndarray:
    """Which promises most fits keep that are made with the run, shape ``(told,)``.

    The parameters are drawn from what the data leave. Without such fits none is: the bootstrap
    draws without a new run in a third of its draws, so that its bounds seldom shrink for one.
    ``usable`` are the columns of the Jacobian in the view, ``told`` those of the promised ones.
    """
    if view.made is None or not len(told):
        return np.zeros(len(told), dtype=bool)
    sizes = view.sizes[usable]
    at = np.divide(np.nan_to_num(view.estimates[usable]), sizes, where=sizes > 0, out=0 * sizes)
    paid = np.abs(jacobian).max(axis=0) > 0
    draws = plausible(jacobian, np.where(paid, view.prior, _SPREAD), at, _TRIALS)
    noises = np.random.default_rng(1).standard_normal(_TRIALS)
    broken = np.zeros(len(told))
    for draw, noise in zip(draws, noises, strict=True):
        values = np.full(len(view.names), math.nan)
        values[usable] = draw * sizes
        found = _parameters(view.made(run, values, float(noise)))[0]
        broken += [found[usable[k]].state != "determined" for k in told]
        if np.all(broken > _BROKEN):
            break
    return np.asarray(broken <= _BROKEN)


def _would_be_determined(
    view: View, usable: np.ndarray, errors: np.ndarray, n_rows: int
) -> np.ndarray:
    """Which parameters a run would determine in most of what they may turn out to be.

    One that is half as large as believed is known half as well. The promise is kept for all but
    the smallest fifth of the values that the data leave, and where they leave any, for what is
    believed; the interval is as wide as that of `fitkit.models.bootstrap.bounds`.

    Parameters
    ----------
    usable
        Which parameters of the view, shape ``(parameters,)``.
    errors
        Their standard errors after the run, in their own size, shape ``(usable,)``.
    n_rows
        Rows that are fitted then.
    """
    dof = max(n_rows - len(errors), 1)
    reach = t_quantile(0.95, dof) * math.sqrt(n_rows / dof) * errors
    size, low, high = view.sizes[usable], view.low[usable], view.high[usable]
    least = size * reach / (1 - 1 / _CLOSE)
    known = np.isfinite(high) & np.isfinite(low)
    small = np.where(known, low + _SMALLEST * np.where(known, high - low, 0.0), size)
    return np.asarray(least <= small)
