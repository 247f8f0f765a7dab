"""The command line: one module for each verb, imported when it is called."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from fitkit.cli.options import colour, drop, one_line, say, warn
from fitkit.errors import FitkitError

# In the order of a user's journey: verb → what it does.
VERBS = {
    "demo": "The whole job on the sample runs shipped with the package.",
    "record": "Run a PyTorch program with the recorder switched on.",
    "ingest": "Read logs into a dataset of Parquet tables.",
    "show": "Show what is in a dataset.",
    "diagnose": "Say where the time goes, what disturbs it, and whether the order misleads.",
    "report": "Where the time goes, scaling, bottleneck and knee, on one page.",
    "fit": "Fit a recipe to a dataset; save the model.",
    "predict": "Predict times with intervals from a fitted model.",
    "validate": "Prediction error on held-out runs, beside baselines and noise.",
    "calibrate": "Carry a model to new hardware by a few runs, or say which to make.",
    "plan": "GPUs per layer at a constant global batch, and the frontier of plans.",
    "run-plan": "Run a plan on real processes and measure it.",
    "share": "A planned job and background jobs on one cluster: throughput and slowdown.",
    "doctor": "Show versions, extras and machine facts.",
}
# Arrow's own allocator keeps what it has freed: 50 MB behind a log of 300 MB.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

FAILED_CHECK, WRONG_USAGE, BAD_INPUT, PARTIAL = 1, 2, 3, 4
STOPPED = 130  # as shells say it of a command that was interrupted


def _module(verb: str) -> str:
    return f"fitkit.cli.{verb.replace('-', '_')}"


class _Verbs(click.Group):
    """Verbs in the order of `VERBS`, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(_module(cmd_name)).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: fitkit demo    Exit status: 0 done, 1 a requested check failed, 2 wrong "
    "usage, 3 bad input, 4 some sources failed.",
)
@click.version_option(package_name="fitkit", message="fitkit %(version)s")
def cli() -> None:
    """Fit performance models to the logs that training clusters already write."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one command; return its exit status. Errors become one line and one hint."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _invoke(arguments or ["--help"])
    except (click.Abort, KeyboardInterrupt):
        return complain("interrupted", "run it again; what an ingest has finished is kept", STOPPED)
    except (SystemExit, BrokenPipeError):  # click leaves so when its reader has gone
        drop(sys.stdout)
        return 0
    except Exception as error:  # noqa: BLE001 - a traceback is for those who ask for it
        return complain(*_explain(error, next((w for w in arguments if w in VERBS), "")))


def _invoke(arguments: list[str]) -> int:
    status = cli.main(arguments, prog_name="fitkit", standalone_mode=False)
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            drop(sys.stdout)
            raise
    return status if isinstance(status, int) else 0


def _explain(error: Exception, verb: str) -> tuple[str, str, int]:
    """What is wrong, what to do, and the exit status."""
    usage = (
        f"fitkit {verb} --help shows how it is used" if verb else "fitkit --help lists the verbs"
    )
    match error:
        case FitkitError():
            return str(error), error.hint, BAD_INPUT
        case click.ClickException():
            return error.format_message(), usage, WRONG_USAGE
        case ValueError():
            return str(error), usage, WRONG_USAGE
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return f"{where}{error.strerror or error}", "check the path", BAD_INPUT
    what = f"fitkit {verb} failed: {type(error).__name__}: {error}"
    return what, "please report it; -vv after the verb shows where", BAD_INPUT


def complain(what: str, hint: str, status: int) -> int:
    """One line that says what is wrong and one that says what to do, on standard error."""
    if sys.exc_info()[1] is not None:
        logging.getLogger("fitkit").debug("traceback", exc_info=True)
    say(colour("error: ", "red") + one_line(what))
    if hint:
        say(f"  {one_line(hint)}")
    return status


def _show_warning(
    message: Warning | str, category: type[Warning], *_where: Any, **_more: Any
) -> None:
    """Warnings that are meant for users, without the line of code that gave them."""
    if issubclass(category, UserWarning):
        warn([one_line(str(message))])
    else:
        logging.getLogger("fitkit").debug("%s: %s", category.__name__, message)
