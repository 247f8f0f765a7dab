"""Messages between two nodes of Blue Waters: its ping-pong times, sizes held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from lines import Line, Section
from trials import Trial

import fitkit
from fitkit.ingestion import Options
from fitkit.models.protocols import ProtocolCurve, fit_protocols

TITLE = "Messages on the Gemini network, Blue Waters"
IN_MEMORY = "one to eight pairs, one socket"  # no message of these is on the network
FILES = {  # nodes that the ranks are on
    "one pair, two nodes": ("ppn1_off_node", 2),
    IN_MEMORY: ("on_socket", 1),
    "one to sixteen pairs, two nodes": ("max_rate", 2),
}
BAR = 0.10
TRIAL = Trial("comms", ("n_ranks", "n_bytes"), "n_bytes")
TEXT = """
`hpc/bluewaters_pingpong_*.out`: 17 sizes of 8 bytes to 512 KiB, each a power of two, between
several pairs of nodes. One size at a time is held out, and the mean is over the sizes. The first
lines are those of the recipe `comms`, which draws a curve through the sizes. The others are those
of `fit_protocols`, the fewest straight lines that hold to within 5 %, for one pair; held-out
times are compared by the median of a size. A size is inside a protocol of four sizes or more if
both of its neighbours are in it: only there do the other sizes tell its time. Which protocol a size
beside a break belongs to is not known without it: those lines are there to be read, as are those
of one socket, whose messages do not use the network. The origin of the data names limits of 500 and
8,000 bytes between nodes; breaks are found between these bytes: {breaks}.
"""

Predictor = Callable[[pd.DataFrame, pd.DataFrame], np.ndarray]


def load(shared: Path, folder: Path, name: str, n_nodes: int) -> pd.DataFrame:
    """A row for each table, pairs and size of a file, as the recipe reads them."""
    path = shared / f"hpc/bluewaters_pingpong_{name}.out"
    dataset = fitkit.ingest(path, folder / name, options=Options(metadata={"n_nodes": n_nodes}))
    return TRIAL.frame(dataset)


def left_out(frame: pd.DataFrame, predict: Predictor) -> Iterator[tuple[float, float]]:
    """Each size, and the mean relative error of its times as predicted from the others."""
    for size, test in frame.groupby("n_bytes"):
        seconds = predict(frame[frame.n_bytes != size], test)
        yield float(size), float((np.abs(seconds / test.duration_s - 1)).mean())


def by_recipe(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """Seconds by the recipe."""
    model = fitkit.fit(train, TRIAL.recipe, statistic="median")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)  # the ends are asked for too
        return model.predict(test, allow_extrapolation=True).predicted_s.to_numpy()


def by_protocols(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """Seconds by the lines."""
    return fit_protocols(train.n_bytes, train.duration_s).predict(test.n_bytes)


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """One pair of ranks: a row for each size."""
    pair = frame[frame.n_ranks == 2]
    return pair.groupby("n_bytes", as_index=False).duration_s.median()


def is_inside(curve: ProtocolCurve, size: float) -> bool:
    """Whether a size and both of its neighbours are in one protocol, of four sizes or more."""
    return any(
        one.smallest < size < one.largest and one.largest >= 8 * one.smallest
        for one in curve.protocols
    )


def section(shared: Path, folder: Path) -> Section:
    """All lines of the data set."""
    frames = {name: load(shared, folder, *which) for name, which in FILES.items()}
    lines = []
    for name, frame in frames.items():
        errors = [error for _, error in left_out(frame, by_recipe)]
        lines.append(Line(f"recipe, mean over the sizes: {name}", float(np.mean(errors)), BAR))
    breaks = []
    for name, frame in frames.items():
        pair = medians(frame)
        curve = fit_protocols(pair.n_bytes, pair.duration_s)
        words = ", ".join(f"{low:.0f} to {high:.0f}" for low, high in curve.breaks)
        breaks.append(f"{name}: {words}")
        found = pd.Series(dict(left_out(pair, by_protocols)))
        inside = np.array([is_inside(curve, size) for size in found.index])
        bar = None if name == IN_MEMORY else BAR
        label = f"lines, worst of {inside.sum()} sizes inside a protocol: {name}"
        lines.append(Line(label, found[inside].max(), bar))
        label = f"lines, worst of the other {(~inside).sum()} sizes: {name}"
        lines.append(Line(label, found[~inside].max()))
    return Section(TITLE, TEXT.format(breaks="; ".join(breaks)), lines)
