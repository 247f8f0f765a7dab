"""Options and output that the verbs share."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
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


# Written out, since --help must not import the models; a test compares it with theirs.
RECIPE_NAMES = ("step", "phases", "layers", "comms", "pipeline", "run", "shared")
QUESTIONS = ("interpolation", "scale-up")

recipe = click.option(
    "--recipe", type=click.Choice(RECIPE_NAMES), default="step", show_default=True,
    help="The model by name.",
)  # fmt: skip
where = click.option("--where", metavar="COND", help="Rows to use, e.g. 'network == \"bert\"'.")
target = click.option("--target", metavar="COLUMN", help="Time to fit instead of the recipe's.")
statistic = click.option(
    "--statistic", type=click.Choice(["auto", "median", "p10", "min", "mean"]), default="auto",
    show_default=True, callback=lambda _context, _parameter, name: None if name == "auto" else name,
    help="Over steps and repetitions; auto: the one that repeats best, median if unclear.",
)  # fmt: skip


static = click.option("--static", is_flag=True, help="Plain pictures in FILE.html: a small file.")


def output(*suffixes: str) -> Callable[[Command], Command]:
    """``-o FILE``, as often as one likes; another suffix is refused before any work is done."""

    def known(_context: click.Context, _parameter: click.Parameter, paths: tuple[Path, ...]) -> Any:
        for path in paths:
            if path.suffix.lower() not in (*suffixes, ".htm"):
                listed = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
                raise click.UsageError(f"{path}: write a report as {listed}")
        return paths

    return click.option(
        "-o", "--output", multiple=True, type=click.Path(dir_okay=False, path_type=Path),
        callback=known, metavar=f"FILE{'|'.join(suffixes)}",
        help="Also write the report; may be repeated.",
    )  # fmt: skip


def key_value(text: str) -> tuple[str, str]:
    """``KEY=VALUE``.

    Raises
    ------
    click.UsageError
        If there is no ``=``, or nothing on one of its sides.
    """
    key, _, value = (part.strip() for part in text.partition("="))
    if not key or not value:
        raise click.UsageError(f"{text!r}: write KEY=VALUE")
    return key, value


def typed(text: str, *, is_text: bool) -> Any:
    """A value typed on the command line: words as they stand, else a number if it is one."""
    for read in () if is_text else (int, float):
        with suppress(ValueError):
            return read(text)
    return text


def typed_command() -> str:
    """The command as it was typed, or with the arguments that a caller passed."""
    context = click.get_current_context().find_root()
    arguments: list[str] = context.obj if isinstance(context.obj, list) else sys.argv[1:]
    return shlex.join(["fitkit", *arguments])


def print_json(document: Any) -> None:
    """The one JSON document of a verb."""
    _write(json.dumps(document, indent=1, allow_nan=False) + "\n")


def print_result(result: Any) -> None:
    """A summary or a table on standard output, in colour on a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200, no_color=True)
    with console.capture() as text:
        console.print(result)
    _write(text.get(), color=True)  # rich knows whether to colour, FORCE_COLOR included


def say(text: str, quiet: bool = False) -> None:
    """A message for people, on standard error."""
    if not quiet:
        _write(text + "\n", err=True)


def warn(texts: Iterable[str], quiet: bool = False) -> None:
    """Warnings on standard error."""
    for text in texts:
        say(colour("warning: ", "yellow") + one_line(text), quiet)


def colour(text: str, name: str) -> str:
    """The text in a colour; where it is not shown on a terminal, it is taken out again."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=name)


def one_line(text: str) -> str:
    """The text without what breaks a line or steers a terminal: it may quote a log."""
    if text.isprintable():
        return text
    lines = " ".join(part for line in text.splitlines() if (part := line.strip()))
    return "".join(char if char.isprintable() else "�" for char in lines)


def _write(text: str, *, err: bool = False, color: bool | None = None) -> None:
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        click.echo(
            text.encode(encoding, "replace").decode(encoding), nl=False, err=err, color=color
        )
    except BrokenPipeError:  # the reader has gone, as with "| head"; the work goes on
        drop(stream)


def drop(stream: Any) -> None:
    """Let what is still written to a stream vanish: nobody is there to read it."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
