"""How often the intervals of parameters hold the truth that data were made with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from lines import Line, Section

from fitkit.models.columns import Columns
from fitkit.models.forms import form_named
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.terms import TERMS

TITLE = "Intervals of parameters"
TEXT = """
Configurations are made up, and times with planted parameters; 100 draws of the noise, seeds 0 to
99, log normal of 5 % where nothing else is said. *Uneven* noise is 2.5 % in one half of the
configurations and 8 % in the other, which no model is told; *heavy* noise is Student's with three
degrees of freedom, of the same size. A figure is the share of the draws in which the 90 % interval
holds the planted value; by chance alone a right interval is outside 85 to 95 % one time in fifteen.
Sums of terms use normal theory where it holds and else, as forms always do, the bootstrap over
configurations. Of a term that costs nothing the interval begins at zero: it is held more often.
"""
DRAWS = range(100)
NOISE = 0.05
LEAST, MOST = 0.85, 0.95
SUM = {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3}
SERVER = {"fixed": 0.2, "per_sample": 0.01, "service": 0.05, "update": 0.2}
HINGE = {"fixed": 0.1, "per_sample": 0.01, "per_worker": 0.02, "knee": 12.0}
ROOFLINE = {"launch": 2e-5, "per_flop": 1e-12, "per_byte": 1e-10, "overlap": 2.0}


@dataclass(frozen=True)
class Case:
    """Configurations, planted parameters, and how the times scatter."""

    name: str
    form: str | None  # None: a sum of the terms that the parameters are named after
    rows: pd.DataFrame
    truth: dict[str, float]
    noise: str = "normal"


def grid(workers: Sequence[int], batches: Sequence[int]) -> pd.DataFrame:
    """All combinations of workers and batches."""
    rows = [(float(n), float(b)) for n in workers for b in batches]
    return pd.DataFrame(rows, columns=["n_workers", "local_batch"])


def calls(n: int) -> pd.DataFrame:
    """Calls from launch bound to memory bound to bound by arithmetic."""
    draw = np.random.default_rng(0)
    size, intensity = 10 ** draw.uniform(4, 8, n), 10 ** draw.uniform(-1, 5, n)
    half = {"input_bytes": size / 2, "output_bytes": size / 2}
    return pd.DataFrame({"flop": size * intensity, **half, "n_params": 1.0})


def cases() -> Iterator[Case]:
    """All of them."""
    wide, narrow = grid([1, 2, 4, 8], [8, 16, 32, 64, 128, 256]), grid([1, 2, 4, 8], [8, 32, 128])
    for noise in ("normal", "uneven", "heavy"):
        yield Case("terms, 24 configurations", None, wide, SUM, noise)
    for noise in ("normal", "uneven", "heavy"):
        yield Case("terms, 12 configurations", None, narrow, SUM, noise)
    yield Case("one term small", None, wide, {**SUM, "log_workers": 5e-4})
    yield Case("one term nothing", None, wide, {**SUM, "log_workers": 0.0})
    both = grid([1, 2, 4, 8, 16, 32, 64], [8, 16, 32, 64])
    for form, rows, truth in (
        ("serial_server", both, SERVER), ("hinge", both, HINGE), ("roofline", calls(40), ROOFLINE)
    ):  # fmt: skip
        for noise in ("normal", "uneven", "heavy"):
            yield Case(form, form, rows, truth, noise)


def exact(case: Case) -> np.ndarray:
    """Times without noise."""
    if case.form is not None:
        given = SimpleNamespace(**case.truth)
        return np.asarray(form_named(case.form).seconds(Columns(case.rows), given), dtype=float)
    columns = [TERMS[name].amount(case.rows, len(case.rows)) for name in case.truth]
    return np.column_stack(columns) @ np.array(list(case.truth.values()))


def scatter(case: Case, seed: int) -> np.ndarray:
    """Factor of each time."""
    draw, n = np.random.default_rng(seed), len(case.rows)
    if case.noise == "heavy":
        return np.exp(NOISE / np.sqrt(3) * draw.standard_t(3, n))
    first = case.rows[case.rows.columns[0]]
    uneven = np.where(first > first.median(), 1.6, 0.5)
    size = uneven if case.noise == "uneven" else np.ones(n)
    return np.exp(NOISE * size * draw.standard_normal(n))


def held(case: Case) -> dict[str, float]:
    """Share of the draws in which the interval of each parameter holds its planted value."""
    times, found = exact(case), dict.fromkeys(case.truth, 0)
    for seed in DRAWS:
        model = NonlinearModel(case.form) if case.form else LinearModel(list(case.truth))
        for p in model.fit(case.rows, times * scatter(case, seed)).parameters_:
            found[p.term] += bool(p.ci_low <= case.truth[p.term] <= p.ci_high)
    return {name: count / len(DRAWS) for name, count in found.items()}


def section(shared: Path, folder: Path) -> Section:
    """A line for each parameter of each case; nothing of the shared data is needed."""
    lines = []
    for case in cases():
        noise = "" if case.noise == "normal" else f", {case.noise} noise"
        for name, share in held(case).items():
            most = 1.0 if case.truth[name] == 0 else MOST
            least = LEAST
            if case.noise != "normal":  # what no model is told has no bar
                least = most = None
            lines.append(Line(f"{case.name}{noise}: {name}", share, most, least=least))
    return Section(TITLE, TEXT, lines)


def main() -> None:
    """Print the table alone."""
    from lines import show

    show(section(Path(), Path()))


if __name__ == "__main__":
    main()
