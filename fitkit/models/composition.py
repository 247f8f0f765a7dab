"""StepComposition: the time of a step from its layers, its communication and a constant."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.columns import column, n_rows, number_columns, record, sorted_rows, take
from fitkit.models.estimator import Estimator, checked_times, require_fitted
from fitkit.models.intervals import check_level, t_quantile
from fitkit.models.overlap import OVERLAPS, PARTS, OverlapProfile, n_configurations
from fitkit.models.parameters import (
    number,
    parameters_from_json,
    parameters_to_json,
    plain,
)

if TYPE_CHECKING:
    pass

Form = Literal["share", "exponent"]


class StepComposition(Estimator):
    r"""A step as the sum of its parts, of which communication may hide behind backward.

    .. math:: t = c + t_\mathrm{forward} + t_\mathrm{optimizer} + h(t_b, t_s)

    of backward :math:`t_b` and communication :math:`t_s`, with the constant :math:`c \ge 0` and
    one of two forms of overlap:

    - ``share``: :math:`h = t_b + \max(0, t_s - f t_b)`, :math:`0 \le f \le 1`: communication
      runs beside a share :math:`f` of backward for nothing;
    - ``exponent``: :math:`h = (t_b^g + t_s^g)^{1/g}`, :math:`1 \le g \le 10` (Qiao et al.,
      Pollux, OSDI 2021): one after the other at 1, nearly the longer of the two at 10.

    The fit minimises relative errors over :math:`c` and all values of :math:`f` or :math:`g`.
    Intervals of both hold every pair that the residuals do not contradict, by the F test.

    The overlap is ``undetermined`` if fewer than three configurations are known, or if it
    would change all their times by the same constant, as it does without communication. Then
    a prediction is the middle between no and full overlap, and its interval holds both.

    Parameters
    ----------
    form
        Form of overlap; default the one that predicts each configuration better from the
        others. Rows that agree in all parts are one configuration.
    level
        Level of the parameters' confidence intervals.

    Attributes
    ----------
    form_, reason_ : str
        The form that was taken, and why.
    parameters_ : list of Parameter
        ``constant`` in seconds, and ``overlapped_share`` or ``overlap_exponent``.
    noise_ : float
        Standard deviation of the relative error; NaN without a degree of freedom.

    Examples
    --------
    >>> parts = pd.DataFrame({"forward_s": [1.0, 2, 4, 1, 2], "backward_s": [2.0, 4, 8, 2, 4]})
    >>> parts = parts.assign(optimizer_s=0.1, comm_s=[3.0, 3, 3, 0, 0])
    >>> model = StepComposition().fit(parts, [6.1, 8.1, 13.1, 4.1, 7.1])
    >>> {p.term: round(p.estimate, 6) for p in model.parameters_}
    {'constant': 1.0, 'overlapped_share': 0.5}
    """

    columns = PARTS

    def __init__(self, form: Form | None = None, level: float = 0.9) -> None:
        self.form = form
        self.level = level

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to measured steps.

        Parameters
        ----------
        X
            ``forward_s``, ``backward_s``, ``optimizer_s``, ``comm_s``: seconds of a step in each
            part, as if the others were not there; shape ``(rows, 4)``.
        y
            Seconds of a step, shape ``(rows,)``, all positive.

        Raises
        ------
        ValueError
            If the form is unknown, a column is missing, or a time cannot be one.
        FitError
            If there is no row.
        """
        if self.form not in (None, *OVERLAPS):
            raise ValueError(f"no form {self.form!r}; known: {', '.join(OVERLAPS)}")
        times, parts = checked_times(y), _parts(X)
        for name, values in vars(parts).items():
            if not np.all(np.isfinite(values) & (values >= 0)):
                raise ValueError(f"{name} must be seconds from 0, none of them null")
        parts, times = sorted_rows(parts, times, PARTS)
        self.form_, self.reason_ = self._choose(parts, times)
        profile = OverlapProfile(OVERLAPS[self.form_], parts, times, self.level)
        self.n_obs_, self.dof_, self.noise_ = len(times), profile.dof, profile.noise
        self._precision, self._pairs = profile.precision, profile.pairs()
        self.parameters_ = profile.parameters()
        return self

    def _choose(self, parts: SimpleNamespace, times: np.ndarray) -> tuple[str, str]:
        if self.form:
            return self.form, "as asked"
        if not OverlapProfile(OVERLAPS["share"], parts, times, self.level).is_determined:
            return "share", "the overlap is undetermined: anything from none to full"
        errors = {form: self._held_out_error(form, parts, times) for form in OVERLAPS}
        listed = ", ".join(f"{form} {error:.2%}" for form, error in errors.items())
        reason = f"mean error of each configuration, predicted from the others: {listed}"
        return min(errors, key=lambda form: errors[form]), reason

    def _held_out_error(self, form: str, parts: SimpleNamespace, times: np.ndarray) -> float:
        n, configuration = n_configurations(parts)
        errors = []
        for held in range(n):
            train, test = np.flatnonzero(configuration != held), configuration == held
            model = StepComposition(form, self.level)  # type: ignore[arg-type]
            model.fit(take(parts, train), times[train])
            logs = np.log(model.predict(take(parts, np.flatnonzero(test))) / times[test])
            errors.append(float(np.abs(logs).mean()))
        return float(np.mean(errors))

    @property
    def description(self) -> str:
        """Which form of overlap was taken, and why."""
        require_fitted(self, "parameters_")
        return f"overlap as {self.form_}: {self.reason_}"

    @property
    def is_determined(self) -> bool:
        """Whether the steps told how much overlaps."""
        require_fitted(self, "parameters_")
        return self.parameters_[1].status != "undetermined"

    def _possible(self, X: Any) -> np.ndarray:
        """Seconds at the least overlap, the best and the most, shape ``(3, rows)``."""
        require_fitted(self, "parameters_")
        parts = _parts(X)
        values, constants = np.array(self._pairs).T[:, :, None]
        together = OVERLAPS[self.form_].seconds(parts.backward_s, parts.comm_s, values)
        return constants + parts.forward_s + parts.optimizer_s + together

    def predict(self, X: Any) -> np.ndarray:
        """Seconds of a step for each row of ``X``, shape ``(rows,)``; NaN where a part is null."""
        least, best, most = self._possible(X)
        return best if self.is_determined else (least + most) / 2

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; in seconds.

        What the overlap may be, and the scatter of a measurement: by the root of the sum of
        their squares if the overlap is determined, else one on top of the other, since nothing
        makes the middle likelier than the ends. NaN where neither is known.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        possible, seconds = self._possible(X), self.predict(X)
        below, above = seconds - possible.min(axis=0), possible.max(axis=0) - seconds
        half = np.where(below + above > 0, 0.0, np.nan)
        if self.dof_:
            scatter = self.noise_ * np.sqrt(seconds**2 + 1 / self._precision)
            half = t_quantile(0.5 + level / 2, self.dof_) * scatter
        join = np.hypot if self.is_determined else np.add
        return np.maximum(seconds - join(below, half), 0.0), seconds + join(above, half)

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "parameters_")
        return {
            "form": self.form_,
            "reason": self.reason_,
            "level": float(self.level),
            "n_obs": self.n_obs_,
            "dof": self.dof_,
            "noise": plain(self.noise_),
            "precision": self._precision,
            "pairs": [list(pair) for pair in self._pairs],
            "parameters": parameters_to_json(self.parameters_),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If the form or a figure is none of ours.
        """
        if state["form"] not in OVERLAPS:
            raise ValueError(f"no form {state['form']!r}")
        model = cls(state["form"], number(state["level"]))
        model.form_, model.reason_ = state["form"], str(state["reason"])
        model.n_obs_, model.dof_ = int(state["n_obs"]), int(state["dof"])
        model.noise_, model._precision = number(state["noise"]), number(state["precision"])
        model._pairs = [(number(value), number(constant)) for value, constant in state["pairs"]]
        grid = OVERLAPS[model.form_].grid
        in_range = [grid[0] <= value <= grid[-1] and c >= 0 for value, c in model._pairs]
        model.parameters_ = parameters_from_json(state["parameters"])
        if len(in_range) != 3 or not all(in_range) or len(model.parameters_) != 2:
            raise ValueError("overlap and constant are out of range")
        if not (0 <= model.dof_ < model.n_obs_ and model._precision > 0) or model.noise_ < 0:
            raise ValueError("the scatter is out of range")
        return model


def _parts(X: Any) -> SimpleNamespace:
    for name in PARTS:
        column(X, name)  # raises if it is missing: a part that is forgotten is not nothing
    return number_columns(vars(record(X)), PARTS, n_rows(X))
