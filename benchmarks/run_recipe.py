"""Whole runs by recipe `run`: planted knees and turning points, MLPerf's submissions, our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lines import Line, Section
from trials import OURS, Trial, errors, ingest

import fitkit
from fitkit.diagnosis import run_scaling
from fitkit.features import FRAMES
from fitkit.models.recipes import RECIPES

Truth = Callable[[np.ndarray], np.ndarray]

# -- planted ---------------------------------------------------------------------------------

PLANTED = "Whole runs, planted"
PLANTED_TEXT = """
Runs of 2 epochs of 100 steps, 3 repetitions at each of 1, 2, 4, 8, 12, 16, 20 and 24 nodes with a
worker each, every time with lognormal noise of 5 %; 100 draws, `numpy.random.default_rng(s)`, s = 0
to 99. The start is 2 + 16 max(1, N / 16) seconds: every node reads a data set from a file system
that 16 of them keep busy. The step is max(1.6, 0.1 N) + 0.05: a server that 16 workers keep busy.
Both knees lie at 16. A knee is found if it is declared within 25 % of that. The total at 96 nodes
is the mean absolute error of what the fitted recipe predicts there. Turning points are those of
strong scaling at a batch of 256 over 1, 2, 4, 6, 8, 12 and 16 nodes, with a start of 5 + 0.2 N and
a step of 8 / N + 0.12 N: the truth is 8, by the measured totals and by the model that is fitted to
the parts. Where the step is 8 / N + 0.1 and the start 5, there is none.
"""
DRAWS = range(100)
REPEATS = 3
SCALES = np.array([1.0, 2, 4, 8, 12, 16, 20, 24])
TOTALS = np.array([1.0, 2, 4, 6, 8, 12, 16])
KNEE, NEAR, FASTEST, FAR = 16.0, 0.25, 8.0, 96.0
NOISE, EPOCHS, STEPS, GLOBAL_BATCH = 0.05, 2.0, 100.0, 256.0


def start(n: np.ndarray) -> np.ndarray:
    """Launch, and a data set that every node reads."""
    return 2 + 16 * np.maximum(1, n / KNEE)


def step(n: np.ndarray) -> np.ndarray:
    """A server that serves the workers in turn."""
    return np.maximum(1.6, 0.1 * n) + 0.05


def logarithmic(n: np.ndarray) -> np.ndarray:
    """A tree."""
    return 2 + 0.6 * np.log2(n)


def affine(n: np.ndarray) -> np.ndarray:
    """One after the other."""
    return 2 + 0.1 * n


def runs(
    init: Truth, of_step: Truth, scales: np.ndarray, seed: int, *, strong: bool = False
) -> pd.DataFrame:
    """A draw: a run a row, with its parts and its total."""
    n = np.repeat(scales, REPEATS)
    random = np.random.default_rng(seed)
    init_s, step_s = (
        truth(n) * np.exp(NOISE * random.standard_normal(len(n))) for truth in (init, of_step)
    )
    frame = pd.DataFrame({"n_workers": n, "n_nodes": n, "init_s": init_s, "step_s": step_s})
    frame["local_batch"] = GLOBAL_BATCH / n if strong else 32.0
    frame["global_batch"] = frame.local_batch * n
    counted = frame.assign(n_epochs=EPOCHS, steps_per_epoch=STEPS)
    return counted.assign(total_s=init_s + EPOCHS * STEPS * step_s)


def said(frames: list[pd.DataFrame], what: str) -> pd.DataFrame:
    """The answer to one question about each draw."""
    found = [run_scaling(frame) for frame in frames]
    return pd.concat([each[each.what == what] for each in found], ignore_index=True)


def knee_lines() -> list[Line]:
    """Knees of the start and of the step: found, how near, and none where there is none."""
    lines = []
    with_knees = [runs(start, step, SCALES, seed) for seed in DRAWS]
    before = [runs(start, step, SCALES[SCALES <= KNEE], seed) for seed in DRAWS]
    for part, words in (("init", "start"), ("step", "step")):
        found = said(with_knees, f"knee of {part}")
        away = (found["at"] / KNEE - 1).abs()[found.status == "knee"]
        early = said(before, f"knee of {part}")
        lines += [
            Line(f"{words} to 24: not found", 1 - float((away <= NEAR).sum()) / len(DRAWS), 0.05),
            Line(f"{words} to 24: median error of the knee", float(away.median()), 0.1),
            Line(f"{words} to 16: declared", _share(early, "knee"), 0.0),
        ]
        for truth in (logarithmic, affine):
            smooth = [runs(truth, truth, SCALES, seed) for seed in DRAWS]
            none = said(smooth, f"knee of {part}")
            lines.append(
                Line(f"{truth.__name__} {words} to 24: declared", _share(none, "knee"), 0.02)
            )
    return lines


def _share(answers: pd.DataFrame, status: str) -> float:
    """Of the draws that have that answer: one that does not even look does not declare."""
    return float((answers.status == status).sum()) / len(DRAWS)


def far_line() -> Line:
    """Totals at four times the largest scale, in draws in which both knees were declared."""
    asked = pd.DataFrame(
        {"n_workers": [FAR], "n_nodes": FAR, "local_batch": 32.0, "global_batch": 32 * FAR,
         "n_epochs": EPOCHS, "steps_per_epoch": STEPS}
    )  # fmt: skip
    at = np.array([FAR])
    truth = float(start(at)[0] + EPOCHS * STEPS * step(at)[0])
    found = []
    for seed in DRAWS:
        model = fitkit.fit(runs(start, step, SCALES, seed), "run", statistic="median")
        if sum(answer.status == "knee" for answer in model.scaling) == 2:
            guess = model.predict_columns(dict(asked), 1, allow_extrapolation=True)["predicted_s"]
            found.append(abs(float(guess[0]) / truth - 1))
    return Line(
        f"total at {FAR:g} nodes, {len(found)} draws with both knees", float(np.mean(found)), 0.05
    )


def turning_lines() -> list[Line]:
    """Where scaling stops: the truth among the candidates, how many they are, and none."""
    truths = {
        "minimum at 8": (lambda n: 5 + 0.2 * n, lambda n: 8 / n + 0.12 * n),
        "falling": (lambda n: 5 + 0 * n, lambda n: 8 / n + 0.1),
    }
    lines = []
    for name, (init, of_step) in truths.items():
        answers = []
        for seed in DRAWS:
            frame = runs(init, of_step, TOTALS, seed, strong=True)
            answers += fitkit.fit(frame, "run", statistic="median").scaling
        for what, words in (("total", "as measured"), ("total by the model", "by the model")):
            own = [answer for answer in answers if answer.what == what]
            told = [answer for answer in own if answer.status == "turning point"]
            if name == "falling":
                lines.append(Line(f"{name}, {words}: declared", len(told) / len(own), 0.05))
                continue
            lost = sum(not a.low <= FASTEST <= a.high for a in told) / len(own)
            share = float(np.mean([a.shares.get(FASTEST, 0.0) for a in own]))
            lines += [
                Line(f"{name}, {words}: truth is no candidate", lost, 0.15),
                Line(f"{name}, {words}: share of draws at 8, mean", share),
                Line(f"{name}, {words}: not determined", 1 - len(told) / len(own)),
            ]
    return lines


def planted(_shared: Path, _folder: Path) -> Section:
    """All lines of planted truths; nothing is read."""
    return Section(PLANTED, PLANTED_TEXT, [*knee_lines(), far_line(), *turning_lines()])


# -- MLPerf ----------------------------------------------------------------------------------

MLPERF = "Whole runs, MLPerf Training on A100"
MLPERF_TEXT = """
`mlperf/mlperf_runs.csv.gz`, rounds `train_*`, recipe `run`: the start and the training of every run
over its nodes. A unit is a configuration (family, workers, nodes, batch) with the medians of its
runs; the largest scale of every family that has two or more is held out at once, all other rows of
all devices are trained on, and the families on A100 are shown. *Work given*: how many epochs and
steps a run needs is told, also to perfect scaling; *work guessed*: it is as many samples as the
family's largest known scale needed. The baselines see the rows of their family alone; perfect
scaling is a constant where steps are not counted.

