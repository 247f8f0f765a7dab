"""Bytes that a worker sends in place of a gradient: whole, or in a few bits a value."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fitkit.dataset import Dataset

_FLOAT, _WORD = 4, 32  # bytes of a number in single precision, and its bits
_DOUBLE = frozenset({"float64", "double"})


def quantised_bytes(
    n_rows: ArrayLike, n_columns: ArrayLike, n_bits: ArrayLike, word_bits: int = _WORD
) -> np.ndarray:
    r"""Bytes of a matrix whose values are quantised column by column.

    .. math:: C \left(2 w + w \lceil R k / 8 w \rceil\right)

    for *C* columns of *R* values at *k* bits in words of *w* bytes: each column has the two values
    that its bits stand for, then the bits in whole words (CNTK, ``Source/Math/QuantizedMatrix.h``;
    F. Seide et al., 1-bit stochastic gradient descent, Interspeech 2014). At as many bits as a
    word has nothing is quantised, and nothing is added.

    Parameters
    ----------
    n_rows, n_columns, n_bits
        Shape of the matrix, and bits of a value; they broadcast.
    word_bits
        32 in single precision, 64 in double.
    """
    rows, columns, bits = (
        np.asarray(values, dtype=float) for values in (n_rows, n_columns, n_bits)
    )
    word = word_bits // 8
    packed = columns * (2 * word + word * np.ceil(rows * bits / word_bits))
    return np.asarray(np.where(bits < word_bits, packed, columns * rows * word))


def gradient_bytes(dataset: Dataset, runs: pd.DataFrame) -> pd.Series:
    """Bytes of each run's gradient as a worker sends it, on the index of ``runs``.

    By the shapes of the layers where they are known, else as if all parameters were one column.
    Null where the log does not count the parameters.
    """
    doubled = runs.precision.isin(_DOUBLE).to_numpy()
    bits = runs.get("gradient_bits", pd.Series(np.nan, runs.index)).to_numpy(dtype=float)
    whole = np.where(doubled, 2.0, 1.0) * _FLOAT * runs.n_params.to_numpy(dtype=float)
    sent = np.where(np.isnan(bits), whole, whole * bits / (_WORD * np.where(doubled, 2, 1)))
    found = pd.Series(sent, runs.index)
    few = runs[(bits < _WORD) & ~doubled]
    if len(few):
        by_layers = _by_layers(dataset, few)
        found.update(by_layers)
    return found


def _by_layers(dataset: Dataset, runs: pd.DataFrame) -> pd.Series:
    """Quantised bytes of the runs whose layers with parameters all have a shape."""
    layers = dataset.read("layers", ["run_id", "layer", "weight_shape", "n_params"])
    layers = layers[layers.n_params > 0].drop_duplicates(["run_id", "layer", "weight_shape"])
    layers = layers.merge(runs[["run_id", "gradient_bits"]], on="run_id")
    shapes = [_shape(text) for text in layers.weight_shape]
    n_rows, n_columns = np.array(shapes, dtype=float).reshape(-1, 2).T
    sizes = quantised_bytes(n_rows, n_columns, layers.gradient_bits.to_numpy(dtype=float))
    by_run = (
        pd.Series(sizes)
        .groupby(layers.run_id.to_numpy())
        .agg(lambda values: values.sum(skipna=False))
    )
    return runs.run_id.map(by_run).dropna()


def _shape(text: object) -> tuple[float, float]:
    """Rows and columns of a weight such as ``512x784``: CNTK packs along the first dimension."""
    parts = str(text).split("x")
    if not all(part.isdigit() for part in parts):
        return float("nan"), float("nan")
    sizes = [float(part) for part in parts]
    return sizes[0], float(np.prod(sizes[1:]))
