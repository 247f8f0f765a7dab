"""CollectiveModel: time of a collective by operation, kind of link, ranks and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.collective_curves import (
    STRAY,
    SizeCurve,
    fit_curve,
    fit_line,
    growth_bounds,
    line_parameters,
    load_curve,
    power_law,
    ring_growth,
)
from fitkit.models.columns import Key, column, is_null, keys, number_columns, record, rows_by_key
from fitkit.models.estimator import Estimator, require_fitted
from fitkit.models.intervals import check_level, t_quantile
from fitkit.models.parameters import (
    number,
    parameters_from_json,
    parameters_to_json,
    plain,
)
from fitkit.noise import TO_SIGMA

if TYPE_CHECKING:
    pass

_NOTHING = 1e-6  # log ratio that no clock tells
_MADS = 6.0


class CollectiveModel(Estimator):
    r"""A latency and a bandwidth for every operation, kind of link and number of ranks.

    .. math:: t(S) = (a + S / B) \, r(S)

    with the residual :math:`r` interpolated over the measured sizes, see `SizeCurve`. Ranks with
    few sizes take the shape of the nearest ranks with more. Between measured ranks the time is
    interpolated in the logarithms. Beyond them, the first of these that can be had scales the
    curve of the nearest ranks:

    - the growth that related groups showed between the same two numbers of ranks;
    - from two numbers of ranks on, their power law at each size, held between the least that any
      algorithm needs, :math:`(n-1)/n` of a ring, and :math:`\log_2 n` of a tree, which a library
      can always choose;
    - the ring, :math:`(n-1) a' + (n-1)/n \, S/B'` (Thakur, Rabenseifner and Gropp, International
      Journal of High Performance Computing Applications 19, 2005).

    Parameters
    ----------
    groups
        Columns, such as ``device``, whose values have curves of their own. They are taken to be
        related: growth with the ranks, and the shape of a curve with a single size, is shared.
    level
        Level of the parameters' confidence intervals.

    Attributes
    ----------
    parameters_ : list of Parameter
        ``latency`` in s and ``inverse_bandwidth`` in s/byte of each curve.
    noise_ : float
        Standard deviation of the log of a time, by all but what is beyond 6 MAD and a factor of 3;
        NaN if no size has two neighbours to judge by, or all times follow from those exactly.
    outliers_ : ndarray of bool
        Which of the rows were not used, see `stray`, shape ``(rows,)``; a loaded model does not
        know.

    Examples
    --------
    >>> frame = pd.DataFrame({"op": "all_reduce", "n_ranks": 4, "n_bytes": [1e4, 1e6, 1e8]})
    >>> model = CollectiveModel().fit(frame, [1.1e-5, 1.1e-4, 1.001e-2])
    >>> latency_s, bandwidth = model.latency_bandwidth("all_reduce", 4)
    >>> f"{latency_s:.3g} s, {bandwidth:.3g} bytes a second"
    '1e-05 s, 1e+10 bytes a second'
    """

    intervals_by = "held-out rows"

    def __init__(self, groups: Sequence[str] = (), level: float = 0.9) -> None:
        self.groups = groups
        self.level = level

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads; a null ``topology`` is told from ``n_nodes``, both optional."""
        return (*self.groups, "op", "topology", "n_ranks", "n_nodes", "n_bytes")

    @property
    def _by(self) -> list[str]:
        return [*self.groups, "op", "topology", "n_ranks"]

    # -- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to measured times.

        Parameters
        ----------
        X
            ``op``, ``n_ranks``, ``n_bytes`` and, if known, ``topology`` or ``n_nodes``.
        y
            Seconds, shape ``(rows,)``, all positive.

        Raises
        ------
        ValueError
            If a column is missing, or a time, a size or a number of ranks cannot be one.
        FitError
            If there is no row.
        """
        times = np.asarray(y, dtype=float)
        if not len(times):
            raise FitError("no rows to fit", "widen the condition, or ingest more runs")
        if not np.all(np.isfinite(times) & (times > 0)):
            raise ValueError("times must be positive numbers")
        places, sizes = self._read(X)
        if None in places or not np.all(np.isfinite(sizes)):
            raise ValueError("n_ranks must be whole numbers from 1, n_bytes numbers from 0")
        rows_of = rows_by_key(places)
        self.curves_: dict[Key, SizeCurve] = {}
        self.donors_: dict[Key, Key] = {}
        n_sizes = {key: len(np.unique(sizes[rows])) for key, rows in rows_of.items()}
        for key in sorted(rows_of, key=lambda key: (-n_sizes[key], key)):
            rows, donor = rows_of[key], self._donor(key, n_sizes[key])
            if donor is not None:
                self.donors_[key] = donor
            lender = None if donor is None else self.curves_[donor]
            self.curves_[key] = fit_curve(sizes[rows], times[rows], lender)
        self.n_obs_ = len(times)
        self.noise_, self.dof_ = self._noise(rows_of, sizes, times)
        self.parameters_ = [
            parameter
            for key in sorted(rows_of, key=lambda key: (key[:-1], int(key[-1])))
            for parameter in line_parameters(
                self.curves_[key], f"{', '.join(key[:-1])}, {key[-1]} ranks", self.level
            )
        ]
        return self

    def _read(self, X: Any) -> tuple[list[Key | None], np.ndarray]:
        """Group, operation, link, ranks of each row, None without ranks; bytes, NaN if unusable."""
        columns = record(X)
        rows = len(column(columns, "n_bytes"))
        counts = number_columns(vars(columns), ("n_ranks", "n_bytes"), rows)
        own = {"topology": link_classes(vars(columns), rows), "n_ranks": counts.n_ranks}
        found = keys(SimpleNamespace(**{**vars(columns), **own}), self._by)
        usable = (counts.n_ranks >= 1) & (np.floor(counts.n_ranks) == counts.n_ranks)
        usable &= np.isfinite(counts.n_ranks)
        places = [key if good else None for key, good in zip(found, usable, strict=True)]
        sized = np.isfinite(counts.n_bytes) & (counts.n_bytes >= 0)
        # An empty message counts as one byte: it has a logarithm, and costs the latency.
        return places, np.where(sized, np.maximum(counts.n_bytes, 1.0), np.nan)

    def _donor(self, key: Key, n_sizes: int) -> Key | None:
        """The nearest ranks with more sizes: same link first; related groups for lack of any."""
        *group, op, topology, ranks = key

        def distance(other: Key) -> tuple[bool, bool, float, Key]:
            ratio = math.log(int(other[-1]) / int(ranks))
            return other[:-3] != tuple(group), other[-2] != topology, abs(ratio), other

        lenders = [
            other
            for other, curve in self.curves_.items()
            if other[-3] == op
            and "1" not in (ranks, other[-1])
            and len(curve.sizes) > n_sizes
            and (other[:-3] == tuple(group) or n_sizes == 1)
        ]
        return min(lenders, key=distance, default=None)

    def _noise(
        self, rows_of: Mapping[Key, np.ndarray], sizes: np.ndarray, times: np.ndarray
    ) -> tuple[float, int]:
        """Standard deviation of a log time, by what neighbouring sizes tell; sizes so judged."""
        errors, n_judged = [np.zeros(0)], 0
        self.outliers_ = np.zeros(len(times), dtype=bool)
        for key, rows in rows_of.items():
            curve = self.curves_[key]
            self.outliers_[rows] = ~np.isin(sizes[rows], curve.sizes)
            if len(curve.sizes) > 2:
                inner = rows[np.isin(sizes[rows], curve.sizes[1:-1])]
                at = np.searchsorted(curve.sizes, sizes[inner])
                errors.append(np.log(times[inner]) - curve.left_out()[at - 1])
                n_judged += len(curve.sizes) - 2
        away = np.abs(np.concatenate(errors))
        if not n_judged or away.max() <= _NOTHING:
            return math.nan, 0  # times that follow from one another exactly tell of no noise
        squares = away[away <= max(STRAY, _MADS * TO_SIGMA * np.median(away))] ** 2
        # The mean of two neighbours adds half a variance. The sum is exact: in any order the same.
        return math.sqrt(math.fsum(squares) / len(squares) / 1.5), n_judged

    # -- using it --------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``.

        NaN where the operation was not measured on that kind of link, where ``n_ranks`` or
        ``n_bytes`` is null, and for other sizes than the only one measured. One rank takes no
        time unless it was measured to.
        """
        require_fitted(self, "curves_")
        places, sizes = self._read(X)
        seconds = np.full(len(sizes), np.nan)
        for key, rows in rows_by_key(places).items():
            curve = self._curve(key)
            if curve is not None:
                seconds[rows] = curve.seconds(sizes[rows])
            elif key[-1] == "1" and self._ranks(key[:-1]):
                seconds[rows] = np.where(np.isnan(sizes[rows]), np.nan, 0.0)
        return seconds

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; in seconds.

        The noise of the curve and of the measurement; beyond the measured ranks also the whole
        width between a ring and a tree. NaN when no size has two neighbours to judge the noise by.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        seconds = self.predict(X)
        half = np.full(len(seconds), np.nan)
        for key, rows in rows_by_key(self._read(X)[0]).items():
            if self.dof_:
                # The curve meets the times that were measured: it is as noisy as a new one.
                noise = t_quantile(0.5 + level / 2, self.dof_) * self.noise_ * math.sqrt(2)
                half[rows] = noise + self._bracket(key)
        return seconds * np.exp(-half), seconds * np.exp(half)

    def latency_bandwidth(
        self, op: str, n_ranks: int, topology: str | None = None, group: Sequence[str] = ()
    ) -> tuple[float, float]:
        """Latency in seconds and bandwidth in bytes a second of an operation on so many ranks.

        A planner's :math:`t = a + S/B`; `predict` is closer where the bandwidth depends on the
        size. Ranks that were not measured get the line through their predicted times.

        Parameters
        ----------
        op
            As in the column ``op``.
        n_ranks
            Participants, at least two.
        topology
            As in the column; not needed where only one was measured.
        group
            Values of the columns in ``groups``.

        Raises
        ------
        ValueError
            If that operation was not measured there, or at one size only.
        """
        require_fitted(self, "curves_")
        places = {key[:-1] for key in self.curves_ if key[:-2] == (*group, op)}
        places = {place for place in places if topology in (None, place[-1])}
        curve = self._curve((*places.pop(), str(n_ranks))) if len(places) == 1 else None
        if curve is None or np.isnan(curve.latency_s):
            known = ", ".join(sorted({" ".join(key[:-1]) for key in self.curves_}))
            raise ValueError(f"no line for {op} on {n_ranks} ranks; measured: {known}")
        with np.errstate(divide="ignore"):
            return curve.latency_s, float(np.divide(1.0, curve.inverse_bandwidth))

    # -- ranks that were not measured --------------------------------------------------------

    def _ranks(self, place: Key) -> list[int]:
        """Numbers of ranks measured in a place; one rank alone tells nothing of the others."""
        return sorted(int(key[-1]) for key in self.curves_ if key[:-1] == place and key[-1] != "1")

    def _bracket(self, key: Key) -> float:
        """Log of the ratio of tree to ring from the nearest measured ranks; 0 between them."""
        ranks, asked = self._ranks(key[:-1]), int(key[-1])
        if not ranks or asked == 1:
            return 0.0
        least, largest = growth_bounds(min(max(asked, ranks[0]), ranks[-1]), asked)
        return largest - least

    def _curve(self, key: Key) -> SizeCurve | None:
        """The curve of a place and a number of ranks; None if there is nothing to tell it from."""
        ranks, asked = self._ranks(key[:-1]), int(key[-1])
        if key in self.curves_ or not ranks or asked == 1:
            return self.curves_.get(key)
        nearest = str(min(ranks, key=lambda known: (abs(math.log(known / asked)), known)))
        base = self.curves_[(*key[:-1], nearest)]
        sizes = base.all_sizes
        if ranks[0] < asked < ranks[-1]:
            between = [max(n for n in ranks if n < asked), min(n for n in ranks if n > asked)]
            logs = power_law(np.array(between), self._logs(key, between, sizes), asked)
        else:
            logs = np.log(base.seconds(sizes)) + self._growth(key, nearest, sizes)
        # Growth that differs from size to size must not make a larger message faster.
        times = np.exp(np.maximum.accumulate(logs))
        line = fit_line(sizes, times).estimates if len(sizes) > 1 else [math.nan, math.nan]
        return SizeCurve(sizes, times, float(line[0]), float(line[1]))

    def _logs(self, key: Key, ranks: Sequence[int], sizes: np.ndarray) -> np.ndarray:
        """Log times on several ranks in the place of a key, shape ``(ranks, sizes)``."""
        curves = [self.curves_[(*key[:-1], str(known))] for known in ranks]
        return np.array([np.log(curve.seconds(sizes)) for curve in curves])

    def _growth(self, key: Key, nearest: str, sizes: np.ndarray) -> np.ndarray:
        """Log of the ratio of the times on the ranks of a key to those on the nearest."""
        asked, known = int(key[-1]), int(nearest)
        related = [
            np.log(curve.seconds(sizes) / self.curves_[(*other[:-1], nearest)].seconds(sizes))
            for other, curve in self.curves_.items()
            if other[-3:] == key[-3:] and (*other[:-1], nearest) in self.curves_
        ]
        related = [growth for growth in related if np.all(np.isfinite(growth))]
        if related:
            return np.mean(related, axis=0)
        ranks, base = np.array(self._ranks(key[:-1])), self.curves_[(*key[:-1], nearest)]
        logs = self._logs(key, ranks.tolist(), sizes)
        told = np.all(np.isfinite(logs), axis=1)
        if told.sum() < 2:
            return ring_growth(base, known, asked, sizes)
        growth = power_law(ranks[told], logs[told], asked) - np.log(base.seconds(sizes))
        return np.clip(growth, *growth_bounds(known, asked))

    # -- saving ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "curves_")
        return {
            "groups": list(self.groups),
            "level": float(self.level),
            "n_obs": self.n_obs_,
            "noise": plain(self.noise_),
            "dof": self.dof_,
            "curves": [
                {
                    "key": list(key),
                    "sizes": curve.sizes.tolist(),
                    "times": curve.times.tolist(),
                    "latency_s": plain(curve.latency_s),
                    "inverse_bandwidth": plain(curve.inverse_bandwidth),
                    "donor": list(self.donors_[key]) if key in self.donors_ else None,
                }
                for key, curve in self.curves_.items()
            ],
            "parameters": parameters_to_json(self.parameters_),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError, LookupError, TypeError
            If the state is not one that `to_dict` writes.
        """
        model = cls([str(name) for name in state["groups"]], number(state["level"]))
        model.n_obs_, model.dof_ = int(state["n_obs"]), int(state["dof"])
        model.noise_ = number(state["noise"])
        if model.dof_ < 0:
            raise ValueError(f"{model.dof_} degrees of freedom")
        model.curves_, model.donors_ = {}, {}
        for saved in state["curves"]:
            key, donor = tuple(map(str, saved["key"])), saved["donor"]
            if len(key) != len(model.groups) + 3 or int(key[-1]) < 1:
                raise ValueError(f"key of a curve: {key}")
            if donor is not None:
                model.donors_[key] = tuple(map(str, donor))
            # A donor comes before its borrowers: so there is no circle.
            lender = None if donor is None else model.curves_[model.donors_[key]]
            model.curves_[key] = load_curve(saved, lender)
        model.parameters_ = parameters_from_json(state["parameters"])
        return model


def link_classes(columns: Mapping[str, Any], n_rows: int) -> np.ndarray:
    """Class of the link of each row: as given, else ``intra`` on one node, ``inter`` on more."""
    given = np.broadcast_to(np.asarray(columns.get("topology"), dtype=object), (n_rows,))
    nodes = number_columns(columns, ("n_nodes",), n_rows).n_nodes.tolist()
    told = [
        word if not is_null(word) or is_null(n) else "inter" if n > 1 else "intra"
        for word, n in zip(given.tolist(), nodes, strict=True)
    ]
    return np.array(told, dtype=object)
