"""What CNTK's Python front end writes as text: progress, parameters, MPI and build lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fitkit.errors import ParseError
from fitkit.parsers.cntk.network import Network
from fitkit.parsers.source import Source, SourceFile

# Bounded, so that no damaged line holds a number that a table cannot.
_COUNT = r"\d{1,12}"
_RANK = r"\d{1,6}"
_SECONDS = r"\d{1,12}(?:\.\d{0,12})?(?:[eE][-+]?0?\d\d?)?"
# Any number that C's printf writes, on Windows with three digits of exponent or as 1.#QNAN.
_NUMBER = (
    r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan(?:\(\w+\))?|inf|1\.#(?:IND|QNAN|SNAN|INF)\d*)"
)
_CRITERION = rf"{_NUMBER}%? \* {_COUNT}"

_MPIRUN = re.compile(
    rf"^(?:\w{{3}} \w{{3}} +\d+ \d\d:\d\d:\d\d \d{{4}})?"
    rf"\[\d+,(?P<rank>{_RANK})\]<std(?:out|err)>: ?"
)
_RANK_OF_FILE = re.compile(rf"rank({_RANK})$")
_WINDOW = re.compile(
    rf"^ *Minibatch\[ *(?P<first>{_COUNT})- *(?P<last>{_COUNT})\]: (?:loss = (?P<loss>{_NUMBER}) "
    rf"\* (?P<samples>{_COUNT}))?(?:, )?(?:metric = {_CRITERION})?;?$"
)
_EPOCH = re.compile(
    rf"^ *Finished Epoch ?\[(?P<epoch>{_RANK})(?: of \d+)?\]: (?:\[[^\]]*\] )?"
    rf"loss = (?P<loss>{_NUMBER}) \* (?P<samples>{_COUNT})(?:, metric = {_CRITERION})?"
    rf"(?: (?P<seconds>{_SECONDS})s \( *{_NUMBER} samples(?:/s| per second)\))?;?$"
)
_NOT_A_NUMBER = re.compile(r"nan|IND|NAN")
_SYNC = re.compile(
    rf"^Distributed training: #Syncs elapsed = ({_COUNT}), #Samples elapsed = ({_COUNT})$"
)
_PARAMS = re.compile(rf"^Training ({_COUNT}) parameters in \d+ (?:out of \d+ )?parameter tensors")
_MPI = re.compile(rf"using ({_RANK}) out of \d+ MPI nodes( on a single host)?")
_SHA = re.compile(r"^\s*Build SHA1: (\w{7,40})")
_MODEL = re.compile(
    rf"^model (\S+): \d+ parameters; workers ({_RANK}); rank \d+; .*precision (\w+)$"
)
_WALL = re.compile(rf"^wall: import\+build ({_SECONDS})s, train ({_SECONDS})s \(rank ({_RANK})\)$")
_BRAINSCRIPT = re.compile(
    r"Epoch\[ *\d+ of \d+\]-Minibatch\[|[eE]pochTime ?=|Starting minibatch loop"
)


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
    window_steps: int = 0
    synced_samples: int = 0
    syncs: int = 0
    ended: bool = False

    @property
    def counts_are_local(self) -> bool:
        """Whether a synchronisation covers more samples than the minibatches that are counted.

        Block momentum synchronises all workers after several minibatches, each worker's own;
        data-parallel training after each minibatch, which all workers share.
        """
        return self.synced_samples * self.window_steps > 1.5 * self.window_samples * self.syncs > 0


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
        return any(rank.counts_are_local for rank in self.ranks.values())


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
        self._files: dict[int, SourceFile] = {}  # that report the progress of a rank
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
            At a progress line that cannot be read, a BrainScript log, or the progress of a rank
            that another file reports.
        """
        named = _RANK_OF_FILE.search(file.name)
        for number, line in self.source.lines(file):
            prefix = _MPIRUN.match(line)
            rank = int(prefix["rank"]) if prefix else int(named[1]) if named else None
            text = line[prefix.end() :] if prefix else line
            self._line(file, number, text.rstrip(), rank)

    def _line(self, file: SourceFile, number: int, text: str, rank: int | None) -> None:
        if "Validating --> " in text:
            self.text.network.read(text)
        elif _BRAINSCRIPT.search(text):
            raise ParseError(
                file.label, number, "a BrainScript progress line",
                "this version reads the logs of CNTK's Python front end",
            )  # fmt: skip
        elif text.lstrip().startswith(("Minibatch[", "Finished Epoch")):
            self._progress(file, number, text, rank)
        elif text.startswith("CNTKCommandTrainEnd"):
            self._end(rank)
        else:
            for pattern, take in self._readers:
                if match := pattern.search(text):
                    take(match, rank or 0)
                    return

    def _rank(self, rank: int) -> RankProgress:
        return self.text.ranks.setdefault(rank, RankProgress())

    def _progress(self, file: SourceFile, number: int, text: str, rank: int | None) -> None:
        other = self._files.setdefault(rank or 0, file)
        if other is not file:
            raise ParseError(
                file.label, number, f"progress of rank {rank or 0}, as in {other.label}",
                "put the files of each run into a folder of its own",
            )  # fmt: skip
        if self.source.problems.may_be_cut(file, number) and not text.endswith(";"):
            self.source.problems.bad_line(file, number, text)  # half a number looks like a number
        elif epoch := _EPOCH.match(text):
            self._note_nan(file, number, epoch["loss"])
            self._epoch(epoch, rank)
        elif (window := _WINDOW.match(text)) and 1 <= int(window["first"]) <= int(window["last"]):
            self._note_nan(file, number, window["loss"])
            self._window(window, rank)
        else:
            self.source.problems.bad_line(file, number, text)

    def _note_nan(self, file: SourceFile, number: int, loss: str | None) -> None:
        if loss is not None and _NOT_A_NUMBER.search(loss) and not self.text.has_nan:
            self.text.has_nan = True
            self.source.problems.note(file, number, "nan_loss", "the loss is not a number")

    def _window(self, found: re.Match[str], rank: int | None) -> None:
        progress = self._rank(rank or 0)
        samples = int(found["samples"]) if found["samples"] else None
        epoch = progress.epochs[-1].epoch + 1 if progress.epochs else 1
        window = Window(epoch, int(found["first"]), int(found["last"]), samples)
        progress.windows.append(window)
        if samples is not None:
            count = window.last - window.first + 1
            progress.window_samples += samples
            progress.window_steps += count
            # Fewer samples than minibatches are the end of the data, not the size of a minibatch.
            progress.batch = progress.batch or (samples / count if samples >= count else None)

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
        progress = self._rank(rank)
        progress.syncs += int(found[1])
        progress.synced_samples += int(found[2])

    def _mpi(self, found: re.Match[str], _rank: int) -> None:
        self.text.facts.n_workers = int(found[1])
        if found[2]:  # ranks say so one after the other, and once before they know
            self.text.facts.n_nodes = 1

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
