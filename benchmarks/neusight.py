"""Dense layers of one GPU from ten measured shapes: NeuSight's published operator times.

  python benchmarks/neusight.py [--shared FOLDER]

Ten rows of a GPU are drawn (seeds 0 to 9) and all others of it predicted; no other GPU and no
specification is looked at.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from fitkit.models.linear import LinearModel
from fitkit.models.operators import OperatorModel

N_TRAIN, N_SEEDS = 10, 10
TERMS = ("fixed", "flops", "unfolded_input", "weights", "input_activations", "output_activations")


def load(path: Path) -> pd.DataFrame:
    """Dense layers: a batch of products M×K by K×N of 4-byte numbers, forward; the times in ms."""
    table = pd.read_csv(path)
    rows, width, depth = table.B * table.M, table.N, table.K
    return pd.DataFrame(
        {
            "device": table.Device,
            "layer_type": "Linear",
            "phase": "forward",
            "flop": 2.0 * rows * width * depth,
            "n_params": 1.0 * width * depth,
            "weight_shape": [f"{n}x{k}" for n, k in zip(width, depth, strict=True)],
            "input_bytes": 4.0 * rows * depth,
            "output_bytes": 4.0 * rows * width,
            "input_grad_bytes": 0.0,
            "duration_s": table.Latency * 1e-3,
        }
    )


def error(layers: pd.DataFrame, model: LinearModel) -> tuple[float, float]:
    """Mean APE in percent, and share of rows in their 90 % interval, over all seeds."""
    seconds = layers.duration_s.to_numpy()
    errors, inside = [], []
    for seed in range(N_SEEDS):
        order = np.random.RandomState(seed).permutation(len(layers))
        train, test = order[:N_TRAIN], order[N_TRAIN:]
        model.fit(layers.iloc[train], seconds[train])
        errors.append(np.abs(model.predict(layers.iloc[test]) / seconds[test] - 1).mean())
        low, high = model.predict_interval(layers.iloc[test])
        inside.append(((low <= seconds[test]) & (seconds[test] <= high)).mean())
    return 100 * float(np.mean(errors)), 100 * float(np.mean(inside))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    path = parser.parse_args().shared / "public_tables" / "neusight_ops" / "linear.csv.gz"
    models = {
        "OperatorModel": OperatorModel(TERMS),
        "its terms alone": LinearModel(TERMS, undetermined="drop"),
        "perfect scaling with FLOPs": LinearModel(["flops"]),
    }
    rows = {}
    for device, layers in load(path).groupby("device"):
        of_device = {name: error(layers, model) for name, model in models.items()}
        rows[device] = {name: mape for name, (mape, _) in of_device.items()}
        rows[device]["in the 90 % interval"] = of_device["OperatorModel"][1]
    print(pd.DataFrame(rows).T.round(1).to_string())


if __name__ == "__main__":
    main()
