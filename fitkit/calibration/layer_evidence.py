"""How far probes of layers bear out what is carried over from a device: the numeric part.

The logarithm of a time is the sum of terms as on the source, each parameter scaled, plus a share
of the source's factor and a smooth function of the shape. The scales are the maximum a posteriori
of a normal prior on their logarithms, by Gauss-Newton steps that are each a Gaussian process over
the probes (Rasmussen and Williams 2006, equations 2.25 and 2.30); equation 5.8 there is what the
hypotheses are weighed by, 5.12 the error of a probe predicted from the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from fitkit.models.terms import Resource

# What is believed of the logarithms of the scales before any probe: all share one that is wide
# open; parameters of a resource, those of a kind of layer and each for itself differ from it by
# about a third. A specification narrows the first one down.
_COMMON, _BY_SPECIFICATION = 3.0, 0.5
_RESOURCE, _GROUP, _TERM = 0.3, 0.2, 0.3
# Hypotheses: standard deviation of the smooth function, the distance over which it changes, and
# the standard deviation of a measurement; and whether the source's factor is carried.
_AMPLITUDES, _LENGTHS, _NOISES = (0.03, 0.1, 0.25), (0.7, 1.5), (0.03, 0.07)
# A probe may be worthless: with so small a probability, and then it is off by so much.
_ODD, _OFF = 0.03, 0.5
_MOST_ODD = 4  # one in so many
_AT_ONCE = 50  # of so many, one is left out at a time
_STEPS, _LONGEST = 3, 1.0
_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Probed:
    """The probes, and the parameters that they bear on.

    Attributes
    ----------
    logs
        Logarithms of the measured seconds, shape ``(probes,)``.
    group
        Position of the kind of layer of each, shape ``(probes,)``.
    amounts
        Amounts of the terms, shape ``(probes, terms)``.
    squared
        Squared distances between shapes; infinite between kinds, shape ``(probes, probes)``.
    resources
        What each term occupies.
    n_groups
        Kinds of layers, probed or not.
    """

    logs: np.ndarray
    group: np.ndarray
    amounts: np.ndarray
    squared: np.ndarray
    resources: Sequence[Resource]
    n_groups: int

    def every(self, step: int) -> Probed:
        """Every so many of the probes."""
        squared = self.squared[::step, ::step]
        logs, group, amounts = (v[::step] for v in (self.logs, self.group, self.amounts))
        return replace(self, logs=logs, group=group, amounts=amounts, squared=squared)


@dataclass(frozen=True)
class Candidate:
    """A device, or several pooled, that may be carried over.

    Attributes
    ----------
    name
        In words.
    estimates
        Seconds for one unit of each term, by kind of layer, shape ``(groups, terms)``.
    factor
        Its factor at the probes, shape ``(probes,)``.
    share, share_spread
        How much of the factor other devices have in common with it: mean, standard deviation.
    centre
        Expected logarithm of the scale of each term by the specifications, shape ``(terms,)``;
        None where there are none.
    """

    name: str
    estimates: np.ndarray
    factor: np.ndarray
    share: float
    share_spread: float
    centre: np.ndarray | None = None

    def every(self, step: int) -> Candidate:
        """The candidate at every so many of the probes."""
        return replace(self, factor=self.factor[::step])


@dataclass(frozen=True)
class Found:
    """A hypothesis after the probes.

    Attributes
    ----------
    evidence
        Logarithm of the probability of the probes.
    scales
        Logarithms of the scales, shape ``(groups, terms)``.
    share
        How much of the factor is carried.
    own
        Weights of the probes in the smooth function, shape ``(probes,)``.
    length
        Distance over which it changes.
    used
        Which probes were used, shape ``(probes,)``.
    left_out
        Logarithmic error of each, predicted from the others, shape ``(probes,)``.
    before, after
        Variances of the scales before and after the probes, shape ``(groups, terms)``.
    spread
        Standard deviation of a new log time by kind of layer, shape ``(groups,)``.
    """

    evidence: float
    scales: np.ndarray
    share: float
    own: np.ndarray
    length: float
    used: np.ndarray
    left_out: np.ndarray
    before: np.ndarray
    after: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True)
class Belief:
    """Amplitude and length of the smooth function, noise, mean and spread of the share."""

    amplitude: float
    length: float
    noise: float
    share: float
    share_spread: float


def beliefs(candidate: Candidate) -> list[Belief]:
    """All hypotheses about a candidate."""
    shares = [(0.0, 0.0)]
    if np.any(candidate.factor):
        shares.append((candidate.share, candidate.share_spread))
    return [
        Belief(amplitude, length, noise, *share)
        for amplitude, length, noise, share in product(_AMPLITUDES, _LENGTHS, _NOISES, shares)
    ]


def prior_of_scales(probed: Probed, is_specified: bool) -> np.ndarray:
    """Covariance of the logarithms of all scales, group by group, term by term."""
    n_terms = len(probed.resources)
    group = np.repeat(np.arange(probed.n_groups), n_terms)
    resource = np.tile(np.array(probed.resources), probed.n_groups)
    common = _BY_SPECIFICATION if is_specified else _COMMON
    found = np.full((len(group), len(group)), common**2)
    found += _RESOURCE**2 * (resource[:, None] == resource[None, :])
    found += _GROUP**2 * (group[:, None] == group[None, :])
    return np.asarray(found + _TERM**2 * np.eye(len(group)))


def search(probed: Probed, candidate: Candidate, belief: Belief, typical: np.ndarray) -> Found:
    """The scales that a hypothesis makes most probable.

    Parameters
    ----------
    typical
        Amounts of a typical layer of each kind, shape ``(groups, terms)``.
    """
    prior = prior_of_scales(probed, candidate.centre is not None)
    n, n_terms = probed.amounts.shape
    own = belief.amplitude**2 * np.exp(-0.5 * probed.squared / belief.length**2)
    factor = candidate.factor
    fixed = own + belief.share_spread**2 * np.outer(factor, factor) + belief.noise**2 * np.eye(n)
    target = probed.logs - belief.share * factor
    centre = _centre(probed, candidate, target)
    scales = centre.copy()
    for _ in range(_STEPS):
        slopes, totals = slopes_of(probed, candidate.estimates, scales)
        apart = target - totals + slopes @ (scales - centre).ravel()
        covariance = slopes @ prior @ slopes.T + fixed
        weights, used, evidence = _without_odd(covariance, apart)
        moved = centre + (prior @ (slopes.T @ weights)).reshape(scales.shape)
        scales = scales + np.clip(moved - scales, -_LONGEST, _LONGEST)
    known = np.linalg.inv(covariance[np.ix_(used, used)])
    reach = prior @ slopes[used].T
    after = np.diag(prior) - np.einsum("ij,jk,ik->i", reach, known, reach)
    return Found(
        evidence=evidence,
        scales=scales,
        share=belief.share + belief.share_spread**2 * float(factor @ weights),
        own=belief.amplitude**2 * weights,
        length=belief.length,
        used=used,
        left_out=_left_out(covariance, apart, used),
        before=np.diag(prior).reshape(-1, n_terms),
        after=np.maximum(after, 0.0).reshape(-1, n_terms),
        spread=_spread(candidate.estimates, scales, typical, (prior, reach, known), belief),
    )


def _centre(probed: Probed, candidate: Candidate, target: np.ndarray) -> np.ndarray:
    """Expected logarithms of the scales: by the specifications, or else the typical ratio."""
    shape = candidate.estimates.shape
    if candidate.centre is not None:
        return np.broadcast_to(candidate.centre, shape).copy()
    _, totals = slopes_of(probed, candidate.estimates, np.zeros(shape))
    return np.full(shape, float(np.median(target - totals)))


def slopes_of(
    probed: Probed, estimates: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the log times by all scales, and the log times without any factor."""
    parts = probed.amounts * (estimates * np.exp(scales))[probed.group]
    totals = parts.sum(axis=1)
    n, n_terms = parts.shape
    slopes = np.zeros((n, probed.n_groups, n_terms))
    slopes[np.arange(n), probed.group] = parts / totals[:, None]
    return slopes.reshape(n, -1), np.log(totals)


