"""BoostedModel: a model, and boosted trees for what it leaves, which fade outside the measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.columns import known_numbers, n_rows, sorted_rows
from fitkit.models.estimator import Estimator, checked_times, fresh, require_fitted
from fitkit.models.guard import doublings, farthest, measured_box
from fitkit.models.intervals import log_interval
from fitkit.models.kinds import model_from_dict, model_to_dict
from fitkit.models.parameters import Parameter, number, plain
from fitkit.models.regression import absurd
from fitkit.models.terms import TERMS, needed_columns
from fitkit.noise import far_above
from fitkit.splits import k_fold

if TYPE_CHECKING:
    pass

MIN_ROWS = 40  # with fewer, trees follow the noise
_MOST_STRAGGLERS = 0.2  # of the rows; more are no accident
_MAX_ROWS = 20_000  # of more, so many drawn at random say the same about a smooth residual
_TREES = {
    "n_estimators": 100, "max_depth": 4, "learning_rate": 0.1, "min_samples_leaf": 3,
    "subsample": 0.5, "random_state": 0,
}  # fmt: skip
_FOLDS = 3  # to learn how rows scatter that trees did not see
_PREDICTED = 2**16  # rows predicted at a time
_BLOCK = 512  # rows that go through all trees at a time: their nodes stay in the cache
_NOTHING = 2e-5  # of a log time: no clock tells it, and its digits differ between Pythons
_DIGITS = 9  # what differs from one library version to the next must not decide a split


class BoostedModel(Estimator):
    r"""A model times what boosted trees learnt of the ratio of measured to predicted time.

    .. math:: \hat t(x) = t_0(x) \exp\left(2^{-d(x)} f(x')\right)

    with :math:`d` the doublings by which a row lies outside the measured box and :math:`x'` the
    row moved to the box: trees know nothing outside, and what they add fades by half with each
    doubling. Gradient boosting of squares (Friedman, Annals of Statistics 29, 2001).

    Rows above the median ratio by more than 6 MAD are stragglers, and so are those above what
    trees grown without them predict: they neither teach the trees, which would repeat a single
    one (a robust loss alone withstands few), nor widen the intervals; the same goes for rows that
    are `absurd`, above or below. Where more than a fifth of
    the rows lie so high, the model is wrong there, and all rows count.

    Parameters
    ----------
    model
        What is fitted first.
    features
        Columns, or terms, that the trees split on.
    min_rows
        With fewer rows, or fewer than six, there are no trees.
    folds
        In how many parts rows are held out from trees, to learn how they scatter; with 0 they
        are not, ``noise_`` is that of the model below, and a row can be told to be a straggler by
        the model below only.

    Attributes
    ----------
    model_ : Estimator
        The fitted model below the trees.
    trees_ : Trees or None
        What was learnt; None below ``min_rows``.
    noise_ : float
        Standard deviation of the log residuals of rows that were held out from the trees.
    """

    def __init__(
        self,
        model: Estimator,
        features: Sequence[str],
        min_rows: int = MIN_ROWS,
        folds: int = _FOLDS,
    ) -> None:
        self.model = model
        self.features = features
        self.min_rows = min_rows
        self.folds = folds

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        terms = [name for name in self.features if name in TERMS]
        plain_columns = [name for name in self.features if name not in TERMS]
        own = (*self.model.columns, *plain_columns, *needed_columns(terms))
        return tuple(dict.fromkeys(own))

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the model, then trees to the log of the ratio.

        Raises
        ------
        ValueError
            If a feature holds words, or a time is not a positive number.
        FitError
            If the model cannot be fitted, or gives a row that trees need no time.
        """
        rows, times = sorted_rows(X, checked_times(y), self.columns)
        self.model_ = fresh(self.model).fit(rows, times)
        self.n_obs_, self.dof_, self.noise_ = len(times), self.model_.dof_, self.model_.noise_
        columns = known_numbers(rows, self._own_columns)
        self.box_, self.trees_ = measured_box(vars(columns)), None
        if len(times) >= max(self.min_rows, 2 * _FOLDS) and self.box_:
            residuals = self._residuals(rows, times)
            places = self._places(columns, len(times))
            taught = _plausible(residuals)
            places, residuals = places[taught], residuals[taught]
            if self.folds:
                left = _held_out(places, residuals, self.folds)
                # What the error of the model below cannot tell, that of the trees can.
                taught = _plausible(left)
                places, residuals, left = places[taught], residuals[taught], left[taught]
                self.noise_ = _spread(left, self.dof_)
            self.trees_ = _grow(places, residuals)
        return self

    def _residuals(self, rows: SimpleNamespace, times: np.ndarray) -> np.ndarray:
        predicted = self.model_.predict(rows)
        if not np.all(np.isfinite(predicted) & (predicted > 0)):
            raise FitError(
                "the model below the trees gives rows a time that is null or not positive",
                "leave these rows out, or choose another model",
            )
        return np.round(np.log(times / predicted), _DIGITS)

    @property
    def _own_columns(self) -> list[str]:
        terms = needed_columns([name for name in self.features if name in TERMS])
        return list(dict.fromkeys([*(n for n in self.features if n not in TERMS), *terms]))

    def _places(self, columns: SimpleNamespace, rows: int) -> np.ndarray:
        """Features in doublings, shape ``(rows, features)``; a null counts as zero."""
        found = []
        for name in self.features:
            values = getattr(columns, name, 0.0)
            if name in TERMS:
                values = TERMS[name].amount(columns, rows)
            found.append(np.broadcast_to(np.nan_to_num(values), (rows,)))
        places = np.log2(1.0 + np.maximum(np.column_stack(found), 0.0))
        return np.round(places, _DIGITS)

    # -- using it --------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``.

        Raises
        ------
        ValueError
            If a feature holds words.
        """
        require_fitted(self, "box_")
        seconds = np.array(self.model_.predict(X))
        if self.trees_ is None:
            return seconds
        columns = known_numbers(X, list(self.box_))
        for start in range(0, len(seconds), _PREDICTED):  # so that the memory stays small
            rows = slice(start, start + _PREDICTED)
            part = SimpleNamespace(**{name: v[rows] for name, v in vars(columns).items()})
            seconds[rows] *= np.exp(self._learnt(self.trees_, part, len(seconds[rows])))
        return seconds

    def _learnt(self, trees: Trees, columns: SimpleNamespace, rows: int) -> np.ndarray:
        box = {name: self.box_[name] for name in vars(columns)}
        distance = farthest(doublings(box, vars(columns)), rows)
        for name, values in vars(columns).items():
            setattr(columns, name, np.clip(values, *self.box_[name]))
        return 0.5**distance * trees.predict(self._places(columns, rows))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into; with trees, see `log_interval`."""
        require_fitted(self, "box_")
        if self.trees_ is None:
            return self.model_.predict_interval(X, level)
        return log_interval(self.predict(X), self.noise_, self.dof_, level)

    def settled(self) -> Self:
        """Trees over what the model below settled on; how they scatter, others will judge."""
        return type(self)(self.model_.settled(), self.features, self.min_rows, 0)

    def disagreement(self, X: Any) -> np.ndarray:
        """Of the forms of the model below the trees, shape ``(rows,)``."""
        return self.model_.disagreement(X)

    def relative_width(self, X: Any) -> np.ndarray:
        """Of the interval's logarithm, which with trees is as wide everywhere."""
        if self.trees_ is None:
            return self.model_.relative_width(X)
        return np.full(n_rows(X), self.noise_)

    @property
    def description(self) -> str:
        """How the model below came about, and whether there are trees."""
        trees = (
            f"no trees: {self.n_obs_} configurations, {self.min_rows} needed"
            if self.trees_ is None
            else f"{len(self.trees_.feature)} boosted trees for the rest"
        )
        return "; ".join(part for part in (self.model_.description, trees) if part)

    @property
    def parameters_(self) -> list[Parameter]:
        """Those of the model below the trees."""
        require_fitted(self, "model_")
        return self.model_.parameters_

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "box_")
        return {
            "model": model_to_dict(self.model_),
            "features": list(self.features),
            "min_rows": self.min_rows,
            "n_obs": self.n_obs_,
            "dof": self.dof_,
            "noise": plain(self.noise_),
            "box": {name: list(bounds) for name, bounds in self.box_.items()},
            "trees": None if self.trees_ is None else self.trees_.to_dict(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        below = model_from_dict(state["model"])
        model = cls(below, [str(n) for n in state["features"]], int(state["min_rows"]))
        model.model_ = below
        model.n_obs_, model.dof_ = int(state["n_obs"]), int(state["dof"])
        model.noise_ = number(state["noise"])
        model.box_ = {n: (number(low), number(high)) for n, (low, high) in state["box"].items()}
        own = model._own_columns
        if not all(n in own and low <= high for n, (low, high) in model.box_.items()):
            raise ValueError("box: a column that is no feature, or a range upside down")
        trees = state["trees"]
        model.trees_ = None if trees is None else Trees.from_dict(trees, len(model.features))
        return model


@dataclass(frozen=True)
class Trees:
    """A sum of regression trees as arrays, one row for each tree; leaves point at themselves.

    Attributes
    ----------
    initial
        Where the sum starts.
    feature, left, right
        Feature that a node splits on and its children, shape ``(trees, nodes)``.
    threshold, value
        A row goes left where its feature is at most the threshold; value of each node.
    depth
        Splits from the root to the farthest leaf.
    """

    initial: float
    feature: np.ndarray
    left: np.ndarray
    right: np.ndarray
    threshold: np.ndarray
    value: np.ndarray
    depth: int

    def predict(self, places: np.ndarray) -> np.ndarray:
        """The sum for each row of ``places``, shape ``(rows,)``."""
        places = places.astype(np.float32)  # as they were grown
        n_nodes = self.feature.shape[1]
        roots = n_nodes * np.arange(len(self.feature))[:, np.newaxis]
        children = np.stack([self.right + roots, self.left + roots], axis=-1).ravel()
        total = np.empty(len(places))
        for start in range(0, len(places), _BLOCK):
            block = places[start : start + _BLOCK]
            rows, values = np.arange(len(block)), block.T.ravel()
            first = self.feature.ravel() * len(block)  # where the values of a feature begin
            node = np.broadcast_to(roots, (len(roots), len(block)))
            for _ in range(self.depth):
                value = np.take(values, np.take(first, node) + rows)
                goes_left = value <= np.take(self.threshold, node)
                node = np.take(children, 2 * node + goes_left)
            # Summed tree by tree, whatever the number of rows: alone a row gets the same time.
            leaves = np.cumsum(np.take(self.value, node), axis=0)
            total[start : start + _BLOCK] = self.initial + leaves[-1]
        return total

    def to_dict(self) -> dict[str, Any]:
        """The trees as plain JSON values."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return {"initial": self.initial, "depth": self.depth, **arrays}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], n_features: int) -> Self:
        """The trees that `to_dict` described.

        Raises
        ------
        ValueError
            If they are no trees: a child before its parent, a number that is none.
        """
        arrays: dict[str, Any] = {
            name: np.array(state[name], dtype=kind) for name, kind in _ARRAYS.items()
        }
        shape = arrays["feature"].shape
        if len(shape) != 2 or any(array.shape != shape for array in arrays.values()):
            raise ValueError("trees of unequal shape")
        for name, limit in (("feature", n_features), ("left", shape[1]), ("right", shape[1])):
            if arrays[name].min() < 0 or arrays[name].max() >= limit:
                raise ValueError(f"trees: {name} out of range")
        if not all(np.all(np.isfinite(arrays[name])) for name in ("threshold", "value")):
            raise ValueError("trees: a number is none")
        initial, depth = number(state["initial"]), _depth(arrays["left"], arrays["right"])
        if not np.isfinite(initial) or state["depth"] != depth:
            raise ValueError("trees: another depth, or no start")
        return cls(initial=initial, depth=depth, **arrays)


_ARRAYS = {"feature": int, "left": int, "right": int, "threshold": float, "value": float}


def _depth(left: np.ndarray, right: np.ndarray) -> int:
    """Splits from the root to the farthest node; children come behind their parents."""
    own, trees = np.arange(left.shape[1]), np.arange(len(left))
    leaf = (left == own) & (right == own)
    if not np.all(leaf | ((left > own) & (right > own))):
        raise ValueError("trees: a child that is not behind its parent")
    level = np.zeros(left.shape, dtype=int)
    for node in own:
        for child in (left[:, node], right[:, node]):
            below = level[:, node] + ~leaf[:, node]
            level[trees, child] = np.maximum(level[trees, child], below)
    return int(level.max())


def _spread(left: np.ndarray, dof: int) -> float:
    return float(np.sqrt((left**2).sum() / dof)) if dof > 0 else float("nan")


def _held_out(places: np.ndarray, residuals: np.ndarray, folds: int) -> np.ndarray:
    """What trees leave of rows that they did not see, shape ``(rows,)``."""
    left = np.empty(len(residuals))
    for fold in k_fold(len(residuals), folds):
        trees = _grow(places[fold.train], residuals[fold.train])
        left[fold.test] = residuals[fold.test] - trees.predict(places[fold.test])
    return left


def _plausible(residuals: np.ndarray) -> np.ndarray:
    """Rows that are no stragglers, nor absurd, shape ``(rows,)``."""
    off = far_above(residuals) | absurd(residuals)
    return ~off if off.mean() <= _MOST_STRAGGLERS else np.ones(len(off), dtype=bool)


def _grow(places: np.ndarray, residuals: np.ndarray) -> Trees:
    """Trees for the residuals; neither the order of the rows nor that of equal ones matters."""
    from sklearn import config_context
    from sklearn.ensemble import GradientBoostingRegressor  # over a second that predicting spares

    order = np.lexsort((residuals, *places.T))
    if len(order) > _MAX_ROWS:
        drawn = np.random.default_rng(0).choice(len(order), _MAX_ROWS, replace=False)
        order = order[np.sort(drawn)]
    with config_context(skip_parameter_validation=True):  # of every tree, a fifth of the time
        grown = GradientBoostingRegressor(**_TREES).fit(places[order], residuals[order])
    trees = [tree.tree_ for tree in grown.estimators_[:, 0]]
    size = max(tree.node_count for tree in trees)
    own = np.tile(np.arange(size), (len(trees), 1))
    found = Trees(
        initial=float(grown.init_.constant_[0, 0]),
        feature=np.zeros_like(own),
        left=own,
        right=own.copy(),
        threshold=np.zeros(own.shape),
        value=np.zeros(own.shape),
        depth=max(tree.max_depth for tree in trees),
    )
    for k, tree in enumerate(trees):
        inner = np.flatnonzero(tree.children_left >= 0)
        found.feature[k, inner] = tree.feature[inner]
        found.left[k, inner] = tree.children_left[inner]
        found.right[k, inner] = tree.children_right[inner]
        found.threshold[k, inner] = tree.threshold[inner]
        value = tree.value[:, 0, 0] * grown.learning_rate
        found.value[k, : tree.node_count] = np.where(np.abs(value) < _NOTHING, 0.0, value)
    return found
