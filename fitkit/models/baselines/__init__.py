"""What a model must beat: known models as estimators, fitted group by group.

The error of each stands beside that of ours for the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from fitkit.models.baselines.baseline import Baseline
from fitkit.models.baselines.boosting import GradientBoosting
from fitkit.models.baselines.ernest import Ernest
from fitkit.models.baselines.normal_form import NormalForm
from fitkit.models.baselines.pollux import Pollux
from fitkit.models.baselines.simple import Constant, NearestConfiguration, PerfectScaling
from fitkit.models.columns import take

__all__ = [
    "BASELINES",
    "Baseline",
    "Constant",
    "Ernest",
    "GradientBoosting",
    "NearestConfiguration",
    "NormalForm",
    "PerfectScaling",
    "Pollux",
    "baseline_predictions",
]

BASELINES: dict[str, type[Baseline]] = {
    "constant": Constant,
    "nearest_configuration": NearestConfiguration,
    "perfect_scaling": PerfectScaling,
    "ernest": Ernest,
    "pollux": Pollux,
    "gradient_boosting": GradientBoosting,
    "normal_form": NormalForm,
}
# Trees are slow to grow, a problem only where there are hundreds of groups, and those are small.
MIN_ROWS = {"gradient_boosting": 20}


def baseline_predictions(
    columns: SimpleNamespace,
    times: np.ndarray,
    groups: Sequence[object],
    train: np.ndarray,
    test: np.ndarray,
) -> dict[str, np.ndarray]:
    """Predict the test rows from the training rows of their group, by each baseline that applies.

    Parameters
    ----------
    columns
        Numeric features and ``work``, arrays of shape ``(rows,)``.
    times
        Seconds, shape ``(rows,)``.
    groups
        Group of each row.
    train, test
        Boolean arrays, shape ``(rows,)``.

    Returns
    -------
    dict
        By name, in the order of `BASELINES`, seconds for every row, shape ``(rows,)``; NaN outside
        ``test``, where a group has no training row, and for ``gradient_boosting`` where it has
        fewer than 20. A baseline is left out if a column that it needs is absent, or the work
        that it scales with is known of no row.
    """
    features = [name for name in vars(columns) if name != "work"]
    over = {name: kind.over(features) for name, kind in BASELINES.items()}
    models = {name: model for name, model in over.items() if model is not None}
    if not np.any(np.isfinite(columns.work)):
        del models["perfect_scaling"]
    seconds = {name: np.full(len(times), np.nan) for name in models}
    codes = np.unique(np.array([str(group) for group in groups]), return_inverse=True)[1]
    for code in np.unique(codes[test]):
        known, asked = (codes == code) & train, (codes == code) & test
        if not known.any():
            continue
        seen, new = take(columns, known), take(columns, asked)
        for name, model in models.items():
            if known.sum() >= MIN_ROWS.get(name, 1):
                seconds[name][asked] = model.fit(seen, times[known]).predict(new)
    return seconds