Where scaling stops is asked of the measured totals of NVIDIA's BERT of round v2.0; shares are those
of 1,000 draws. The table ends at 128 nodes, where the time still falls, as it does at the largest
scale of the other families of three scales or more. A run of round v2.1, which is not in the table,
took 297 seconds on 512 nodes, 284 of them to start: with this single run more, it is found that the
time rises again. Google's BERT on TPU v4, rounds v1.0 and v2.0 together, rises in the table.
"""
SEVERAL = 3  # scales, of fewer none is the fastest
SHOWN = ("bert", "resnet", "retinanet", "unet3d", "rnnt")
PROMISED = ("bert", "resnet", "all")  # a tenth less than every baseline, at least
FAMILY = "train_v2.0|NVIDIA|bert|A100|dgxa100_pytorch"
# mlcommons/training_results_v2.1, NVIDIA's BERT on 512 nodes: not in the table.
LARGEST_NODES, LARGEST_TOTAL_S, LARGEST_INIT_S = 512, 297.0, 284.0
_MEDIANS = [*RECIPES["run"].measured, "total_s", *RECIPES["run"].counts, "worker_samples"]
_UNIT = ["n_workers", "n_nodes", "local_batch", "global_batch"]
TRIAL = Trial(
    "run",
    ("n_workers", "n_nodes", "local_batch", *RECIPES["run"].counts),
    "worker_samples",
    ("constant", "nearest_configuration", "perfect_scaling", "ernest"),
)


def load(shared: Path, folder: Path) -> pd.DataFrame:
    """Runs of MLPerf Training with their parts."""
    frame = FRAMES["run"](ingest(shared / "mlperf/mlperf_runs.csv.gz", "mlperf", folder), "median")
    is_training = frame.run_id.str.startswith("train_") & (frame.n_nodes > 0)
    known = frame[is_training & frame.global_batch.notna()].reset_index(drop=True)
    return RECIPES["run"].prepare(known)


def units(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each configuration, with medians of its runs, counts too."""
    keys = [*RECIPES["run"].groups, *_UNIT]
    return frame.groupby(keys, dropna=False)[_MEDIANS].median().reset_index()


