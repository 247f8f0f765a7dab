"""Forms: limits by hand, derivatives by differences, what can be registered."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.models.columns import Columns
from fitkit.models.forms import (
    FORMS,
    OVERLAPPED_SERIAL_STEP,
    OVERLAPPED_STEP,
    Coefficient,
    amount_of,
    form,
    form_named,
    overlapped,
    p_norm,
)
from fitkit.models.terms import TERMS

OVERLAPPED = pytest.mark.parametrize(
    "which", [OVERLAPPED_STEP, OVERLAPPED_SERIAL_STEP], ids=lambda form: form.name
)
STEPS = SimpleNamespace(
    n_workers=np.array([1.0, 1, 2, 4, 8, 16, 16, 2]),
    n_nodes=np.array([1.0, 1, 1, 1, 2, 4, 16, 2]),
    local_batch=np.array([8.0, 64, 32, 8, 128, 16, 16, 256]),
)


@pytest.fixture
def registered():
    """Forms that a test registers are gone after it."""
    before = dict(FORMS)
    yield
    FORMS.clear()
    FORMS.update(before)


def seconds(which, X, **coefficients):
    return which.seconds(Columns(X), SimpleNamespace(**coefficients))


# -- overlap -------------------------------------------------------------------------------


def test_overlap_lies_between_the_sum_and_the_longer_one():
    assert p_norm(3.0, 4.0, 1) == 7.0
    assert p_norm(3.0, 4.0, 2) == pytest.approx(5.0)
    assert p_norm(2.0, 2.0, 3) == pytest.approx(2 * 2 ** (1 / 3))
    assert p_norm(3.0, 4.0, 200) == pytest.approx(4.0)
    assert p_norm(3.0, 4.0, np.inf) == 4.0


@given(st.floats(0, 1e200), st.floats(0, 1e200), st.floats(1, 10))
def test_overlap_is_symmetric_and_bounded(a, b, exponent):
    found = float(p_norm(a, b, exponent))
    assert found == p_norm(b, a, exponent)
    assert max(a, b) <= found <= (a + b) * (1 + 1e-12)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 2.0), (5e-324, 5e-324), (1e-300, 1e300)])
def test_overlap_with_nothing_and_with_the_smallest_numbers(a, b):
    assert p_norm(a, b, 10.0) == pytest.approx(max(a, b), rel=0.1, abs=0)


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_overlap_with_what_is_no_time_is_nan(bad):
    found = p_norm([1.0, bad, 1.0], [1.0, 1.0, bad], 2.5)
    assert np.isnan(found).tolist() == [False, True, True]


@OVERLAPPED
@given(data=st.data())
def test_sensitivities_are_the_differences_of_the_time(which, data):
    names = [c.name for c in which.coefficients]
    amounts = np.column_stack([amount_of(c, STEPS, 8) for c in which.coefficients])
    values = {name: data.draw(st.floats(1e-3, 10), name) for name in names[:-1]}
    given_ = SimpleNamespace(**values, overlap=data.draw(st.floats(1.01, 9.9), "overlap"))
    whole, found = which.sensitivities(amounts, np.array([vars(given_)[name] for name in names]))
    np.testing.assert_allclose(whole, which.seconds(Columns(STEPS), given_), rtol=1e-12)
    for name, derivative in zip(names, found.T, strict=True):
        step = 1e-5 * getattr(given_, name)
        above, below = (
            which.seconds(Columns(STEPS), SimpleNamespace(**{**vars(given_), name: value}))
            for value in (getattr(given_, name) + step, getattr(given_, name) - step)
        )
        numeric = (above - below) / (2 * step)
        scale = np.abs(numeric).max() + 1e-6 * whole.max() / getattr(given_, name)
        np.testing.assert_allclose(derivative, numeric, rtol=1e-4, atol=1e-4 * scale)


@OVERLAPPED
def test_sensitivities_of_nothing_are_finite(which):
    n = len(which.coefficients)
    whole, found = which.sensitivities(np.zeros((2, n)), np.array([0.0] * (n - 1) + [1.0]))
    assert whole.tolist() == [0.0, 0.0]
    assert np.all(np.isfinite(found))


@OVERLAPPED
def test_an_overlapped_step_by_hand(which):
    zero = {c.name: 0.0 for c in which.coefficients}
    compute = {"fixed": 1.0, "per_sample": 0.25}
    assert seconds(which, STEPS, **{**zero, **compute, "overlap": 3.0}) == pytest.approx(
        1 + 0.25 * STEPS.local_batch
    )
    links = {"across_devices": 2.0, "log_nodes": 4.0}
    found = seconds(which, STEPS, **{**zero, **compute, **links, "overlap": 2.0})
    # 8 workers on 2 nodes, batch 128: 33 s of compute, 2 + 4 s of links.
    assert found[4] == pytest.approx(np.hypot(33.0, 6.0))


def test_a_coefficient_of_zero_spares_the_column():
    zero = {c.name: 0.0 for c in OVERLAPPED_STEP.coefficients}
    X = SimpleNamespace(local_batch=np.array([2.0, 4.0]))
    assert seconds(OVERLAPPED_STEP, X, **{**zero, "per_sample": 3.0, "overlap": 2.0}).tolist() == [
        6.0, 12.0,
    ]  # fmt: skip


def test_a_form_of_other_terms_can_be_made(registered):
    new = overlapped("both", "Two.", ["fixed"], ["per_sample"], [0.5, 0.25])
    assert form_named("both") is new
    assert [(c.name, c.start) for c in new.coefficients] == [
        ("fixed", 0.5), ("per_sample", 0.25), ("overlap", 2.0),
    ]  # fmt: skip
    assert new.columns == ("local_batch",)
    with pytest.raises(ValueError, match="there is a form 'both' already"):
        overlapped("both", "Two.", ["fixed"], [], [0.5])
    with pytest.raises(ValueError, match="no term 'fixd'"):
        overlapped("third", "Two.", ["fixd"], [], [0.5])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        overlapped("fourth", "Two.", ["fixed"], ["per_sample"], [0.5])


# -- formulas ------------------------------------------------------------------------------


def test_a_roofline_takes_the_longer_of_arithmetic_and_traffic():
    X = pd.DataFrame(
        {"flop": [1e12, 1e6], "input_bytes": [1e3, 1e9], "output_bytes": 1e3, "n_params": 250.0}
    )
    given_ = {"launch": 1e-5, "per_flop": 1e-12, "per_byte": 1e-9}
    found = seconds(form_named("roofline"), X, **given_, overlap=10.0)
    assert found == pytest.approx([1e-5 + 1.0, 1e-5 + 1.000002])
    added = seconds(form_named("roofline"), X, **given_, overlap=1.0)
    assert added == pytest.approx([1e-5 + 1 + 3e-6, 1e-5 + 1e-6 + 1.000002])


def test_a_server_is_flat_up_to_its_knee_then_grows_by_a_service_a_worker():
    X = pd.DataFrame({"n_workers": [1, 2, 8, 9, 16], "local_batch": 10.0})
    given_ = {"fixed": 0.1, "per_sample": 0.06, "service": 0.1, "update": 0.05}
    found = seconds(form_named("serial_server"), X, **given_)
    assert found == pytest.approx([0.85, 0.85, 0.85, 0.95, 1.65])  # the knee: 0.8 s / 0.1 s


def test_a_shared_file_system_is_flat_until_all_clients_keep_it_busy():
    """10 GB over 1 GB/s a client and 16 GB/s in all, 2 s of launch: 12 s up to 16 nodes."""
    n = np.array([1.0, 8, 16, 20, 32])
    X = SimpleNamespace(n_nodes=n, n_workers=4 * n, dataset_bytes=np.full(5, 1e10))
    found = seconds(form_named("shared_file_system"), X, launch=2.0, own_reading=1e-9, knee=16.0)
    assert found == pytest.approx([2 + max(1e10 / 1e9, 1e10 * k / 16e9) for k in n])
    # Of unknown size the data set counts as one, and without nodes each worker has its own.
    X = SimpleNamespace(n_workers=n)
    found = seconds(form_named("shared_file_system"), X, launch=2.0, own_reading=10.0, knee=16.0)
    assert found == pytest.approx([12, 12, 12, 14.5, 22])


def test_a_hinge_by_hand():
    X = pd.DataFrame({"n_workers": [1, 4, 5, 12], "local_batch": 10.0})
    given_ = {"fixed": 0.1, "per_sample": 0.01, "per_worker": 0.5, "knee": 4.0}
    assert seconds(form_named("hinge"), X, **given_) == pytest.approx([0.2, 0.2, 0.7, 4.2])


def test_the_bandwidth_of_half_size_is_half():
    X = pd.DataFrame({"n_bytes": [0.0, 1e6, 1e15]})
    found = seconds(
        form_named("bandwidth_curve"), X,
        latency=1e-5, per_byte=1e-9, half_size=1e6, sharpness=2.0,
    )  # fmt: skip
    assert found == pytest.approx([1e-5, 1e-5 + 2e-3, 1e6])


# -- registering ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_a_form_tells_its_meaning_its_columns_and_its_coefficients(name):
    found = FORMS[name]
    assert len(found.meaning) > 20
    assert found.columns
    assert len({c.name for c in found.coefficients}) == len(found.coefficients)
    for c in found.coefficients:
        assert c.kind == "number" or c.amount is not None
        assert c.kind != "price" or c.unit.split("/")[0] == "s"
        assert c.low < c.start < c.high


def test_prices_of_overlapped_forms_are_those_of_their_terms():
    for which in (OVERLAPPED_STEP, OVERLAPPED_SERIAL_STEP):
        for c in which.coefficients[:-1]:
            assert (c.unit, c.resource) == (TERMS[c.name].unit, TERMS[c.name].resource)


def test_an_unknown_form_is_named():
    with pytest.raises(ValueError, match="no form 'hing'; known: overlapped_step"):
        form_named("hing")


def test_a_form_can_be_registered_once_and_needs_words(registered):
    price = Coefficient("per_sample", "s/sample", "device", 0.5, lambda x: x.local_batch)

    @form(price)
    def proportional(x, c):
        """Time in proportion to the samples."""
        return c.per_sample * x.local_batch

    found = form_named("proportional")
    assert found.meaning == "Time in proportion to the samples."
    assert found.columns == ("local_batch",)
    assert seconds(found, pd.DataFrame({"local_batch": [2, 4]}), per_sample=3.0).tolist() == [6, 12]
    with pytest.raises(ValueError, match="there is a form 'proportional' already"):
        form(price)(proportional)
    with pytest.raises(ValueError, match="form 'silent' needs a docstring"):

        @form(price)
        def silent(x, c):
            return c.per_sample * x.local_batch


def test_the_amount_of_a_missing_column_is_nan_and_of_a_number_one():
    number, price = FORMS["roofline"].coefficients[3], FORMS["roofline"].coefficients[1]
    frame = pd.DataFrame({"flop": [1.0, None]})
    assert amount_of(number, frame, 2).tolist() == [1.0, 1.0]
    np.testing.assert_array_equal(amount_of(price, frame, 2), [1.0, np.nan])
    assert np.isnan(amount_of(price, pd.DataFrame({"n": [1, 2]}), 2)).all()
