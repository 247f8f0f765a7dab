"""Communication that training waits for, and communication that computing hides."""

from __future__ import annotations

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.parts import COMMUNICATION, WAIT
from fitkit.diagnosis.shares import SETUP, setup_labels
from fitkit.diagnosis.step_parts import step_parts
from fitkit.features.runs import run_facts

COLUMNS = [
    "label", "n_workers", "n_runs", "step_s", "comm_s", "wait_s", "hidden_s", "exposed_share",
]  # fmt: skip
_ROUNDING = 1e-6


def exposed(dataset: Dataset) -> pd.DataFrame:
    """Communication of the step of each set-up whose log times any, mean over its runs.

    Communication that overlaps with computing lengthens no step: it is ``hidden_s`` here and no
    part of `time_use`.

    Returns
    -------
    DataFrame
        ``label`` as of `phase_shares`, ``n_workers``, ``n_runs``; ``step_s``; of that ``comm_s``
        that nothing hides and ``wait_s`` for other ranks or the host (NaN if no log tells);
        ``hidden_s``, what the device communicated while it computed or, if none was traced, by what
        parts exceed their step (NaN if they do not);
        ``exposed_share``: ``comm_s`` of the step. The largest share first.
    """
    parts = step_parts(dataset)
    if COMMUNICATION not in parts:
        return pd.DataFrame(columns=COLUMNS)
    parts = parts[parts[COMMUNICATION].notna()]
    told = parts.drop(columns="whole_s").clip(lower=0).sum(axis="columns")
    # Parts longer than the step run side by side: so much at least of it is hidden.
    beside = (told - parts.whole_s).clip(lower=0.0, upper=parts[COMMUNICATION])
    beside = beside.where(beside > _ROUNDING * parts.whole_s, 0.0)
    names = {"whole_s": "step_s", COMMUNICATION: "comm_s", WAIT: "wait_s"}
    parts = parts.reindex(columns=list(names)).rename(columns=names)
    parts["comm_s"] -= beside
    parts["hidden_s"] = _hidden(dataset).reindex(parts.index).fillna(beside.where(beside > 0))
    runs = run_facts(dataset).rename(columns={"n_params": "network_params"}).set_index("run_id")
    rows = parts.join(runs[SETUP]).reset_index()
    setups = rows.groupby(SETUP, dropna=False, sort=False)
    found = setups[[*names.values(), "hidden_s"]].mean().assign(n_runs=setups.size()).reset_index()
    found["label"] = setup_labels(found)
    found["exposed_share"] = found.comm_s / found.step_s
    return found.sort_values(["exposed_share", "label"], ascending=[False, True])[
        COLUMNS
    ].reset_index(drop=True)


def _hidden(dataset: Dataset) -> pd.Series:
    """Seconds of a step in which a device computed and communicated at once, by run."""
    phases = dataset.read("phases", ["run_id", "rank", "phase", "parent", "step", "duration_s"])
    rows = phases[(phases.parent == "device") & (phases.phase == "overlap")]
    if rows.empty:
        return pd.Series(dtype=float)
    return rows.groupby(["run_id", "rank"], dropna=False).duration_s.mean().groupby("run_id").mean()