def _without_odd(covariance: np.ndarray, apart: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights of the probes, which of them are used, and the evidence of the hypothesis.

    A probe goes whose error is less probable, given the others, than that of a worthless one.
    """
    used, odd = np.ones(len(apart), dtype=bool), 0.0
    while True:
        at = np.flatnonzero(used)
        inverse = np.linalg.inv(covariance[np.ix_(at, at)])
        found = inverse @ apart[at]
        variance = 1 / np.diag(inverse)
        error = found * variance
        as_odd = math.log(_ODD) + _log_density(error, variance + _OFF**2)
        gain = as_odd - math.log(1 - _ODD) - _log_density(error, variance)
        most = min(max(1, len(apart) // _MOST_ODD) - int((~used).sum()), 1 + len(at) // _AT_ONCE)
        worst = np.argsort(-gain, kind="stable")[: max(most, 0)]
        worst = worst[gain[worst] > 0]
        if not len(worst):
            break
        used[at[worst]] = False
        odd += float(as_odd[worst].sum())
    weights = np.zeros(len(apart))
    weights[at] = found
    fit = -0.5 * float(apart[at] @ found) + 0.5 * float(np.linalg.slogdet(inverse)[1])
    return weights, used, fit + odd + len(at) * (math.log(1 - _ODD) - 0.5 * _LOG_2PI)


def _log_density(error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return np.asarray(-0.5 * (error**2 / variance + np.log(variance) + _LOG_2PI))


def _left_out(covariance: np.ndarray, apart: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Logarithmic error of each probe by the others; of an odd one by those that are used."""
    inverse = np.linalg.inv(covariance[np.ix_(used, used)])
    weights = inverse @ apart[used]
    errors = np.zeros(len(apart))
    errors[used] = weights / np.diag(inverse)
    errors[~used] = apart[~used] - covariance[np.ix_(~used, used)] @ weights
    return errors


def _spread(
    estimates: np.ndarray,
    scales: np.ndarray,
    typical: np.ndarray,
    posterior: tuple[np.ndarray, np.ndarray, np.ndarray],
    belief: Belief,
) -> np.ndarray:
    """Standard deviation of the log time of a typical layer of each kind."""
    prior, reach, known = posterior
    parts = typical * estimates * np.exp(scales)
    n_groups, n_terms = parts.shape
    slopes = np.zeros((n_groups, n_groups, n_terms))
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes[np.arange(n_groups), np.arange(n_groups)] = parts / parts.sum(axis=1)[:, None]
    slopes = np.nan_to_num(slopes).reshape(n_groups, -1)
    across = slopes @ reach
    variance = np.einsum("ij,jk,ik->i", slopes, prior, slopes)
    variance -= np.einsum("ij,jk,ik->i", across, known, across)
    return np.sqrt(np.maximum(variance, 0.0) + belief.amplitude**2 + belief.noise**2)
