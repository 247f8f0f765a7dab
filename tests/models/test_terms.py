"""Terms: amounts by hand, on frames and on plain records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from fitkit.models.terms import TERMS, Resource, needed_columns, term, terms_named

COLUMNS = {
    "local_batch": [16.0, 32.0],
    "flop": [1e15, 2e9],
    "n_params": [10.0, 0.0],
    "input_bytes": [64.0, 128.0],
    "output_bytes": [4.0, 8.0],
    "input_grad_bytes": [0.0, 128.0],
    "n_workers": [1.0, 8.0],
    "n_nodes": [1.0, 2.0],
    "output_grad_bytes": [0.0, 16.0],
    "data_bytes": [256.0, 0.0],
    "dataset_bytes": [1e9, 3e9],
    "gradient_bytes": [400.0, 100.0],
    "gradient_bits": [32.0, 1.0],
    "synchronisations": [1.0, 0.25],  # a block of four minibatches
}
WITHOUT_NODES = {  # one node for each worker: what is started on eight of them
    "launch_tree": 3.0, "launch_in_turn": 7.0, "sharded_reading": 0.375e9, "node_share": 0.125,
    "reading_in_turn": 24e9, "broadcast_reading": 9e9, "gradient_between_nodes": 43.75,
}  # fmt: skip
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
    "across_devices": [0.0, 1.0],
    "across_nodes": [0.0, 1.0],
    "ring_devices": [0.0, 0.875],
    "ring_nodes": [0.0, 0.875],
    "log_nodes": [0.0, 1.0],
    "log_workers_across": [0.0, 3.0],
    "pair_sharing": [0.0, 4.0],
    "log_pair_workers": [0.0, 3.0],
    "devices_per_node": [0.0, 3.0],
    "other_nodes": [0.0, 1.0],
    "unfolded_input": [1e29, np.nan],  # without weights there is no product
    "output_gradients": [0.0, 16.0],
    "data_input": [256.0, 0.0],
    "launch_tree": [0.0, 1.0],
    "launch_in_turn": [0.0, 1.0],
    "sharded_reading": [1e9, 1.5e9],
    "node_share": [1.0, 0.5],
    "own_reading": [1e9, 3e9],
    "reading_in_turn": [1e9, 6e9],
    "broadcast_reading": [0.0, 3e9],
    "synchronised_tree": [0.0, 0.75],
    "synchronised_turns": [0.0, 1.75],
    "synchronised_ring": [0.0, 0.21875],
    "gradient_ring": [0.0, 43.75],  # a quarter of 2 · 7/8 · 100
    "gradient_tree": [0.0, 75.0],
    "gradient_double_tree": [0.0, 50.0],
    "gradient_between_nodes": [0.0, 6.25],  # a quarter of 2 · 1/2 · 100 / 4
    "quantised_gradient": [0.0, 800.0],  # a quarter of the 3,200 that one bit of 32 stands for
    "slowest_worker": [0.0, 1.0196670],  # half of sqrt(2 ln 8)
    "worker_share": [1.0, 0.125],
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
        np.testing.assert_allclose(found, AMOUNTS[name], rtol=1e-7)


@pytest.mark.parametrize("name", [name for name in AMOUNTS if name != "fixed"])
def test_an_amount_is_nan_where_a_column_is_null_or_missing(name):
    either = {"n_nodes", "n_workers"} if name in WITHOUT_NODES else set()
    for column in set(needed_columns([name])) - either:
        one_null = pd.DataFrame(COLUMNS).astype(object)
        one_null.loc[1, column] = None
        found = TERMS[name].amount(one_null, 2)
        assert found[0] == pytest.approx(AMOUNTS[name][0])
        assert np.isnan(found[1])
        assert np.isnan(TERMS[name].amount(pd.DataFrame(COLUMNS).drop(columns=column), 2)).all()


@pytest.mark.parametrize("name", WITHOUT_NODES)
def test_where_nodes_are_unknown_each_worker_has_its_own(name):
    unknown = pd.DataFrame(COLUMNS).assign(n_nodes=[1.0, None])
    for X in (unknown, unknown.drop(columns="n_nodes")):
        found = TERMS[name].amount(X, 2)
        assert found.tolist() == pytest.approx([AMOUNTS[name][0], WITHOUT_NODES[name]])


def test_links_of_several_placements_by_hand():
    placed = pd.DataFrame({"n_workers": [2, 4, 4, 4, 16, 2], "n_nodes": [1, 1, 2, 4, 2, 4]})
    expected = {
        "across_devices": [1, 1, 1, 1, 1, 1],
        "across_nodes": [0, 0, 1, 1, 1, 1],
        "ring_devices": [0.5, 0.75, 0.75, 0.75, 0.9375, 0.5],
        "ring_nodes": [0, 0, 0.75, 0.75, 0.9375, 0.5],
        "log_nodes": [0, 0, 1, 2, 1, 2],
        "log_workers_across": [0, 0, 2, 2, 4, 1],
        "pair_sharing": [0, 0, 2, 0, 8, 0],  # two nodes share one link, more have more
        "devices_per_node": [1, 3, 1, 0, 7, 0],  # never below zero
        "other_nodes": [0, 0, 1, 3, 1, 3],
    }
    for name, amounts in expected.items():
        assert TERMS[name].amount(placed, 6).tolist() == amounts, name


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, 1e300])
def test_no_value_makes_an_amount_warn(name, value):
    columns = {key: np.full(2, value) for key in COLUMNS}
    assert TERMS[name].amount(SimpleNamespace(**columns), 2).shape == (2,)


@pytest.mark.parametrize("name", TERMS)
def test_a_term_tells_its_unit_its_resource_and_its_meaning(name):
    assert TERMS[name].unit.split("/")[0] == "s"
    assert TERMS[name].resource in get_args(Resource)
    assert TERMS[name].meaning.endswith(".") or ":" in TERMS[name].meaning
    assert len(TERMS[name].meaning) > 20


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
