"""Bytes of quantised gradients: by the layout of CNTK's matrices, worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.dataset import Dataset
from fitkit.features.gradients import gradient_bytes, quantised_bytes
from fitkit.records import Layer, SourceRow


@pytest.mark.parametrize(
    ("n_rows", "n_bits", "size"),
    [
        (1024, 1, 8 + 4 * 32),  # 4,096 bytes become 136: a thirtieth
        (512, 1, 8 + 4 * 16),
        (64, 1, 8 + 4 * 2),
        (9, 1, 8 + 4),  # three times less only
        (33, 1, 8 + 4 * 2),  # one bit more than a word
        (1024, 2, 8 + 4 * 64),
        (10, 32, 40),  # nothing is quantised, and nothing is added
    ],
)
def test_a_column_is_two_values_and_whole_words(n_rows, n_bits, size):
    assert quantised_bytes(n_rows, 1, n_bits) == size
    assert quantised_bytes(n_rows, 7, n_bits) == 7 * size


def test_ratios_of_one_bit_are_those_of_the_shape():
    rows = np.array([1024, 512, 64, 9])
    ratios = 4 * rows / quantised_bytes(rows, 1, 1)
    assert ratios.round(1).tolist() == [30.1, 28.4, 16.0, 3.0]


def test_double_precision_has_words_of_64_bits():
    assert quantised_bytes(64, 1, 1, word_bits=64) == 16 + 8
    assert quantised_bytes(64, 1, 64, word_bits=64) == 512


def test_a_gradient_is_sent_whole_unless_the_log_says_in_how_many_bits(tmp_path):
    def layer(run_id, name, shape, n_params):
        return Layer(run_id, 0, name, "Times", "forward", 1, n_params=n_params, weight_shape=shape)

    dataset = Dataset(tmp_path / "ds")
    known = [layer("shapes", "W", "64x3", 192), layer("shapes", "b", "64", 64)]
    twice = [layer("shapes", "W", "64x3", 192), layer("odd", "W", "?", 256)]
    with dataset.writing():
        dataset.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), [*known, *twice])
    runs = pd.DataFrame(
        {
            "run_id": ["whole", "double", "shapes", "odd", "uncounted"],
            "precision": ["float32", "float64", None, None, None],
            "n_params": [256, 256, 256, 256, None],
            "gradient_bits": [None, None, 1, 1, None],
        }
    )
    found = gradient_bytes(dataset, runs)
    # Four columns of 64: 16 bytes each. Without shapes, 256 bits are 32 bytes.
    assert found.tolist()[:4] == [1024, 2048, 64, 32]
    assert np.isnan(found[4])
    plain = gradient_bytes(dataset, runs.drop(columns="gradient_bits"))
    assert plain.tolist()[:4] == [1024, 2048, 1024, 1024]
