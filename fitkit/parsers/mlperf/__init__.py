"""Result logs of MLPerf Training and MLPerf HPC: ``:::MLLOG`` and ``:::MLL`` records.

One file is one run; launcher prefixes and whatever else a job prints stand between the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fitkit.parsers.mlperf.description import Evidence, describe
from fitkit.parsers.mlperf.intervals import Timeline
from fitkit.parsers.mlperf.lines import FACTS, SIGN, Event, read_log
from fitkit.parsers.mlperf.progress import progress
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.records import Record, Run


class MlperfParser:
    """Result logs of MLPerf Training and MLPerf HPC, from version 0.6 on."""

    name = "mlperf"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether the head holds a record."""
        return SIGN.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is one file."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the run with its phases and its groups of steps.

        Raises
        ------
        ParseError
            If nothing can be read, or a record says neither what nor when.
        """
        for file in source.files:
            log = read_log(source, file)
            runs = _split(log.events)
            if len(runs) > 1:
                source.problems.note(file, None, "several_runs", f"{len(runs)} runs in one file")
            shared = {**log.undated, **_facts(log.events)}
            for index, events in enumerate(runs):
                facts = {**shared, **_facts(events)}
                run_id = source.run_id if index == 0 else f"{source.run_id}-{index + 1}"
                run = describe(source, file, run_id, Evidence(events, facts, log))
                yield from _run(source, file, events, run, facts)


def _split(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Records by run: a new one begins where another ``run_start`` follows a ``run_stop``."""
    cuts, stopped = [0], None
    for index, event in enumerate(events):
        if event.key == "run_stop" and stopped is None:
            stopped = index
        elif event.key == "run_start" and stopped is not None:
            between = (i for i in range(stopped, index) if events[i].key == "init_start")
            cuts.append(next(between, index))
            stopped = None
    return [events[a:b] for a, b in zip(cuts, [*cuts[1:], len(events)], strict=True)]


def _facts(events: Sequence[Event]) -> dict[str, Any]:
    """The first value of each key that states a fact."""
    return {event.key: event.value for event in reversed(events) if event.key in FACTS}


def _run(
    source: Source, file: SourceFile, events: Sequence[Event], run: Run, facts: Mapping[str, Any]
) -> Iterator[Record]:
    timeline = Timeline.of(events)
    run = source.complete(run)
    yield run
    yield from timeline.phases(run.run_id)
    steps = progress(events, timeline, facts, run)
    yield from steps.records(run)
    for code, text in (*_oddities(events, timeline), *steps.notes):
        source.problems.note(file, None, code, text)


def _oddities(events: Sequence[Event], timeline: Timeline) -> Iterator[tuple[str, str]]:
    if timeline.run is None:
        yield "incomplete", "the log has no run_start and run_stop"
    if not timeline.init_precedes_run:
        yield "init_after_run", "the records of the initialisation are later than the run"
    if timeline.unfinished:
        yield "unpaired_events", f"the last start has no stop: {', '.join(timeline.unfinished)}"
    batches = [event.value for event in events if event.key == "global_batch_size"]
    if other := next((batch for batch in batches if batch != batches[0]), None):
        yield "contradictory_facts", f"global_batch_size is {batches[0]!r}, then {other!r}"
    instances = {str(event.metadata.get("instance")) for event in events} - {"None"}
    if len(instances) > 1:
        yield "several_instances", f"{len(instances)} concurrent instances are read as one run"
