"""Phases and layers of our own runs of PyTorch and CNTK, and planted parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from lines import table

import fitkit
from fitkit.display import format_share
from fitkit.features import phase_times
from fitkit.models.terms import TERMS

PYTORCH = (
    'network == "{network}" and n_workers == 1 and instrument == "recorder" '
    'and phase in ["forward", "backward"]'
)


def pytorch(quiet: fitkit.Dataset, busy: fitkit.Dataset) -> None:
    print("### PyTorch, one rank: forward and backward, one batch size left out\n")
    print(
        "Hook recorder, minimum over steps and repetitions, never the smallest batch left out. "
        "The busy machine ran other work at the same time: its wall clock shows that, CPU time "
        "does not.\n\n"
        "`fitkit validate DATASET --recipe phases --where '"
        + PYTORCH.format(network="tinygpt")
        + "' --leave-out local_batch --keep-smallest --statistic min`\n"
    )
    rows = []
    for name, dataset in (("quiet", quiet), ("busy", busy)):
        for network in ("tinygpt", "vggsmall"):
            report = fitkit.validate(
                dataset, "phases", where=PYTORCH.format(network=network),
                leave_out="local_batch", keep_smallest=True, statistic="min",
            )  # fmt: skip
            scaling = format_share(report.baselines["perfect_scaling"]["median_ape"])
            for clock in report.clocks.to_dict("records"):
                figures = (clock[k] for k in ("median_ape", "mape", "median_floor", "floor"))
                is_wall = clock["clock"] == "wall clock"
                rows.append(
                    [
                        name, network, clock["clock"], f"{clock['n']:.0f}",
                        *map(format_share, figures), scaling if is_wall else "",
                    ]
                )  # fmt: skip
    table(
        ["machine", "network", "clock", "n", "median APE", "MAPE", "median floor", "mean floor",
         "perfect scaling, median APE"],
        rows,
    )  # fmt: skip


def layers(dataset: fitkit.Dataset) -> None:
    print("### CNTK layers: one weight shape left out\n")
    print("Minimum over minibatches and repetitions.\n")
    rows = []
    for what, where in (
        ("dense, `shape_mlpw_*`", 'network == "mlpw" and layer_type == "Times"'),
        ("convolution, all networks", 'layer_type == "Convolution"'),
        ("dense, all networks", 'framework == "cntk" and layer_type == "Times"'),
    ):
        report = fitkit.validate(
            dataset, "layers", where=where, leave_out="weight_shape", statistic="min"
        )
        groups = report.groups[report.groups.by == "layer and phase"]
        for group in groups.to_dict("records"):
            figures = (group[k] for k in ("mape", "median_ape", "floor", "nearest_configuration"))
            rows.append(
                [
                    what, group["value"].split(" · ")[1], f"{group['n']:.0f}",
                    *map(format_share, figures), format_share(group["perfect_scaling"]),
                ]
            )  # fmt: skip
    table(
        ["layers", "phase", "n", "MAPE", "median APE", "floor", "nearest configuration, MAPE",
         "perfect scaling, MAPE"],
        rows,
    )  # fmt: skip


def phases(dataset: fitkit.Dataset) -> None:
    print("### CNTK phases: one minibatch size left out\n")
    print(
        "`fitkit validate DATASET --recipe phases --where 'network == \"mlpbig\"' "
        "--leave-out global_batch --statistic median`; 1 and 2 workers together.\n"
    )
    rows = []
    for network in ("mlpbig", "cnn"):
        where = f'network == "{network}" and framework == "cntk"'
        report = fitkit.validate(
            dataset, "phases", where=where, leave_out="global_batch", statistic="median"
        )
        steps = phase_times(dataset, "median")
        steps = steps[(steps.network == network) & (steps.phase != "init")]
        share = steps.groupby("phase").duration_s.sum() / steps.duration_s.sum()
        groups = report.groups[report.groups.by == "phase"]
        for group in groups.to_dict("records"):
            figures = (
                group[k]
                for k in ("mape", "median_ape", "floor", "constant", "nearest_configuration",
                          "perfect_scaling")
            )  # fmt: skip
            part = format_share(share.get(group["value"], np.nan))
            rows.append([network, group["value"], part, *map(format_share, figures)])
        print(
            f"{network}: weighted by time, all phases err by "
            f"{format_share(report.overall['wape'])}; totals of runs by "
            f"{format_share(report.run_error['mape'])} on average.\n"
        )
    table(
        ["network", "phase", "share of the step", "MAPE", "median APE", "floor", "constant",
         "nearest configuration", "perfect scaling"],
        rows,
    )  # fmt: skip


def planted() -> None:
    print("### Parameters: how often the 90 % interval holds a planted truth\n")
    print("5 % noise, 100 draws of 40 configurations each, seeds 0 to 99.\n")
    truth = {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3, "flops": 1e-12}
    hits = dict.fromkeys(truth, 0)
    for seed in range(100):
        random = np.random.default_rng(seed)
        batch = random.choice([1, 2, 4, 8, 16, 32, 64], 40).astype(float)
        frame = pd.DataFrame(
            {
                "local_batch": batch,
                "n_workers": random.choice([1, 2, 4, 8], 40).astype(float),
                "flop": batch * random.choice([1e6, 3e7, 1e9], 40),
            }
        )
        mean = sum(value * TERMS[name].amount(frame, 40) for name, value in truth.items())
        times = mean * (1 + 0.05 * random.standard_normal(40))
        for row in fitkit.LinearModel(list(truth)).fit(frame, times).params_.itertuples():
            hits[row.term] += row.ci_low <= truth[row.term] <= row.ci_high
    table(
        ["term", "truth", "in its interval"],
        [[name, f"{truth[name]:g} {TERMS[name].unit}", f"{hits[name]} of 100"] for name in truth],
    )


def show(shared: Path, folder: Path) -> None:
    """Print the tables of our own runs."""
    quiet = fitkit.ingest(
        [shared / "cntk/quiet_runs", shared / "pytorch/quiet_runs"], folder / "quiet"
    )
    busy = fitkit.ingest([shared / "pytorch/real_runs/calib_*"], folder / "busy")
    pytorch(quiet, busy)
    layers(quiet)
    phases(quiet)
    planted()
