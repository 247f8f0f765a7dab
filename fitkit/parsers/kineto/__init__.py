"""PyTorch profiler traces (Kineto), of one rank or of all, with execution traces beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fitkit.parsers.kineto.analysis import analyse
from fitkit.parsers.kineto.execution_trace import (
    ExecutionTrace,
    no_durations,
    read_execution_trace,
    recognises_execution_trace,
)
from fitkit.parsers.kineto.families import families, rank_in_name
from fitkit.parsers.kineto.runs import form_runs, note, run_records
from fitkit.parsers.kineto.trace import read_trace
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Record

_START = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,4096}\{")
_SIGNS = re.compile(
    rb'"(?:deviceProperties|distributedInfo|External id|external id|baseTimeNanoseconds)"'
    rb'|"ProfilerStep#|"PyTorch Profiler"|"cat": ?"(?:cpu_op|kernel|cuda_runtime)"'
)


class KinetoParser:
    """Traces that the profiler of PyTorch exports, and execution traces of its observer."""

    name = "kineto"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it is an object of trace events that PyTorch's profiler recorded."""
        if b'"traceEvents"' in head:
            return bool(_START.match(head) and _SIGNS.search(head))
        return recognises_execution_trace(head)

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is the traces of all ranks of one execution."""
        heads = [file.head() for file in files]
        return families(files, [_is_execution_trace(head) for head in heads], heads)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the records of each run.

        Raises
        ------
        ParseError
            If a file cannot be read, or all of them are execution traces.
        """
        graphs = [file for file in source.files if _is_execution_trace(file.head())]
        traces = [file for file in source.files if file not in graphs]
        if not traces:
            raise no_durations(graphs[0])
        execution = dict(_execution_traces(source, graphs))
        analyses = [analyse(read_trace(source, file, bool(graphs))) for file in traces]
        runs = form_runs(source, analyses)
        for k, ranks in enumerate(runs):
            run_id = f"{source.run_id}-{k}" if len(runs) > 1 else source.run_id
            yield from run_records(source, run_id, ranks, execution)
        note(source, analyses)


def _is_execution_trace(head: bytes) -> bool:
    return b'"traceEvents"' not in head and recognises_execution_trace(head)


def _execution_traces(
    source: Source, files: Sequence[SourceFile]
) -> Iterator[tuple[int, ExecutionTrace]]:
    """Execution traces by the rank in their name; 0 if there is none."""
    for file in files:
        yield rank_in_name(file.name) or 0, read_execution_trace(source, file)
