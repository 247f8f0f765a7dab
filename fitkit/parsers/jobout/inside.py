"""What a program printed into the output of its job: a file of its own, lines in their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from fitkit.parsers.jobout.envelope import Envelope
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Record, Run, Step

_ITERATION = re.compile(r"\W{0,8}(?:iteration|iter|step)\b\W{1,4}(?P<number>[0-9]{1,12})\b", re.I)
_BLOCK = 1 << 16


@dataclass(frozen=True)
class InnerFile(SourceFile):
    """The lines of one section of a job's output; those of the envelope are empty.

    Attributes
    ----------
    section
        Which one, from 0.
    """

    section: int = 0

    def blocks(self, n_bytes: int | None = None) -> Iterator[bytes]:
        """Content in blocks, as of any file.

        Raises
        ------
        EOFError
            After the last readable block of a compressed file that is cut or damaged.
        """
        outer = SourceFile(self.path, self.label)
        source, envelope = Source(self.label, (outer,)), Envelope()
        parts: list[str] = []
        length = 0
        for number, text in source.lines(outer):
            own = envelope.read(number, text)
            parts.append(own if envelope.index == self.section else "")
            length += len(own) + 1
            # A last line without an end may be cut: it has none here, either.
            if not source.problems.unfinished:
                parts.append("\n")
            if length >= (n_bytes or _BLOCK):
                yield "".join(parts).encode()
                parts, length = [], 0
        yield "".join(parts).encode()
        if source.problems.notes:
            raise EOFError(source.problems.notes[-1][-1])


def iteration_records(source: Source, file: SourceFile) -> Iterator[Record]:
    """A run and its steps from lines that count them and say nothing of time.

    A line is of all steps since the one before it. Numbers that do not grow begin a new count,
    and then nobody knows which step of the run one is.
    """
    numbers = []
    for number, text in source.lines(file):
        found = _ITERATION.match(text)
        if found and not source.problems.may_be_cut(file, number):
            numbers.append(int(found["number"]))
    if not numbers:
        return
    run = source.complete(Run(source.run_id, source.source_id))
    yield run
    pairs = list(pairwise(numbers))
    grows = all(first < then for first, then in pairs)
    interval = numbers[1] - numbers[0] if pairs and grows else 1
    # Counted from 1 if the first line is of as many steps as the second, else from 0.
    last = 0 if numbers[0] == interval else numbers[0] - 1
    offset = 1 if numbers[0] == 0 else 0
    for number in numbers:
        n = number - last if grows else 1
        yield Step(run.run_id, 0, n, None, first_step=last + offset if grows else None)
        last = number
    text = f"{len(numbers)} lines count iterations and state no time"
    source.problems.note(file, None, "no_times", text)
