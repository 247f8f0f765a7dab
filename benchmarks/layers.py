"""Layer times: of image networks that were left out, of dense layers from ten measured shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pipedream
from lines import Line, Section
from trials import OURS, Trial, errors, ingest

IMAGES = "Layers of a network left out, PipeDream"
IMAGES_TEXT = """
`public_tables/pipedream_profiles/*/graph.txt`, recipe `layers`: forward and backward time of the
layers of eight image networks, one network left out at a time. The error of a layer is that of
both phases together, the sum that of all layers of a network.
"""
DENSE = "Dense layers from ten shapes, NeuSight"
DENSE_TEXT = """
`public_tables/neusight_ops/linear.csv.gz`, recipe `layers`. Of each GPU the first ten rows of
`RandomState(s).permutation(n)` are trained on, all others predicted, s = 0 to 9. No other GPU and
no specification is looked at.
"""
TRIAL = Trial(
    "layers",
    ("flop", "n_params", "input_bytes", "output_bytes"),
    "flop",
    ("constant", "nearest_configuration", "perfect_scaling", "gradient_boosting"),
)
BARS = {
    "NVIDIA A100 80GB PCIe": 0.08,
    "NVIDIA A100-PCIE-40GB": 0.08,
    "Tesla V100-PCIE-32GB": 0.08,
    "Tesla T4": 0.10,
    "NVIDIA L4": 0.13,
    "Tesla P4": 0.16,
}
IMAGE_BARS = {
    "median APE, mean of networks": 0.145,
    "median APE, all layers": 0.12,
    "sum of a network, mean": 0.12,
    "sum of a network, worst": 0.40,
}


def image_networks(shared: Path, _: Path) -> Section:
    """Every image network from the seven others."""
    layers = pipedream.load(shared / "public_tables/pipedream_profiles")
    # A phase that the clock did not see took less than its last digit, a microsecond.
    layers["duration_s"] = layers.duration_s.clip(lower=1e-6)
    parts = []
    for name in pipedream.NETWORKS:
        held = layers.network == name
        parts.append(TRIAL.predict(layers[~held], layers[held]))
    predicted = pd.concat(parts).reindex(layers.index)
    of_model = {name: _figures(layers, predicted[name]) for name in predicted}
    lines = []
    for figure, bar in IMAGE_BARS.items():
        others = {name: found[figure] / 100 for name, found in of_model.items()}
        lines.append(Line(figure, others.pop(OURS), bar, others))
    refused = predicted.isna().mean().to_dict()
    lines.append(Line("layers without a prediction", refused.pop(OURS), 0.0, refused))
    return Section(IMAGES, IMAGES_TEXT, lines)


def _figures(layers: pd.DataFrame, predicted: pd.Series) -> dict[str, float]:
    by_layer = layers.assign(predicted_s=predicted).groupby(["network", "layer"], sort=False)
    both = by_layer[["duration_s", "predicted_s"]].sum(min_count=len(pipedream.PHASES))
    return pipedream.figures(both.reset_index())


def dense_layers(shared: Path, folder: Path) -> Section:
    """Every GPU from ten of its rows."""
    path = shared / "public_tables/neusight_ops/linear.csv.gz"
    dataset = ingest(path, "neusight_linear", folder)
    in_file = dataset.read("layers", ["run_id", "layer"])
    frame = in_file.merge(TRIAL.frame(dataset), validate="one_to_one")
    lines = []
    for device, bar in BARS.items():
        rows = frame[frame.device == device]
        mean = pd.DataFrame(_ten_rows(rows, seed) for seed in range(10)).mean(skipna=False)
        others = mean.to_dict()
        lines.append(Line(device, others.pop(OURS), bar, others))
    return Section(DENSE, DENSE_TEXT, lines)


def _ten_rows(rows: pd.DataFrame, seed: int) -> pd.Series:
    order = np.random.RandomState(seed).permutation(len(rows))
    train, test = rows.iloc[order[:10]], rows.iloc[order[10:]]
    return errors(TRIAL.predict(train, test), test.duration_s).mean(skipna=False)
