"""Reads the text logs of one source: every line goes to the part that understands it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fitkit.errors import ParseError
from fitkit.parsers.cntk import dialects, facts, network, stamps, synchronisation, turning_points
from fitkit.parsers.cntk.descriptions import NetworkReader
from fitkit.parsers.cntk.dialects import (
    EpochEnd,
    Other,
    Progress,
    TableRow,
    Window,
    is_whole,
    looks_like_progress,
    pieces,
    read_common_window,
    read_progress,
)
from fitkit.parsers.cntk.facts import FactReader
from fitkit.parsers.cntk.lines import Line, without_prefixes
from fitkit.parsers.cntk.remainders import EpochKey, EpochTimes
from fitkit.parsers.cntk.sharing import Sharing
from fitkit.parsers.cntk.stamps import StampReader
from fitkit.parsers.cntk.synchronisation import SynchronisationReader, looks_like_timing
from fitkit.parsers.cntk.training import Command, Epoch, Group
from fitkit.parsers.cntk.turning_points import Turn, is_end, read_turn
from fitkit.parsers.cntk.validation_dump import MARK
from fitkit.parsers.line_filter import Wanted, matching_lines
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Step

_OTHER_SIGNS = (
    *turning_points.SIGNS, *dialects.SIGNS, *facts.STATEMENT_SIGNS, *synchronisation.SIGNS,
    *stamps.SIGNS,
)  # fmt: skip
# What is read of a log depends on where it is: a dump of the configuration is read whole, and a
# network that is known need not be described again.
_EVERY_LINE = ""
_WITHOUT_NETWORKS = "|".join(_OTHER_SIGNS)
_WITH_NETWORKS = "|".join((*network.SIGNS, *_OTHER_SIGNS))
_NO_TRAINING = "\0"  # name of what is no training command
_BEGINNINGS = ("Finished ", " ", "Best epoch")  # of lines about progress


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
    facts, networks, stamps, syncs
        What the text states of runs, their networks, phases by time stamps, and synchronisation.
    epochs
        Finished epochs and what their minibatch lines say.
    restored_from
        Checkpoint that a Python run goes on from; its epochs are counted from 1 again.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.commands: list[Command] = []
        self.facts = FactReader()
        self.networks = NetworkReader()
        self.stamps = StampReader()
        self.syncs = SynchronisationReader()
        self.epochs: list[EpochTimes] = []
        self.restored_from: str | None = None
        self._doing: dict[int | None, str | None] = {}  # command that each stream is in
        self._files: dict[int, SourceFile] = {}  # that report the progress of a rank
        self._open: set[int | None] = set()  # streams that are inside of a configuration
        self._wanted = Wanted()
        self._sharing = Sharing(self.facts)
        self._had_nan = False
        self._pieces: list[Line] = []  # of a line that is several
        self._n_starts: Counter[str] = Counter()  # lines that every rank writes when it starts
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
        self._choose_lines()
        for number, text in matching_lines(self.source, file, self._wanted):
            if "]-Minibatch[" in text and (common := read_common_window(text)):
                own, window = common
                step = self._window(file, number, rank if own is None else int(own), window)
            elif self._open and facts.is_idle(text):
                continue
            else:
                step = self._line(without_prefixes(file, number, text, rank))
            if step is not None:
                yield step
            while self._pieces:
                if (step := self._line(self._pieces.pop(0))) is not None:
                    yield step

    def _line(self, line: Line) -> Step | None:
        text = line.text
        is_progress = "inibatch[" in text or text.startswith(_BEGINNINGS)
        if MARK in text:
            self.networks.read(self._doing.get(line.rank), line.rank, text)
        elif line.rank in self._open and self.facts.read_dump(text, line.rank):
            self._follow_dump(line.rank)
        elif is_progress:
            if (found := read_progress(text)) is not None:
                return self._progress(line, found)
            self._unread(line)
        else:
            self._other(line)
        return None

    def _choose_lines(self) -> None:
        """Ask for the lines that can say something new from here on."""
        names = {*(self._doing.values() or (None,))} - {_NO_TRAINING}
        are_known = all(map(self.networks.is_known, names))
        pattern = _WITHOUT_NETWORKS if are_known else _WITH_NETWORKS
        self._wanted.pattern = _EVERY_LINE if self._open else pattern

    def _follow_dump(self, stream: int | None) -> None:
        """Note whether a stream is inside of a configuration from here on."""
        if self.facts.in_dump(stream) != (stream in self._open):
            self._open ^= {stream}
            self._choose_lines()

    # -- facts -------------------------------------------------------------------------------

    def _other(self, line: Line) -> None:
        text, stream = line.text, line.rank
        if (turn := read_turn(text)) is not None:
            self._turn(turn, stream)
            if turn.what == "restored":
                return
        known = self._state(line)
        known = self.syncs.read(stream, text) or known
        self.stamps.read(stream, text, line.at)
        if is_end(text):
            self._end(stream)
        elif not known:
            self.networks.read(self._doing.get(stream), stream, text)
            if looks_like_progress(text) or looks_like_timing(text):
                self._unread(line)

    def _unread(self, line: Line) -> None:
        if self.syncs.read(line.rank, line.text):  # they speak of samplesPerSecond, too
            return
        if looks_like_progress(line.text) or looks_like_timing(line.text):
            parts = pieces(line.text)
            if len(parts) > 1:
                self._pieces = [
                    without_prefixes(line.file, line.number, part.strip(), line.rank)
                    for part in parts
                ]
                return
            self.source.problems.bad_line(line.file, line.number, line.text)
        else:
            self._state(line)

    def _state(self, line: Line) -> bool:
        """Take in a line that may state facts; whether it does."""
        known = self.facts.read(line.text, line.rank)
        if known:
            self._sharing.forget()
            self._follow_dump(line.rank)
        return known

    # -- commands and attempts ---------------------------------------------------------------

    def _turn(self, turn: Turn, stream: int | None) -> None:
        if turn.what == "again":
            self._again(stream)
        elif turn.what == "mpi":
            if stream is None and self._is_new_start("mpi", int(turn.name)):
                self._again(stream)
        elif turn.what == "restored":
            self.restored_from = turn.name
        else:
            self._doing[stream] = turn.name if turn.what == "begin" else _NO_TRAINING
            self._sharing.forget()
            self._choose_lines()
            if turn.what == "begin":
                self._begin(stream, turn.name)

    def _begin(self, stream: int | None, name: str) -> None:
        command = next((c for c in self.commands if c.name == name), None)
        if command is None and len(self.commands) == 1 and self.commands[0].name is None:
            self.commands[0].name = name  # the log of another rank lacks its beginning
        n_ranks = 1
        if stream is None:
            stated = self._n_ranks or self.facts.facts.n_used or 1
            n_ranks = max(stated, len(command.ranks) if command else 1)
        is_new = self._is_new_start(f"command {name}", n_ranks) or n_ranks == 1
        if command is not None and is_new:
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
        for rank, log in logs.items():
            if log.has_progress:
                self._start_over(command, stream, rank)

    def _is_new_start(self, sign: str, n_ranks: int) -> bool:
        """Whether a line that every rank writes is the first of them, in a stream of all ranks."""
        self._n_starts[sign] += 1
        return (self._n_starts[sign] - 1) % max(n_ranks, 1) == 0

    def _leave(self, command: Command, stream: int | None, rank: int) -> None:
        """What was said of the open epoch belongs to it, although it did not finish."""
        log = command.ranks[rank]
        if log.last_minibatch:
            key = EpochKey(command.run_id, rank, log.attempt, log.open_epoch)
            self.stamps.leave(stream, key)
            self.syncs.leave(stream, key)

    def _end(self, stream: int | None) -> None:
        """A command has ended; in a stream of several ranks, that of the first one still open."""
        self.networks.end(self._doing.get(stream), stream)
        self._choose_lines()
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
        name = None if name == _NO_TRAINING else name  # its training has no beginning
        for command in self.commands:
            if command.name == name:
                return command
        number = len(self.commands) + 1
        run_id = self.source.run_id if number == 1 else f"{self.source.run_id}-{number}"
        self.commands.append(Command(name, run_id))
        return self.commands[-1]

    # -- progress --------------------------------------------------------------------------------

    def _progress(self, line: Line, found: Progress) -> Step | None:
        is_validation = isinstance(found, EpochEnd) and found.is_validation
        if isinstance(found, Other) or is_validation:
            self.stamps.read(line.rank, line.text, line.at)
            return None
        problems = self.source.problems
        if problems.may_be_cut(line.file, line.number) and not is_whole(line.text, found):
            problems.bad_line(line.file, line.number, line.text)
            return None
        if isinstance(found, Window):
            return self._window(line.file, line.number, line.rank, found)
        command = self._command(line.rank)
        rank = self._rank(command, line.rank, found)
        log = command.rank_log(rank)
        self._claim(line.file, line.number, line.rank, rank)
        if isinstance(found, TableRow):
            log.row(found)
        else:
            self._take(command, line, rank, found)
        if log.has_nan:
            self._note_nan(line.file, line.number)
        return None

    def _window(
        self, file: SourceFile, number: int, stream: int | None, found: Window
    ) -> Step | None:
        command = self._command(stream)
        rank = self._rank(command, stream, found) if stream is None else stream
        log = command.rank_log(rank)
        if self._files.get(0 if stream is None else rank) is not file:
            self._claim(file, number, stream, rank)
        if log.is_behind(found):
            self._start_over(command, stream, rank)
        if found.epoch is None:
            command.is_python = True
        self.syncs.end_window(stream)
        group = log.add(found)
        if log.has_nan:
            self._note_nan(file, number)
        return None if group is None else self._step(command, rank, group)

    def _take(self, command: Command, line: Line, rank: int, found: EpochEnd) -> None:
        log = command.ranks[rank]
        if log.is_behind(found):
            self._start_over(command, line.rank, rank)
        command.is_python = command.is_python or not found.is_brainscript
        facts = self._sharing.facts(command)
        is_total = facts.groups_are_local and not facts.epochs_are_local
        is_late = self._sharing.is_late(command, found.epoch)
        minibatch = facts.minibatch(found.epoch)
        epoch = log.end(found, minibatch, is_total=is_total, is_late=is_late)
        self._finished(command, line, rank, epoch)

    def _start_over(self, command: Command, stream: int | None, rank: int) -> None:
        """A line repeats what was reported: training is started again."""
        self._leave(command, stream, rank)
        command.ranks[rank].begin_attempt()

    def _note_nan(self, file: SourceFile, number: int) -> None:
        if not self._had_nan:
            self._had_nan = True
            self.source.problems.note(file, number, "nan_loss", "the loss is not a number")

    def _rank(self, command: Command, stream: int | None, found: Progress) -> int:
        if stream is not None:
            return stream
        if not isinstance(found, Window | EpochEnd):
            return 0
        rank = command.rank_of(found, self._n_ranks or self._sharing.n_workers(command))
        if rank and not command.unlabelled:
            command.unlabelled = True
            self.source.problems.note(
                self.source.label, None, "ranks_unlabelled",
                "several ranks share one stream without a label: they are numbered as they come",
            )  # fmt: skip
        return rank

    def _claim(self, file: SourceFile, number: int, stream: int | None, rank: int) -> None:
        other = self._files.setdefault(0 if stream is None else rank, file)
        if other is not file:
            raise ParseError(
                file.label, number, f"progress of rank {rank}, as in {other.label}",
                "put the files of each run into a folder of its own",
            )  # fmt: skip

    def _finished(self, command: Command, line: Line, rank: int, epoch: Epoch) -> None:
        key = EpochKey(command.run_id, rank, epoch.attempt, epoch.epoch)
        self.stamps.end_epoch(line.rank, key, line.at)
        self.syncs.end_epoch(line.rank, key)
        if epoch.seconds is None or not epoch.timed_steps:
            return
        is_alone = self._sharing.is_alone(command, epoch.epoch)
        n_workers = 1 if is_alone else self._sharing.n_workers(command) or 1
        is_late = self._sharing.is_late(command, epoch.epoch)
        in_flight = round(epoch.batch or 0) if is_late else 0
        self.epochs.append(
            EpochTimes(
                key, epoch.seconds, epoch.n_samples, epoch.timed_s, epoch.group_samples or 0,
                n_workers, in_flight, epoch.last_step, epoch.stated_steps,
            )
        )  # fmt: skip

    def _step(self, command: Command, rank: int, group: Group) -> Step:
        n_workers, disturbed_by = self._sharing.of(command, group.epoch)
        attempt, epoch, first_step, n_steps, n_samples, seconds = group
        if n_samples is not None:
            n_samples *= n_workers
        return Step(
            command.run_id, rank, n_steps, seconds, epoch, first_step, n_samples, None, None,
            disturbed_by, attempt,
        )  # fmt: skip

    def unstarted(self) -> Command:
        """The command of logs that end before any progress."""
        names = [name for name in self._doing.values() if name not in (None, _NO_TRAINING)]
        command = Command(names[0] if names else None, self.source.run_id)
        command.network = self.networks.network_of(command.name) or command.network
        return command

    def finish(self) -> None:
        """No more files follow: what is open stays as it is."""
        for command in self.commands:
            for rank, log in command.ranks.items():
                stream = None if command.unlabelled else rank
                self._leave(command, stream, rank)
                log.finish()
            command.network = self.networks.network_of(command.name) or command.network
