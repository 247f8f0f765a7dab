"""Models carried to new hardware: Pollux step times, and MLPerf from A100 to H100.

  python benchmarks/calibration.py [--shared FOLDER] [--only SECTION] [--quick]
  python benchmarks/calibration.py --write-library

The second form measures past transfers anew and writes fitkit/calibration/transfer_errors.json:
step times from rtx and dgx to aws, none of which is a pair that the sections judge.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import mlperf
import numpy as np
import pandas as pd
import pollux
from lines import Line, Section, Sections, run
from threadpoolctl import threadpool_limits

import fitkit
from fitkit.calibration import calibrate, suggest_probes
from fitkit.models.baselines.ernest import Ernest

LIBRARY = Path(__file__).parents[1] / "fitkit/calibration/transfer_errors.json"
PAIRS = [(source, target) for source, target in (("aws", "rtx"), ("aws", "dgx"))]
PAST = [("rtx", "aws"), ("dgx", "aws")]
RANDOM = range(100, 110)  # seeds of the draws that the bars are of
MANY = range(100, 120)  # and of those that suggested runs are compared with
PAST_SEEDS = range(200, 220)
N_QUANTILES = 200
PROBES = (6, 8)


@dataclass(frozen=True)
class Job:
    """A network on a source and on a target cluster."""

    network: str
    source: str
    target: str
    model: fitkit.PerformanceModel
    rows: pd.DataFrame

    @cached_property
    def seconds(self) -> np.ndarray:
        """Measured step time of each configuration of the target."""
        return self.rows.step_s.to_numpy(dtype=float)

    @cached_property
    def cost(self) -> np.ndarray:
        """Device-seconds of a step of each."""
        return self.rows.n_workers.to_numpy(dtype=float) * self.seconds

    @cached_property
    def by_source(self) -> np.ndarray:
        """What the source's model says of each, taken as if it ran there."""
        asked = self.rows.assign(device=self.source, system=self.source)
        return answers(self.model, asked).predicted_s.to_numpy(dtype=float)

    def random(self, seed: int, n: int) -> np.ndarray:
        """Positions of so many random configurations."""
        return np.random.RandomState(seed).permutation(len(self.rows))[:n]

    def suggested(self, n: int) -> np.ndarray:
        """Positions of the configurations that fitkit suggests, by their features alone."""
        known = self.rows.drop(columns=["step_s", "sync_s", "cpu_s"])
        return suggest_probes(self.model, known, n).index.to_numpy()

    def calibrated(self, probes: np.ndarray) -> pd.DataFrame:
        """Predictions of the other configurations; how the measured lie to them."""
        new = calibrate(self.model, self.rows.iloc[probes], allow_prior=True)
        rest = self.rows.drop(index=self.rows.index[probes])
        return answers(new, rest).assign(measured_s=rest.step_s)

    def others(self, probes: np.ndarray) -> dict[str, float]:
        """Errors of one factor and of Ernest, from the same probes on the same rows."""
        rest = np.setdiff1d(np.arange(len(self.rows)), probes)
        factor = np.exp(np.median(np.log(self.seconds[probes] / self.by_source[probes])))
        columns = {name: self.rows[name].to_numpy(dtype=float) for name in Ernest.needs}
        ernest = Ernest.over(list(columns))
        assert ernest is not None
        known = SimpleNamespace(**{n: v[probes] for n, v in columns.items()}, work=None)
        asked = SimpleNamespace(**{n: v[rest] for n, v in columns.items()}, work=None)
        guesses = {
            "one_factor": factor * self.by_source[rest],
            "ernest": ernest.fit(known, self.seconds[probes]).predict(asked),
        }
        return {n: float(np.abs(v / self.seconds[rest] - 1).mean()) for n, v in guesses.items()}


