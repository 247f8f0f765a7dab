"""Skill: by how much a model errs less than each baseline, and how sure that is."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from fitkit.error_report.figures import RIVALS
from fitkit.error_report.resampling import MIN_UNITS, Units, drawn_sums, interval

COLUMNS = ["baseline", "n", "skill", "low", "high", "better", "unit", "n_units"]
_LARGEST = math.log(100.0)  # a prediction of zero is as wrong as one by a factor of 100
_UNINFORMED = "constant"  # knows no feature: what does not beat it has learnt nothing


def symmetric_error(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Absolute logarithm of the ratio, at most that of 100; NaN without a prediction.

    Twice too long counts as much as half as long. By the absolute percentage error whoever
    guesses low wins, since no time can be missed by more than 100 % from below: labels that were
    shuffled would show skill.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(np.log(np.maximum(predicted, 0.0) / measured))
    return np.minimum(error, _LARGEST)


def skills(rows: pd.DataFrame) -> pd.DataFrame:
    """Skill against each baseline that predicts some rows, the strongest first.

    Parameters
    ----------
    rows
        ``measured_s, predicted_s``, columns of baselines and, if known, ``run_id``.

    Returns
    -------
    DataFrame
        ``baseline``; ``n`` rows that both predict; ``skill``: 1 - mean error of the model by that
        of the baseline, errors as `symmetric_error`; ``low, high``: its 95 % bootstrap
        interval; ``better``: share of the draws in which the model errs less; ``unit`` that
        is drawn, ``n_units`` of them.
    """
    rows = rows[rows.predicted_s.notna()]
    measured = rows.measured_s.to_numpy(dtype=float)
    own = symmetric_error(rows.predicted_s.to_numpy(dtype=float), measured)
    others = {
        name: symmetric_error(rows[name].to_numpy(dtype=float), measured)
        for name in RIVALS
        if name in rows and rows[name].notna().any()
    }
    if not others:
        return pd.DataFrame(columns=COLUMNS)
    units = Units.of(rows)
    both = {name: np.isfinite(own) & np.isfinite(other) for name, other in others.items()}
    pairs = [np.where(both[name], e, 0.0) for name in others for e in (own, others[name])]
    drawn = drawn_sums(np.column_stack(pairs), units)
    found = []
    for place, name in enumerate(others):
        sums = drawn[:, 2 * place : 2 * place + 2]
        errors = own[both[name]].mean(), others[name][both[name]].mean()
        n_units = len(np.unique(units.codes[both[name]]))
        row = {"baseline": name, "n": int(both[name].sum()), "skill": _ratio(*errors)}
        found.append({**row, **_sureness(sums, n_units), "unit": units.name, "n_units": n_units})
    strength = [others[name][both[name]].mean() for name in others]
    order = np.argsort(strength, kind="stable")
    return pd.DataFrame([found[place] for place in order], columns=COLUMNS)


def _sureness(sums: np.ndarray, n_units: int) -> dict[str, float]:
    """What draws say of a skill; nothing, where they are of too few units."""
    if n_units < MIN_UNITS:
        return {"low": math.nan, "high": math.nan, "better": math.nan}
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = interval(1 - sums[:, 0] / sums[:, 1])
    less, same = sums[:, 0] < sums[:, 1], sums[:, 0] == sums[:, 1]
    return {"low": low, "high": high, "better": float(np.mean(less + 0.5 * same))}


def _ratio(own: float, other: float) -> float:
    if other > 0:
        return float(1 - own / other)
    return 0.0 if own == 0 else -math.inf


def against_nothing(skill: pd.DataFrame) -> pd.Series | None:
    """The row of the guess that knows no feature; nothing if it predicts no row."""
    named = skill[skill.baseline == _UNINFORMED]
    return None if named.empty else named.iloc[0]


def has_skill(skill: pd.DataFrame) -> bool | None:
    """Whether the model beats a guess that knows no feature; nothing if that cannot be told."""
    row = against_nothing(skill)
    if row is None or not np.isfinite(row["low"]):
        return None
    return bool(row["low"] > 0)
