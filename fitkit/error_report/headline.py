"""The result of a report in words: what matters most comes first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from fitkit.display import format_number, format_share, whole_percent
from fitkit.error_report.figures import BESIDE
from fitkit.error_report.skill import against_nothing, has_skill

if TYPE_CHECKING:
    from fitkit.error_report.report import ErrorReport

_FAR_APART = 3.0  # times that errors of groups differ, from which on one figure tells neither
_FEW = 3  # rows of a group that are named
_SCALES = ("n_nodes", "n_workers", "n_ranks", "scale step")
_SURE = 0.9  # share of the resamples from which on a word is said of which is better


def baseline_words(name: str) -> str:
    """A column as it is read: baselines lose their underscores."""
    return name.replace("_", " ") if name in BESIDE else name


def findings(report: ErrorReport) -> list[str]:
    """What was found, behind whatever makes it worth little, a sentence each."""
    return [*_leaks(report), *_no_skill(report.skill), _error(report), *_skill(report),
            *_coverage(report)]  # fmt: skip


def _leaks(report: ErrorReport) -> list[str]:
    n_leaks = report.n_leaks
    if not n_leaks:
        return []
    plural = "run" if n_leaks == 1 else "runs"
    if not report.is_held_out:
        return [f"Not held out: the model was fitted on {n_leaks} of these {plural}."]
    equal = "equals a training run" if n_leaks == 1 else "equal training runs"
    return [f"The split leaks: {n_leaks} held-out {plural} {equal}, so the error is too small."]


def _no_skill(skill: pd.DataFrame) -> list[str]:
    row = against_nothing(skill)
    if row is None or has_skill(skill) is not False:
        return []
    sure = f"skill {_signed(row['skill'])}, better in {whole_percent(row['better'])} of resamples"
    return [f"No skill: the model is not shown to beat a constant ({sure})."]


def _error(report: ErrorReport) -> str:
    overall, floor = report.overall, report.noise_floor["mape"]
    held_out = "held-out " if report.is_held_out else ""
    text = (
        f"On {overall['n']:.0f} {held_out}configurations the model errs by "
        f"{format_share(overall['median_ape'])} in the median and "
        f"{format_share(overall['mape'])} on average"
    )
    if math.isfinite(floor):
        text += f"; two repetitions differ by {format_share(floor)}"
        told = report.below_floor and has_skill(report.skill) is not False
        text += ", so the error is below the noise" if told else ""
    worst, apart = worst_group(report.groups), scales_apart(report.groups)
    text += f". By scale: {apart}" if apart else ""
    return f"{text}. Worst: {worst}." if worst else f"{text}."


def _skill(report: ErrorReport) -> list[str]:
    """Beside the strongest baseline: all others are easier to beat."""
    skill = report.skill
    judged = skill[skill.better.notna()]
    if judged.empty or has_skill(skill) is False:
        return []
    row = judged.iloc[0]
    name, better = f"{baseline_words(row['baseline'])}, the best baseline", float(row["better"])
    least = _least_mape(report, str(row["baseline"]))
    if better >= _SURE:
        return [f"Better than {name}, in {whole_percent(better)} of resamples{least}."]
    if better <= 1 - _SURE:
        return [f"Worse than {name}, in {whole_percent(1 - better)} of resamples{least}."]
    return [f"About as good as {name}: better in {whole_percent(better)} of resamples{least}."]


def _least_mape(report: ErrorReport, strongest: str) -> str:
    """Which baseline looks best in the tables of MAPE, if it is another one."""
    figures = {name: found["mape"] for name, found in report.baselines.items()}
    least = min(figures, key=lambda name: figures[name])
    if figures[least] >= figures.get(strongest, math.inf):
        return ""
    mape = format_share(figures[least])
    return f" (errors count as factors here; the least MAPE has {baseline_words(least)}, {mape})"


def _coverage(report: ErrorReport) -> list[str]:
    test = report.coverage_test
    if not test.is_under:
        return []
    found = f"{format_share(test.share)} of the measurements lie in those of"
    return [f"Its intervals are too narrow: {found} {format_share(test.level)}."]


def _signed(share: float) -> str:
    return format_share(share, signed=True)


def worst_group(groups: pd.DataFrame) -> str:
    """The part with the largest error; empty if there are no parts."""
    parts = groups[groups.by.isin(["layer and phase", "phase", "held out"])]
    parts = parts[parts.n > 0]
    if len(parts) < 2:
        return ""
    row = parts.nlargest(1, "mape").iloc[0]
    return f"{row['value']}, {format_share(row['mape'])}"


def scales_apart(groups: pd.DataFrame) -> str:
    """Errors of the scales with the least and the largest, where no one figure tells both."""
    for by in _SCALES:
        parts = groups[(groups.by == by) & (groups.n >= _FEW)]
        if len(parts) < 2:
            continue
        least, most = (
            parts.iloc[int(place)] for place in (parts.mape.argmin(), parts.mape.argmax())
        )
        if most.mape > _FAR_APART * least.mape:
            rising = sorted([least, most], key=lambda row: int(str(row.name)))
            told = [f"{format_share(row.mape)} {_place(by, row['value'])}" for row in rising]
            return ", ".join(told)
    return ""


def _place(by: str, value: object) -> str:
    if by == "scale step":
        return str(value)
    unit = by.removeprefix("n_")
    number = float(str(value))
    return f"at {format_number(number)} {unit.removesuffix('s') if number == 1 else unit}"
