"""Iterations of Megatron and all-reduces inside a node: the measurements behind vTrain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from lines import Line, Section
from trials import OURS, Trial, errors, ingest

PIPELINE = "Iteration times of Megatron, vTrain"
PIPELINE_TEXT = """
`public_tables/vtrain/ground_truth_single.csv`, recipe `pipeline`: 1,440 configurations on a node
of 8 A100. The first n rows of `RandomState(s).permutation(1440)` are trained on, all others
predicted, s = 0 to 4.
"""
ALL_REDUCE = "All-reduce inside a node, vTrain"
ALL_REDUCE_TEXT = """
`public_tables/vtrain/*_LUT`, recipe `comms`: 1,024 sizes, 1 MiB to 1 GiB, the first time column;
each table on its own. Six sizes are trained on, 1,018 predicted. The figures are those of the
worst of the six tables, of each baseline its own worst. Random sizes are
`RandomState(s).choice(1024, 6, replace=False)`, s = 0 to 19.
"""
STEPS = Trial(
    "pipeline",
    (
        "n_workers", "tensor_parallel", "pipeline_parallel", "micro_batch", "global_batch",
        "hidden_size", "n_heads", "n_layers", "sequence_length",
    ),
    "global_batch",
)  # fmt: skip
COMMS = Trial(
    "comms",
    ("n_ranks", "n_bytes"),
    "n_bytes",
    ("constant", "nearest_configuration", "perfect_scaling", "gradient_boosting", "normal_form"),
)
SIZES_MIB = (1, 4, 16, 64, 256, 1024)


def load(shared: Path, folder: Path) -> pd.DataFrame:
    """Iteration times in the order of the file."""
    path = shared / "public_tables/vtrain/ground_truth_single.csv"
    dataset = ingest(path, "vtrain_megatron", folder)
    in_file = dataset.read("runs", ["run_id"]).run_id
    return STEPS.frame(dataset).set_index("run_id").loc[in_file].reset_index()


def tables(shared: Path, folder: Path) -> pd.DataFrame:
    """Rows of the all-reduce tables."""
    paths = sorted((shared / "public_tables/vtrain").glob("*_LUT"))
    return COMMS.frame(ingest(paths, "vtrain_allreduce", folder))


def megatron(shared: Path, folder: Path) -> Section:
    """Iteration times from 100 and from 300 configurations."""
    frame = load(shared, folder)
    lines = []
    for n_train, bar in ((100, 0.065), (300, 0.025)):
        of_seed = []
        for seed in range(5):
            order = np.random.RandomState(seed).permutation(len(frame))
            train, test = frame.iloc[order[:n_train]], frame.iloc[order[n_train:]]
            of_seed.append(errors(STEPS.predict(train, test), test.step_s).mean(skipna=False))
        mean = pd.DataFrame(of_seed).mean(skipna=False).to_dict()
        lines.append(Line(f"{n_train} configurations, all others", mean.pop(OURS), bar, mean))
    return Section(PIPELINE, PIPELINE_TEXT, lines)


def all_reduce(shared: Path, folder: Path) -> Section:
    """Each of the six tables from six sizes."""
    frame = tables(shared, folder)
    given, drawn = {}, {}
    for name, table in frame.groupby("run_id"):
        table = table.sort_values("n_bytes", ignore_index=True)
        given[name] = _table_errors(table, np.array(SIZES_MIB) - 1)
        draws = (np.random.RandomState(s).choice(len(table), 6, replace=False) for s in range(20))
        drawn[name] = pd.DataFrame(_table_errors(table, rows) for rows in draws).mean()
    lines = [
        _worst("from 1, 4, 16, 64, 256 and 1,024 MiB, worst table", given, 0.015),
        _worst("from six random sizes, worst table", drawn, 0.03),
    ]
    return Section(ALL_REDUCE, ALL_REDUCE_TEXT, lines)


def _table_errors(table: pd.DataFrame, rows: np.ndarray) -> pd.Series:
    """Mean errors on the sizes of a table that are not in those rows."""
    test = table.drop(index=table.index[rows])
    return errors(COMMS.predict(table.iloc[rows], test), test.duration_s).mean(skipna=False)


def _worst(name: str, tables: dict[str, pd.Series], bar: float) -> Line:
    worst = pd.DataFrame(tables).T.max(skipna=False).to_dict()
    return Line(name, worst.pop(OURS), bar, worst)
