"""What CNTK's Python front end writes as text: progress, parameters, MPI and build lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fitkit.errors import ParseError
from fitkit.parsers.cntk.network import Network
from fitkit.parsers.source import Source, SourceFile

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf|-?1\.#(?:IND|QNAN|INF)0*)"
_CRITERION = rf"{_NUMBER}%? \* \d+"

_MPIRUN = re.compile(
    r"^(?:\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4})?\[\d+,(?P<rank>\d+)\]<std(?:out|err)>: ?"
)
_WINDOW = re.compile(
    rf"^ ?Minibatch\[ *(?P<first>\d+)- *(?P<last>\d+)\]: (?:loss = (?P<loss>{_NUMBER}) \* "
    rf"(?P<samples>\d+))?(?:, )?(?:metric = {_CRITERION})?;?$"
)
_EPOCH = re.compile(
    rf"^Finished Epoch ?\[(?P<epoch>\d+)(?: of \d+)?\]: (?:\[[^\]]*\] )?loss = (?P<loss>{_NUMBER}) "
    rf"\* (?P<samples>\d+)(?:, metric = {_CRITERION})?"
    rf"(?: (?P<seconds>{_NUMBER})s \( *{_NUMBER} samples(?:/s| per second)\))?;?$"
)
_SYNC = re.compile(r"^Distributed training: #Syncs elapsed = \d+, #Samples elapsed = (\d+)$")
_PARAMS = re.compile(r"^Training (\d+) parameters in \d+ (?:out of \d+ )?parameter tensors")
_MPI = re.compile(r"using (\d+) out of \d+ MPI nodes( on a single host)?")
_SHA = re.compile(r"^\s*Build SHA1: (\w{7,40})")
_MODEL = re.compile(r"^model (\S+): \d+ parameters; workers (\d+); rank \d+; .*precision (\w+)$")
_WALL = re.compile(r"^wall: import\+build ([\d.]+)s, train ([\d.]+)s \(rank (\d+)\)$")
_BRAINSCRIPT = re.compile(r"Epoch\[ *\d+ of \d+\]-Minibatch\[")


@dataclass(frozen=True)
class Window:
    """A group of minibatches that one progress line reports."""

    epoch: int
    first: int
    last: int
    samples: int | None


@dataclass(frozen=True)
class Epoch:
    """A finished epoch: steps, samples and seconds."""

    epoch: int
    n_steps: int
    samples: int
    seconds: float | None


@dataclass
class RankProgress:
    """What one rank reported of its progress."""

    epochs: list[Epoch] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)  # since the last finished epoch
    batch: float | None = None  # samples a minibatch, as this rank counts them
    window_samples: int = 0
    synced_samples: int = 0
    ended: bool = False


@dataclass
class Facts:
    """What the text states of the run; the last statement counts."""

    network: str | None = None
    n_workers: int | None = None
    n_nodes: int | None = None
    n_params: int | None = None
    precision: str | None = None
    framework_version: str | None = None


@dataclass
class RunText:
    """Everything that the text files of a run say."""

    ranks: dict[int, RankProgress] = field(default_factory=dict)
    network: Network = field(default_factory=Network)
    facts: Facts = field(default_factory=Facts)
    spans: list[tuple[int, str, float]] = field(default_factory=list)  # rank, phase, seconds
    has_nan: bool = False

    @property
    def counts_are_local(self) -> bool:
        """Whether sample counts are those of one worker, as block momentum prints them."""
        return any(0 < rank.window_samples < rank.synced_samples for rank in self.ranks.values())


class TextReader:
    """Reads the text files of one run into a `RunText`.

    Parameters
    ----------
    source
        The run; problems go to its log.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = RunText()
        self.unlabelled = False
        self._readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int], None]], ...] = (
            (_MPI, self._mpi),
            (_PARAMS, self._params),
            (_SHA, self._build),
            (_MODEL, self._model),
            (_WALL, self._wall),
            (_SYNC, self._sync),
        )

    def read(self, file: SourceFile) -> None:
        """Read one file; lines without a rank of their own belong to the rank in its name.

        Raises
        ------
        ParseError
            At a progress line that cannot be read, or a BrainScript log.
        """
        named = re.search(r"rank(\d+)$", file.name)
        for number, line in self.source.lines(file):
            prefix = _MPIRUN.match(line)
            rank = int(prefix["rank"]) if prefix else int(named[1]) if named else None
            text = line[prefix.end() :] if prefix else line
            self._line(file, number, text.rstrip(), rank)

    def _line(self, file: SourceFile, number: int, text: str, rank: int | None) -> None:
        if "Validating --> " in text:
            self.text.network.read(text)
        elif text.lstrip().startswith(("Minibatch[", "Finished Epoch")):
            self._progress(file, number, text, rank)
        elif text.startswith("CNTKCommandTrainEnd"):
            self._end(rank)
        elif _BRAINSCRIPT.search(text):
            raise ParseError(
                file.label, number, "a BrainScript progress line",
                "this version reads the logs of CNTK's Python front end",
            )  # fmt: skip
        else:
            for pattern, take in self._readers:
                if match := pattern.search(text):
                    take(match, rank or 0)
                    return

    def _rank(self, rank: int) -> RankProgress:
        return self.text.ranks.setdefault(rank, RankProgress())

    def _progress(self, file: SourceFile, number: int, text: str, rank: int | None) -> None:
        if epoch := _EPOCH.match(text):
            self._note_nan(file, number, epoch["loss"])
            self._epoch(epoch, rank)
        elif window := _WINDOW.match(text):
            self._note_nan(file, number, window["loss"])
            self._window(window, rank)
        else:
            self.source.problems.bad_line(file, number, text)

    def _note_nan(self, file: SourceFile, number: int, loss: str | None) -> None:
        if loss is not None and ("nan" in loss or "#" in loss) and not self.text.has_nan:
            self.text.has_nan = True
            self.source.problems.note(file, number, "nan_loss", "the loss is not a number")

    def _window(self, found: re.Match[str], rank: int | None) -> None:
        progress = self._rank(rank or 0)
        samples = int(found["samples"]) if found["samples"] else None
        epoch = progress.epochs[-1].epoch + 1 if progress.epochs else 1
        window = Window(epoch, int(found["first"]), int(found["last"]), samples)
        progress.windows.append(window)
        if samples:
            progress.window_samples += samples
            progress.batch = progress.batch or samples / (window.last - window.first + 1)

    def _epoch(self, found: re.Match[str], rank: int | None) -> None:
        number, samples = int(found["epoch"]), int(found["samples"])
        windows = self._rank(rank or 0)
        if rank is None:
            rank = sum(any(e.epoch >= number for e in r.epochs) for r in self.text.ranks.values())
            self._note_unlabelled(rank)
        progress = self._rank(rank)
        logged = max((window.last for window in windows.windows), default=0)
        # The last, incomplete window of an epoch is not printed: count its steps by samples.
        counted = -(-samples // windows.batch) if windows.batch else 0
        seconds = float(found["seconds"]) if found["seconds"] else None
        progress.epochs.append(Epoch(number, max(logged, int(counted)), samples, seconds))
        progress.batch = windows.batch
        windows.windows.clear()

    def _note_unlabelled(self, rank: int) -> None:
        """Two equal epoch lines of one stream are two ranks, not two epochs."""
        if rank and not self.unlabelled:
            self.unlabelled = True
            self.source.problems.note(
                self.source.label, None, "ranks_unlabelled",
                "several ranks share one stream without a label: they are numbered as they come",
            )  # fmt: skip

    def _end(self, rank: int | None) -> None:
        if rank is None:
            rank = sum(progress.ended for progress in self.text.ranks.values())
        self._rank(rank).ended = True

    def finish(self) -> RunText:
        """What was read. Windows of an unlabelled stream cannot be told apart at its end."""
        if self.unlabelled:
            for progress in self.text.ranks.values():
                progress.windows.clear()
        return self.text

    def _sync(self, found: re.Match[str], rank: int) -> None:
        self._rank(rank).synced_samples += int(found[1])

    def _mpi(self, found: re.Match[str], _rank: int) -> None:
        self.text.facts.n_workers = int(found[1])
        self.text.facts.n_nodes = 1 if found[2] else None

    def _params(self, found: re.Match[str], _rank: int) -> None:
        self.text.facts.n_params = int(found[1])

    def _build(self, found: re.Match[str], _rank: int) -> None:
        self.text.facts.framework_version = found[1][:12]

    def _model(self, found: re.Match[str], _rank: int) -> None:
        facts = self.text.facts
        facts.network, facts.n_workers, facts.precision = found[1], int(found[2]), found[3]

    def _wall(self, found: re.Match[str], _rank: int) -> None:
        rank = int(found[3])
        self.text.spans += [(rank, "init", float(found[1])), (rank, "train", float(found[2]))]
