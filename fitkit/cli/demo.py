"""fitkit demo."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from contextlib import redirect_stdout
from importlib.resources import files
from pathlib import Path

import click

from fitkit.cli import cli
from fitkit.cli.options import common, print_json, say
from fitkit.errors import InputError

_SAMPLES = ("cntk", "pytorch", "recorder", "torque/synthetic_20260301")
_NO_SAMPLES = "the sample runs are not installed"


def sample_data() -> Path:
    """Folder of the sample runs: in an installed package, or beside it in a checkout.

    Raises
    ------
    InputError
        If there is none.
    """
    package = Path(str(files("fitkit")))
    for folder in (package / "data", package.parent / "data"):
        if (folder / "README.md").is_file():
            return folder
    raise InputError(_NO_SAMPLES, "install fitkit from its wheel or from a checkout")


def commands(folder: Path, data: Path) -> list[list[str]]:
    """The commands that the demo runs, as a user would type them after ``fitkit``."""
    runs = str(folder / "runs")
    return [
        ["ingest", *(str(data / name) for name in _SAMPLES), "-d", runs],
        ["show", runs],
        [
            "validate", runs, "--recipe", "phases", "--where",
            'instrument == "recorder" and n_workers == 1',
            "--leave-out", "local_batch", "--keep-smallest", "--statistic", "min",
            "-o", str(folder / "phases.html"),
        ],
        ["fit", runs, "--recipe", "layers", "--where", 'framework == "cntk"',
         "--statistic", "min", "-o", str(folder / "layers.json")],
        ["fit", runs, "--recipe", "step", "--where", 'framework == "pytorch"',
         "-o", str(folder / "step.json")],
        ["predict", str(folder / "step.json"), "--at", "network=tinygpt", "--at",
         "instrument=none", "--at", "n_workers=1", "--at", "local_batch=3,16,24,256"],
        [
            "validate", runs, "--recipe", "layers", "--where",
            'layer_type in ["Times", "Convolution"]',
            "--leave-out", "weight_shape", "--statistic", "min",
            "-o", str(folder / "report.html"),
        ],
    ]  # fmt: skip


@click.command(epilog="Example: fitkit demo my-first-look --open")
@click.argument(
    "folder",
    required=False,
    default="fitkit-demo",
    metavar="[DIR]",
    type=click.Path(file_okay=False, path_type=Path),
)
@click.option("--open", "open_", is_flag=True, help="Open the report in a browser.")
@common
def command(folder: Path, open_: bool, as_json: bool, quiet: bool) -> int:
    """The whole job on the sample runs: ingest, fit, validate on held-out runs, report.

    The runs are our own, recorded on a quiet machine, see data/README.md; DIR (default
    fitkit-demo) receives the dataset, the model and the reports.
    """
    todo = commands(folder, sample_data())
    # With --json the one document on standard output is ours: the verbs speak to standard error.
    stream = sys.stderr if as_json else sys.stdout
    with redirect_stdout(stream):
        for arguments in todo:
            click.secho(f"\n$ {shlex.join(['fitkit', *arguments])}", bold=True)
            words = [*arguments, "--quiet"] if quiet else arguments
            status = cli.main(words, prog_name="fitkit", standalone_mode=False, obj=arguments)
            if isinstance(status, int) and status:
                return status
    report = folder / "report.html"
    if as_json:
        print_json({"commands": todo, "report": str(report)})
    say(f"\nThe report: {report}", quiet)
    if open_:
        webbrowser.open(report.resolve().as_uri())
    return 0
