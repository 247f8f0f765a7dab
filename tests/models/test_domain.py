"""What is refused and why, by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fitkit.models.blend import Blend
from fitkit.models.domain import COMBINATION, Domain, growing_terms
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
        "server_fan_in: in proportion to n_workers, of which 3 values were measured: too few to "
        "extrapolate"
    )


def test_a_fourth_value_makes_it_a_warning():
    columns = {"n_workers": [1, 2, 4, 8] * 2, "local_batch": [8] * 4 + [16] * 4}
    times = [0.1 + 0.05 * b + 0.5 * (n - 1) for n, b in zip(*columns.values(), strict=True)]
    model = fitted(["fixed", "per_sample", "server_fan_in"], times, **columns)
    found = Domain.of(at(**columns), model).judge(at(n_workers=[16], local_batch=[8]), 1)
    assert found.is_refused.tolist() == [False]
    assert found.reason[0] == "n_workers is 1.0 doublings outside the measured range"


@pytest.mark.parametrize(
    ("term", "factor"),
    [("server_fan_in", 2.0), ("log_workers", 21 / 20), ("ring_devices", 1.0)],
)
def test_growing_terms_are_found_by_doubling_the_scale(term, factor):
    columns = at(n_workers=[1, 2, 4, 8, 16], local_batch=[8, 16, 32, 8, 16])
    X = SimpleNamespace(**columns)
    amount = {"server_fan_in": X.n_workers - 1, "log_workers": np.log2(X.n_workers),
              "ring_devices": 1 - 1 / X.n_workers}[term]  # fmt: skip
    model = LinearModel(["fixed", "per_sample", term]).fit(X, 1 + X.local_batch + amount)
    assert growing_terms(model, columns, "n_workers") == {term: pytest.approx(factor, rel=1e-4)}


def test_from_two_values_no_growth_is_extrapolated_however_slow():
    columns = {"n_workers": [1, 1, 1, 2, 2, 2], "local_batch": [8, 16, 32] * 2}
    times = [1.0, 1.5, 2.5, 1.2, 1.7, 2.7]
    model = fitted(["fixed", "per_sample", "log_workers"], times, **columns)
    found = Domain.of(at(**columns), model).judge(at(n_workers=[2, 3], local_batch=[8, 8]), 2)
    assert found.is_refused.tolist() == [False, True]
    assert found.reason[1] == (
        "n_workers took 2 values, which tell no way of growth from another (log_workers): measure "
        "a third one"
    )


def test_from_two_values_what_does_not_grow_is_extrapolated_with_a_warning():
    columns = {"n_workers": [1, 1, 1, 2, 2, 2], "local_batch": [8, 16, 32] * 2}
    model = fitted(["fixed", "per_sample", "log_workers"], [1.0, 1.5, 2.5] * 2, **columns)
    found = Domain.of(at(**columns), model).judge(at(n_workers=[4], local_batch=[8]), 1)
    assert (found.is_outside.tolist(), found.is_refused.tolist()) == ([True], [False])


def test_of_a_blend_the_terms_of_all_its_models_count():
    blend = Blend(
        {
            "slow": LinearModel(["fixed", "per_sample", "log_workers"]),
            "steep": LinearModel(["fixed", "per_sample", "server_fan_in"]),
        }
    ).fit(SimpleNamespace(**at(**SWEEP)), TIMES)
    assert Domain.of(at(**SWEEP), blend).few["n_workers"].startswith("server_fan_in: in proport")


def test_a_term_that_costs_nothing_forbids_nothing():
    flat = [0.5, 0.9, 0.5, 0.9, 0.5, 0.9]
    model = fitted(["fixed", "per_sample", "server_fan_in"], flat, **SWEEP)
    assert Domain.of(at(**SWEEP), model).few == {}


def test_coefficients_of_a_form_count_under_the_names_of_terms():
    workers = np.array([1.0, 2, 4, 8, 16, 32])
    columns = {"n_workers": workers, "n_nodes": workers, "local_batch": np.full(6, 8.0)}
    times = 1.0 + 0.3 * (workers - 1)
    model = NonlinearModel("overlapped_serial_step").fit(SimpleNamespace(**columns), times)
    steep = [n for n, f in growing_terms(model, columns, "n_nodes").items() if f > 1.9]
    assert steep == ["other_nodes"]


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


def test_more_ranks_over_a_link_that_nothing_tells_are_refused():
    columns = at(n_ranks=[2, 4, 8], n_bytes=[1, 2, 3])
    model = fitted(["fixed"], [1.0, 1.0, 1.0], **columns)
    asked = at(n_ranks=[8, 16], n_bytes=[2, 2])
    told = Domain.of(columns, model).judge(asked, 2)
    untold = Domain.of(columns, model, link_is_unknown=True).judge(asked, 2)
    assert told.is_refused.tolist() == [False, False]
    assert untold.is_refused.tolist() == [False, True]
    assert untold.reason[1].startswith("more n_ranks than were measured, and neither topology nor")


def test_reach_counts_doublings_from_a_single_value_too():
    columns = at(n_workers=[8, 8], local_batch=[16, 32])
    model = fitted(["fixed", "per_sample"], [1.0, 2.0], **columns)
    found = Domain.of(columns, model).reach(at(n_workers=[32], local_batch=[8]))
    assert {name: values.tolist() for name, values in found.items()} == {
        "n_workers": [2],
        "local_batch": [1],
    }


def test_reach_counts_what_lies_off_the_measured_combinations():
    workers = np.repeat(2.0 ** np.arange(5), 2)
    columns = {"n_workers": workers, "local_batch": 256 / workers}
    model = fitted(["fixed", "per_sample"], 1 + columns["local_batch"], **columns)
    asked = at(n_workers=[4, 4, 64], local_batch=[64, 128, 64])
    found = Domain.of(columns, model).reach(asked)
    np.testing.assert_allclose(found[COMBINATION], [0, 1, 0], atol=1e-9)  # the last by its column


def test_reach_counts_how_often_the_largest_leverage_is_exceeded():
    workers = np.array([1.0, 1, 2, 2, 4, 4, 8, 8, 16, 16])
    batch = np.array([256.0, 300, 128, 140, 64, 70, 32, 40, 16, 20])
    columns = {"n_workers": workers, "local_batch": batch}
    domain = Domain.of(columns, fitted(["fixed", "per_sample"], batch, **columns))
    asked = at(n_workers=[16, 4], local_batch=[256, 66])
    leverage = domain.hull.leverage(asked)[0]
    expected = 0.5 * np.log2(leverage / domain.hull.limit)
    assert domain.reach(asked)[COMBINATION].tolist() == pytest.approx([expected, 0])


def test_what_is_saved_is_loaded():
    one = domain()
    again = Domain.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again.to_dict() == one.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"few": {"n_ranks": "too few"}},
        {"ranges": {"n_workers": [2.0, 1.0]}},
        {"hull": {"columns": ["x"]}},
    ],
)
def test_a_damaged_domain_is_not_loaded(change):
    with pytest.raises((ValueError, LookupError)):
        Domain.from_dict({**domain().to_dict(), **change})
