"""SharingModel: the throughput that a job keeps when another shares its device."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.columns import UNKNOWN, Key, keys
from fitkit.models.estimator import Estimator, require_fitted
from fitkit.models.intervals import check_level
from fitkit.models.parameters import Parameter

if TYPE_CHECKING:
    pass

_SIZED = re.compile(r"(?P<family>.+[\s=:(\[])(?P<size>\d+(?:\.\d+)?)\s*[)\]]?")
_START = (0.2, 0.05)  # variance of each component and of the noise, as shares of the whole
_LOG_BOUNDS = (-12.0, 4.0)  # of a variance as a share of the whole
_LEAST_VARIANCE = 1e-6  # 0.1 % either way, which no measurement tells from none
_JITTER = 1e-9  # keeps rounding from making a covariance singular


class SharingModel(Estimator):
    r"""Share of its isolated throughput that a job keeps beside a neighbour.

    .. math:: \log y_{ij} = \mu + a_i + b_j + c_{ij} + \varepsilon_{ij}

    How well job *i* keeps its throughput, how much neighbour *j* leaves, and what is particular
    to the two. The effects are random, each with one part of its own and one that is alike for
    jobs of a family whose sizes are close; the covariances are

    .. math::
        a: \sigma_1^2 I + \sigma_2^2 R, \quad b: \sigma_3^2 I + \sigma_4^2 R, \quad
        c: \sigma_5^2\, F \otimes F + \sigma_6^2\, R \otimes R

    with *F* = 1 inside a family and *R* = *F* exp(-d² / 2 l²), *d* the doublings between two
    sizes. The variances are those of the largest restricted likelihood (H. D. Patterson and
    R. Thompson, Biometrika 58, 1971), the effects their best linear unbiased predictors
    (C. R. Henderson, Biometrics 31, 1975): the fewer pairs speak for an effect, the more it
    shrinks. No choice is left to cross-validation.

    A job's text that ends in a number is a family and a size: ``ResNet-18 (batch size 16)`` is
    ``ResNet-18 (batch size`` of size 16. A word in front of the number, or a bracket, ``=`` or
    ``:``, is needed: ``A3C`` and ``ResNet-18`` are families of their own.

    The time to fit grows with the third power of the number of different pairs: about a second
    for 400.

    Parameters
    ----------
    doublings
        Length *l*: how many doublings apart two sizes still behave alike.
    level
        Level of the parameters' confidence intervals.

    Examples
    --------
    >>> frame = pd.DataFrame({"job": ["a", "a", "b", "b"], "neighbour": ["a", "b", "a", "b"]})
    >>> model = SharingModel().fit(frame, [0.5, 0.6, 0.4, 0.5])
    >>> bool(model.predict(frame)[1] > model.predict(frame)[2])
    True
    """

    def __init__(self, doublings: float = 2.0, level: float = 0.9) -> None:
        self.doublings = doublings
        self.level = level

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return ("job", "neighbour")

    # -- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to measured pairs.

        Parameters
        ----------
        X
            Columns ``job`` and ``neighbour``; shape ``(rows, ...)``. A pair that was measured
            more than once counts once, with its geometric mean.
        y
            Throughput of the job beside the neighbour, divided by its throughput alone; shape
            ``(rows,)``, all positive.

        Raises
        ------
        ValueError
            If a share is not a positive number, a job or neighbour is null, or the length is
            not positive.
        FitError
            If there is no row.
        """
        shares = np.asarray(y, dtype=float)
        if not len(shares):
            raise FitError("no rows to fit", "widen the condition, or ingest more pairs")
        if not np.all(np.isfinite(shares) & (shares > 0)):
            raise ValueError("shares must be positive numbers")
        if not self.doublings > 0:
            raise ValueError(f"a length of {self.doublings} doublings: it must be positive")
        pairs, logs = _one_each(keys(X, self.columns), np.log(shares))
        self.jobs_ = sorted({job for job, _ in pairs})
        self.neighbours_ = sorted({neighbour for _, neighbour in pairs})
        self.n_obs_ = len(shares)
        cells = _Cells.of(pairs, self.jobs_, self.neighbours_)
        components = _components(self.jobs_, self.neighbours_, self.doublings)
        self._predict_effects(cells, _scaled(cells, components, logs), logs)
        return self

    def _predict_effects(
        self, cells: _Cells, fitted: tuple[list[_Component], float], logs: np.ndarray
    ) -> None:
        """Best linear unbiased predictors of all effects, and their standard errors."""
        components, noise = fitted
        covariance = sum(cells.covariance(c) for c in components) + noise * np.eye(len(logs))
        inverse = np.linalg.inv(covariance)
        total = inverse.sum()
        self.noise_ = float(np.sqrt(noise))
        self.base_ = float(inverse.sum(axis=0) @ logs / total)
        self._base_error = float(np.sqrt(1 / total))
        spread = cells.table(inverse @ (logs - self.base_))
        (own, near), (left, left_near), both = components[:2], components[2:4], components[4:]
        job = own.variance * own.job + near.variance * near.job
        neighbour = left.variance * left.neighbour + left_near.variance * left_near.neighbour
        self.job_effects_ = job @ spread.sum(axis=1)
        self.neighbour_effects_ = neighbour @ spread.sum(axis=0)
        self.interactions_ = np.sum(
            [c.variance * (c.job @ spread @ c.neighbour) for c in both], axis=0
        )
        projection = inverse - np.outer(inverse.sum(axis=0), inverse.sum(axis=0)) / total
        self._job_errors = _errors(job, cells.job, projection)
        self._neighbour_errors = _errors(neighbour, cells.neighbour, projection)
        self._share_errors = _mean_errors(cells, components, inverse)
        self.parameters_ = self._parameters()

    def _parameters(self) -> list[Parameter]:
        """Each effect as the factor by which it multiplies the share."""
        named = [("base", "share", self.base_, self._base_error)]
        for word, texts, effects, errors in (
            ("job", self.jobs_, self.job_effects_, self._job_errors),
            ("neighbour", self.neighbours_, self.neighbour_effects_, self._neighbour_errors),
        ):
            rows = zip(texts, effects.tolist(), errors.tolist(), strict=True)
            named += [(f"{word} {text}", "factor", effect, error) for text, effect, error in rows]
        z = NormalDist().inv_cdf(0.5 + self.level / 2)
        return [
            Parameter(
                term=name,
                estimate=float(np.exp(effect)),
                std_err=float(np.exp(effect)) * error,  # delta method
                ci_low=float(np.exp(effect - z * error)),
                ci_high=float(np.exp(effect + z * error)),
                unit=unit,
                status="positive",
            )
            for name, unit, effect, error in named
        ]

    # -- using it --------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Share that each job keeps, shape ``(rows,)``; NaN for one never measured."""
        return self._logs_and_errors(X)[0]

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``.

        Normal theory on the logarithm: the variance of the predicted mean plus that of one pair.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        mean, error = self._logs_and_errors(X)
        half = NormalDist().inv_cdf(0.5 + level / 2) * np.hypot(error, self.noise_)
        return mean * np.exp(-half), mean * np.exp(half)

    def _logs_and_errors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predicted share, and the standard error of its logarithm."""
        require_fitted(self, "parameters_")
        rows = {text: row for row, text in enumerate(self.jobs_)}
        columns = {text: column for column, text in enumerate(self.neighbours_)}
        asked = keys(X, self.columns)
        found = np.full((2, len(asked)), np.nan)
        for k, (job, neighbour) in enumerate(asked):
            if job in rows and neighbour in columns:
                i, j = rows[job], columns[neighbour]
                effects = self.job_effects_[i] + self.neighbour_effects_[j]
                share = np.exp(self.base_ + effects + self.interactions_[i, j])
                found[:, k] = share, self._share_errors[i, j]
        return found[0], found[1]

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "parameters_")
        return {
            "doublings": float(self.doublings),
            "level": float(self.level),
            "n_obs": self.n_obs_,
            "jobs": self.jobs_,
            "neighbours": self.neighbours_,
            "noise": self.noise_,
            "base": [self.base_, self._base_error],
            "job_effects": [self.job_effects_.tolist(), self._job_errors.tolist()],
            "neighbour_effects": [
                self.neighbour_effects_.tolist(),
                self._neighbour_errors.tolist(),
            ],
            "interactions": self.interactions_.tolist(),
            "errors": self._share_errors.tolist(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If a number is missing or not finite, or a table has the wrong shape.
        """
        model = cls(float(state["doublings"]), float(state["level"]))
        model.jobs_ = [str(job) for job in state["jobs"]]
        model.neighbours_ = [str(neighbour) for neighbour in state["neighbours"]]
        n_jobs, n_neighbours = len(model.jobs_), len(model.neighbours_)
        model.n_obs_ = int(state["n_obs"])
        model.noise_ = float(_finite(state["noise"], ()))
        model.base_, model._base_error = map(float, _finite(state["base"], (2,)))
        model.job_effects_, model._job_errors = _finite(state["job_effects"], (2, n_jobs))
        model.neighbour_effects_, model._neighbour_errors = _finite(
            state["neighbour_effects"], (2, n_neighbours)
        )
        model.interactions_ = _finite(state["interactions"], (n_jobs, n_neighbours))
        model._share_errors = _finite(state["errors"], (n_jobs, n_neighbours))
        model.parameters_ = model._parameters()
        return model


def family_and_size(job: str) -> tuple[str, float]:
    """What a job's text says before the number that it ends in, and that number, else 1."""
    match = _SIZED.fullmatch(job)
    if match is None or float(match["size"]) == 0:
        return job, 1.0
    return match["family"], float(match["size"])


@dataclass(frozen=True)
class _Component:
    """Random effects with the covariance ``variance * job[i, i'] * neighbour[j, j']``."""

    job: np.ndarray
    neighbour: np.ndarray
    variance: float = 1.0


@dataclass(frozen=True)
class _Cells:
    """Measured pairs as rows and columns of the table of all."""

    job: np.ndarray
    neighbour: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def of(cls, pairs: Sequence[Key], jobs: list[str], neighbours: list[str]) -> Self:
        rows = np.array([jobs.index(job) for job, _ in pairs])
        columns = np.array([neighbours.index(neighbour) for _, neighbour in pairs])
        return cls(rows, columns, (len(jobs), len(neighbours)))

    def covariance(self, component: _Component) -> np.ndarray:
        """Between all measured pairs, shape ``(pairs, pairs)``."""
        between_jobs = component.job[np.ix_(self.job, self.job)]
        between_neighbours = component.neighbour[np.ix_(self.neighbour, self.neighbour)]
        return np.asarray(component.variance * between_jobs * between_neighbours)

    def table(self, values: np.ndarray) -> np.ndarray:
        """Values of the measured pairs in their places, 0 elsewhere."""
        found = np.zeros(self.shape)
        found[self.job, self.neighbour] = values
        return found


def _one_each(asked: Sequence[Key], logs: np.ndarray) -> tuple[list[Key], np.ndarray]:
    """Different pairs in order, and the mean of each; the order of the rows is no matter."""
    if any(UNKNOWN in pair for pair in asked):
        raise ValueError("a job or a neighbour is null")
    values: dict[Key, list[float]] = {}
    for pair, value in sorted(zip(asked, logs.tolist(), strict=True)):
        values.setdefault(pair, []).append(value)
    return list(values), np.array([np.mean(found) for found in values.values()])


def _components(jobs: list[str], neighbours: list[str], length: float) -> list[_Component]:
    """Two of the job, two of the neighbour, two of both together."""
    (job_family, job_near), (family, near) = _likeness(jobs, length), _likeness(neighbours, length)
    any_job, any_neighbour = np.ones_like(job_family), np.ones_like(family)
    return [
        _Component(np.eye(len(jobs)), any_neighbour),
        _Component(job_near, any_neighbour),
        _Component(any_job, np.eye(len(neighbours))),
        _Component(any_job, near),
        _Component(job_family, family),
        _Component(job_near, near),
    ]


def _likeness(texts: list[str], length: float) -> tuple[np.ndarray, np.ndarray]:
    """Whether two are of one family, and how near their sizes are; shapes ``(n, n)``."""
    families, sizes = zip(*map(family_and_size, texts), strict=True)
    same = (np.array(families)[:, None] == np.array(families)).astype(float)
    doublings = np.subtract.outer(np.log2(sizes), np.log2(sizes))
    return same, same * np.exp(-(doublings**2) / (2 * length**2))


def _scaled(
    cells: _Cells, components: Sequence[_Component], logs: np.ndarray
) -> tuple[list[_Component], float]:
    """Components times their variances, and that of the noise, by restricted likelihood."""
    from scipy.optimize import minimize  # here, so that predicting needs numpy alone

    whole = max(float(logs.var()), _LEAST_VARIANCE)
    parts = np.stack([*map(cells.covariance, components), np.eye(len(logs))])
    start = np.log([*[_START[0]] * len(components), _START[1]])

    def loss(log_shares: np.ndarray) -> tuple[float, np.ndarray]:
        variances = whole * np.exp(log_shares)
        covariance = np.tensordot(variances, parts, 1) + whole * _JITTER * np.eye(len(logs))
        inverse = np.linalg.inv(covariance)
        ones = inverse.sum(axis=0)
        projection = inverse - np.outer(ones, ones) / ones.sum()
        weights = projection @ logs
        value = np.linalg.slogdet(covariance)[1] + np.log(ones.sum()) + logs @ weights
        slope = np.tensordot(parts, projection - np.outer(weights, weights), 2)
        return value / 2, variances * slope / 2

    bounds = [_LOG_BOUNDS] * len(start)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    *variances, noise = (whole * np.exp(found.x)).tolist()
    return [replace(c, variance=v) for c, v in zip(components, variances, strict=True)], noise


def _errors(prior: np.ndarray, rows: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Standard errors of predicted effects: what the data take off their prior variance."""
    known = prior[:, rows]
    taken = np.einsum("ij,jk,ik->i", known, projection, known, optimize=True)
    return np.sqrt(np.maximum(np.diag(prior) - taken, 0.0))


def _mean_errors(
    cells: _Cells, components: Sequence[_Component], inverse: np.ndarray
) -> np.ndarray:
    """Standard error of the logarithm of every predicted share, shape ``(jobs, neighbours)``."""
    ones = inverse.sum(axis=0)
    found = np.empty(cells.shape)
    for i in range(cells.shape[0]):
        known, prior = np.zeros((cells.shape[1], len(ones))), np.zeros(cells.shape[1])
        for c in components:
            known += c.variance * c.job[i, cells.job] * c.neighbour[:, cells.neighbour]
            prior += c.variance * c.job[i, i] * np.diag(c.neighbour)
        taken = np.einsum("ij,jk,ik->i", known, inverse, known, optimize=True)
        base = (1 - known @ ones) ** 2 / ones.sum()  # the base is estimated too
        found[i] = np.sqrt(np.maximum(prior - taken + base, 0.0))
    return found


def _finite(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    found = np.array(values, dtype=float)
    if found.shape != shape or not np.all(np.isfinite(found)):
        raise ValueError("a table of the model is damaged")
    return found
