"""Student's t quantiles against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fitkit.models.intervals import t_quantile

LEVELS = [0.5, 0.51, 0.6, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999]


@pytest.mark.parametrize("p", LEVELS)
@pytest.mark.parametrize("dof", [1, 2])
def test_one_and_two_degrees_of_freedom_are_exact(p, dof):
    assert t_quantile(p, dof) == pytest.approx(stats.t.ppf(p, dof), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("p", LEVELS)
def test_five_digits_hold_from_three_degrees_of_freedom_on(p):
    dofs = [*range(3, 60), 100, 1000, 100_000, 10_000_000]
    found = [t_quantile(p, dof) for dof in dofs]
    np.testing.assert_allclose(found, stats.t.ppf(p, dofs), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dof", [1, 2, 3, 17])
def test_the_lower_tail_mirrors_the_upper(dof):
    assert t_quantile(0.05, dof) == -t_quantile(0.95, dof)


@pytest.mark.parametrize(("p", "dof"), [(0, 3), (1, 3), (-0.1, 3), (1.1, 3), (0.9, 0), (np.nan, 3)])
def test_what_has_no_quantile_is_refused(p, dof):
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(p, dof)
