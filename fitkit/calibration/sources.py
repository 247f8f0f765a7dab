"""Which group of a source model a group of probes is calibrated from."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fitkit.calibration.kernel import coordinates
from fitkit.calibration.law import Law
from fitkit.calibration.posterior import Evidence, surprise
from fitkit.calibration.prior import Prior, prior_of
from fitkit.calibration.scratch import enough
from fitkit.calibration.specifications import Specifications
from fitkit.errors import FitError
from fitkit.models.columns import UNKNOWN, Key
from fitkit.models.domain import Domain
from fitkit.models.forms import OVERLAPPED_SERIAL_STEP
from fitkit.models.performance import PerformanceModel
from fitkit.models.terms import terms_named

_SAME = ("network", "phase")  # what the source has to share with the probes
_MOST = 40  # groups of the source of which the likeliest is sought
# Fitted to the probes alone: few terms, so that half a dozen runs determine them.
_SCRATCH_STEP = ("fixed", "per_sample", "log_workers", "across_nodes", "pair_sharing")
_STEP = tuple(c.name for c in OVERLAPPED_SERIAL_STEP.coefficients if c.kind == "price")


def terms_of(model: PerformanceModel, key: Key) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Terms of the law, terms for the probes alone, and whether the law's sums overlap."""
    if model.recipe.name == "step" and model.target == model.recipe.target:
        return _STEP, _SCRATCH_STEP, True
    own = tuple(getattr(model.estimator.groups_[key], "terms", ()) or ("fixed", "per_sample"))
    return own, own, False


def related(model: PerformanceModel, asked: Key) -> list[Key]:
    """Groups of the source that a group of probes can be calibrated from, the most alike first.

    Raises
    ------
    FitError
        If none has the same network, or phase.
    """
    names = model.recipe.groups
    fixed = [k for k, name in enumerate(names) if name in _SAME]
    said = [k for k in fixed if asked[k] != UNKNOWN]
    found = [key for key in model.estimator.groups_ if all(key[k] == asked[k] for k in said)]
    for k in fixed:
        choices = sorted({key[k] for key in found})
        if k not in said and len(choices) > 1:
            raise FitError(
                f"the model knows {', '.join(choices[:12])}", f"say in a column {names[k]} which"
            )
    if not found:
        wanted = ", ".join(f"{names[k]} {asked[k]}" for k in fixed if asked[k] != UNKNOWN)
        known = sorted({" ".join(key[k] for k in fixed) for key in model.estimator.groups_})
        raise FitError(
            f"the model has nothing to calibrate {wanted or 'these probes'} from: it knows "
            f"{', '.join(known[:12])}",
            "probe what the model was fitted to, or fit a model of it elsewhere first",
        )
    return sorted(found, key=lambda key: -_shared(key, asked))


def _shared(one: Key, other: Key) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


class Sources:
    """Priors of a source model's groups, each read off once.

    Parameters
    ----------
    model
        The source.
    specifications
        What is known of the hardware of both sides.
    """

    def __init__(self, model: PerformanceModel, specifications: Specifications) -> None:
        self.model = model
        self.specifications = specifications
        self._found: dict[tuple[Key, Key, tuple[str, ...]], Prior] = {}

    def prior(self, source: Key, asked: Key, rows: SimpleNamespace) -> Prior:
        """The prior of a group of the source, for probes of a group."""
        terms, _, overlaps = terms_of(self.model, source)
        amounts = {t.name: t.amount(rows, _length(rows)) for t in terms_named(list(terms))}
        known = tuple(name for name, values in amounts.items() if np.all(np.isfinite(values)))
        if not known:
            columns = ", ".join(Law(terms, overlaps=False).columns)
            raise FitError("the probes tell nothing that the model reads", f"give {columns}")
        which = (source, asked, known)
        if which not in self._found:
            names = self.model.recipe.groups
            ratios = self.specifications.ratios(
                dict(zip(names, source, strict=True)), dict(zip(names, asked, strict=True))
            )
            domain = self.domain(source)
            estimator = self.model.estimator.groups_[source]
            prior = prior_of(estimator, domain, Law(known, overlaps), ratios)
            self._found[which] = Prior(prior.law, prior.center, prior.spread, prior.box, source)
        return self._found[which]

    def unused_sheets(self, source: Key, asked: Key) -> list[str]:
        """Why the data sheets that were given tell nothing, if so: a sentence."""
        names = self.model.recipe.groups
        return self.specifications.unused(
            dict(zip(names, source, strict=True)), dict(zip(names, asked, strict=True))
        )

    def nearest(self, asked: Key, rows: SimpleNamespace, logs: np.ndarray) -> Prior:
        """The prior of the group under which the probes are likeliest.

        Where they are too few to tell, of those measured over the widest range of scales that
        which agrees in most columns: what the probes leave open, the source has to know.
        """
        groups = related(self.model, asked)
        if not enough(len(logs)):
            widest = max(self._range(group) for group in groups)
            return self.prior(next(g for g in groups if self._range(g) >= widest), asked, rows)
        priors = [self.prior(group, asked, rows) for group in groups[:_MOST]]
        if len(priors) == 1:
            return priors[0]
        return min(priors, key=lambda prior: _surprise(prior, rows, logs))

    def _range(self, group: Key) -> float:
        """Ratio of the largest to the smallest number of workers of a group."""
        low, high = self.domain(group).box.get("n_workers", (1.0, 1.0))
        return high / low

    def domain(self, group: Key) -> Domain:
        """What was measured of a group of the source."""
        return next(d for k, d in self.model.domains.items() if k[: len(group)] == group)


def _surprise(prior: Prior, rows: SimpleNamespace, logs: np.ndarray) -> float:
    read = ("local_batch", "n_workers", "n_nodes")
    names = [name for name in read if hasattr(rows, name) and name in prior.law.columns]
    where = coordinates(rows, names).reshape(len(logs), len(names))
    evidence = Evidence(prior.law.amounts(rows), where, logs)
    return surprise(prior.law, prior.center, prior.spread, evidence)


def _length(rows: SimpleNamespace) -> int:
    return max((np.size(values) for values in vars(rows).values()), default=0)
