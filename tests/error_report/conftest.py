"""Rows of a report whose errors are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def rows():
    """Makes rows of one second each that a model and baselines miss by factors."""

    def make(factors, **columns):
        frame = pd.DataFrame({"predicted_s": np.asarray(factors, dtype=float), "measured_s": 1.0})
        frame["run_id"] = [f"r{i:03}" for i in frame.index]
        frame["repeat_difference"] = np.nan
        return frame.assign(**columns)

    return make
