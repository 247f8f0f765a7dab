"""fitkit run-plan."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fitkit.cli import FAILED_CHECK, complain
from fitkit.cli.options import common, print_json, print_result, say
from fitkit.display import format_quantity

if TYPE_CHECKING:
    from fitkit.planner.execution import Execution, RunOptions

_SAME = 1e-5  # of parameters: sums in another order, in single precision, over some steps


def _numbers(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{text!r}: write numbers as in 1,2,4")
    return numbers


@click.command(
    epilog="Example: fitkit run-plan plan.json --network train.py:network --input-shape 3,32,32"
)
@click.argument(
    "plan", required=False, metavar="PLAN.json", type=click.Path(path_type=Path, dir_okay=False)
)
@click.option(
    "--network", required=True, metavar="FILE.py:FUNCTION",
    help="Function that returns an nn.Sequential, or also data and loss; or vgg-small, a sample. "
    "The file is executed.",
)  # fmt: skip
@click.option(
    "--input-shape", metavar="N,…", callback=_numbers,
    help="Shape of a sample, for random data where the function returns none.",
)  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=10, show_default=True, metavar="N",
              help="Steps to measure.")  # fmt: skip
@click.option("--warm-up", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
              help="Steps before them.")  # fmt: skip
@click.option(
    "--backend", type=click.Choice(["auto", "gloo", "nccl"]), default="auto", show_default=True,
    help="auto: nccl where each rank can have a CUDA device, else gloo.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Threads that a rank computes with.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True,
              help="Of the initial parameters and of random data.")  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=300, show_default=True,
    metavar="SECONDS", help="End all ranks after this long without a sign of life.",
)  # fmt: skip
@click.option("--by-position", is_flag=True, help="Match layers by their order, not by name.")
@click.option("--allow-batch-norm", is_flag=True,
              help="Run it on several ranks, each with the statistics of its share.")  # fmt: skip
@click.option("--check", "checks", is_flag=True,
              help="Train in one process, too; status 1 if parameters differ.")  # fmt: skip
@click.option(
    "--profile", type=click.Path(path_type=Path, dir_okay=False), metavar="INSTANCE.json",
    help="Run no plan: measure what fitkit plan --instance needs, with --gpus, --global-batch.",
)  # fmt: skip
@click.option("--gpus", metavar="N,…", callback=_numbers, help="With --profile: ranks of a layer.")
@click.option("--global-batch", type=click.IntRange(min=1), metavar="N",
              help="With --profile: samples of a step.")  # fmt: skip
@click.option("--clock", type=click.Choice(["cpu", "wall"]), default="cpu", show_default=True,
              help="With --profile: processor time, or time on the wall (devices).")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the result as JSON.")  # fmt: skip
@common
def command(plan: Path | None, profile: Path | None, **said: Any) -> int:
    """Run a plan on real processes and measure it.

    PLAN.json is what fitkit plan wrote for a sequential network. Each rank is a process on
    this machine; each layer runs on as many as the plan says. The step is measured on both
    clocks, beside what the plan predicted: processor time is that of the busiest rank.
    """
    from fitkit.planner.execution import RunOptions

    options = RunOptions(
        n_steps=said["steps"], warm_up=said["warm_up"], backend=said["backend"],
        input_shape=said["input_shape"], seed=said["seed"], n_threads=said["threads"],
        timeout_s=said["timeout"],
    )  # fmt: skip
    if (plan is None) == (profile is None):
        raise click.UsageError("give PLAN.json to run one, or --profile to measure for one")
    if profile is not None:
        return _profile(profile, options, said)
    if said["gpus"] or said["global_batch"]:
        raise click.UsageError("--gpus and --global-batch are the plan's; --profile needs them")
    assert plan is not None  # noqa: S101 - or there was a profile
    return _run(plan, options, said)


def _run(path: Path, options: RunOptions, said: dict[str, Any]) -> int:
    from fitkit.planner.execution import read_plan, run_plan

    done = run_plan(
        read_plan(path), said["network"], options, by_position=said["by_position"],
        allow_batch_norm=said["allow_batch_norm"], checks=said["checks"],
        progress=_progress(options, said["quiet"]),
    )  # fmt: skip
    document = done.to_json()
    if said["output"]:
        said["output"].write_text(json.dumps(document, indent=1), encoding="utf-8")
        say(f"written to {said['output']}", said["quiet"])
    if said["as_json"]:
        print_json(document)
    else:
        print_result(done.summary())
    return _checked(done) if said["checks"] else 0


def _checked(done: Execution) -> int:
    found = [done.apart, 0.0 if done.difference is None else done.difference]
    if all(one <= _SAME for one in found):  # not so of what is no number
        return 0
    difference = next((one for one in found if math.isnan(one)), max(found))
    what = f"parameters differ by {difference:.1e}, of {_SAME:.0e} allowed"
    hint = "rounding grows over many steps: --steps 3 --warm-up 0; else a layer mixes its samples"
    return complain(what, hint, FAILED_CHECK)


def _profile(path: Path, options: RunOptions, said: dict[str, Any]) -> int:
    from fitkit.planner.execution import profile_network

    if not said["gpus"] or not said["global_batch"]:
        raise click.UsageError("--profile needs --gpus and --global-batch")
    if max(said["gpus"]) > said["global_batch"]:
        raise click.UsageError("--gpus: each rank needs a sample of the global batch")
    costs = profile_network(
        said["network"], said["gpus"], said["global_batch"], options, clock=said["clock"],
        progress=_progress(options, said["quiet"]),
    )  # fmt: skip
    instance = costs.instance()
    path.write_text(json.dumps(instance, indent=1, allow_nan=False), encoding="utf-8")
    alone_s = sum(layer["no_parallel_us"] for layer in instance["layers"]) / 1e6 + costs.step_s
    result = {"instance": str(path), "n_layers": len(costs.layers), "gpus": costs.widths,
              "clock": costs.clock, "one_gpu_s": alone_s}  # fmt: skip
    if said["as_json"]:
        print_json(result)
    else:
        say(f"{len(costs.layers)} layers on {costs.widths} ranks written to {path}: "
            f"{format_quantity(alone_s, 's')} a step on one")  # fmt: skip
        say(f"next: fitkit plan --instance {path} -o plan.json", said["quiet"])
    return 0


def _progress(options: RunOptions, quiet: bool) -> Any:
    """Counts steps on a terminal."""
    if quiet or not sys.stderr.isatty():
        return lambda _step: None
    total = options.warm_up + options.n_steps

    def show(step: int) -> None:
        click.echo(f"\rstep {step + 1} of {total} ", err=True, nl=step + 1 == total)

    return show
