"""CarriedModel: its formula, and what a damaged file cannot say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fitkit.models.carried import CarriedModel, Own, Source
from fitkit.models.kinds import model_from_dict, model_to_dict


@pytest.fixture
def model() -> CarriedModel:
    own = Own("batch", np.array([[0.0]]), {1.0: np.array([np.log(2.0)])})
    sources = [
        Source("a", 0.5, np.array([0.0, 1.0])),
        Source("b", 0.5, np.array([0.0, 4.0])),
    ]
    return CarriedModel.of(
        ["fixed", "per_sample"], sources, factors=[], own=own, parameters=[],
        origins={"per_sample": "both"}, spread=0.1, n_obs=6,
    )  # fmt: skip


def test_the_geometric_mean_of_the_sources_and_what_probes_add(model: CarriedModel) -> None:
    # At a batch of 1 the probe doubles the mean of 1 and 4 seconds; 60 doublings away it says
    # nothing.
    found = model.predict(pd.DataFrame({"local_batch": [1.0, 2.0**60]}))
    assert found[0] == pytest.approx(2 * 2.0)
    assert found[1] == pytest.approx(2.0 * 2.0**60)


def test_saved_by_its_kind(model: CarriedModel) -> None:
    rows = pd.DataFrame({"local_batch": [1.0, 3.0, 50.0]})
    again = model_from_dict(model_to_dict(model))
    assert again.predict(rows).tolist() == model.predict(rows).tolist()
    assert again.origins_ == {"per_sample": "both"}
    low, high = again.predict_interval(rows)
    assert (low < model.predict(rows)).all()
    assert (high > model.predict(rows)).all()


@pytest.mark.parametrize(
    "damage",
    [
        {"spread": 0.0},
        {"sources": []},
        {"sources": [{"name": "a", "weight": 1.0, "estimates": [1.0]}]},
        {"sources": [{"name": "a", "weight": -1.0, "estimates": [1.0, 1.0]}]},
        {"own": {"shape": "batch", "places": [[0.0]], "weights": [[0.0, [1.0]]]}},
        {"factors": [{"share": 1.0, "shape": "batch", "smooth": {}}]},
    ],
)
def test_damaged(model: CarriedModel, damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        model_from_dict({**model_to_dict(model), **damage})
