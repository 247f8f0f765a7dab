"""fitkit plan."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fitkit.cli.options import common, print_json, print_result, say, typed_command

if TYPE_CHECKING:
    from fitkit.planner.plan import Plan
    from fitkit.planner.problem import Problem

_SUFFIXES = (".trace.json", ".json", ".html")
_LIMITS = (
    "amplification", "gpu_time_budget", "memory_bytes", "max_changes", "parallel_branches",
    "frontier",
)  # fmt: skip
# What only counts where costs come from models, not from an instance.
_OF_MODELS = (
    "model", "comm_model", "link", "run", "in_sequence", "device", "gpus_per_node", "overlap",
    "step_s", "estimate_missing",
)  # fmt: skip


def _counts(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise click.BadParameter(f"{text!r}: write numbers as in 1,2,4")
    return counts


def _link(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    try:
        bandwidth, *latency = (float(part) for part in text.split(","))
        (latency_s,) = latency or (0.0,)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: write it as in 25e9,20e-6") from error
    if not (0 < bandwidth < float("inf") and 0 <= latency_s < float("inf")):
        raise click.BadParameter(f"{text!r}: a bandwidth above 0 and a latency from 0")
    return bandwidth, latency_s


def _overlap(_context: click.Context, _parameter: click.Parameter, text: str) -> Any:
    if text == "schedule":
        return text
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise click.BadParameter(f"{text!r}: a share from 0 to 1, or schedule")
    return share


_above_0 = click.FloatRange(min=0, min_open=True)


@click.command(
    epilog="Example: fitkit plan --instance vgg16.json --gpus 8 --amplification 2 --frontier "
    "-o plan.html"
)
@click.argument("dataset", required=False)
@click.option("--instance", type=click.Path(path_type=Path, dir_okay=False),
              metavar="FILE.json", help="Costs of all layers as plain numbers.")  # fmt: skip
@click.option("--run", metavar="RUN", help="The run in DATASET that has the network, or its name.")
@click.option("--in-sequence", is_flag=True,
              help="Where no edges were logged: the layers follow one another.")  # fmt: skip
@click.option("--model", metavar="MODEL.json",
              help="Times of layers (recipe layers) instead of those in DATASET.")  # fmt: skip
@click.option("--comm-model", metavar="MODEL.json",
              help="Times of messages (recipe comms) instead of those in DATASET.")  # fmt: skip
@click.option("--link", callback=_link, metavar="BYTES_PER_S[,LATENCY_S]",
              help="Times of messages from a bandwidth and a latency.")  # fmt: skip
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="GPUs of the cluster.")
@click.option("--global-batch", type=click.IntRange(min=1), metavar="N",
              help="Samples of a step; that of the instance, if there is one.")  # fmt: skip
@click.option("--gpu-counts", callback=_counts, metavar="N,...",
              help="The only GPU counts that a layer may have, such as 1,3,6.")  # fmt: skip
@click.option("--amplification", type=click.FloatRange(min=1), metavar="X",
              help="GPU-time of each layer at most X times that on one GPU.")  # fmt: skip
@click.option("--gpu-time-budget", type=_above_0, metavar="SECONDS",
              help="GPU-time of a step at most.")  # fmt: skip
@click.option("--memory-bytes", type=_above_0, metavar="N", help="Memory of a GPU.")
@click.option("--max-changes", type=click.IntRange(min=0), metavar="N",
              help="Changes of the GPU count at most.")  # fmt: skip
@click.option("--parallel-branches", is_flag=True,
              help="Branches may run beside each other.")  # fmt: skip
@click.option("--frontier", is_flag=True,
              help="All plans that are not both slower and dearer than another.")  # fmt: skip
@click.option("--device", metavar="NAME", help="Whose times, if several devices were measured.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), metavar="N",
              help="GPUs of a machine; all in one, if it is not said.")  # fmt: skip
@click.option(
    "--overlap", callback=_overlap, default="0", show_default=True, metavar="SHARE|schedule",
    help="Of synchronisation: hidden by the backward pass.",
)  # fmt: skip
@click.option("--step-s", type=click.FloatRange(min=0), default=0.0, show_default=True,
              metavar="SECONDS", help="What a step costs whatever the plan.")  # fmt: skip
@click.option("--estimate-missing", is_flag=True,
              help="Estimate layers without a time, and say so.")  # fmt: skip
@click.option("-o", "--output", multiple=True, type=click.Path(path_type=Path, dir_okay=False),
              metavar="FILE.json|.html|.trace.json",
              help="Also write the plan; may be repeated.")  # fmt: skip
@common
def command(
    dataset: str | None, instance: Path | None, output: tuple[Path, ...], as_json: bool,
    quiet: bool, **said: Any,
) -> None:  # fmt: skip
    """GPUs per layer at a constant global batch, and the time / GPU-time frontier.

    Costs are those of --instance; or of the network in DATASET, by its measured layers and
    collectives unless --model, --comm-model or --link say otherwise.
    """
    for path in output:
        if not path.name.lower().endswith(_SUFFIXES):
            raise click.UsageError(f"{path}: write a plan as .json, .html or .trace.json")
    if (dataset is None) == (instance is None):
        raise click.UsageError("say what to plan: DATASET, or --instance FILE.json")
    problem = _of_instance(instance, said) if instance else _of_dataset(str(dataset), said)
    from fitkit.planner.search import plan

    limits = {name: said[name] for name in _LIMITS}
    # Models were asked for these counts alone; of an instance some are chosen.
    counts = said["gpu_counts"] if instance else None
    found = plan(problem, n_gpus=said["gpus"], gpu_counts=counts, **limits)
    _show(found, as_json)
    for path in output:
        _write(found, path)
        say(f"plan written to {path}", quiet)


def _of_instance(path: Path, said: dict[str, Any]) -> Problem:
    from fitkit.planner.instances import read_instance

    context = click.get_current_context()
    for name in _OF_MODELS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is for DATASET: an instance has its costs")
    problem = read_instance(path)
    batch = said["global_batch"]
    if batch not in (None, problem.global_batch):
        what = f"{path} is an instance of global batch {problem.global_batch}, not {batch}"
        raise click.UsageError(what)
    return problem


def _of_dataset(path: str, said: dict[str, Any]) -> Problem:
    if said["gpus"] is None or said["global_batch"] is None:
        raise click.UsageError("say --gpus and --global-batch")
    if said["link"] and said["comm_model"]:
        raise click.UsageError("--link or --comm-model, not both")
    from fitkit.dataset import Dataset
    from fitkit.errors import ExtrapolationWarning
    from fitkit.planner.measured import problem_from_dataset

    names = ("in_sequence", "device", "gpus_per_node", "overlap", "step_s", "estimate_missing")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # the plan says it, too
        return problem_from_dataset(
            Dataset(path), said["run"], n_gpus=said["gpus"], global_batch=said["global_batch"],
            layer_model=_loaded(said["model"]), comm_model=_links(said),
            gpu_counts=said["gpu_counts"], **{name: said[name] for name in names},
        )  # fmt: skip


def _loaded(path: str | None) -> Any:
    from fitkit.models.loading import load_model

    return load_model(path) if path else None


def _links(said: dict[str, Any]) -> Any:
    if said["link"] is None:
        return _loaded(said["comm_model"])
    from fitkit.planner.transfers import RingLink

    bandwidth, latency_s = said["link"]
    return RingLink(latency_s, bandwidth)


def _show(found: Plan, as_json: bool) -> None:
    from fitkit.planner.looking import plan_json, plan_summary

    if as_json:
        print_json(plan_json(found))
    else:
        print_result(plan_summary(found))


def _write(found: Plan, path: Path) -> None:
    """Write the plan; the suffix says how."""
    from fitkit.planner import looking

    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.lower()
    if name.endswith(".trace.json"):
        looking.plan_trace(found, path)
    elif name.endswith(".html"):
        looking.plan_html(found, path, command=typed_command())
    else:
        text = json.dumps(looking.plan_json(found), indent=1, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