def answers(model: fitkit.PerformanceModel, rows: pd.DataFrame) -> pd.DataFrame:
    """What a model answers to rows, warnings about extrapolation apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
        return model.predict(rows, allow_extrapolation=True)


def jobs(frame: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> Iterator[Job]:
    """All networks on all pairs of clusters; each source is fitted once, to all its rows."""
    models = {
        source: fitkit.fit(frame[frame.device == source], "step", statistic="median")
        for source in dict(pairs)
    }
    for source, target in pairs:
        for network, rows in frame[frame.device == target].groupby("network"):
            yield Job(str(network), source, target, models[source], rows.reset_index(drop=True))


# -- Pollux --------------------------------------------------------------------------------

STEPS = "Step times on new hardware, Sia and Pollux"
STEPS_TEXT = """
`public_tables/sia_pollux`, the model of aws (64 GPUs) carried to rtx and to dgx, each of the four
networks by itself: 8 pairs. A unit is a configuration with the median of its rows; errors are means
over the configurations of the target that are no probes. Random probes are
`RandomState(100 + r).permutation(n)[:k]`: the median over r = 0 to 9, then the mean over the pairs.
Suggested ones are `fitkit.suggest_probes` of all configurations of the target, without their times.
"one factor" is the model of aws times the median ratio of the probes, "ernest" its form fitted to
the same probes. Device-seconds are measured step times by GPUs, as a share of the median of 20
random draws.
"""
HELD = "Intervals on new hardware, Sia and Pollux"
HELD_TEXT = """
The same 8 pairs and draws: the share of the target's configurations other than the 8 random probes
whose median lies inside the interval of 90 %, and the mean width as a share of the measured time.
Below 9 probes their size is that of past transfers, from rtx and dgx to aws.
"""


def probe_figures(found: Sequence[Job], seeds: range) -> pd.DataFrame:
    """Of each pair, number of probes and draw the errors, and the cost of suggested ones."""
    rows = []
    for job in found:
        for n in PROBES:
            draws = {f"random {seed}": job.random(seed, n) for seed in seeds}
            for name, probes in {**draws, "suggested": job.suggested(n)}.items():
                answer = job.calibrated(probes)
                ratios = answer.predicted_s / answer.measured_s
                is_held = answer.measured_s.between(answer.low_s, answer.high_s)
                width = (answer.high_s - answer.low_s) / answer.measured_s
                rows.append(
                    {
                        "pair": f"{job.network} {job.source} to {job.target}",
                        "n": n,
                        "draw": name,
                        "seed": int(name.split()[1]) if name != "suggested" else -1,
                        "fitkit": float((ratios - 1).abs().fillna(np.inf).mean()),
                        **job.others(probes),
                        "cost": float(job.cost[probes].sum()),
                        "coverage": float(is_held.mean()),
                        "width": float(width.mean()),
                    }
                )
    return pd.DataFrame(rows)


KNOWN = ("fitkit", "one_factor", "ernest")


def random_line(figures: pd.DataFrame, n: int, bar: float | None) -> Line:
    """Random probes: the median over the first ten draws, the mean over the pairs."""
    own = figures[(figures.n == n) & figures.seed.isin(RANDOM)]
    means = own.groupby("pair")[list(KNOWN)].median().mean().to_dict()
    return Line(f"{n} random runs, median over draws", means.pop("fitkit"), bar, means)


def suggested_lines(figures: pd.DataFrame, bars: dict[int, float]) -> Iterator[Line]:
    """Suggested probes: their mean, their worst pair."""
    own = figures[figures.draw == "suggested"]
    for n, bar in bars.items():
        means = own[own.n == n][list(KNOWN)].mean().to_dict()
        yield Line(f"{n} suggested runs", means.pop("fitkit"), bar, means)
    for n in bars:
        worst = own[own.n == n][list(KNOWN)].max().to_dict()
        yield Line(f"{n} suggested runs, worst pair", worst.pop("fitkit"), 0.12, worst)


def beaten_lines(figures: pd.DataFrame) -> Iterator[Line]:
    """Where one factor or random probes are better."""
    frozen = figures[figures.seed.isin([-1, *RANDOM])]
    for name, part, bar in (("10", frozen, 0.0), ("20", figures, None)):
        as_good = float((part.fitkit >= part.one_factor).mean())
        yield Line(f"{name} draws: of {len(part)} one factor is as good", as_good, bar)
    ernest = figures[figures.draw != "suggested"]
    ernest = ernest.groupby(["n"])[["fitkit", "ernest"]].mean()
    yield Line(
        "random runs, the mean by Ernest's, worst of 6 and 8",
        float((ernest.fitkit / ernest.ernest).max()), 1.0,
    )  # fmt: skip
    drawn = figures[figures.draw != "suggested"].groupby(["pair", "n"])
    own = figures[figures.draw == "suggested"].set_index(["pair", "n"])
    yield Line(
        "suggested runs, 6 and 8 together", float(own.fitkit.mean()),
        float(drawn.fitkit.mean().mean()), {"random": float(drawn.fitkit.mean().mean())},
    )  # fmt: skip
    above = (own.fitkit > drawn.fitkit.quantile(0.9).reindex(own.index)).mean()
    yield Line("suggested above the 90th percentile of random, of pairs", float(above), 0.0)
    cost = own.cost / drawn.cost.median().reindex(own.index)
    yield Line("device-seconds of suggested by random's median, mean", float(cost.mean()), 0.85)
    yield Line("the same, worst pair", float(cost.max()), None)


def interval_lines(figures: pd.DataFrame) -> Iterator[Line]:
    """Coverage and width with 8 random probes."""
    own = figures[(figures.n == 8) & figures.seed.isin(RANDOM)]
    pairs = own.groupby("pair")[["coverage", "width"]].mean()
    yield Line("8 random runs: coverage", float(pairs.coverage.mean()), 0.95, least=0.85)
    yield Line("the same, lowest pair", float(pairs.coverage.min()), None, least=0.70)
    yield Line("the same, width", float(pairs.width.mean()), 0.40)


def step_sections(shared: Path, folder: Path, seeds: range = MANY) -> list[Section]:
    """Errors and intervals of the 8 pairs."""
    figures = probe_figures(list(jobs(pollux.load(shared, folder), PAIRS)), seeds)
    lines = [
        random_line(figures, 6, None),
        random_line(figures, 8, 0.068),
        *suggested_lines(figures, {6: 0.077, 8: 0.071}),
        *beaten_lines(figures),
    ]
    return [
        Section(STEPS, STEPS_TEXT, lines),
        Section(HELD, HELD_TEXT, list(interval_lines(figures))),
    ]


# -- the library of past transfers ---------------------------------------------------------


def write_library(shared: Path, folder: Path) -> None:
    """Measure past transfers, each pair counting alike, and write their errors."""
    parts = []
    for job in jobs(pollux.load(shared, folder), PAST):
        for seed in PAST_SEEDS:
            probes = job.random(seed, 8)
            new = calibrate(job.model, job.rows.iloc[probes], allow_prior=True)
            (group,) = new.estimator.groups_.values()
            rest = job.rows.drop(index=job.rows.index[probes])
            errors = np.abs(np.log(group.predict(rest) / rest.step_s.to_numpy()))
            stated = group.relative_width(rest)
            alone = group.posterior_deviation(rest)
            frame = pd.DataFrame({"score": errors / stated, "error": errors, "alone": alone})
            parts.append(frame.assign(weight=1 / len(rest)))  # each pair counts alike
    whole = pd.concat(parts).sort_values("score")
    ranks = np.cumsum(whole.weight) / whole.weight.sum()
    at = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    means = np.average(whole[["error", "alone"]], axis=0, weights=whole.weight)
    saved = {
        "source": "step times of bert, cifar10, imagenet and ncf, from rtx and dgx to aws",
        "n_errors": len(whole),
        "error_by_deviation": round(float(means[0] / means[1]), 4),
        "errors": np.round(np.interp(at, ranks, whole.score), 4).tolist(),
    }
    LIBRARY.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


# -- MLPerf --------------------------------------------------------------------------------

SUBMISSIONS = "MLPerf Training from A100 to H100"
SUBMISSIONS_TEXT = """
`mlperf/mlperf_runs.csv.gz`, recipe `step`: the model of all A100 rows carried to H100 by the rows
with at most 8 accelerators, each submission (family) by itself and each with one probe, so that all
but its speed comes from A100 (`--allow-prior`). Larger H100 rows of a network that A100 rows have
are three, all of other submissions: asked is the carried family of the same organisation whose
name agrees longest, else the median of the network's families. No bar was set.

    fitkit calibrate a100.json h100 --allow-prior -o h100.json
    fitkit predict h100.json --from larger.csv --allow-extrapolation
