"""The configuration that BrainScript logs repeat: sections, overrides, schedules by epoch.

Only the lines that begin with ``configparameters:`` and the sections that they open are read: the
dumps before them, raw and with variables resolved, still lack the overrides of the command line.
"""

from __future__ import annotations

import re

from fitkit.parsers.values import number

# Names that are kept; CNTK ignores their case.
_NAMES = (
    "action", "blockSize", "blockSizePerWorker", "deviceId", "distributedMBReading", "epochSize",
    "gradientBits", "learningRatesPerMB", "learningRatesPerSample", "maxEpochs", "minibatchSize",
    "modelPath", "momentumAsTimeConstant", "momentumPerMB", "momentumPerSample", "numCPUThreads",
    "parallelTrain", "parallelizationMethod", "parallelizationStartEpoch", "precision",
    "syncFrequencyInFrames", "syncPerfStats", "syncPeriod",
    "useBufferedAsyncGradientAggregation",
)  # fmt: skip
_WANTED = frozenset(name.lower() for name in _NAMES)
# A line of the dump that can matter holds a name, or opens or closes more brackets than it has
# partners for: only such lines move into a section and out of it.
SIGNS = (
    "configparameters: ",
    rf"(?i:(?:{'|'.join(_NAMES)})[ \t]*=)",
    r"=[ \t]*(?:\(?[\[{]|\s*$)",
    r"[\[{][^\]}]*$",
    r"(?:^|<std(?:out|err)>:)[^\[{]*[\]}]",
)
_LONGEST_LINE = 10_000
_LONGEST_VALUE = 1_000
_MOST_VALUES = 10_000
_DEEPEST = 100

_STATEMENT = re.compile(r"configparameters: ?[^=]*?:(?P<name>\w{1,100})[ \t]*=(?P<rest>.*)")
_BODY = re.compile(r"\s*(?:[\[\]{}()]|[A-Za-z_]\w{0,100}(?:[\[{][^\]}]*[\]}])?[ \t]*=)")
_TOKEN = re.compile(
    r"\b(?P<name>[A-Za-z_]\w{0,100})[ \t]*=[ \t]*(?P<open>\(?[ \t]*[\[{])?|(?P<push>[\[{])"
    r"|(?P<pop>[\]}])|\"[^\"]*\"|'[^']*'|(?<!\S)//.*"
)
_VALUE = re.compile(r"\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^;,\[\]{}\"']*)")
_COMMENT = re.compile(r"\s(?://|#).*")
_ENTRY = re.compile(r"(?P<value>[^*]+)(?:\*\s*(?P<times>[0-9]{1,9})\s*)?")
_BRACKETS = re.compile(r"[\[{]")


def schedule_value(schedule: str, epoch: int) -> float | None:
    """Value of a schedule in an epoch, counted from 1; None if it is none.

    ``64:256:1024`` is one value an epoch, ``a*3:b`` is ``a`` for three epochs and then ``b``; the
    last value holds until the end (CNTK's configuration reference, "array of values").
    """
    value, end = None, 0
    for part in schedule.strip().strip("()").rstrip(":").split(":"):
        entry = _ENTRY.fullmatch(part)
        value = number(entry["value"]) if entry else None
        if entry is None or value is None:
            return None
        end += int(entry["times"] or 1)
        if epoch <= end:
            break
    return value


