"""fitkit share."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fitkit.cli.options import common, print_json, print_result, say, warn

if TYPE_CHECKING:
    from fitkit.planner.plan import Plan
    from fitkit.planner.sharing import Arrangement, BackgroundJob, Interference

_SUFFIXES = (".json", ".csv")
_FIGURES = (
    "n_gpus", "arrangement", "slowdown", "is_within_target", "foreground_per_s",
    "background_per_s", "cluster_per_s", "cluster_gpus", "gain", "gain_gpus",
)  # fmt: skip


def _numbers(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
    if text is None:
        return ()
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{text!r}: write numbers as in 8,64,1024")
    return numbers


def _shares(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    try:
        foreground, background = map(float, text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: write two shares as in 0.5,0.5") from None
    return foreground, background


@click.command(
    epilog="Example: fitkit share --plan plan.json --pairs pairs.json --device p100 --gpus 8,64 "
    '--foreground-job "ResNet-50 (batch size 32)" --background-job "ResNet-18 (batch size 16)"'
)
@click.option(
    "--plan", "plans", multiple=True, required=True, metavar="PLAN.json",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Foreground job, as fitkit plan wrote it; repeat it for several jobs.",
)  # fmt: skip
@click.option(
    "--pairs", metavar="DATASET|MODEL.json", type=click.Path(path_type=Path),
    help="Measured pairs of jobs on one GPU, or a model fitted to them (recipe shared).",
)  # fmt: skip
@click.option("--foreground-job", metavar="JOB", help="The foreground, as the pairs name it.")
@click.option("--background-job", metavar="JOB", help="The background, as the pairs name it.")
@click.option("--device", metavar="NAME", help="The cluster's GPU; pairs of it are used.")
@click.option("--carry-from", metavar="NAME", help="Use pairs of this other GPU, with a warning.")
@click.option(
    "--shares", metavar="F,B", callback=_shares,
    help="Instead of pairs: what foreground and background keep of their speed on one GPU.",
)  # fmt: skip
@click.option(
    "--gpus", "sizes", metavar="N1,N2,...", callback=_numbers,
    help="Sizes of the cluster; the GPUs of the plans, if not given.",
)  # fmt: skip
@click.option("--fill", is_flag=True, help="As many copies of the plans as the GPUs hold.")
@click.option(
    "--background-step", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="Step of a background job alone; the first plan's network on one GPU, if not given.",
)  # fmt: skip
@click.option("--background-batch", type=click.FloatRange(0, min_open=True), metavar="N",
              help="Samples of that step.")  # fmt: skip
@click.option("--background-jobs", type=click.IntRange(min=0), metavar="N",
              help="How many there are; one for each GPU, if not given.")  # fmt: skip
@click.option(
    "--piece", "piece_s", type=click.FloatRange(0, min_open=True), default=0.5e-3,
    show_default=True, metavar="SECONDS",
    help="Least length of background work that is launched as a whole.",
)  # fmt: skip
@click.option("--target", type=click.FloatRange(min=1), default=1.1, show_default=True,
              help="How many times longer a foreground step may get.")  # fmt: skip
@click.option(
    "--rules", type=click.Choice(["hold", "deeppool"]), default="hold", show_default=True,
    help="hold: nothing is launched that would break the target; deeppool: as its runtime does.",
)  # fmt: skip
@click.option("--memory", type=click.FloatRange(0, min_open=True), metavar="BYTES",
              help="Memory of a GPU.")  # fmt: skip
@click.option("--foreground-memory", type=click.FloatRange(0), default=0.0, metavar="BYTES",
              help="Of a foreground job on each of its GPUs.")  # fmt: skip
@click.option("--background-memory", type=click.FloatRange(0), default=0.0, metavar="BYTES",
              help="Of a background job.")  # fmt: skip
@click.option("--steps", "n_steps", type=click.IntRange(min=1), default=200, show_default=True,
              help="Foreground steps to measure, after a fourth as many.")  # fmt: skip
@click.option("--lanes", type=click.IntRange(min=1), default=4, show_default=True,
              help="GPUs to run of each group of equal ones.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True,
              help="Of where background jobs are in their steps.")  # fmt: skip
@click.option(
    "-o", "--output", multiple=True, type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json|.csv", help="Also write the result; may be repeated.",
)  # fmt: skip
@common
def command(
    plans: tuple[Path, ...], output: tuple[Path, ...], as_json: bool, quiet: bool, **said: Any
) -> None:
    """Foreground plus background jobs on one cluster: throughput and slowdown.

    Each plan runs step after step; background jobs of one GPU each run piece by piece where it
    leaves room. Beside it the same job data-parallel, and on fewer GPUs of its own.
    """
    for path in output:
        if not path.name.lower().endswith(_SUFFIXES):
            raise click.UsageError(f"{path}: write results as .json or .csv")
    if (said["pairs"] is None) == (said["shares"] is None):
        raise click.UsageError(
            "say what two jobs on a GPU keep of their speed: --pairs or --shares"
        )
    from fitkit.planner.sharing import read_plan, summarise

    read = [read_plan(path) for path in plans]
    interference = _interference(said)
    arrangements = _sweep(read, interference, said)
    document = {
        "plans": [str(path) for path in plans],
        "interference": interference.source,
        "arrangements": [one.to_dict() for one in arrangements],
    }
    if as_json:
        print_json(document)
        warn(dict.fromkeys(w for one in arrangements for w in one.result.warnings), quiet)
    else:
        keeps = f"{interference.foreground:.0%} and {interference.background:.0%}"
        print_result(summarise(arrangements, f"{keeps} kept on one GPU: {interference.source}"))
    for path in output:
        _write(path, document)
        say(f"result written to {path}", quiet)


def _interference(said: dict[str, Any]) -> Interference:
    from fitkit.planner.sharing import Interference, fitted_interference

    if said["shares"] is not None:
        return Interference(*said["shares"])
    for name in ("foreground_job", "background_job", "device"):
        if said[name] is None:
            raise click.UsageError(f"--pairs needs --{name.replace('_', '-')}")
    path: Path = said["pairs"]
    if path.suffix == ".json":
        from fitkit.models.loading import load_model

        model = load_model(path)
    else:
        import fitkit

        model = fitkit.fit(fitkit.Dataset(path), recipe="shared")
    return fitted_interference(
        model, said["foreground_job"], said["background_job"], device=said["device"],
        carried_from=said["carry_from"],
    )  # fmt: skip


def _sweep(
    plans: Sequence[Plan], interference: Interference, said: dict[str, Any]
) -> list[Arrangement]:
    from fitkit.planner.sharing import DEEPPOOL, Cluster, Rules, sweep

    rules = Rules(target=said["target"])
    if said["rules"] == "deeppool":
        rules = Rules(
            target=said["target"], looks_ahead=DEEPPOOL.looks_ahead,
            hold_target=DEEPPOOL.hold_target,
        )  # fmt: skip
    background = _background(plans[0], said)
    n_gpus = sum(plan.n_gpus for plan in plans)
    cluster = Cluster(
        n_gpus, (), [(background, said["background_jobs"])], interference, rules, said["memory"]
    )
    return sweep(
        cluster, plans, said["sizes"] or (n_gpus,), fills=said["fill"],
        memory_bytes=said["foreground_memory"], n_steps=said["n_steps"],
        warm_up=said["n_steps"] // 4, lanes=said["lanes"], seed=said["seed"],
    )  # fmt: skip


def _background(plan: Plan, said: dict[str, Any]) -> BackgroundJob:
    """The job that is given, or the plan's own network on one GPU."""
    from fitkit.planner.sharing import BackgroundJob

    step_s, batch = said["background_step"], said["background_batch"]
    if (step_s is None) != (batch is None):
        raise click.UsageError("give --background-step and --background-batch, or neither")
    name = said["background_job"] or "background"
    if step_s is None:
        if "single_gpu" not in plan.baselines:
            raise click.UsageError("the plan has no single_gpu baseline: give --background-step")
        step_s, batch = plan.baselines["single_gpu"].iter_s, plan.global_batch
        name = f"{plan.instance} on one GPU"
    return BackgroundJob.of_step(
        name, batch, step_s, piece_s=said["piece_s"], memory_bytes=said["background_memory"]
    )


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".json":
        path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, _FIGURES, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(document["arrangements"])