"""


def submissions(shared: Path, folder: Path) -> Section:
    """Errors, intervals and stamps of larger H100 rows."""
    frame = mlperf.load(shared, folder)
    old, new = frame[frame.device == "A100"], frame[frame.device == "H100"]
    new = new[new.network.isin(old.network)]
    small, large = new[new.n_workers <= 8], new[new.n_workers > 8]
    model = fitkit.fit(old, "step", question="scale-up", statistic="median")
    carried = calibrate(model, small, allow_prior=True)
    lines = [Line("H100 families that were carried, each from one probe", len(small), unit="1")]
    for _, row in large.iterrows():
        asked = _alike(row, small)
        found = answers(carried, row.to_frame().T.loc[[row.name] * len(asked)].assign(family=asked))
        stamped = found.reason.str.contains("extrapolation was allowed|outside").all()
        middle = found[["predicted_s", "low_s", "high_s"]].median()
        assert stamped
        assert (found.status == "extrapolated").all()
        name = f"{row.network}, {row.n_workers:.0f} GPUs, {row.family.split('|')[1]}"
        held = "inside" if middle.low_s <= row.step_s <= middle.high_s else "outside"
        error = abs(middle.predicted_s / row.step_s - 1)
        width = (middle.high_s - middle.low_s) / row.step_s
        lines += [
            Line(f"{name}: error, the measured {held} of the interval", error),
            Line("the same, width of the interval", width),
        ]
    return Section(SUBMISSIONS, SUBMISSIONS_TEXT, lines)


def _alike(row: pd.Series, small: pd.DataFrame) -> list[str]:
    """Carried families that stand for a larger submission."""
    families = small[small.network == row.network].family.tolist()
    own = row.family.split("|")
    same = [family for family in families if family.split("|")[1] == own[1]]
    if not same:
        return families
    return [max(same, key=lambda family: _agreeing(family.split("|")[-1], own[-1]))]


def _agreeing(one: str, other: str) -> int:
    """Letters in which two names agree before they differ."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((k for k, (a, b) in pairs if a != b), min(len(one), len(other)))


def sections(seeds: range) -> Sections:
    """What there is to print, by name."""

    def steps(shared: Path, folder: Path) -> Section:
        errors, intervals = step_sections(shared, folder, seeds)
        text = errors.text + intervals.text.replace("The same 8 pairs", "Intervals: the same pairs")
        return Section(errors.title, text, [*errors.lines, *intervals.lines])

    return {"steps": steps, "mlperf": submissions}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--only", choices=[*sections(MANY)], action="append", metavar="SECTION")
    parser.add_argument("--quick", action="store_true", help="ten draws only")
    parser.add_argument("--write-library", action="store_true")
    given = parser.parse_args()
    chosen = sections(RANDOM if given.quick else MANY)
    chosen = {name: chosen[name] for name in given.only or chosen}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        if given.write_library:
            write_library(given.shared, Path(folder))
            return
        missed = list(run(chosen, given.shared, Path(folder)))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
