"""What surrounds a program in the output of a job: the prologue of Torque, the messages of aprun.

::

    Begin Torque Prologue on nid25428
    at Mon Oct  8 11:09:50 CDT 2018
    Job Id:                 9086117.bw
    Requested resources:    neednodes=1:ppn=16:xk,nodes=1:ppn=16:xk,walltime=06:00:00
    End Torque Prologue:  0.117 elapsed
    ... what the program prints ...
    Application 70046152 exit codes: 1
    Application 70046152 resources: utime ~4936s, stime ~1034s, Rss ~1757440, inblocks ~1969380, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# What tells the output of a job.
SIGN = re.compile(
    r"Begin Torque (?:Prologue|Epilogue) on "
    r"|Application [0-9]{1,12} (?:exit codes|exit signals|resources|network [a-z]{1,20}): "
    r"|\bApid [0-9]{1,12}: |_pmiu_daemon\(SIGCHLD\): |OOM killer terminated this process"
)
# One of these is in every line that has such a sign.
HINTS = ("Begin Torque", "Application ", "Apid ", "_pmiu_daemon", "OOM killer")
_BEGIN = re.compile(r"Begin Torque (?P<block>Prologue|Epilogue) on (?P<host>[\w.-]{1,80})")
_END = re.compile(
    r"End Torque (?:Prologue|Epilogue):\s{0,9}(?:(?P<elapsed>[0-9]{1,9}(?:\.[0-9]{1,9})?) elapsed)?"
)
_AT = re.compile(r"at (?P<stamp>\S.{0,60})")
_FIELD = re.compile(r"(?P<key>[A-Z][A-Za-z ]{0,30}):(?:\s(?P<value>.*))?")
_APPLICATION = re.compile(
    r"Application (?P<apid>[0-9]{1,12}) "
    r"(?P<what>exit codes|exit signals|resources|network [a-z]{1,20}): (?P<rest>.*)"
)
_USED = re.compile(r"(?P<key>utime|stime|Rss|inblocks|outblocks) ~?(?P<value>[0-9]{1,15})s?\b")
_CODE = re.compile(r"[0-9]{1,3}")
_CAUGHT = re.compile(r"aprun: Apid (?P<apid>[0-9]{1,12}): Caught signal (?P<signal>[\w /]{1,40}),")
_ENDED = re.compile(r"\[NID [0-9]{1,7}\] .{1,40} Apid (?P<apid>[0-9]{1,12}): (?P<text>.{1,80})")
_RANK = re.compile(
    r"_pmiu_daemon\(SIGCHLD\): \[NID (?P<nid>[0-9]{1,7})\] \[(?P<cname>c[\w-]{1,20})\] "
    r"\[.{1,40}\] PE RANK (?P<rank>[0-9]{1,9}) exit signal (?P<signal>[\w /]{1,40})"
)
_KIB = 1024
# Linux, as the C library names them.
SIGNALS = {
    "Hangup": 1, "Interrupt": 2, "Quit": 3, "Illegal instruction": 4, "Trace/breakpoint trap": 5,
    "Aborted": 6, "Bus error": 7, "Floating point exception": 8, "Killed": 9,
    "User defined signal 1": 10, "Segmentation fault": 11, "User defined signal 2": 12,
    "Broken pipe": 13, "Alarm clock": 14, "Terminated": 15, "CPU time limit exceeded": 24,
}  # fmt: skip


@dataclass
class Prologue:
    """What Torque says before it starts the script; ``stamp`` is local time, as it is written."""

    line: int
    host: str
    stamp: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    elapsed_s: float | None = None


@dataclass
class Application:
    """One aprun: what is said of it; resources are rounded by the launcher."""

    apid: str
    line: int
    exit_codes: list[int] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    user_s: float | None = None
    system_s: float | None = None
    memory_bytes: int | None = None
    n_blocks_in: int | None = None
    n_blocks_out: int | None = None

    @property
    def exit_code(self) -> int | None:
        """The first code that is not zero; zero if all are."""
        return next((code for code in self.exit_codes if code), 0) if self.exit_codes else None

    @property
    def exit_signal(self) -> int | None:
        """Number of the first signal that has one."""
        return next((SIGNALS[name] for name in self.signals if name in SIGNALS), None)


@dataclass
class Section:
    """The output of one job, or of one attempt of it.

    Attributes
    ----------
    notes
        Code: (first line, count, text of the first).
    """

    prologue: Prologue | None = None
    applications: dict[str, Application] = field(default_factory=dict)
    notes: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    def note(self, code: str, line: int, text: str) -> None:
        """Count what is said more than once."""
        first, n, known = self.notes.get(code, (line, 0, text))
        self.notes[code] = (first, n + 1, known)


class Envelope:
    """Reads a job's output line by line, and keeps apart what the program printed.

    Attributes
    ----------
    sections
        One for each prologue; what precedes the first belongs to it.
    """

    def __init__(self) -> None:
        self.sections = [Section()]
        self._open: Prologue | None = None  # the block that the next line may belong to

    @property
    def index(self) -> int:
        """Number of the section that is being read, from 0."""
        return len(self.sections) - 1

    def read(self, number: int, text: str) -> str:
        """Read a line; what the program printed of it."""
        if self._open is not None and self._read_field(self._open, text):
            return ""
        if not any(hint in text for hint in HINTS) or not SIGN.search(text):
            return text
        if begin := _BEGIN.match(text):
            self._begin(number, begin)
            return ""
        if found := _APPLICATION.search(text):
            self._read_application(number, found)
            return text[: found.start()]
        return "" if self._read_error(number, text) else text

    def _begin(self, number: int, begin: re.Match[str]) -> None:
        self._open = Prologue(number, begin["host"])
        if begin["block"] == "Prologue":
            if self.sections[-1].prologue is not None:
                self.sections.append(Section())
            self.sections[-1].prologue = self._open

    def _read_field(self, block: Prologue, text: str) -> bool:
        """Whether the line belongs to the block; one that does not ends it."""
        if end := _END.match(text):
            block.elapsed_s = float(end["elapsed"]) if end["elapsed"] else None
            self._open = None
        elif at := _AT.match(text):
            block.stamp = at["stamp"].strip()
        elif found := _FIELD.match(text):
            block.fields.setdefault(found["key"], (found["value"] or "").strip())
        else:
            self._open = None
            return False
        return True

    def _application(self, number: int, apid: str) -> Application:
        return self.sections[-1].applications.setdefault(apid, Application(apid, number))

    def _read_application(self, number: int, found: re.Match[str]) -> None:
        section, app = self.sections[-1], self._application(number, found["apid"])
        what, rest = found["what"], found["rest"]
        if what == "exit codes":
            app.exit_codes += [int(code) for code in _CODE.findall(rest)]
        elif what == "exit signals":
            app.signals += _signals(rest)
        elif what == "resources":
            _read_resources(app, rest)
        else:
            section.note("network_quiesced", number, f"application {app.apid}: {what}: {rest}")

    def _read_error(self, number: int, text: str) -> bool:
        """Whether it is a line that the launcher writes to stderr."""
        section = self.sections[-1]
        if caught := _CAUGHT.match(text):
            self._application(number, caught["apid"]).signals += _signals(caught["signal"])
        elif ended := _ENDED.match(text):
            app = self._application(number, ended["apid"])
            section.note("terminated", number, f"application {app.apid}: {ended['text'].strip()}")
        elif rank := _RANK.match(text):
            where = f"rank {rank['rank']} on node {rank['nid']} ({rank['cname']})"
            section.note("rank_killed", number, f"{where}: {rank['signal'].strip()}")
        elif text.startswith("OOM killer"):
            section.note("out_of_memory", number, "a process was killed for want of memory")
        else:
            return False
        return True


def _signals(text: str) -> Iterator[str]:
    """Names of signals between commas, without the remark that there is a core file."""
    for name in text.split(","):
        if plain := name.replace("(core dumped)", "").strip():
            yield plain


def _read_resources(app: Application, text: str) -> None:
    """Figures of ``utime ~4936s, stime ~1034s, Rss ~1757440, ...``; Rss is in KiB."""
    used = {found["key"]: int(found["value"]) for found in _USED.finditer(text)}
    if "utime" in used:
        app.user_s = float(used["utime"])
    if "stime" in used:
        app.system_s = float(used["stime"])
    if "Rss" in used:
        app.memory_bytes = used["Rss"] * _KIB
    app.n_blocks_in = used.get("inblocks", app.n_blocks_in)
    app.n_blocks_out = used.get("outblocks", app.n_blocks_out)