def split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All other units, and those of the largest number of nodes of families that have several."""
    nodes = frame.groupby("family").n_nodes
    held = (nodes.transform("nunique") > 1) & (frame.n_nodes == nodes.transform("max"))
    return frame[~held], frame[held]


def guessed(train: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Held-out units, with as much work as the largest known scale of their family needed."""
    largest = train.sort_values(["n_nodes", "n_workers"]).groupby("family").last()
    known = largest.loc[test.family].set_index(test.index)
    samples = known.steps_per_epoch * known.global_batch
    steps = samples / test.global_batch
    work = known.n_epochs * steps * test.local_batch
    return test.assign(n_epochs=known.n_epochs, steps_per_epoch=steps, worker_samples=work)


def error_lines(frame: pd.DataFrame) -> list[Line]:
    """Errors of each network, and of all families."""
    train, test = split(frame)
    lines = []
    for work, asked in (("given", test), ("guessed", guessed(train, test))):
        found = errors(TRIAL.predict(train, asked, "scale-up"), test.total_s)
        shown = found[test.device == "A100"].groupby(test.family).mean()
        network = test.groupby("family").network.first().loc[shown.index]
        parts = {name: shown[network == name] for name in SHOWN}
        for name, part in {**parts, "all": shown}.items():
            words = f"{name}, {len(part)} families, work {work}"
            lines.append(_line(f"{words}: mean", part.mean(skipna=False), name in PROMISED))
        median = shown.median(skipna=False)
        lines.append(_line(f"all, {len(shown)} families, work {work}: median", median, True))
    return lines


