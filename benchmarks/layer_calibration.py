"""Layer models carried to another device: dense layers, whole networks, this machine.

  python benchmarks/layer_calibration.py [--shared FOLDER] [--only SECTION]

Exits with 1 if a figure misses its bar. ``machine`` needs PyTorch, times this machine for about
three minutes and is printed where it is asked for by name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import layer_networks
import numpy as np
import pandas as pd
import this_machine
from layers import TRIAL
from lines import Line, Section, Sections, run
from threadpoolctl import threadpool_limits
from trials import ingest

import fitkit
from fitkit.calibration.operators import calibrate_layers
from fitkit.models.performance import PerformanceModel

DENSE = "Dense layers of one GPU from five others and ten shapes, NeuSight"
DENSE_TEXT = """
`public_tables/neusight_ops/linear.csv.gz`, recipe `layers`. The shapes (B, M, N, K) are halved by
`RandomState(s).permutation(shapes)`, s = 0 to 9. The source is fitted to the first half on the five
other GPUs; ten rows of the first half, the first of `RandomState(s).permutation(rows)`, calibrate
it; the second half is predicted. No specification is looked at. Beside it: the same ten rows alone
(recipe `layers`), and one factor, the median ratio of the ten times to what the best other GPU is
predicted to take. A same-shape look-up may use what the other GPUs took for the very shapes that
are predicted, times one factor from the ten rows; it is no bar, and printed apart.
"""
N_PROBES, N_SEEDS = 10, 10
BARS = {
    "NVIDIA A100 80GB PCIe": 0.075,
    "NVIDIA A100-PCIE-40GB": 0.075,
    "Tesla V100-PCIE-32GB": 0.075,
    "Tesla T4": 0.10,
    "NVIDIA L4": 0.135,
    "Tesla P4": 0.155,
}


def dense_layers(shared: Path, folder: Path) -> Section:
    """Every GPU from the five others."""
    path = shared / "public_tables/neusight_ops/linear.csv.gz"
    dataset = ingest(path, "neusight_linear", folder)
    in_file = dataset.read("layers", ["run_id", "layer"])
    frame = in_file.merge(TRIAL.frame(dataset), validate="one_to_one")
    found = [_of_seed(frame, seed) for seed in range(N_SEEDS)]
    lines = []
    for device, bar in BARS.items():
        mean = pd.DataFrame([each[device] for each in found]).mean(skipna=False).to_dict()
        covered, look_up = mean.pop("covered"), mean.pop("look_up")
        lines.append(Line(device, mean.pop("fitkit"), bar, mean))
        lines.append(Line(f"{device}: in the 90 % interval", covered))
        lines.append(Line(f"{device}: same-shape look-up, apart", look_up))
    return Section(DENSE, DENSE_TEXT, lines)


def _of_seed(frame: pd.DataFrame, seed: int) -> dict[str, dict[str, float]]:
    """Errors on each GPU with one halving of the shapes."""
    shapes = frame.layer.drop_duplicates().to_numpy()
    halved = np.random.RandomState(seed).permutation(len(shapes))
    is_first = frame.layer.isin(shapes[halved[: len(shapes) // 2]])
    model = fitkit.fit(frame[is_first], "layers", statistic="median")
    found = {}
    for device in BARS:
        own = frame[is_first & (frame.device == device)]
        probes = own.iloc[np.random.RandomState(seed).permutation(len(own))[:N_PROBES]]
        test = frame[~is_first & (frame.device == device)]
        others = frame[frame.device != device]
        found[device] = _errors(without(model, device), probes, test, others)
    return found


def _errors(
    source: PerformanceModel, probes: pd.DataFrame, test: pd.DataFrame, others: pd.DataFrame
) -> dict[str, float]:
    measured = test.duration_s.to_numpy()
    calibrated = _ask(calibrate_layers(source, probes), test)
    alone = _ask(fitkit.fit(probes, "layers", statistic="median"), test).predicted_s
    inside = (calibrated.low_s <= measured) & (measured <= calibrated.high_s)
    return {
        "fitkit": _mape(calibrated.predicted_s, measured),
        "ten_rows_alone": _mape(alone, measured),
        "one_factor": _mape(_one_factor(source, probes, test), measured),
        "covered": float(inside.mean()),
        "look_up": _mape(_look_up(probes, test, others), measured),
    }


def _ask(model: PerformanceModel, rows: pd.DataFrame) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # asked for here
        return model.predict(rows, allow_extrapolation=True)


def _mape(predicted: np.ndarray | pd.Series, measured: np.ndarray) -> float:
    return float(np.abs(np.asarray(predicted) / measured - 1).mean())


def _one_factor(source: PerformanceModel, probes: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """What another GPU takes, times the median ratio; the one whose ratios differ least."""
    best: tuple[float, np.ndarray] = (np.inf, np.empty(0))
    for key, group in source.estimator.groups_.items():
        on_probes = _ask(only(source, key[1]), probes.assign(device=key[1])).predicted_s
        ratios = np.log(probes.duration_s.to_numpy() / on_probes.to_numpy())
        spread = float(np.abs(ratios - np.median(ratios)).mean())
        if spread < best[0]:
            best = spread, np.exp(np.median(ratios)) * group.predict(test)
    return best[1]


def _look_up(probes: pd.DataFrame, test: pd.DataFrame, others: pd.DataFrame) -> np.ndarray:
    """What another GPU took for the same shape, times the median ratio, as `_one_factor`."""
    best: tuple[float, np.ndarray] = (np.inf, np.empty(0))
    for _, rows in others.groupby("device"):
        seconds = rows.set_index("layer").duration_s
        ratios = np.log(probes.duration_s.to_numpy() / seconds.reindex(probes.layer).to_numpy())
        ratios = ratios[np.isfinite(ratios)]
        spread = float(np.abs(ratios - np.median(ratios)).mean())
        found = seconds.reindex(test.layer).fillna(np.nan).to_numpy()
        if spread < best[0] and np.isfinite(found).all():
            best = spread, np.exp(np.median(ratios)) * found
    return best[1]


def without(model: PerformanceModel, device: str) -> PerformanceModel:
    """A model of the other devices alone: groups are fitted on their own."""
    return _restricted(model, {key for key in model.estimator.groups_ if device not in key})


def only(model: PerformanceModel, device: str) -> PerformanceModel:
    """A model of one device."""
    return _restricted(model, {key for key in model.estimator.groups_ if device in key})


def _restricted(model: PerformanceModel, keys: set[tuple[str, ...]]) -> PerformanceModel:
    estimator = type(model.estimator)(model.estimator.by)
    estimator.groups_ = {k: m for k, m in model.estimator.groups_.items() if k in keys}
    estimator.n_obs_ = sum(m.n_obs_ for m in estimator.groups_.values())
    domains = {key: domain for key, domain in model.domains.items() if key in keys}
    return replace(model, estimator=estimator, domains=domains)


SECTIONS: Sections = {
    "dense": dense_layers,
    "networks": layer_networks.section,
    "machine": this_machine.section,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--only", choices=SECTIONS, action="append", metavar="SECTION")
    given = parser.parse_args()
    only_these = given.only or ["dense", "networks"]
    chosen = {name: make for name, make in SECTIONS.items() if name in only_these}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        missed = list(run(chosen, given.shared, Path(folder)))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
