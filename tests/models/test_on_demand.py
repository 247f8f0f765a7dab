"""What a fit says of itself is computed when it is read, once, and does not change by when."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

import fitkit
from fitkit.models import fitted_rows
from fitkit.models.on_demand import OnDemand


def square(key):
    """None of a group without a value."""
    return None if key == ("b",) else len(key[0]) ** 2


@pytest.fixture
def asked(monkeypatch):
    """Names of what was computed of a fit, in order; the fitted model is of two networks."""
    names = []
    for name in ("intervals_of", "identifiability_of"):
        function = getattr(fitted_rows, name)

        def counted(*arguments, name=name, function=function):
            names.append(name)
            return function(*arguments)

        monkeypatch.setattr(fitted_rows, name, counted)
    return names


@pytest.fixture
def frame(recipe_frame):
    frame = recipe_frame("phases")
    return frame[frame.network == frame.network[0]]


def test_a_value_is_computed_once_when_it_is_read():
    computed = []
    found = OnDemand([("aa",), ("b",), ("ccc",)], lambda key: computed.append(key) or square(key))
    assert computed == []
    assert found[("ccc",)] == found[("ccc",)] == 9
    assert computed == [("ccc",)]
    assert ("z",) not in found
    assert found.get(("b",)) is None
    assert dict(found) == {("aa",): 4, ("ccc",): 9}
    assert len(found) == 2
    assert computed == [("ccc",), ("b",), ("aa",)]
    assert repr(found) == "{('aa',): 4, ('ccc',): 9}"
    assert found == {("ccc",): 9, ("aa",): 4}


def test_it_is_copied_and_sent_like_what_it_stands_for():
    found = OnDemand([("aa",), ("b",)], square)
    sent = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own bytes
    for other in (sent, copy.deepcopy(found)):
        assert dict(other) == {("aa",): 4}


def test_a_fit_that_nobody_asks_computes_neither(frame, asked):
    model = fitkit.fit(frame, "phases")
    assert asked == []
    key = next(iter(model.estimator.groups_))
    one = frame[frame.phase == dict(zip(model.recipe.groups, key, strict=True))["phase"]]
    model.predict(one)
    model.predict(one)
    assert asked == ["intervals_of"]  # of the group that was asked for
    model.to_dict()
    model.summary()
    groups = len(model.estimator.groups_)
    assert (asked.count("intervals_of"), asked.count("identifiability_of")) == (groups, groups)


def test_it_is_the_same_whenever_it_is_read(frame):
    late, early = fitkit.fit(frame, "phases"), fitkit.fit(frame, "phases")
    said = json.dumps(early.to_dict())
    late.predict(frame[::-1])
    frame.loc[:, frame.select_dtypes("number").columns] = 1.0  # the fit keeps rows of its own
    assert json.dumps(late.to_dict()) == said
