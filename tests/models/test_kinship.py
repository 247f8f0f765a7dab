"""Kinship: the posterior is that of a direct search over the parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from fitkit.models import kinship
from fitkit.models.kinship import Rows, mean_error, posterior

KEYS = [("bert", "A100"), ("bert", "H100"), ("resnet", "A100")]


@pytest.fixture
def rows():
    family = np.array([0, 0, 0, 1, 2, 2])
    work = np.array([8.0, 32, 128, 64, 256, 32])
    workers = np.array([1.0, 2, 8, 8, 1, 16])
    times = np.array([0.05, 0.13, 0.45, 0.12, 0.1, 0.02])
    amounts = np.column_stack([work, np.ones(6), np.log2(workers)])
    return Rows(KEYS, family, amounts, workers, np.log(times))


def levels(spread):
    """Prior covariance of the three families, written out by hand."""
    own = spread.family**2
    everyone, near, far, joint = (
        getattr(spread, name) ** 2 for name in ("everyone", "near", "far", "joint")
    )
    diagonal = everyone + near + far + joint + own
    network, device, nothing = everyone + near, everyone + far, everyone
    return np.array(
        [[diagonal, network, device], [network, diagonal, nothing], [device, nothing, diagonal]]
    )


def test_the_posterior_is_the_minimum_that_a_direct_search_finds(rows):
    # Typical amounts: the median work of each network; the median of the positive overheads.
    work = np.where(rows.family < 2, 48.0, 144.0)
    relative = np.column_stack([rows.amounts[:, 0] / work, rows.amounts[:, 1:] / [1.0, 3.0]])
    start = np.median(rows.logs - np.log(relative[:, 0]))
    speed = np.linalg.inv(levels(kinship._SPEED_SPREAD))
    overhead = np.linalg.inv(levels(kinship._OVERHEAD_SPREAD))

    def cost(flat):
        s, o = flat[:3], flat[3:].reshape(3, 2)
        parts = np.column_stack([np.ones(6), np.exp(o)[rows.family]])
        errors = rows.logs - s[rows.family] - np.log((relative * parts).sum(axis=1))
        away = o - np.log(kinship._SHARE)
        prior = (s - start) @ speed @ (s - start) + np.einsum("fk,fg,gk->", away, overhead, away)
        return errors @ errors / kinship._NOISE**2 + prior

    first = np.concatenate([np.full(3, start), np.full(6, np.log(kinship._SHARE))])
    best = minimize(cost, first, method="BFGS", options={"gtol": 1e-5}).x
    found = posterior(rows, 2)
    for f, key in enumerate(KEYS):
        expected = best[f] + np.array([0.0, *best[3 + 2 * f : 5 + 2 * f]])
        expected -= np.log([48.0 if f < 2 else 144.0, 1.0, 3.0])
        assert found[key].logs == pytest.approx(expected, abs=2e-3)


def test_with_the_work_alone_it_is_normal_theory(rows):
    found = posterior(rows.first(1), 2)
    prior = levels(kinship._SPEED_SPREAD)
    member = np.eye(3)[rows.family]
    precision = np.linalg.inv(prior) + member.T @ member / kinship._NOISE**2
    work = np.where(rows.family < 2, 48.0, 144.0)
    logs = rows.logs - np.log(rows.amounts[:, 0] / work)
    mean = np.median(logs) + np.linalg.solve(
        precision, member.T @ (logs - np.median(logs)) / kinship._NOISE**2
    )
    assert [found[key].logs[0] for key in KEYS] == pytest.approx(mean - np.log([48, 48, 144]))
    excess = found[KEYS[0]].noise / kinship._NOISE**2
    variances = excess * np.diag(np.linalg.inv(precision))
    assert [found[key].covariance[0, 0] for key in KEYS] == pytest.approx(variances)


def test_a_family_without_a_row_is_what_its_relatives_say(rows):
    found = posterior(rows.where(rows.family != 1), 2)
    alone, relative = found["bert", "H100"], found["bert", "A100"]
    assert alone.n_obs == 0
    assert alone.covariance[0, 0] > 1 > relative.covariance[0, 0]
    shares = [np.exp(family.logs[1] - family.logs[0]) for family in found.values()]
    assert min(shares[0], 2.4) < shares[1] < max(shares[0], 2.4)  # 2.4 is 5 % of 48 samples


def test_the_largest_scale_is_of_families_that_have_several(rows):
    assert rows.largest_scale().tolist() == [False, False, True, False, False, True]


def test_errors_count_families_alike(rows):
    families = posterior(rows.first(1), 2)
    off = Rows(rows.keys, rows.family, rows.amounts[:, :1], rows.scale, rows.logs)
    errors = [
        abs(log - np.log(amount) - families[KEYS[family]].logs[0])
        for log, amount, family in zip(off.logs, off.amounts[:, 0], off.family, strict=True)
    ]
    expected = np.mean([np.mean(errors[:3]), errors[3], np.mean(errors[4:])])
    assert mean_error(families, off) == pytest.approx(expected)


def test_errors_that_the_model_does_not_believe_widen_it(rows):
    rough = Rows(
        rows.keys, rows.family, rows.amounts, rows.scale,
        rows.logs + np.array([0.3, -0.3, 0.3, 0, 0.3, -0.3]),
    )  # fmt: skip
    quiet, noisy = (posterior(each, 2)[KEYS[0]].noise for each in (rows, rough))
    assert noisy > quiet >= kinship._NOISE**2 * (1 - 1e-12)
