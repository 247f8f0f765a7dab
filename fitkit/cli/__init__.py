"""The command line: one module for each verb, imported when it is called."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from fitkit.errors import FitkitError

# In the order of a user's journey: verb → what it does.
VERBS = {
    "demo": "The whole job on the sample runs shipped with the package.",
    "ingest": "Read logs into a dataset of Parquet tables.",
    "show": "Show what is in a dataset.",
    "fit": "Fit a recipe to a dataset; save the model.",
    "predict": "Predict times with intervals from a fitted model.",
    "validate": "Prediction error on held-out runs, beside baselines and noise.",
    "doctor": "Show versions, extras and machine facts.",
}
FAILED_CHECK, WRONG_USAGE, BAD_INPUT, PARTIAL = 1, 2, 3, 4


class _Verbs(click.Group):
    """Verbs in the order of `VERBS`, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"fitkit.cli.{cmd_name}").command
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
        status: Any = cli.main(arguments, prog_name="fitkit", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        return complain("interrupted", "run it again: finished sources are kept", 130)
    except click.ClickException as error:
        error.show(sys.stderr)
        return WRONG_USAGE
    except FitkitError as error:
        return complain(str(error), error.hint, BAD_INPUT)
    except BrokenPipeError:
        # The reader of our output has gone, as with "| head": nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        return complain(str(error), "see fitkit VERB --help", WRONG_USAGE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}", "check the path", BAD_INPUT)
    return status if isinstance(status, int) else 0


def complain(what: str, hint: str, status: int) -> int:
    """One line that says what is wrong and one that says what to do, on standard error."""
    logging.getLogger("fitkit").debug("traceback", exc_info=True)
    click.echo(click.style("error: ", fg="red") + what, err=True)
    if hint:
        click.echo(f"  {hint}", err=True)
    return status