class Config:
    """Values of a configuration, by command and section; a later statement replaces an earlier.

    Attributes
    ----------
    is_stated
        Whether the log has any.
    """

    def __init__(self) -> None:
        self.is_stated = False
        self._values: dict[tuple[str, str, str], str] = {}
        self._trainings: set[str] = set()

    def set(self, command: str, section: str, name: str, value: str) -> None:
        """Keep a value if its name is wanted; the empty command is that of all commands."""
        value = value.strip()
        if name.lower() not in _WANTED or not 0 < len(value) <= _LONGEST_VALUE:
            return
        key = command.lower(), section.lower(), name.lower()
        if key in self._values or len(self._values) < _MOST_VALUES:
            self._values[key] = value
            if key[1:] == ("", "action") and value.lower() == "train":
                self._trainings.add(key[0])

    @property
    def only_training(self) -> str:
        """The one command that trains; empty if there are several, or none is stated."""
        return next(iter(self._trainings)) if len(self._trainings) == 1 else ""

    def get(self, command: str, name: str, *sections: str) -> str | None:
        """The value that a section sees: its own, or else that of what encloses it.

        Parameters
        ----------
        sections
            The section and those around it, the innermost first.
        """
        for section in (*sections, ""):
            value = self._values.get((command.lower(), section.lower(), name.lower()))
            if value is not None:
                return value
        return self._values.get(("", "", name.lower()))

    def integer(self, command: str, name: str, *sections: str) -> int | None:
        """A whole number above 0; None if there is none, or the value says "as it comes"."""
        value = self.get(command, name, *sections)
        return int(value) if value and re.fullmatch(r"\d{1,12}", value) and int(value) else None

    def is_true(self, command: str, name: str, *sections: str) -> bool:
        """Whether a switch is on."""
        return (self.get(command, name, *sections) or "").lower() in ("true", "t", "1", "yes")


class ConfigReader:
    """Reads the dump of one stream of lines into a `Config`, which others may share."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._command = ""
        self._sections: list[str] = []
        self._depth = 0  # of brackets; deeper than the names that are kept if they are too many
        self._named = ""  # what the next bracket opens, where its name ended the line before

    @property
    def is_open(self) -> bool:
        """Whether a section is open."""
        return self._depth > 0

    def read(self, text: str) -> bool:
        """Read a line if it states a value, or stands in a section that is open."""
        text = text[:_LONGEST_LINE]
        if text.startswith("configparameters: ") and (statement := _STATEMENT.match(text)):
            self._config.is_stated = True
            self._begin(statement["name"], statement["rest"])
        elif self._depth and (_BODY.match(text) or _is_unbalanced(text)):
            self._body(text)
        else:
            return False
        return True

    def close(self) -> None:
        """The dump is over, whatever brackets are open."""
        self._sections, self._depth, self._named = [], 0, ""

    def _begin(self, name: str, rest: str) -> None:
        self.close()
        if _BRACKETS.match(rest.lstrip(" (")):
            self._command = name
            self._body(rest)
        else:
            self._config.set("", "", name, rest.strip().strip("\"'"))

    def _body(self, text: str) -> None:
        """Follow the brackets of a line; those at depth 1 are the command's own."""
        place = 0
        while token := _TOKEN.search(text, place):
            place = token.end()
            if token["pop"]:
                self._pop()
            elif token["open"] or token["push"]:
                self._push(token["name"] or self._named)
            elif token["name"]:
                place = self._value(token["name"], text, place)

    def _push(self, name: str) -> None:
        self._named = ""
        self._depth += 1
        if 1 < self._depth <= _DEEPEST:
            self._sections.append(name)

    def _pop(self) -> None:
        if self._depth and len(self._sections) == self._depth - 1 and self._sections:
            self._sections.pop()
        self._depth = max(self._depth - 1, 0)

    def _value(self, name: str, text: str, place: int) -> int:
        """Keep the value that begins at a place, and say where it ends."""
        if not text[place:].strip():
            self._named = name
            return len(text)
        found = _VALUE.match(text, place)
        if found is None or name.lower() not in _WANTED:
            return place
        value = found["double"] or found["single"] or _COMMENT.sub("", found["bare"] or "")
        self._config.set(self._command, self._sections[-1] if self._sections else "", name, value)
        return found.end()


def is_idle(line: str) -> bool:
    """Whether a line in a dump, with its prefixes, has but one value and that is not kept."""
    name, _, value = line.partition("=")
    last = name.rpartition(":")[2].split()[-1:]
    return (
        not (not value.strip() or "=" in value or (last and last[0].lower() in _WANTED))
        and not ("[" in line or "]" in line or "{" in line or "}" in line)
    )  # fmt: skip


def _is_unbalanced(text: str) -> bool:
    """Whether a line begins with the end of a bracket, or ends inside one."""
    opens = [place for bracket in "[{" for place in (text.find(bracket), text.rfind(bracket))]
    ends = [place for bracket in "]}" for place in (text.find(bracket), text.rfind(bracket))]
    first = min((place for place in opens if place >= 0), default=len(text))
    return max(opens) > max(ends) or any(0 <= place < first for place in ends)
