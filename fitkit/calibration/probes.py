"""suggest_probes(): which runs on new hardware tell most, what they cost, what error to expect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fitkit.calibration.calibrating import calibrated, read
from fitkit.calibration.designs import chosen, deviations, varied
from fitkit.calibration.grids import box_grid
from fitkit.calibration.kernel import NOISE, coordinates, covariance
from fitkit.calibration.posterior import Evidence, Posterior, fitted
from fitkit.calibration.sources import Sources
from fitkit.calibration.specifications import Device, Specifications
from fitkit.calibration.transfer_library import error_by_deviation
from fitkit.dataset import Dataset
from fitkit.errors import FitError, InputError
from fitkit.fitting import Measurements, measurements
from fitkit.models.columns import (
    UNKNOWN,
    Key,
    group_labels,
    keys,
    number_columns,
    rows_by_key,
    take,
)
from fitkit.models.performance import PerformanceModel

_Sizes = dict[str, tuple[np.ndarray, list[float]]]
RECIPES = ("step", "phases", "layers")
STEPS = 100  # of a probe: enough for a median, beside those of the warm-up
_CHEAP = 0.7  # of the mean cost of candidates: what a probe may cost on average
_MOST = 1_500  # candidates that are compared; of more, so many drawn at random
_TELLING = ("local_batch", "n_workers")  # of which `calibrate` wants more than one value
_REACHING = ("local_batch", "n_workers", "n_nodes")


def suggest_probes(
    model: PerformanceModel,
    candidates: pd.DataFrame,
    n: int = 6,
    budget: float | None = None,
    *,
    probes: Dataset | pd.DataFrame | Path | str | None = None,
    spec: Device | Path | str | None = None,
    source_spec: Device | Path | str | None = None,
    where: str | None = None,
    max_workers: int | None = None,
    max_local_batch: int | None = None,
) -> pd.DataFrame:
    """Choose the runs on new hardware that leave the least doubt about all candidates.

    The doubt is that of `calibrate`: of the parameters, by the source model's prior, and of what
    departs from it. Costs are those that the source expects: what they are of each other counts.

    Parameters
    ----------
    model
        Fitted elsewhere, of recipe ``step`` or ``phases``; of ``layers`` see
        `fitkit.calibration.layer_design.suggest_layer_probes`.
    candidates
        Configurations that could be run and that will be asked for: the recipe's columns, without
        times; `cluster_candidates` makes them of a cluster.
    n
        How many to choose for each group, such as a network.
    budget
        Device-seconds that the chosen ones of a group may cost, each of 100 steps; by default 70 %
        of what as many average candidates cost.
    probes
        Runs that there are already: the choice goes on from them. They are checked as
        `calibrate` does; what candidates do not say, such as the device, is that of the probes.
    spec, source_spec
        Data sheets of the new and of the old hardware, see `calibrate`.
    where
        Condition on the probes, such as ``'device == "H100"'``.
    max_workers, max_local_batch
        What the cluster has, and what fits into the memory of a device.

    Returns
    -------
    DataFrame
        The chosen rows of the candidates, their index kept, the most telling first. Added are
        ``expected_s``, the step time that is expected; ``device_s``, the device-seconds of 100
        steps; ``expected_error``, the mean error that is left with this and all runs above it.
        ``attrs["notes"]`` lists what to know of the choice.

    Raises
    ------
    ValueError
        If the recipe cannot be calibrated, ``n`` is below 1, there are too few candidates, or the
        budget does not pay for ``n`` runs.
    FitError
        If the model knows nothing like the candidates, or `calibrate` refuses the probes.
    InputError
        If no probe is of what the candidates are.

    Examples
    --------
    >>> runs = fitkit.suggest_probes(model, candidates, n=6)  # doctest: +SKIP
    """
    recipe = model.recipe
    limits = {"n_workers": max_workers, "local_batch": max_local_batch}
    kept = _askable(recipe.name, candidates, n, limits)
    if recipe.name == "layers":
        from fitkit.calibration.layer_design import suggest_layer_probes

        return suggest_layer_probes(model, kept, n)
    specifications = Specifications(read(spec), read(source_spec))
    sources = Sources(model, specifications)
    prepared = recipe.prepare(kept.rename(columns=str))
    groups = rows_by_key(keys(prepared, recipe.groups))
    evidence = _Probes(model, _measured(model, probes, where, specifications), list(groups))
    columns = {str(name): prepared[name].to_numpy() for name in prepared.columns}
    numeric = number_columns(columns, recipe.columns, len(kept))
    parts: list[pd.DataFrame] = []
    notes: list[str] = []
    for key, rows in groups.items():
        found = _Group(sources, key, take(numeric, rows), evidence)
        picked, added = found.choose(n, budget)
        notes += [note for note in found.notes if note not in notes]
        parts.append(kept.iloc[rows[picked]].assign(**added))
    chosen_rows = pd.concat(parts)
    chosen_rows.attrs["notes"] = notes
    return chosen_rows


def _askable(
    recipe: str, candidates: pd.DataFrame, n: int, limits: dict[str, int | None]
) -> pd.DataFrame:
    """Candidates within the limits, once what is asked for makes sense."""
    if recipe not in RECIPES:
        raise ValueError(f"recipe {recipe} has no probes; known: {', '.join(RECIPES)}")
    if n < 1 or n != int(n):
        raise ValueError(f"n = {n}: at least one run, a whole number")
    kept = _within(candidates, limits)
    if kept.empty:
        raise ValueError("no candidate is within max_workers and max_local_batch")
    return kept


def _within(candidates: pd.DataFrame, limits: dict[str, int | None]) -> pd.DataFrame:
    for name, limit in limits.items():
        if limit is not None and name in candidates:
            candidates = candidates[candidates[name] <= limit]
    return candidates


def _measured(
    model: PerformanceModel,
    probes: Dataset | pd.DataFrame | Path | str | None,
    where: str | None,
    specifications: Specifications,
) -> Measurements | None:
    """The probes, once `calibrate` takes them; that they are of one size is what we go on from."""
    if probes is None:
        return None
    found = measurements(
        probes, model.recipe.name, where=where, target=model.target,
        statistic=model.statistic,  # type: ignore[arg-type]
    )  # fmt: skip
    calibrated(model, found, specifications, allow_prior=True)
    return found


class _Probes:
    """Runs that there are already, by the groups of the candidates.

    What a candidate or a probe does not say, such as the device, may be what the other says.

    Raises
    ------
    InputError
        If there are probes, and none is of what the candidates are.
    """

    def __init__(
        self, model: PerformanceModel, found: Measurements | None, asked: Sequence[Key]
    ) -> None:
        self.rows: dict[Key, tuple[Key, SimpleNamespace, np.ndarray]] = {}
        if found is None:
            return
        names = model.recipe.groups
        columns = {str(name): found.pooled[name].to_numpy() for name in found.pooled.columns}
        numeric = number_columns(columns, model.recipe.columns, len(found.pooled))
        logs = np.log(found.pooled[found.target].to_numpy(dtype=float))
        groups = rows_by_key(keys(found.pooled, names))
        for key in asked:
            alike = [k for k in groups if _may_be(k, key)]
            for probed in [k for k in alike if k == key] or alike[:1]:
                rows, both = groups[probed], _merged(key, probed)
                self.rows[key] = (both, take(numeric, rows), logs[rows])
        if not self.rows:
            shown = (", ".join(group_labels(own, names).values()) for own in (groups, asked))
            probed_words, asked_words = shown
            raise InputError(
                f"the probes are of {probed_words}, the candidates of {asked_words}",
                "give probes of what is asked for, or candidates of what was probed",
            )


def _may_be(one: Key, other: Key) -> bool:
    """Whether two groups agree in all that both say."""
    return all(a == b or UNKNOWN in (a, b) for a, b in zip(one, other, strict=True))


def _merged(key: Key, other: Key) -> Key:
    return tuple(b if a == UNKNOWN else a for a, b in zip(key, other, strict=True))


class _Group:
    """Candidates of one group, and what is known of them."""

    def __init__(self, sources: Sources, key: Key, rows: SimpleNamespace, probes: _Probes) -> None:
        self.rows = _known(rows)
        nothing = (key, take(rows, np.empty(0, dtype=int)), np.empty(0))
        key, measured, logs = probes.rows.get(key, nothing)
        seen = SimpleNamespace(**{name: getattr(measured, name) for name in vars(self.rows)})
        prior = sources.nearest(key, seen if len(logs) else self.rows, logs)
        self.notes = sources.unused_sheets(prior.source, key)
        read = set(prior.law.columns) & set(vars(self.rows))
        self.names = [name for name in _REACHING if name in read]
        self.open = [n for n in _TELLING if np.less(*prior.box.get(n, (1.0, 1.0)))]
        self.measured = seen
        evidence = Evidence(prior.law.amounts(seen), self._where(seen, len(logs)), logs)
        if not len(logs):
            evidence = Evidence(np.empty((0, len(prior.law.terms))), self._where(seen, 0), logs)
        self.posterior = fitted(prior.law, prior.center, prior.spread, evidence)

    def _where(self, rows: SimpleNamespace, n: int) -> np.ndarray:
        return coordinates(rows, self.names).reshape(n, len(self.names))

    def _sizes(self, rows: SimpleNamespace) -> _Sizes:
        """Of each size that the source has several of: the candidates' values, the probes'."""
        return {
            name: (getattr(rows, name), np.unique(getattr(self.measured, name)).tolist())
            for name in self.open
            if hasattr(rows, name)
        }

    def choose(self, n: int, budget: float | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Positions of the chosen candidates, and the columns that are added to them."""
        n_rows = len(next(iter(vars(self.rows).values())))
        if n > n_rows:
            raise ValueError(f"{n_rows} candidates in a group are fewer than {n}")
        drawn = np.arange(n_rows)
        if n_rows > _MOST:
            drawn = np.sort(np.random.RandomState(0).permutation(n_rows)[:_MOST])
        rows = take(self.rows, drawn)
        amounts = self.posterior.law.amounts(rows)
        where = self._where(rows, len(drawn))
        seconds = np.exp(self.posterior.log_times(amounts, where))
        if not np.all(np.isfinite(seconds)):
            raise FitError("some candidates lack what the model reads", "fill their columns")
        workers = getattr(rows, "n_workers", np.ones(len(drawn)))
        costs = STEPS * workers * seconds
        limit = _limit(costs, n, budget)
        doubt = _doubt(self.posterior, amounts, where)
        picked = chosen(doubt, NOISE, costs, n, limit)
        sizes = self._sizes(rows)
        picked = varied(doubt, NOISE, costs, picked, limit, list(sizes.values()))
        self.notes = [*self.notes, *_alike(sizes, picked)]
        errors = error_by_deviation() * np.array(deviations(doubt, picked, NOISE))
        added = {
            "expected_s": seconds[picked], "device_s": costs[picked], "expected_error": errors,
        }  # fmt: skip
        return drawn[picked], added


