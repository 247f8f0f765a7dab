"""What is refused and why, by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fitkit.models.domain import Domain, proportional_terms
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel


def at(**columns):
    return {name: np.array(values, dtype=float) for name, values in columns.items()}


def fitted(terms, times, **columns):
    return LinearModel(terms, undetermined="drop").fit(SimpleNamespace(**at(**columns)), times)


SWEEP = {"n_workers": [1, 1, 2, 2, 4, 4], "local_batch": [8, 16] * 3}
TIMES = [1.0, 1.5, 1.5, 2.0, 2.5, 3.0]  # 0.05 a sample, 0.5 for each worker but one, 0.1 fixed


def domain(terms=("fixed", "per_sample", "server_fan_in")):
    return Domain.of(at(**SWEEP), fitted(terms, TIMES, **SWEEP))


def test_inside_nothing_is_said():
    found = domain().judge(at(n_workers=[2, 3], local_batch=[12, 8]), 2)
    assert found.reason.tolist() == ["", ""]
    assert not found.is_outside.any()
    assert not found.is_refused.any()


def test_up_to_two_doublings_outside_are_told_and_more_are_refused():
    found = domain().judge(at(n_workers=[2, 2], local_batch=[64, 65]), 2)
    assert found.is_outside.tolist() == [True, True]
    assert found.is_refused.tolist() == [False, True]
    assert found.reason[0] == "local_batch is 2.0 doublings outside the measured range"


def test_what_grows_with_a_scale_of_three_values_is_not_extrapolated():
    found = domain().judge(at(n_workers=[4, 5, 8], local_batch=[8, 8, 8]), 3)
    assert found.is_refused.tolist() == [False, True, True]
    assert found.reason[2] == (
        "server_fan_in: in proportion to n_workers, of which no more than 3 values were measured: "
        "too few to extrapolate"
    )


def test_a_fourth_value_makes_it_a_warning():
    columns = {"n_workers": [1, 2, 4, 8] * 2, "local_batch": [8] * 4 + [16] * 4}
    times = [0.1 + 0.05 * b + 0.5 * (n - 1) for n, b in zip(*columns.values(), strict=True)]
    model = fitted(["fixed", "per_sample", "server_fan_in"], times, **columns)
    found = Domain.of(at(**columns), model).judge(at(n_workers=[16], local_batch=[8]), 1)
    assert found.is_refused.tolist() == [False]
    assert found.reason[0] == "n_workers is 1.0 doublings outside the measured range"


@pytest.mark.parametrize(
    ("term", "expected"),
    [("server_fan_in", True), ("log_workers", False), ("ring_devices", False)],
)
def test_terms_in_proportion_to_a_scale_are_found_by_doubling_it(term, expected):
    columns = at(n_workers=[1, 2, 4, 8, 16], local_batch=[8, 16, 32, 8, 16])
    X = SimpleNamespace(**columns)
    amount = {"server_fan_in": X.n_workers - 1, "log_workers": np.log2(X.n_workers),
              "ring_devices": 1 - 1 / X.n_workers}[term]  # fmt: skip
    model = LinearModel(["fixed", "per_sample", term]).fit(X, 1 + X.local_batch + amount)
    assert bool(proportional_terms(model, columns, "n_workers")) == expected
    assert proportional_terms(model, columns, "n_nodes") == []


def test_a_term_that_costs_nothing_forbids_nothing():
    flat = [0.5, 0.9, 0.5, 0.9, 0.5, 0.9]
    model = fitted(["fixed", "per_sample", "server_fan_in"], flat, **SWEEP)
    assert Domain.of(at(**SWEEP), model).few == {}


def test_coefficients_of_a_form_count_under_the_names_of_terms():
    workers = np.array([1.0, 2, 4, 8, 16, 32])
    columns = {"n_workers": workers, "n_nodes": workers, "local_batch": np.full(6, 8.0)}
    times = 1.0 + 0.3 * (workers - 1)
    model = NonlinearModel("overlapped_serial_step").fit(SimpleNamespace(**columns), times)
    assert proportional_terms(model, columns, "n_nodes") == ["other_nodes"]


def test_a_value_off_the_only_one_is_named_even_together_with_others():
    columns = at(n_workers=[8, 8], n_nodes=[1, 1], local_batch=[16, 32])
    model = fitted(["fixed", "per_sample"], [1.0, 2.0], **columns)
    found = Domain.of(columns, model).judge(at(n_workers=[16], n_nodes=[2], local_batch=[16]), 1)
    assert found.is_refused.tolist() == [True]
    assert found.reason[0] == (
        "n_workers was 8 and n_nodes was 1 in every measurement: nothing tells what another value "
        "costs"
    )


def test_a_combination_that_never_varied_is_named_and_refused_far_off():
    workers = np.repeat(2.0 ** np.arange(5), 2)
    columns = {"n_workers": workers, "local_batch": 256 / workers}
    model = fitted(["fixed", "per_sample"], 1 + columns["local_batch"], **columns)
    asked = at(n_workers=[4, 4, 16], local_batch=[64, 128, 256])
    found = Domain.of(columns, model).judge(asked, 3)
    assert found.is_outside.tolist() == [False, True, True]
    assert found.is_refused.tolist() == [False, False, True]
    assert found.reason[1] == (
        "n_workers, local_batch moved together in every measurement: this combination lies 1.0 "
        "doublings off"
    )


def test_an_unusual_combination_is_told_but_not_refused():
    workers = np.array([1.0, 1, 2, 2, 4, 4, 8, 8, 16, 16])
    batch = np.array([256.0, 300, 128, 140, 64, 70, 32, 40, 16, 20])
    columns = {"n_workers": workers, "local_batch": batch}
    model = fitted(["fixed", "per_sample"], batch, **columns)
    found = Domain.of(columns, model).judge(at(n_workers=[16], local_batch=[256]), 1)
    assert (found.is_outside.tolist(), found.is_refused.tolist()) == ([True], [False])
    assert found.reason[0].startswith("an unusual combination of n_workers, local_batch: leverage")


def test_reach_counts_doublings_from_a_single_value_too():
    columns = at(n_workers=[8, 8], local_batch=[16, 32])
    model = fitted(["fixed", "per_sample"], [1.0, 2.0], **columns)
    found = Domain.of(columns, model).reach(at(n_workers=[32], local_batch=[8]))
    assert {name: values.tolist() for name, values in found.items()} == {
        "n_workers": [2],
        "local_batch": [1],
    }


def test_what_is_saved_is_loaded():
    one = domain()
    again = Domain.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again.to_dict() == one.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"few": {"n_ranks": ["server_fan_in"]}},
        {"ranges": {"n_workers": [2.0, 1.0]}},
        {"hull": {"columns": ["x"]}},
    ],
)
def test_a_damaged_domain_is_not_loaded(change):
    with pytest.raises((ValueError, LookupError)):
        Domain.from_dict({**domain().to_dict(), **change})
