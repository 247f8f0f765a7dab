"""Terms: amounts by hand, on frames and on plain records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from fitkit.models.recipes import RECIPES
from fitkit.models.terms import TERMS, Resource, needed_columns, term, terms_named

COLUMNS = {
    "local_batch": [16.0, 32.0],
    "flop": [1e15, 2e9],
    "n_params": [10.0, 0.0],
    "input_bytes": [64.0, 128.0],
    "output_bytes": [4.0, 8.0],
    "input_grad_bytes": [0.0, 128.0],
    "n_workers": [1.0, 8.0],
}
AMOUNTS = {
    "fixed": [1.0, 1.0],
    "per_sample": [16.0, 32.0],
    "flops": [1e15, 2e9],
    "weights": [10.0, 0.0],
    "input_activations": [64.0, 128.0],
    "output_activations": [4.0, 8.0],
    "input_gradient": [0.0, 128.0],
    "server_fan_in": [0.0, 7.0],
    "log_workers": [0.0, 3.0],
}


@pytest.fixture
def registered():
    """Terms that a test registers are gone after it."""
    before = dict(TERMS)
    yield
    TERMS.clear()
    TERMS.update(before)


def test_every_term_has_an_amount_worked_out_here():
    assert set(AMOUNTS) == set(TERMS)


@pytest.mark.parametrize("name", AMOUNTS)
def test_amounts_of_a_frame_and_of_a_record_are_those_worked_out_by_hand(name):
    frame = pd.DataFrame(COLUMNS)
    plain = SimpleNamespace(**{key: np.array(values) for key, values in COLUMNS.items()})
    for X in (frame, plain):
        found = TERMS[name].amount(X, 2)
        assert found.dtype == float
        assert found.tolist() == AMOUNTS[name]


@pytest.mark.parametrize("name", [name for name in AMOUNTS if name != "fixed"])
def test_an_amount_is_nan_where_its_column_is_null_or_missing(name):
    (column,) = needed_columns([name])
    one_null = pd.DataFrame(COLUMNS).astype(object)
    one_null.loc[1, column] = None
    found = TERMS[name].amount(one_null, 2)
    assert found[0] == AMOUNTS[name][0]
    assert np.isnan(found[1])
    assert np.isnan(TERMS[name].amount(pd.DataFrame({"other": [1, 2]}), 2)).all()


@pytest.mark.parametrize("name", TERMS)
def test_a_term_tells_its_unit_its_resource_and_its_meaning(name):
    assert TERMS[name].unit.split("/")[0] == "s"
    assert TERMS[name].resource in get_args(Resource)
    assert TERMS[name].meaning.endswith(".") or ":" in TERMS[name].meaning
    assert len(TERMS[name].meaning) > 20


def test_recipes_are_made_of_known_terms():
    for recipe in RECIPES.values():
        assert [found.name for found in terms_named(recipe.terms)] == list(recipe.terms)


def test_needed_columns_are_those_that_the_terms_read_once_each():
    assert needed_columns(["fixed", "server_fan_in", "log_workers", "per_sample"]) == [
        "n_workers", "local_batch",
    ]  # fmt: skip


def test_an_unknown_term_is_named():
    with pytest.raises(ValueError, match="no term 'fixd'; known: fixed"):
        terms_named(["fixed", "fixd"])


@pytest.mark.usefixtures("registered")
class TestOwnTerms:
    def test_a_function_is_registered_under_its_name_and_stays_a_function(self):
        @term(unit="s/byte", resource="link_inter")
        def ring(x):
            """Bytes that a ring moves."""
            return 2 * (x.n_ranks - 1) / x.n_ranks * x.n_bytes

        frame = pd.DataFrame({"n_ranks": [1, 2, 4], "n_bytes": [8, 8, 8]})
        assert TERMS["ring"].amount(frame, 3).tolist() == [0.0, 8.0, 12.0]
        assert TERMS["ring"].meaning == "Bytes that a ring moves."
        assert ring(frame).tolist() == [0.0, 8.0, 12.0]
        assert needed_columns(["ring"]) == ["n_ranks", "n_bytes"]

    def test_a_term_can_ask_for_a_word(self):
        @term(unit="s", resource="link_inter")
        def tree(x):
            """Paid when the topology is a tree."""
            return x.topology == "tree"

        frame = pd.DataFrame({"topology": ["tree", "ring", None]})
        assert TERMS["tree"].amount(frame, 3).tolist() == [1.0, 0.0, 0.0]
        assert needed_columns(["tree"]) == ["topology"]

    def test_a_name_can_be_taken_only_once(self):
        with pytest.raises(ValueError, match="there is a term 'fixed' already"):

            @term(unit="s", resource="host")
            def fixed(x):
                """Another."""

    def test_a_term_needs_words_for_the_report(self):
        with pytest.raises(ValueError, match="term 'silent' needs a docstring"):

            @term(unit="s", resource="host")
            def silent(x):
                return 1.0

        assert "silent" not in TERMS

    def test_a_mistake_inside_a_term_is_not_taken_for_a_missing_column(self):
        @term(unit="s", resource="host")
        def mistaken(x):
            """Takes a function for granted that numpy lacks."""
            return np.logarithm_of(x.local_batch)

        with pytest.raises(AttributeError, match="logarithm_of"):
            TERMS["mistaken"].amount(pd.DataFrame(COLUMNS), 2)