def _alike(sizes: _Sizes, picked: list[int]) -> list[str]:
    """Which sizes the runs do not tell, a sentence each."""
    own = {name: {*values[picked].tolist(), *known} for name, (values, known) in sizes.items()}
    return [
        f"{name} is {values.pop():g} in all runs: `calibrate` will need --allow-prior; more runs, "
        "a larger budget or other candidates tell it"
        for name, values in own.items()
        if len(values) == 1
    ]


def _limit(costs: np.ndarray, n: int, budget: float | None) -> float:
    least = float(np.sort(costs)[:n].sum())
    if budget is None:
        return max(_CHEAP * n * float(costs.mean()), least)
    if not budget > 0:
        raise ValueError(f"budget = {budget:g}: a positive number of device-seconds")
    if budget < least:
        raise ValueError(
            f"a budget of {budget:g} device-seconds does not pay for {n} runs of {STEPS} steps: "
            f"the {n} cheapest cost {least:.3g}"
        )
    return budget


def _known(rows: SimpleNamespace) -> SimpleNamespace:
    """Columns that are known of all rows."""
    return SimpleNamespace(**{n: v for n, v in vars(rows).items() if np.all(np.isfinite(v))})


def _doubt(posterior: Posterior, amounts: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Covariance of the logarithms of the times, given what was probed; shape ``(rows, rows)``."""
    own = posterior.law.with_derivatives(amounts, posterior.places)[1]
    found = own @ posterior.spread @ own.T + covariance(where, where)
    probed = posterior.evidence
    if not len(probed.logs):
        return found
    at = posterior.law.with_derivatives(probed.amounts, posterior.places)[1]
    reach = own @ posterior.spread @ at.T + covariance(where, probed.where)
    inner = at @ posterior.spread @ at.T + covariance(probed.where, probed.where)
    inner = inner + NOISE**2 * np.eye(len(probed.logs))
    return np.asarray(found - reach @ np.linalg.solve(inner, reach.T))


def cluster_candidates(
    model: PerformanceModel,
    max_workers: int,
    devices_per_node: int = 1,
    max_local_batch: int | None = None,
    words: Sequence[tuple[str, str]] = (),
) -> pd.DataFrame:
    """Configurations of a cluster, of every network that a model knows.

    Batches are those that the model knows; workers go up to those of the cluster, as many on each
    node.

    Parameters
    ----------
    devices_per_node
        Of the cluster.
    max_local_batch
        Largest batch that fits into the memory of a device.
    words
        Columns that all have, such as ``("device", "H100")``.
    """
    names = model.recipe.groups
    parts: dict[tuple[str, ...], pd.DataFrame] = {}
    for key, domain in model.domains.items():
        values = dict(zip(names, key, strict=False))
        same = {n: values[n] for n in ("network", "phase") if values.get(n, "?") != "?"}
        frame = _cluster_grid(dict(domain.box), max_workers, devices_per_node)
        parts.setdefault(tuple(same.values()), frame.assign(**same))
    found = pd.concat(parts.values(), ignore_index=True).assign(**dict(words))
    return _within(found, {"local_batch": max_local_batch}).reset_index(drop=True)


def _cluster_grid(box: dict[str, tuple[float, float]], most: int, per_node: int) -> pd.DataFrame:
    """Combinations of a group's values that a cluster can run: as many workers on each node."""
    tells_nodes = "n_nodes" in box
    if "n_workers" in box:
        box["n_workers"] = (1.0, float(most))
        box["n_nodes"] = (1.0, float(max(1, -(-most // per_node))))
    frame = pd.DataFrame(vars(box_grid(box, per_node)))
    if tells_nodes or "n_workers" not in frame:
        return frame
    nodes = np.ceil(frame.n_workers / per_node)
    return frame[frame.n_workers % nodes == 0].drop(columns="n_nodes").drop_duplicates()
