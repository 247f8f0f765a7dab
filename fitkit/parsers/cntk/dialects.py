"""Progress lines: groups of minibatches and finished epochs, in every dialect of CNTK.

BrainScript has five styles for minibatches and four for epochs between 2015 and 2.7, all of them
lists of ``name = value`` that differ in names, counts and units. The Python front end has
sentences of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fitkit.parsers.cntk.lines import PREFIXES

# Lines that this module reads hold one of these, as RE2 sees them.
SIGNS = (
    r"Minibatch\[", r"Finished (?:Epoch|Evaluation|Mini-)", r"[sS]amplesPerSecond", r"SamplesSeen",
    r"[eE]pochTime", r"samples/s", r"samples per second", r"since +last|since +average",
    r"^ *[-+.\dinfae]+(?: +[-+.\dinfae]+){1,3} +\d+\s*$",
)  # fmt: skip

_COUNT = r"\d{1,12}"
_SECONDS = r"\d{1,12}(?:[.,]\d{0,12})?(?:[eE][-+]?0?\d\d?)?"
# Any number that C's printf writes, on Windows with three digits of exponent or as 1.#QNAN.
_NUMBER = (
    r"[-+]?(?:\d+(?:[.,]\d*)?(?:[eE][-+]?\d+)?|nan(?:\(\w+\))?|inf(?:inity)?"
    r"|1\.#(?:IND|QNAN|SNAN|INF)\d*)"
)
_NOT_A_NUMBER = re.compile(r"nan|IND|NAN")
_PYTHON_CRITERION = rf"{_NUMBER}%? \* {_COUNT}"

_WINDOW = re.compile(
    rf" *Epoch\[ *(?P<epoch>{_COUNT})(?: of +(?P<of>{_COUNT}))?\]-"
    rf"Minibatch\[ *(?P<first>-?{_COUNT})- *(?P<last>{_COUNT})"
    rf"(?: of +(?P<steps>{_COUNT})(?P<unknown>%)?|, *{_NUMBER}%)?\]: "
)
# What most lines of a long log are, with their prefixes. It finds only lines that `_WINDOW` and
# `_FIELD` do, and the same in them: no criterion has a name that means something else.
_FLOAT = r"\d+\.?\d*"
_CRITERION = rf"(?![sSt]|T[iIoO]|epochTime)[^=;* ]+ = *{_FLOAT}%?"
_COMMON_WINDOW = re.compile(
    rf"{PREFIXES} *Epoch\[ *({_COUNT})(?: of +({_COUNT}))?\]-"
    rf"Minibatch\[ *(-?{_COUNT})- *({_COUNT})(?: of +({_COUNT})|, *{_FLOAT}%)?\]: "
    rf"(?:{_CRITERION} \* ({_COUNT})(?:; {_CRITERION}(?: \* {_COUNT})?)*; time"
    rf"|SamplesSeen = ({_COUNT})(?:; {_CRITERION})*; TotalTime) = "
    r"(\d{1,11}\.?\d*)s; "
    rf"(?:TotalTimePerSample = {_FLOAT}ms; )?[sS]amplesPerSecond = {_FLOAT}[ ;]*\s*$"
)
_EPOCH = re.compile(
    rf" *Finished Epoch ?\[ *(?P<epoch>{_COUNT})(?: of +(?P<of>{_COUNT}))?\]: "
    r"\[(?P<set>Training|Validat)(?:e| Set|ion Set)?\] (?=[^=]*=)"
)
_FIELD = re.compile(
    rf"(?P<name>[^=;]*?[^=; ]) ?= *(?P<value>{_NUMBER})(?P<unit>%|ms|s)?(?: \* (?P<n>{_COUNT}))?"
)
_BARE_COUNT = re.compile(rf"\* ({_COUNT})")

_PYTHON_WINDOW = re.compile(
    rf" *Minibatch\[ *(?P<first>{_COUNT})- *(?P<last>{_COUNT})\]: (?:loss = (?P<loss>{_NUMBER}) "
    rf"\* (?P<samples>{_COUNT}))?(?:, )?(?:metric = {_PYTHON_CRITERION})?;?$"
)
_PYTHON_EPOCH = re.compile(
    rf" *Finished Epoch ?\[(?P<epoch>{_COUNT})(?: of (?P<of>{_COUNT}))?\]: "
    rf"(?:\[(?P<tag>[^\]]*)\] )?loss = (?P<loss>{_NUMBER}) \* (?P<samples>{_COUNT})"
    rf"(?:, metric = {_PYTHON_CRITERION})?"
    rf"(?: (?P<seconds>{_SECONDS})s \( *{_NUMBER} samples(?:/s| per second)\))?;?$"
)
_PYTHON_EVALUATION = re.compile(
    rf" *(?:Finished Evaluation ?\[ *{_COUNT}\]: Minibatch\[ *1- *{_COUNT}\]: metric = "
    rf"|Evaluation Minibatch\[ *{_COUNT}- *{_COUNT}\]: (?:metric = )?){_PYTHON_CRITERION};?$"
)
_TABLE_ROW = re.compile(
    rf" +(?P<loss>{_NUMBER}) +{_NUMBER}(?: +{_NUMBER} +{_NUMBER})? +(?P<samples>{_COUNT})$"
)
_TABLE_HEAD = re.compile(r" *average +since +average +since +examples$|.* last +(?:metric +last)?$")
_TRIAL = re.compile(r" *\w*Adaptive(?:Minibatch|LearnRate)Search:")
# What looks like progress and is none: trial epochs, and summaries of evaluations.
_OTHER = re.compile(
    r"(?P<trial> *Finished Mini-Epoch.*)"
    r"| *(?:Best epoch per criterion so far:|Final Results: Minibatch\[|Minibatch\[[\d -]+\]: .*"
    r"(?:SamplesSeen|Sample)|.*model aggregation stats\)).*"
    rf"| *(?:(?:EVALERR|PROGRESS): {_NUMBER}% *)+$"
    rf"|Minibatch\[ *{_COUNT}- *{_COUNT}\]: (?:[^=;]+ = {_NUMBER}%?(?: \* {_COUNT})?(?:; )?)+$"
)
# Where a line can begin inside of another one: streams of several ranks are not written by lines.
_RUN_ON = re.compile(
    r"(?<=[^ -])(?<!:\d\d:)(?= *\d\d/\d\d/\d{4} \d\d:\d\d:\d\d: | *Epoch\[ *\d+ of +\d+\]-Mini|"
    r" *Finished Epoch ?\[| *Minibatch\[ *\d+- *\d+\]: |SGD: |CNTKCommandTrain)"
)
_LIKE_PROGRESS = re.compile(
    r"Finished Epoch|Finished Evaluation|Epoch\[.*Minibatch\[|^ *Minibatch\[|[eE]pochTime ?=|"
    r"SamplesSeen ?=|[sS]amplesPerSecond ?=|samples/s\)"
)


class Window(NamedTuple):
    """A group of minibatches that one line reports.

    ``epoch`` is None where the line does not say; ``n_steps`` is that of the whole epoch.
    """

    epoch: int | None
    first: int
    last: int
    n_samples: int | None
    seconds: float | None
    is_nan: bool = False
    n_steps: int | None = None
    n_epochs: int | None = None


class EpochEnd(NamedTuple):
    """A finished epoch; ``n_samples`` is None where the line has no count of its own."""

    epoch: int
    n_samples: int | None
    seconds: float | None
    is_nan: bool = False
    is_validation: bool = False
    n_epochs: int | None = None
    total_samples: int | None = None
    learning_rate: float | None = None
    is_brainscript: bool = True


class TableRow(NamedTuple):
    """A row of the table that Python prints with ``freq=0``: samples of the epoch so far."""

    n_samples: int
    is_nan: bool


class Other(NamedTuple):
    """A line that looks like progress and is none; a trial belongs to an adaptive search."""

    is_trial: bool


Progress = Window | EpochEnd | TableRow | Other


def looks_like_progress(text: str) -> bool:
    """Whether a line that `read_progress` cannot read ought to have been one."""
    return _LIKE_PROGRESS.search(text) is not None


def pieces(text: str) -> list[str]:
    """Lines that stand in one because no line end came between them; one, if none do."""
    return _RUN_ON.split(text)


def is_whole(text: str, found: Progress) -> bool:
    """Whether the last line of a log that ends in it says all: half a number looks like one."""
    if isinstance(found, Window) and found.seconds is not None:
        return True  # its last number is a rate, which nobody reads
    return text.endswith((";", "s"))


def read_progress(text: str) -> Progress | None:
    """What a line without its prefixes says of the progress; None if it is no such line."""
    if "Adaptive" in text and _TRIAL.match(text):
        return Other(True)
    if head := _WINDOW.match(text):
        return _brainscript_window(head, text[head.end() :])
    if head := _EPOCH.match(text):
        found = _brainscript_epoch(head, text[head.end() :])
        if found or "poch" in text[head.end() :]:
            return found
    return _python(text) or _table(text) or _other(text)


def read_common_window(text: str) -> tuple[str | None, Window] | None:
    """What `read_progress` says of a line with its prefixes, and the rank in them.

    It reads only the dialects that long logs have, several times as fast.
    """
    if (found := _COMMON_WINDOW.match(text)) is None:
        return None
    rank, _, epoch, of, begin, end, steps, n_samples, seen, seconds = found.groups()
    if (first := int(begin)) > (last := int(end)):
        return None
    return rank, Window(
        int(epoch), first, last, int(n_samples or seen), float(seconds), False,
        int(steps) if steps else None, int(of) if of else None,
    )  # fmt: skip


def _other(text: str) -> Other | None:
    found = _OTHER.match(text)
    return Other(found["trial"] is not None) if found else None


class _Fields(NamedTuple):
    """The ``name = value`` parts of a line."""

    values: dict[str, float]
    first: str  # value of the criterion
    n_samples: int | None  # of the first part that has a count


def _fields(text: str) -> _Fields | None:
    """The parts of a line; None if one of them is something else."""
    values: dict[str, float] = {}
    first, n_samples = "", None
    for part in text.rstrip(" ;").split("; "):
        if (field := _FIELD.fullmatch(part)) is None:
            if (bare := _BARE_COUNT.fullmatch(part)) is None:
                return None
            n_samples = int(bare[1])
            continue
        name, value, unit, count = field.groups()
        if name == "epochTime" and unit != "s":
            return None  # cut; older versions write EpochTime, without a unit
        first = first or value
        if n_samples is None and count is not None:
            n_samples = int(count)
        if name[-4:] in _WANTED_ENDS:
            values[name.lower()] = _value(value)
    return _Fields(values, first, n_samples)


# Of the names that count: SamplesSeen, TotalTime, time, epochTime, samplesPerSecond, ...Sample.
_WANTED_ENDS = frozenset(("time", "Time", "Seen", "cond", "mple"))


def _value(text: str) -> float:
    try:
        return float(text.replace(",", "."))
    except ValueError:  # 1.#QNAN
        return float("nan")


def _seconds(value: float | None) -> float | None:
    return value if value is not None and 0 <= value < 1e12 else None


def _brainscript_window(head: re.Match[str], text: str) -> Window | None:
    fields = _fields(text)
    if fields is None or "samplespersecond" not in fields.values:
        return None  # the last of its parts: without it, the line is cut
    values = fields.values
    seconds = values.get("totaltime", values.get("time"))
    n_samples = fields.n_samples
    if "samplesseen" in values:
        n_samples = _whole(values["samplesseen"])
    epoch, of, first, last, steps, unknown = head.groups()
    if int(first) > int(last):
        return None
    return Window(
        epoch=int(epoch),
        first=int(first),
        last=int(last),
        n_samples=n_samples,
        seconds=_seconds(seconds),
        is_nan=_NOT_A_NUMBER.search(fields.first) is not None,
        n_steps=int(steps) if steps and not unknown else None,
        n_epochs=int(of) if of else None,
    )


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < 1e12 else None


def _brainscript_epoch(head: re.Match[str], text: str) -> EpochEnd | None:
    fields = _fields(text)
    if fields is None:
        return None
    values = fields.values
    is_validation = head["set"] == "Validat"
    if not is_validation and "epochtime" not in values:
        return None
    return EpochEnd(
        epoch=int(head["epoch"]),
        n_samples=fields.n_samples,
        seconds=_seconds(values.get("epochtime")),
        is_nan=_NOT_A_NUMBER.search(fields.first) is not None,
        is_validation=is_validation,
        n_epochs=int(head["of"]) if head["of"] else None,
        total_samples=_whole(values.get("totalsamplesseen")),
        learning_rate=values.get("learningratepersample", values.get("avglearningratepersample")),
    )


def _python(text: str) -> Progress | None:
    if found := _PYTHON_WINDOW.match(text):
        first, last, samples = (found[key] for key in ("first", "last", "samples"))
        if not 1 <= int(first) <= int(last):
            return None
        is_nan = found["loss"] is not None and _NOT_A_NUMBER.search(found["loss"]) is not None
        return Window(None, int(first), int(last), int(samples) if samples else None, None, is_nan)
    if found := _PYTHON_EPOCH.match(text):
        return EpochEnd(
            epoch=int(found["epoch"]),
            n_samples=int(found["samples"]),
            seconds=_value(found["seconds"]) if found["seconds"] else None,
            is_nan=_NOT_A_NUMBER.search(found["loss"]) is not None,
            n_epochs=int(found["of"]) if found["of"] else None,
            is_brainscript=False,
        )
    return Other(False) if _PYTHON_EVALUATION.match(text) else None


def _table(text: str) -> Progress | None:
    if found := _TABLE_ROW.match(text):
        return TableRow(int(found["samples"]), _NOT_A_NUMBER.search(found["loss"]) is not None)
    return Other(False) if _TABLE_HEAD.match(text) else None
