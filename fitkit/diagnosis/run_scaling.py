"""Where whole runs stop scaling, as they were measured."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.selected import measured
from fitkit.fitting import Measurements
from fitkit.models.run_scaling import RunScaling, ScalingAnswer


def run_scaling(
    data: Dataset | pd.DataFrame | Path | str, *, where: str | None = None
) -> pd.DataFrame:
    """The fastest scale of the total time of each group of runs, and the knees of its parts.

    Totals are compared as if all runs of a curve had trained on as many samples; where neither the
    batch of a worker nor that of all is kept over three scales, as they are. The scale is the
    number of nodes, unless workers took more values. A knee, of the initialisation or of the step,
    is looked for where that was measured at 5 scales.

    Parameters
    ----------
    data
        A dataset, its folder, or a DataFrame with the columns of recipe ``run``.
    where
        Condition on its rows.

    Returns
    -------
    DataFrame
        A row for each answer, with the attributes of `fitkit.models.run_scaling.ScalingAnswer`.

    Raises
    ------
    FitError
        If no run has a total time that can be used.
    """
    found = measured(data, "run", where)
    scaling = scaling_of(found)
    answers = [*scaling.measured(), *(scaling.knee_answer(*knee) for knee in scaling.knees())]
    frame = pd.DataFrame(
        [vars(answer) for answer in answers],
        columns=[field.name for field in fields(ScalingAnswer)],
    )
    return frame.sort_values(["group", "what"], ignore_index=True)


def scaling_of(found: Measurements) -> RunScaling:
    """The curves of whole runs, and their totals as if of as many samples."""
    columns = {str(name): found.runs[name].to_numpy() for name in found.runs.columns}
    return RunScaling(columns, found.recipe.groups)
