"""Reads the text logs of one source: every line goes to the part that understands it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fitkit.errors import ParseError
from fitkit.parsers.cntk import dialects, facts, network, stamps, synchronisation
from fitkit.parsers.cntk.dialects import (
    EpochEnd,
    Other,
    Progress,
    TableRow,
    Window,
    looks_like_progress,
    read_progress,
)
from fitkit.parsers.cntk.facts import FactReader
from fitkit.parsers.cntk.facts.command import CommandFacts
from fitkit.parsers.cntk.lines import Line, read_lines
from fitkit.parsers.cntk.network import Network
from fitkit.parsers.cntk.remainders import EpochKey, EpochTimes
from fitkit.parsers.cntk.stamps import StampReader
from fitkit.parsers.cntk.synchronisation import SynchronisationReader, looks_like_timing
from fitkit.parsers.cntk.training import Command, Epoch, Group
from fitkit.parsers.cntk.validation_dump import MARK
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Step

SERIAL = "each worker does the whole epoch"
_NAME = r"[^\s:#]{1,200}"
_BEGIN = re.compile(rf"CNTKCommandTrainBegin: ({_NAME})|# ({_NAME}) command \(train action\) +#")
_OTHER_ACTION = re.compile(r'# Action "(?!train)\w+" +#|# \S+ command \((?!train )\w+ action\) +#')
_END = re.compile(r'CNTKCommandTrainEnd: |Action "train" complete|(?:__)?COMPLETED(?:__|\.)?$')
_AGAIN = re.compile(
    r"==== Re-running|=== Running |.*rolling back to\) previous model|SGD: revoke back to"
)
_RESTORED = re.compile(r"Restoring training session from the checkpoint '(.{1,300}?)'")
SIGNS = (
    "Restoring training session", "CNTKCommandTrain", r"# Action \"", r" command \(\w+ action\)", "Action \"train\" complete",
    r"COMPLETED", "=== Running ", "==== Re-running", "rolling back to", "revoke back to",
)  # fmt: skip
_PATTERN = "|".join(
    (*SIGNS, *dialects.SIGNS, *facts.SIGNS, *network.SIGNS, *synchronisation.SIGNS, *stamps.SIGNS)
)
_NO_TRAINING = "\0"  # name of what is no training command
_BEGINNINGS = ("Finished ", " ", "Best epoch")  # of lines about progress
_MOST_SEEN = 100_000


class TextReader:
    """Reads the text files of one source; what it cannot tell apart is noted.

    Parameters
    ----------
    source
        The source; problems go to its log.

    Attributes
    ----------
    commands
        Training commands in the order in which they report progress.
    facts, stamps, syncs
        What the text states of runs, phases by time stamps, and synchronisation.
    epochs
        Finished epochs and what their minibatch lines say.
    restored_from
        Checkpoint that a Python run goes on from; its epochs are counted from 1 again.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.commands: list[Command] = []
        self.facts = FactReader()
        self.stamps = StampReader()
        self.syncs = SynchronisationReader()
        self.epochs: list[EpochTimes] = []
        self.restored_from: str | None = None
        self._doing: dict[int | None, str | None] = {}  # command that each stream is in
        self._files: dict[int, SourceFile] = {}  # that report the progress of a rank
        self._dumps: dict[str | None, _Dump] = {}
        self._had_nan = False
        self._n_ranks: int | None = source.metadata.get("n_workers")

    def read(self, file: SourceFile, rank: int | None) -> Iterator[Step]:
        """Read one file and yield the groups of minibatches whose time is known.

        Parameters
        ----------
        rank
            Whose file it is; None if lines say so themselves, or nobody does.

        Raises
        ------
        ParseError
            At a progress line that cannot be read, or at the progress of a rank that another
            file reports.
        """
        for line in read_lines(self.source, file, rank, _PATTERN):
            text = line.text
            if MARK in text:
                self._describe(line)
            elif "inibatch[" in text or text.startswith(_BEGINNINGS):
                if (found := read_progress(text)) is None:
                    self._unread(line)
                elif (step := self._progress(line, found)) is not None:
                    yield step
            else:
                self._other(line)

    # -- networks and facts ----------------------------------------------------------------

    def _describe(self, line: Line) -> None:
        """Take in a line about the network; every rank says the same of it, so one is enough."""
        name = self._doing.get(line.rank)
        if (dump := self._dumps.get(name)) is None:
            dump = self._dumps[name] = _Dump(line.rank)
        if line.rank != dump.stream or line.text in dump.seen:
            return
        dump.network.take(line.text)
        if MARK in line.text and len(dump.seen) < _MOST_SEEN:
            dump.seen.add(line.text)

    def _other(self, line: Line) -> None:
        text, stream = line.text, line.rank
        if found := _BEGIN.search(text):
            self._begin(stream, found[1] or found[2])
        elif _OTHER_ACTION.search(text):
            self._doing[stream] = _NO_TRAINING
        elif _AGAIN.match(text):
            self._again(stream)
        elif found := _RESTORED.search(text):
            self.restored_from = found[1]
            return
        known = self.facts.read(text, stream)
        known = self.syncs.read(stream, text) or known
        self.stamps.read(stream, text, line.at)
        if _END.match(text):
            self._end(stream)
        elif not known:
            self._describe(line)
            if looks_like_progress(text) or looks_like_timing(text):
                self._unread(line)

    def _unread(self, line: Line) -> None:
        if self.syncs.read(line.rank, line.text):  # they speak of samplesPerSecond, too
            return
        if looks_like_progress(line.text) or looks_like_timing(line.text):
            self.source.problems.bad_line(line.file, line.number, line.text)
        else:
            self.facts.read(line.text, line.rank)

    # -- commands and attempts ---------------------------------------------------------------

    def _begin(self, stream: int | None, name: str) -> None:
        self._doing[stream] = name
        command = next((c for c in self.commands if c.name == name), None)
        if command is None and len(self.commands) == 1 and self.commands[0].name is None:
            self.commands[0].name = name  # the log of another rank lacks its beginning
        elif command is not None:
            self._start_again(command, stream)

    def _again(self, stream: int | None) -> None:
        """A run is started again, or epochs are rolled back."""
        for command in self.commands:
            if self._doing.get(stream) in (None, command.name):
                self._start_again(command, stream)

    def _start_again(self, command: Command, stream: int | None) -> None:
        if stream is not None:
            logs = {stream: command.ranks[stream]} if stream in command.ranks else {}
        else:
            logs = command.ranks
        several = stream is None and len(logs) > 1
        if several and not all(log.ended for log in logs.values()):
            return  # each of the ranks says so, one after the other
        for rank, log in logs.items():
            if log.has_progress:
                self._leave(command, stream, rank)
                log.begin_attempt()

    def _leave(self, command: Command, stream: int | None, rank: int) -> None:
        """What was said of the open epoch belongs to it, although it did not finish."""
        log = command.ranks[rank]
        if log.last_minibatch:
            key = EpochKey(command.run_id, rank, log.attempt, log.open_epoch)
            self.stamps.leave(stream, key)
            self.syncs.leave(stream, key)

    def _end(self, stream: int | None) -> None:
        """A command has ended; in a stream of several ranks, that of the first one still open."""
        for command in self.commands:
            if self._doing.get(stream) in (None, command.name):
                ranks = sorted(command.ranks) if stream is None else [stream]
                logs = [command.ranks[rank] for rank in ranks if rank in command.ranks]
                if still := [log for log in logs if not log.ended]:
                    still[0].ended = True
                    return

    def _command(self, stream: int | None) -> Command:
        name = self._doing.get(stream)
        if name is None and len(self.commands) == 1:
            return self.commands[0]
        for command in self.commands:
            if command.name == name:
                return command
        number = len(self.commands) + 1
        run_id = self.source.run_id if number == 1 else f"{self.source.run_id}-{number}"
        self.commands.append(Command(None if name == _NO_TRAINING else name, run_id))
        return self.commands[-1]

    # -- progress --------------------------------------------------------------------------------

    def _progress(self, line: Line, found: Progress) -> Step | None:
        is_validation = isinstance(found, EpochEnd) and found.is_validation
        if isinstance(found, Other) or is_validation:
            self.stamps.read(line.rank, line.text, line.at)
            return None
        problems = self.source.problems
        if problems.may_be_cut(line.file, line.number) and not _is_whole(line.text, found):
            problems.bad_line(line.file, line.number, line.text)
            return None
        command = self._command(line.rank)
        rank = self._rank(command, line, found)
        log = command.rank_log(rank)
        self._claim(line, rank)
        group = self._take(command, line, rank, found)
        if log.has_nan and not self._had_nan:
            self._had_nan = True
            problems.note(line.file, line.number, "nan_loss", "the loss is not a number")
        return None if group is None else self._step(command, rank, group)

    def _take(
        self, command: Command, line: Line, rank: int, found: Window | EpochEnd | TableRow
    ) -> Group | None:
        log = command.ranks[rank]
        if isinstance(found, TableRow):
            log.row(found)
            return None
        if log.is_behind(found):
            self._leave(command, line.rank, rank)
            log.begin_attempt()
        command.is_python = command.is_python or _is_python(found)
        if isinstance(found, Window):
            self.syncs.end_window(line.rank)
            return log.add(found)
        facts = self._facts(command)
        is_total = facts.groups_are_local and not facts.epochs_are_local
        epoch = log.end(found, facts.minibatch(found.epoch), is_total=is_total)
        self._finished(command, line, rank, epoch)
        return None

    def _rank(self, command: Command, line: Line, found: Progress) -> int:
        if line.rank is not None:
            return line.rank
        if not isinstance(found, Window | EpochEnd):
            return 0
        rank = command.rank_of(found, self._n_ranks or self._workers(command))
        if rank and not command.unlabelled:
            command.unlabelled = True
            self.source.problems.note(
                self.source.label, None, "ranks_unlabelled",
                "several ranks share one stream without a label: they are numbered as they come",
            )  # fmt: skip
        return rank

    def _claim(self, line: Line, rank: int) -> None:
        owner = rank if line.rank is not None else 0
        other = self._files.setdefault(owner, line.file)
        if other is not line.file:
            raise ParseError(
                line.file.label, line.number, f"progress of rank {rank}, as in {other.label}",
                "put the files of each run into a folder of its own",
            )  # fmt: skip

    def _finished(self, command: Command, line: Line, rank: int, epoch: Epoch) -> None:
        key = EpochKey(command.run_id, rank, epoch.attempt, epoch.epoch)
        self.stamps.end_epoch(line.rank, key, line.at)
        self.syncs.end_epoch(line.rank, key)
        if epoch.seconds is None or not epoch.timed_steps:
            return
        facts = self._facts(command)
        n_workers = self._workers(command) or 1
        if facts.is_shared(epoch.epoch) is False:
            n_workers = 1
        in_flight = 0
        if facts.method == "data_parallel_async" and n_workers > 1:
            in_flight = round(epoch.batch or 0)
        self.epochs.append(
            EpochTimes(
                key, epoch.seconds, epoch.n_samples, epoch.timed_s, epoch.group_samples or 0,
                n_workers, in_flight, epoch.last_step, epoch.stated_steps,
            )
        )  # fmt: skip

    def _facts(self, command: Command) -> CommandFacts:
        return self.facts.facts.of_command(command.name)

    def _workers(self, command: Command) -> int | None:
        return self.facts.facts.workers_of(self._facts(command))

    def _step(self, command: Command, rank: int, group: Group) -> Step:
        facts = self._facts(command)
        n_workers = self._workers(command) or 1
        is_serial = n_workers > 1 and facts.is_shared(group.epoch) is False
        share = n_workers if facts.groups_are_local and not is_serial else 1
        return Step(
            run_id=command.run_id,
            rank=rank,
            n_steps=group.n_steps,
            duration_s=group.seconds,
            epoch=group.epoch,
            first_step=group.first_step,
            n_samples=None if group.n_samples is None else group.n_samples * share,
            disturbed_by=SERIAL if is_serial else None,
            attempt=group.attempt,
        )

    def unstarted(self) -> Command:
        """The command of logs that end before any progress."""
        names = [name for name in self._doing.values() if name not in (None, _NO_TRAINING)]
        command = Command(names[0] if names else None, self.source.run_id)
        dump = self._dumps.get(command.name) or self._dumps.get(None)
        if dump is not None:
            command.network = dump.network
        return command

    def finish(self) -> None:
        """No more files follow: what is open stays as it is."""
        for command in self.commands:
            for rank, log in command.ranks.items():
                stream = None if command.unlabelled else rank
                self._leave(command, stream, rank)
                log.finish()
            dump = self._dumps.get(command.name) or self._dumps.get(None)
            if dump is not None:
                command.network = dump.network


def _is_python(found: Window | EpochEnd) -> bool:
    return not found.is_brainscript if isinstance(found, EpochEnd) else found.epoch is None


def _is_whole(text: str, found: Progress) -> bool:
    """Whether the last line of a log that ends in it says all: half a number looks like one."""
    if isinstance(found, Window) and found.seconds is not None:
        return True  # its last number is a rate, which nobody reads
    return text.endswith((";", "s"))


class _Dump:
    """The network that one rank describes, and its lines, which come again and again."""

    def __init__(self, stream: int | None) -> None:
        self.stream = stream
        self.network = Network()
        self.seen: set[str] = set()
