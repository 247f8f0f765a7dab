"""Options and output that the verbs share."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import click

Command = Callable[..., Any]


def common(command: Command) -> Command:
    """``--json``, ``-q`` and ``-v`` for every verb."""
    for option in (
        click.option("-v", "--verbose", count=True, expose_value=False, callback=_verbose,
                     help="Say more on standard error; twice: tracebacks, too."),
        click.option("-q", "--quiet", is_flag=True, help="Say nothing but the result."),
        click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
    ):  # fmt: skip
        command = option(command)
    return command


def _verbose(_context: click.Context, _parameter: click.Parameter, count: int) -> None:
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(count, 2)]
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("fitkit").setLevel(level)


recipe = click.option(
    "--recipe", type=click.Choice(["step", "phases", "layers"]), default="step", show_default=True,
    help="The model by name.",
)  # fmt: skip
where = click.option("--where", metavar="COND", help="Rows to use, e.g. 'network == \"bert\"'.")
target = click.option("--target", metavar="COLUMN", help="Time to fit instead of the recipe's.")
statistic = click.option(
    "--statistic", type=click.Choice(["median", "min", "mean"]), default=None,
    help="Over steps and repetitions; default median.",
)  # fmt: skip


def key_value(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` with the value as a number, a truth value, an instant or text.

    Raises
    ------
    click.UsageError
        If there is no ``=``.
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.UsageError(f"{text!r}: write KEY=VALUE")
    return key.strip(), literal(value.strip())


def literal(text: str) -> Any:
    """A value typed on the command line."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return datetime.fromisoformat(text) if "T" in text else text
    except ValueError:
        return text


def print_json(document: Any) -> None:
    """The one JSON document of a verb."""
    click.echo(json.dumps(document, indent=1, allow_nan=False))


def print_result(result: Any) -> None:
    """A summary or a table on standard output, in colour on a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200, no_color=True)
    console.print(result)


def say(text: str, quiet: bool = False) -> None:
    """A message for people, on standard error."""
    if not quiet:
        click.echo(text, err=True)


def warn(texts: Iterable[str], quiet: bool = False) -> None:
    """Warnings on standard error."""
    for text in texts:
        say(click.style("warning: ", fg="yellow") + text, quiet)
