"""OperatorModel: a sum of terms, times a smooth factor that follows the shape of the work.

How far a kernel falls short of the device's peak depends on its shape: few rows, a narrow matrix,
another algorithm for another stride. The terms give the scale of the time and carry it beyond what
was measured; the factor follows the shapes that were, and is one far from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.columns import Columns, MissingColumnError, n_rows
from fitkit.models.estimator import require_fitted
from fitkit.models.linear import LinearModel
from fitkit.models.smooth import Smooth
from fitkit.models.terms import product_flop, read_by

_FACTOR = 1e-3  # a time that is so much more than its terms is no matter of shape


# -- shapes --------------------------------------------------------------------------------


def _matrix(x: Columns) -> list[np.ndarray]:
    """Rows, width, depth of a matrix product, and how often it takes an input.

    From 2·rows·width·depth operations, width·depth weights and rows·width outputs; constant
    factors, such as the bytes of an output, do not matter to distances.
    """
    depth = product_flop(x) / x.output_bytes
    width = x.n_params / depth
    rows = x.output_bytes / width
    return [rows, width, depth, rows * depth / x.input_bytes]


def _elementwise(x: Columns) -> list[np.ndarray]:
    """Rows of as many outputs as there are weights, that width, and inputs for each output."""
    width = np.maximum(x.n_params, 1.0)
    return [x.output_bytes / width, width, x.input_bytes / x.output_bytes]


def _batch(x: Columns) -> list[np.ndarray]:
    """The samples of a call, where its sizes are not known."""
    return [x.local_batch]


# What a shape is, the richest description first, with the doublings of each figure over which
# the efficiency of a kernel changes: slowly with the rows, which only fill the device; soon with
# the reuse of inputs, which tells the kernel size and the stride, and with them the algorithm.
SHAPES: dict[str, tuple[Callable[[Columns], list[np.ndarray]], tuple[float, ...]]] = {
    "matrix": (_matrix, (6.0, 3.0, 3.0, 2.0)),
    "elementwise": (_elementwise, (6.0, 3.0, 2.0)),
    "batch": (_batch, (6.0,)),
}


def places_of(shape: str, X: Any) -> np.ndarray:
    """Where the rows lie among shapes, shape ``(rows, figures)``; NaN where that is not known."""
    describe, doublings = SHAPES[shape]
    rows = n_rows(X)
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            figures = [np.broadcast_to(np.log2(f), (rows,)) for f in describe(Columns(X))]
    except MissingColumnError:
        return np.full((rows, len(doublings)), np.nan)
    places = np.column_stack(figures) / doublings
    return np.where(np.isfinite(places), places, np.nan)


# -- the model -----------------------------------------------------------------------------


class OperatorModel(LinearModel):
    r"""Non-negative linear model of a kernel's time, corrected for the shape of its work.

    .. math:: t = e^{g(s)} \sum_k \theta_k x_k, \quad \theta_k \ge 0

    The terms are fitted first, as by `LinearModel`, whose parameters they keep; *g* is a
    Gaussian process over the logarithms of the shape, fitted to what they leave (`Smooth`). The
    shape comes from the columns ``flop``, ``n_params``, ``input_bytes``, ``output_bytes`` and
    ``input_grad_bytes``, else from ``local_batch``; what no column tells is left to the terms.

    Parameters
    ----------
    terms, noise_exponent, level, undetermined
        As of `LinearModel`; terms that the data cannot tell apart are dropped by default.

    Examples
    --------
    >>> shapes = pd.DataFrame({"local_batch": [1.0, 2, 4, 8, 16, 32, 64, 128]})
    >>> seconds = 1e-3 * shapes.local_batch**0.75
    >>> model = OperatorModel(["fixed", "per_sample"]).fit(shapes, seconds)
    >>> between = pd.DataFrame({"local_batch": [6.0, 48.0]})
    >>> (model.predict(between) / (1e-3 * between.local_batch**0.75)).round(2).tolist()
    [1.0, 0.99]
    """

    intervals_by = "held-out rows"

    def __init__(
        self,
        terms: Sequence[str],
        noise_exponent: float = 1.0,
        level: float = 0.9,
        undetermined: Literal["raise", "drop"] = "drop",
    ) -> None:
        super().__init__(terms, noise_exponent, level, undetermined)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        shapes = [column for describe, _ in SHAPES.values() for column in read_by(describe)]
        return tuple(dict.fromkeys((*super().columns, *shapes)))

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the terms, then the factor, to measured times; see `LinearModel.fit`."""
        super().fit(X, y)
        times = np.asarray(y, dtype=float)
        residuals = np.log(times / np.maximum(super().predict(X), _FACTOR * times))
        self.shape_: str | None = None
        self.smooth_: Smooth | None = None
        for shape in SHAPES:
            places = places_of(shape, X)
            if np.all(np.isfinite(places)):
                spare, used = max(self.dof_, 1) / self.n_obs_, ~self.outliers_
                self.shape_, self.smooth_ = shape, Smooth.fit(places[used], residuals[used], spare)
                break
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a column is null."""
        seconds = super().predict(X)
        if self.shape_ is None or self.smooth_ is None:
            return seconds
        return seconds * np.exp(self.smooth_.predict(places_of(self.shape_, X)))

    def drawn(self, X: Any) -> np.ndarray:
        """Draws of the terms, with the factor as it is; see `Estimator.drawn`."""
        return np.asarray(super().drawn(X) * (self.predict(X) / super().predict(X)))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; in seconds.

        From the errors of predicting each measured shape from the others; without a factor as
        by `LinearModel.predict_interval`.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        low, high = super().predict_interval(X, level)
        if self.shape_ is None or self.smooth_ is None:
            return low, high
        seconds = self.predict(X)
        factor = np.exp(self.smooth_.half_width(places_of(self.shape_, X), level))
        return seconds / factor, seconds * factor

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "parameters_")
        smooth = None if self.smooth_ is None else self.smooth_.to_dict()
        return {**super().to_dict(), "shape": self.shape_, "smooth": smooth}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described."""
        model = super().from_dict(state)
        shape, smooth = state["shape"], state["smooth"]
        model.shape_ = shape
        model.smooth_ = None if smooth is None else Smooth.from_dict(smooth)
        if model.smooth_ is not None and model.smooth_.places.shape[1] != len(SHAPES[shape][1]):
            raise ValueError("a shape of another kind")
        return model
