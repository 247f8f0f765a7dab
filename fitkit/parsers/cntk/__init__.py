"""CNTK: BrainScript and Python logs of every version and rank, MPI output, profiler files.

One run is the logs of its ranks (``train.logrank0`` …), what mpirun wrote to standard output and
error, ``*_summary_0.txt`` and ``*_detail_0.json`` of the profiler. A log that holds several
training commands is several runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fitkit.errors import ParseError
from fitkit.parsers.cntk.command_run import CommandRun, Found
from fitkit.parsers.cntk.epochs import epoch_records
from fitkit.parsers.cntk.families import group_files
from fitkit.parsers.cntk.layers import layer_records
from fitkit.parsers.cntk.lines import ranks_of_names
from fitkit.parsers.cntk.profiler import kind_of, read_summary, read_trace
from fitkit.parsers.cntk.profiles import profile_records
from fitkit.parsers.cntk.run import run_row
from fitkit.parsers.cntk.text import TextReader
from fitkit.parsers.cntk.text_phases import TextPhases, phase_records
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Record

# Where a line begins, after what a launcher, a test driver and a clock put before it.
_BEGIN = (
    rb"(?<![^\r\n])(?:(?:\w{3} \w{3} +\d+ [\d:]{8} \d{4})?\[\d+,\d+\]<std(?:out|err)>: ?)?"
    rb"(?:MPI Rank \d+: ?)?(?:\d\d/\d\d/\d{4} \d\d:\d\d:\d\d: ?)?"
)
_SIGNS = re.compile(
    rb"CNTKCommandTrain(?:Info|Begin|End): |CNTK Performance Profiler Summary|"
    rb"EventDescription,ThreadId,|\"cat\":\"PERF\"|"
    rb"Validating --> \S+ = \w+ ?\(|\[MPIWrapper\w*\]: using \d+|\[mpihelper\]: \d+ nodes|"
    rb"Epoch\[ *\d+ of \d+\]-Minibatch\[|Starting minibatch loop|"
    + _BEGIN + rb"(?: ?Minibatch\[ *\d+- *\d+\]: |Finished Epoch ?\[ *\d+|"
    rb"Redirecting log to file |Training \d+ parameters in \d+ (?:out of \d+ )?parameter tensors)"
)  # fmt: skip


class CntkParser:
    """Logs of the Microsoft Cognitive Toolkit, all versions."""

    name = "cntk"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether the head holds a line that only CNTK writes."""
        return _SIGNS.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is one folder, unless a folder holds the logs of several."""
        return group_files(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the steps, phases, layers and edges of each training command, and the runs.

        Raises
        ------
        ParseError
            If a file or a line that looks like training cannot be read, or two files claim to be
            the same rank of the run.
        """
        found = Found(TextReader(source))
        yield from _read(source, found)
        reader = found.reader
        for code, text in (*reader.facts.notes, *reader.stamps.notes):
            source.problems.note(source.label, None, code, text)
        phases = TextPhases.of(reader, source.utc)
        for command in reader.commands or [reader.unstarted()]:
            run = CommandRun(source, found, command)
            row = run_row(run)
            yield row
            yield from epoch_records(run, row)
            yield from phase_records(run, row, phases)
            yield from profile_records(run, row)
            first_rank = min(run.ranks, default=0)
            yield from layer_records(row, command.network, run.profiles, first_rank)
            _check_parameters(run)


def _read(source: Source, found: Found) -> Iterator[Record]:
    """Read every file; steps that text logs time are yielded as they come."""
    kinds = {file: _kind(file) for file in source.files}
    texts = [file for file, (kind, _) in kinds.items() if kind == "text"]
    ranks = ranks_of_names([file.name for file in texts])
    seen: dict[tuple[str, int], SourceFile] = {}
    for file, (kind, rank) in kinds.items():
        if kind == "text":
            continue
        earlier = seen.setdefault((kind, rank), file)
        if earlier is not file:
            raise ParseError(
                file.label, 0, f"a second {kind} of rank {rank} beside {earlier.label}",
                "put the files of each run into a folder of its own",
            )  # fmt: skip
        if kind == "summary":
            found.summaries[rank] = read_summary(source, file)
        else:
            n_notes = len(source.problems.notes)
            found.profiles[rank] = read_trace(source, file)
            if any(note[2] == "truncated" for note in source.problems.notes[n_notes:]):
                found.cut.add(rank)
    for rank in found.cut & set(found.summaries):
        del found.profiles[rank]  # its summary is whole
    # What all ranks share comes first: it tells the number of workers before their progress.
    for file in sorted(texts, key=lambda file: (file.name in ranks, ranks.get(file.name, 0))):
        yield from found.reader.read(file, ranks.get(file.name))
    found.reader.finish()


def _kind(file: SourceFile) -> tuple[str, int]:
    """What a file is, and the rank in its name; 0 if there is none."""
    kind = kind_of(file.head(4096)) or "text"
    named = re.search(r"_(\d{1,9})\.\w+$", file.name)
    return kind, int(named[1]) if named else 0


def _check_parameters(run: CommandRun) -> None:
    stated = run.command.network.stated_params
    network = run.command.network
    counted = sum(network.n_params(node) for node in network.layers())
    if stated is not None and counted not in (0, stated):
        text = f"the log states {stated} trained parameters, its layers have {counted}"
        run.note("parameters_differ", text)
