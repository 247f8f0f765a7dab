"""Overlap of backward and communication, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.models.overlap import OVERLAPS, OverlapProfile, n_configurations

TIME = st.floats(0, 1e3)


@pytest.mark.parametrize(
    ("form", "value", "backward", "comm", "together"),
    [
        ("share", 0.0, 3.0, 4.0, 7.0),  # one after the other
        ("share", 1.0, 3.0, 4.0, 4.0),  # only what backward is too short for
        ("share", 1.0, 5.0, 4.0, 5.0),
        ("share", 0.5, 3.0, 4.0, 5.5),  # 3 + 4 − 1.5
        ("exponent", 1.0, 3.0, 4.0, 7.0),
        ("exponent", 2.0, 3.0, 4.0, 5.0),  # √(9 + 16)
        ("exponent", 2.0, 3e-200, 4e-200, 5e-200),  # whose squares a float cannot hold
        ("exponent", 10.0, 2.0, 2.0, 2 * 2**0.1),
        ("exponent", 10.0, 0.0, 0.0, 0.0),
        ("exponent", 3.0, 0.0, 4.0, 4.0),
    ],
)
def test_a_form(form, value, backward, comm, together):
    found = OVERLAPS[form].seconds(np.array([backward]), np.array([comm]), np.array(value))
    assert found == pytest.approx([together], rel=1e-12)


@given(backward=TIME, comm=TIME)
def test_every_form_lies_between_the_sum_and_the_longer(backward, comm):
    for overlap in OVERLAPS.values():
        seconds = overlap.seconds(np.array(backward), np.array(comm), overlap.grid)
        assert np.all(seconds >= max(backward, comm) * (1 - 1e-12))
        assert seconds[0] == pytest.approx(backward + comm)
        assert np.all(np.diff(seconds) <= 1e-12 * (backward + comm))  # more overlap, less time


def parts(backward, comm):
    zero = np.zeros(len(backward))
    return SimpleNamespace(
        forward_s=zero, backward_s=np.array(backward), optimizer_s=zero, comm_s=np.array(comm)
    )


def test_configurations_are_rows_that_agree_in_every_part():
    n, configuration = n_configurations(parts([1.0, 2, 1], [3.0, 3, 3]))
    assert n == 2
    assert configuration[0] == configuration[2] != configuration[1]


def test_bounds_of_the_constant_alone_are_those_of_a_mean():
    # Without communication t = c + backward: c by Student's t over 1, 2 and 3 s beyond 100 s,
    # where relative and absolute errors are nearly the same: 2 ± 2.92 · 1 / √3.
    profile = OverlapProfile(
        OVERLAPS["share"], parts([100.0] * 3, [0.0] * 3), np.array([101.0, 102, 103]), 0.9
    )
    constant, overlap = profile.parameters()
    assert not profile.is_determined
    assert profile.dof == 2
    assert constant.estimate == pytest.approx(2.0, abs=0.02)
    assert constant.ci_low == pytest.approx(2 - 2.92 / 3**0.5, abs=0.02)
    assert constant.ci_high == pytest.approx(2 + 2.92 / 3**0.5, abs=0.02)
    assert (overlap.ci_low, overlap.ci_high, overlap.status) == (0.0, 1.0, "undetermined")
