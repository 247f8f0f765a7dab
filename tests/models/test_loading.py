"""Model files that are damaged, forged or something else."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.errors import InputError, SchemaError
from fitkit.models.recipes import RECIPES


@pytest.fixture(scope="module")
def model():
    """Two phases at four batches, fitted with an interval each."""
    frame = pd.DataFrame(
        {"phase": ["forward", "comm"] * 4, "n_workers": [1.0, 2, 2, 4, 4, 1, 8, 2],
         "local_batch": [8.0, 8, 16, 16, 32, 32, 64, 64],
         "duration_s": [0.018, 0.02, 0.027, 0.029, 0.041, 0.046, 0.073, 0.08]}
    )  # fmt: skip
    return fitkit.fit(frame, "phases")


def set_at(*route):
    *outer, last, value = route

    def change(state):
        for step in outer:
            state = state[step]
        state[last] = value

    return change


def remove(*route):
    *outer, last = route

    def change(state):
        for step in outer:
            state = state[step]
        del state[last]

    return change


GROUP = ("estimator", "groups", 0)
TAMPERED = {
    "another version": set_at("format", "fitkit.model/2"),
    "no version": remove("format"),
    "an unknown recipe": set_at("recipe", "stp"),
    "another recipe": set_at("recipe", "layers"),
    "no estimator": remove("estimator"),
    "no kind": remove(*GROUP, "kind"),
    "an unknown kind": set_at(*GROUP, "kind", "Popen"),
    "a kind of another model": set_at(*GROUP, "kind", "OperatorModel"),
    "no word of intervals": remove("intervals"),
    "intervals of a group less": remove("intervals", 0),
    "intervals of no number": set_at("intervals", 0, "inside", [None]),
    "intervals of negative errors": set_at("intervals", 0, "inside", [-1.0]),
    "intervals along an axis of words": set_at("intervals", 0, "beyond", {"n_workers": ["x"]}),
    "few scales of which there is no range": set_at("domains", 0, "few", {"x": ["fixed"]}),
    "a hull that is none": set_at("domains", 0, "hull", {"columns": ["local_batch"]}),
    "groups that are no list": set_at("estimator", "groups", 3),
    "one group less": remove("estimator", "groups", 0),
    "one range less": remove("domains", 0),
    "a group by other columns": set_at("estimator", "by", ["network"]),
    "an unknown term": set_at(*GROUP, "active", ["fixd"]),
    "an active term without a parameter": set_at(*GROUP, "active", ["flops"]),
    "terms of another version": set_at(*GROUP, "terms", ["fixed"]),
    "terms that read other columns": set_at(*GROUP, "terms", ["fixed", "flops"]),
    "a level that is null": set_at(*GROUP, "level", None),
    "a negative parameter": set_at(*GROUP, "parameters", 0, "estimate", -1.0),
    "a parameter that is null": set_at(*GROUP, "parameters", 0, "estimate", None),
    "a parameter that is a word": set_at(*GROUP, "parameters", 0, "estimate", "much"),
    "a parameter that is a list": set_at(*GROUP, "parameters", 0, "estimate", [1]),
    "a parameter without a unit": remove(*GROUP, "parameters", 0, "unit"),
    "a covariance of another shape": set_at(*GROUP, "covariance", [[1.0, 2.0]]),
    "a covariance of words": set_at(*GROUP, "covariance", 0, 0, "x"),
    "a noise that is a word": set_at(*GROUP, "noise", "loud"),
    "rows that are a word": set_at(*GROUP, "n_obs", "many"),
    "an exponent that is a word": set_at(*GROUP, "noise_exponent", "x"),
    "a range upside down": set_at("domains", 0, "ranges", "local_batch", [64.0, 8.0]),
    "a range of one end": set_at("domains", 0, "ranges", "local_batch", [64.0]),
    "a range of null": set_at("domains", 0, "ranges", "local_batch", [None, None]),
    "a range of another column": set_at("domains", 0, "ranges", "size", [1.0, 2.0]),
    "ranges that are a list": set_at("domains", 0, "ranges", []),
    "notes that are null": set_at("notes", None),
    "provenance that is a word": set_at("provenance", "here"),
}  # fmt: skip


@pytest.fixture
def state(model):
    return json.loads(json.dumps(model.to_dict()))


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_file_is_a_schema_error(name, state, tmp_path):
    TAMPERED[name](state)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(SchemaError, match=r"m\.json: ") as caught:
        fitkit.load_model(path)
    assert caught.value.hint


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
def test_a_number_that_is_none_is_a_schema_error(number, state, tmp_path):
    for route in (
        ("domains", 0, "ranges", "local_batch", 1),
        (*GROUP, "parameters", 0, "estimate"),
        (*GROUP, "covariance", 0, 0),
        (*GROUP, "n_obs"),
    ):
        changed = json.loads(json.dumps(state))
        set_at(*route, "PLACE")(changed)
        path = tmp_path / "m.json"
        path.write_text(json.dumps(changed).replace('"PLACE"', number), encoding="utf-8")
        with pytest.raises(SchemaError):
            fitkit.load_model(path)


def places(state, route=()):
    """One place for each kind of value in a document: lists have one of their elements."""
    if route:
        yield route
    inner = state.items() if isinstance(state, dict) else ()
    if isinstance(state, list) and state:
        inner = [(len(state) - 1, state[-1])]
    for name, part in inner:
        yield from places(part, (*route, name))


DAMAGE = ("x", None, [], {}, -1, 1e9, [[1]])


@pytest.mark.parametrize("name", RECIPES)
def test_whatever_is_damaged_is_a_schema_error_or_does_no_harm(
    recipe_frame, recipe_model, name, tmp_path
):
    frame, path = recipe_frame(name)[::5], tmp_path / "m.json"
    whole = json.dumps(recipe_model(name).to_dict())
    n_refused = n_tried = 0
    drawn = set()
    for number, route in enumerate(places(json.loads(whole))):
        # Every value in a small file; in larger ones, where many places are alike, two in turn.
        two = [DAMAGE[(number + i) % len(DAMAGE)] for i in (0, 3)]
        values = DAMAGE if name == "phases" else two
        for value in values:
            n_tried += 1
            state = json.loads(whole)
            set_at(*route, value)(state)
            path.write_text(json.dumps(state), encoding="utf-8")
            try:
                model = fitkit.load_model(path)
            except SchemaError:
                n_refused += 1
                continue
            model.save(path)
            summary = model.summary()
            if repr(summary) not in drawn:  # drawing takes long, and most damage is not in it
                assert str(summary)
                drawn.add(repr(summary))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
                found = model.predict(frame, allow_extrapolation=True)
            answered = found[found.status != "refused"]
            assert np.isfinite(answered.predicted_s).all()
    assert n_refused > n_tried / 6


def test_a_truncated_file_is_a_schema_error(model, tmp_path):
    model.save(tmp_path / "whole.json")
    whole = (tmp_path / "whole.json").read_bytes()
    path = tmp_path / "m.json"
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:length])
        with pytest.raises(SchemaError, match="not a fitkit model: no JSON"):
            fitkit.load_model(path)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"model"', "{}", "[" * 100_000])
def test_other_json_is_a_schema_error(text, tmp_path):
    path = tmp_path / "m.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"m\.json: not a "):
        fitkit.load_model(path)


def test_a_pickle_is_refused_and_nothing_in_it_runs(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    path = tmp_path / "m.json"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(SchemaError, match="not a fitkit model: no JSON"):
        fitkit.load_model(path)
    path.write_bytes(pickle.dumps(Trap(), protocol=0))  # plain text
    with pytest.raises(SchemaError, match="not a fitkit model: no JSON"):
        fitkit.load_model(path)
    assert not (tmp_path / "sprung").exists()


def test_no_file_and_a_folder_are_input_errors(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            fitkit.load_model(path)