def _line(name: str, figures: pd.Series, is_promised: bool) -> Line:
    others = {str(baseline): float(figure) for baseline, figure in figures.items()}
    ours = others.pop(OURS)
    return Line(name, ours, None, others, beaten=[*others] if is_promised else [])


def stop_lines(frame: pd.DataFrame) -> list[Line]:
    """Whether the total is said to rise again, and at which scale it is least."""
    bert = frame[frame.family == FAMILY]
    more = bert.iloc[[-1]].assign(
        run_id="v2.1", n_nodes=LARGEST_NODES, n_workers=8 * LARGEST_NODES,
        global_batch=16384, local_batch=4.0, init_s=LARGEST_INIT_S, total_s=LARGEST_TOTAL_S,
    )  # fmt: skip
    tpu = frame[(frame.network == "bert") & (frame.device == "TPU-v4")].assign(family="Google")
    lines = []
    for name, rows, least, bar in (
        ("BERT to 128 nodes", bert, None, 0.0),
        ("BERT to 512 nodes", pd.concat([bert, more]), 1.0, None),
        ("BERT on TPU v4, 16 to 1024 nodes", tpu, None, None),
    ):
        found = run_scaling(rows)
        total = found[found.what == "total"].iloc[0]
        at = max(total.shares, key=lambda scale: total.shares[scale])
        lines += [
            Line(f"{name}: said to rise again", float(_rises(total)), bar, least=least),
            Line(f"{name}: fastest in most draws", at, unit="nodes"),
            Line(f"{name}: share of the draws", total.shares[at]),
        ]
    several = frame[frame.device == "A100"].groupby("family").n_nodes.nunique() >= SEVERAL
    rows = frame[frame.family.isin(several.index[several]) & (frame.family != FAMILY)]
    answers = run_scaling(rows)
    totals = answers[answers.what == "total"]
    others = float(np.mean([_rises(total) for total in totals.itertuples()]))
    return [*lines, Line(f"the {len(totals)} other families: said to rise again", others, 0.0)]


def _rises(total: Any) -> bool:
    """Whether an answer says that the time rises from some measured scale on."""
    return total.status == "turning point" or "slower from" in total.words


def mlperf(shared: Path, folder: Path) -> Section:
    """All lines of the table."""
    frame = load(shared, folder)
    return Section(MLPERF, MLPERF_TEXT, [*error_lines(units(frame)), *stop_lines(frame)])


# -- our own runs ----------------------------------------------------------------------------

OWN = "Whole runs, CNTK"
OWN_TEXT = """
The runs of `cntk/quiet_runs`, start and training: `fitkit validate DATASET --recipe run --folds 5`,
seed 0. The floor is the difference of two repetitions.
"""


def own(shared: Path, folder: Path) -> Section:
    """Totals of the sample runs that were recorded on a quiet machine."""
    dataset = fitkit.ingest([shared / "cntk/quiet_runs"], folder / "cntk_runs")
    report = fitkit.validate(dataset, "run", folds=5)
    n = f"{report.overall['n']:.0f} configurations"
    lines = [
        Line(
            f"total, {n}: {words}",
            report.overall[figure],
            None,
            {name: report.baselines[name][figure] for name in (*TRIAL.baselines, "pollux")},
        )
        for words, figure in (("mean", "mape"), ("median", "median_ape"))
    ]
    lines += [
        Line(f"total, {n}: floor", report.noise_floor["mape"]),
        Line(f"total, {n}: in its 90 % interval", report.overall["coverage"]),
    ]
    return Section(OWN, OWN_TEXT, lines)


def main() -> None:
    """Print the tables alone; exits with 1 if a figure misses its bar.

    python benchmarks/run_recipe.py [SHARED]
    """
    import sys
    import tempfile

    from lines import run
    from threadpoolctl import threadpool_limits

    shared = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("../shared")
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        chosen = {"planted": planted, "mlperf": mlperf, "own": own}
        missed = list(run(chosen, shared, Path(folder)))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
