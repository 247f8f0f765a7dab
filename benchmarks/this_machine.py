"""Layers of the sample networks on this machine, from a model of another one and the microbench."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from lines import Line, Section

import fitkit
from fitkit.calibration.operators import calibrate_layers
from fitkit.features import FRAMES, Statistic
from fitkit.models.performance import PerformanceModel

REPOSITORY = Path(__file__).parents[1]
TITLE = "Layers of the sample networks on this machine"
TEXT = """
`fitkit record --microbench` times the standard operators here, and the layers of tinygpt and
vggsmall (`data/scripts/recorder/train.py`, one process, one thread) are predicted before they are
measured: by the model of the recorded runs in `data/recorder`, made on another machine, calibrated
with the microbench; by that model as it is; and by the microbench alone. The least CPU time of a
call counts on all sides, since other work on the machine slows some calls down; a layer counts
once for each phase and batch, in runs that follow one another in random order. Layers that hold
others, whose own time is what is left between theirs, are not asked for. A part of the microbench
is timed again at the end: by how much its own times have changed, no model can know.
"""
BATCHES = {"tinygpt": (1, 2, 4, 8, 12), "vggsmall": (2, 4, 8, 16, 32)}
BAR, TARGET, SEED = 0.15, "cpu_s", 20261201
STATISTIC: Statistic = "min"
AGAIN = "dense"  # operators that are timed again
CONTAINERS = {
    "Block", "DistributedDataParallel", "Residual", "Sequential", "TinyGPT", "VGGSmall",
}  # fmt: skip


def section(_: Path, folder: Path) -> Section:
    """Median errors, after this machine was timed; needs PyTorch."""
    if find_spec("torch") is None:
        raise SystemExit("the microbench needs PyTorch: pip install 'fitkit[torch]'")
    probes = _layers(_microbench(folder))
    elsewhere = fitkit.ingest(REPOSITORY / "data/recorder", folder / "elsewhere")
    source = fitkit.fit(elsewhere, "layers", target=TARGET, statistic=STATISTIC)
    calibrated = calibrate_layers(source, probes)
    alone = fitkit.fit(probes, "layers", target=TARGET, statistic=STATISTIC)
    test = _layers(_networks(folder))
    here = dict.fromkeys(("device", "system"))
    predicted = {
        "fitkit": _ask(calibrated, test.assign(**here)),
        "source_as_it_is": _ask(source, test.drop(columns=list(here))),
        "microbench_alone": _ask(alone, test.assign(**here)),
    }
    errors = pd.DataFrame({k: (v / test[TARGET] - 1).abs() for k, v in predicted.items()})
    errors = errors.fillna(np.inf)  # refusing may not make anything look better
    lines = []
    for name, rows in (("all layers", slice(None)), *_parts(test)):
        median = errors.loc[rows].median().to_dict()
        ours = median.pop("fitkit")
        lines.append(
            Line(f"median APE, {name}", ours, BAR if name == "all layers" else None, median)
        )
    lines.append(Line("median change of the microbench itself", _change(probes, folder)))
    return Section(TITLE, TEXT, lines)


def _change(probes: pd.DataFrame, folder: Path) -> float:
    """By how much operators take another time than at first."""
    _python(
        "-c",
        f"from pathlib import Path; from fitkit.recorder.microbench import measure; "
        f"measure(Path({str(folder / 'again')!r}), 10.0, [{AGAIN!r}])",
    )
    again = _layers(fitkit.ingest(folder / "again", folder / "again-parquet"))
    by = ["network", "layer", "phase", "local_batch"]
    before, after = (rows.groupby(by)[TARGET].min() for rows in (probes, again))
    return float((after / before - 1).dropna().abs().median())


def _parts(test: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    return [
        (f"{network}, {phase}", (test.network == network) & (test.phase == phase))
        for network, phase in itertools.product(BATCHES, ("forward", "backward"))
    ]


def _microbench(folder: Path) -> fitkit.Dataset:
    logs = folder / "microbench"
    _fitkit("record", "--microbench", "-d", str(logs))
    return fitkit.ingest(logs, folder / "microbench-parquet")


def _networks(folder: Path) -> fitkit.Dataset:
    """The sample networks, trained for a moment each, in random order."""
    runs = [(name, n) for name, batches in BATCHES.items() for n in batches]
    random.Random(SEED).shuffle(runs)  # noqa: S311 - an order, no secret
    for name, n in runs:
        train = ["torchrun", "--standalone", "--nproc_per_node=1", "train.py", "--model", name]
        place = ["-d", str(folder / "networks" / f"{name}{n}"), "--network", name]
        _fitkit("record", *place, "--", *train, "--batch", str(n))
    return fitkit.ingest(folder / "networks", folder / "networks-parquet")


def _fitkit(*words: str) -> None:
    _python("-m", "fitkit", *words)


def _python(*words: str) -> None:
    """Run Python as it runs here, one thread for each process, its programs found first."""
    bin_folder = str(Path(sys.executable).parent)
    subprocess.run(
        [sys.executable, *words],
        cwd=REPOSITORY / "data/scripts/recorder",
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", "")]),
        },
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _layers(dataset: fitkit.Dataset) -> pd.DataFrame:
    """Layers that hold no others, with a CPU time; collectives have a network of their own."""
    frame = FRAMES["layers"](dataset, STATISTIC)
    kept = ~frame.layer_type.isin(CONTAINERS) & (frame[TARGET] > 0)
    return frame[kept & (frame.network != "microbench-collectives")].reset_index(drop=True)


def _ask(model: PerformanceModel, rows: pd.DataFrame) -> pd.Series:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # asked for here
        return model.predict(rows, allow_extrapolation=True).predicted_s
