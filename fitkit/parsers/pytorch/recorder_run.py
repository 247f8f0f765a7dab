"""The logs of a recorder, version 1: one run from those of all its ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fitkit.errors import ParseError
from fitkit.parsers.pytorch.recorder_lines import RankLog, Shape, Shapes, read_rank_log
from fitkit.parsers.pytorch.recorder_log import Time
from fitkit.parsers.pytorch.recorder_steps import RecordedStep, Reduction
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.statistics import call_statistics
from fitkit.records import Comm, Edge, Layer, Phase, Record, Run, Step


def recorded_run(source: Source, files: Sequence[SourceFile], run_id: str) -> Iterator[Record]:
    """Yield the run that the logs of some ranks are of: steps, phases, layers, edges, reductions.

    Raises
    ------
    ParseError
        If a line cannot be read, or two files claim to be the same rank.
    """
    logs: dict[int, RankLog] = {}
    for file in files:
        log = read_rank_log(source, file)
        if log.meta.rank in logs:
            raise ParseError(
                file.label, 0, f"a second recorder log of rank {log.meta.rank}",
                "put the files of each run into a folder of its own",
            )  # fmt: skip
        logs[log.meta.rank] = log
    ranks = [_Rank(logs[rank]) for rank in sorted(logs)]
    family = _Family(source, ranks)
    run = family.run(run_id)
    yield run
    for rank in ranks:
        yield from rank.records(run)
    yield from _edges(run, ranks)
    yield from family.comms(run)


@dataclass
class _Rank:
    """One rank's log, and what follows from all of its steps."""

    log: RankLog

    @cached_property
    def usual_shapes(self) -> int | None:
        """The set of input shapes that most of its undisturbed steps have; None: unmeasured."""
        steady = [step.shapes for step in self.log.steps if step.disturbed_by is None]
        every = steady or [step.shapes for step in self.log.steps]
        known = Counter(shapes for shapes in every if shapes is not None)
        return known.most_common(1)[0][0] if known else None

    @property
    def measured(self) -> list[RecordedStep]:
        """Steps whose calls count: those of the usual shapes that nothing disturbed."""
        usual = [s for s in self.log.steps if s.shapes == self.usual_shapes]
        return [s for s in usual if s.disturbed_by is None] or usual

    @property
    def shapes(self) -> Shapes | None:
        """Operations and bytes of the calls that count."""
        return None if self.usual_shapes is None else self.log.shapes.get(self.usual_shapes)

    @property
    def n_samples(self) -> int | None:
        """Samples of one of its steps."""
        return self.log.meta.local_batch or (self.shapes.n_samples if self.shapes else None)

    def records(self, run: Run) -> Iterator[Record]:
        """Steps, phases and layers."""
        yield from self._outside(run)
        for step in self.log.steps:
            yield from self._step(run, step)
        yield from self._layers(run)

    def _outside(self, run: Run) -> Iterator[Phase]:
        """Initialisation, and phases outside of steps."""
        rank, parts = self.log.meta.rank, self.log.initialisation
        if parts:
            seconds = sum(part.seconds for part in parts)
            yield Phase(run.run_id, "init", seconds, rank, n=len(parts))
        found: dict[tuple[str, str | None], list[Time]] = defaultdict(list)
        for line in self.log.phases:
            cpu = None if line.cpu_ns is None else line.cpu_ns / 1e9
            found[line.phase, line.parent].append(Time(line.wall_ns / 1e9, cpu))
        for (name, parent), times in found.items():
            yield _phase(run, name, times, rank=rank, parent=parent)

    def _step(self, run: Run, step: RecordedStep) -> Iterator[Record]:
        rank = self.log.meta.rank
        started = self.log.utc(step.start_ns)
        known = self.log.shapes.get(step.shapes) if step.shapes is not None else None
        local = self.log.meta.local_batch or (known.n_samples if known else None)
        yield Step(
            run.run_id, rank, 1, step.whole.wall, None, step.step,
            local * run.n_workers if local and run.n_workers else None,
            step.whole.cpu, started, step.disturbed_by,
        )  # fmt: skip
        where = {"rank": rank, "step": step.step}
        yield _phase(run, "step", [step.whole], **where, started_at=started)
        left = {"step": step.whole.wall}
        for (name, parent), times in step.phases.items():
            yield _phase(run, name, times, **where, parent=parent)
            left[parent] = left.get(parent, 0.0) - sum(time.wall for time in times)
            left[name] = left.get(name, 0.0) + sum(time.wall for time in times)
        for name in ("forward", "backward"):
            if name in left and (exposed := step.exposed.get(name)):
                yield _phase(run, "comm", [Time(exposed)], **where, parent=name)
            if name in left:
                left[name] -= step.in_layers.get(name, 0.0) + step.exposed.get(name, 0.0)
        for name in ("step", "forward", "backward"):
            if name in left:
                yield _phase(run, "other", [Time(max(0.0, left[name]))], **where, parent=name)

    def _layers(self, run: Run) -> Iterator[Layer]:
        calls = self._calls()
        shapes = {shape.layer: shape for shape in self.shapes.layers} if self.shapes else {}
        for index, module in enumerate(self.log.modules):
            for phase in ("forward", "backward"):
                times = calls.get((index, phase), [])
                if times or (phase == "forward" and module.n_params):
                    yield self._layer(run, index, phase, times, shapes.get(index))

    def _layer(
        self, run: Run, index: int, phase: str, times: list[Time], shape: Shape | None
    ) -> Layer:
        module = self.log.modules[index]
        return Layer(
            run_id=run.run_id,
            rank=self.log.meta.rank,
            layer=module.name,
            layer_type=module.type,
            phase=phase,
            n=len(times),
            layer_index=index,
            n_params=module.n_params,
            weight_shape="x".join(map(str, module.weight_shape)) if module.weight_shape else None,
            local_batch=self._samples_a_call(),
            **self._sizes(phase, shape),
            **call_statistics([t.wall for t in times], [t.cpu for t in times]),
        )

    def _sizes(self, phase: str, shape: Shape | None) -> dict[str, Any]:
        """Operations and bytes of a call, from those of all calls of the measured step."""
        if shape is None or not shape.n:
            return {}
        flop = shape.flop if phase == "forward" else shape.backward_flop

        def each(value: int | None) -> float | None:
            return None if value is None else value / shape.n

        return {
            "flop": each(flop),
            "input_bytes": each(shape.input_bytes),
            "output_bytes": each(shape.output_bytes),
            "input_grad_bytes": each(shape.input_grad_bytes),
        }

    def _calls(self) -> dict[tuple[int, str], list[Time]]:
        """Times of the calls of each module; of the wrapper, what the step waits for."""
        calls: dict[tuple[int, str], list[Time]] = defaultdict(list)
        modules = enumerate(self.log.modules)
        wrapper = next((index for index, module in modules if module.is_wrapper), None)
        for step in self.measured:
            for key, times in step.calls.items():
                calls[key] += times
            if wrapper is not None and (exposed := sum(step.exposed.values())):
                calls[wrapper, "backward"].append(Time(exposed))
        return calls

    def _samples_a_call(self) -> float | None:
        n_calls = self.shapes.n_calls if self.shapes else 1
        return self.n_samples / n_calls if self.n_samples and n_calls else None


class _Family:
    """The ranks of one run together."""

    def __init__(self, source: Source, ranks: Sequence[_Rank]) -> None:
        self._source = source
        self._ranks = ranks
        self._metas = [rank.log.meta for rank in ranks]
        stated = [meta.world_size or 0 for meta in self._metas]
        self.n_ranks = max(*stated, len(ranks), max(meta.rank for meta in self._metas) + 1)
        machines = {meta.machine for meta in self._metas}
        known = None not in machines and len(ranks) == self.n_ranks
        self.n_nodes = len(machines) if known else None

    def run(self, run_id: str) -> Run:
        """What the logs say of the run; oddities go to the diagnostics."""
        first = self._metas[0]
        self._note_missing()
        for rank in self._ranks:
            self._note(rank)
        world = self._source.metadata.get("n_workers") or self.n_ranks
        local = self._source.metadata.get("local_batch") or self._ranks[0].n_samples
        total = self._source.metadata.get("global_batch") or (local * world if local else None)
        logs = [rank.log for rank in self._ranks if rank.log.steps]
        starts = [start for log in logs if (start := log.utc(log.steps[0].start_ns))]
        run = Run(
            run_id=run_id,
            source_id=self._source.source_id,
            framework="pytorch",
            framework_version=first.torch,
            network=first.network,
            device=first.device,
            n_nodes=self.n_nodes,
            n_devices=world if first.device_type == "cuda" else None,
            n_workers=world,
            n_effective_workers=world,
            global_batch=int(total) if total else None,
            local_batch=float(local) if local else None,
            precision=first.precision,
            sync_method="single" if world == 1 else "data_parallel",
            n_params=first.n_params,
            n_threads=first.n_threads,
            instrument="recorder",
            state="completed" if all(map(_is_complete, self._ranks)) else "incomplete",
            started_at=min(starts) if starts else None,
        )
        return self._source.complete(run)

    def comms(self, run: Run) -> Iterator[Comm]:
        """Reductions of the steps that nothing disturbed on any rank."""
        disturbed = {
            s.step for rank in self._ranks for s in rank.log.steps if s.disturbed_by is not None
        }
        found = [
            [
                reduction
                for step in rank.log.steps
                if step.step not in disturbed
                for reduction in sorted(step.reductions, key=lambda one: one.start)
            ]
            for rank in self._ranks
        ]
        waits = self._waits(found) if any(found) else None
        links = {None: None, 1: "intra"}
        topology = links.get(run.n_nodes, "inter")
        for number, (rank, reductions) in enumerate(zip(self._ranks, found, strict=True)):
            for index, one in enumerate(reductions):
                yield Comm(
                    run_id=run.run_id,
                    rank=rank.log.meta.rank,
                    op="all_reduce",
                    duration_s=(one.end - one.start) / 1e9,
                    n_ranks=run.n_workers,
                    n_nodes=run.n_nodes,
                    n_bytes=one.n_bytes,
                    wait_s=None if waits is None else float(waits[number, index]),
                    started_at=rank.log.utc(one.start),
                    topology=topology,
                )

    def _waits(self, found: Sequence[Sequence[Reduction]]) -> np.ndarray | None:
        """Seconds that each rank waited for the last one, shape (ranks, reductions).

        None if ranks are missing or their reductions do not match. Clocks of different machines
        are aligned on the ends, which all ranks reach together.
        """
        sizes = [[one.n_bytes for one in reductions] for reductions in found]
        if len(found) != self.n_ranks or any(other != sizes[0] for other in sizes):
            self._source.problems.note(
                self._source.label, None, "wait_unknown",
                "the reductions of the ranks cannot be matched, so they include waiting",
            )  # fmt: skip
            return None
        zero = min(one.start for reductions in found for one in reductions)
        starts = np.array([[one.start - zero for one in same] for same in found], dtype=float)
        ends = np.array([[one.end - zero for one in same] for same in found], dtype=float)
        if self.n_nodes != 1:
            starts = starts - np.median(ends - ends.mean(axis=0), axis=1, keepdims=True)
        durations = np.array([[one.end - one.start for one in same] for same in found])
        waits: np.ndarray = np.clip(starts.max(axis=0) - starts, 0.0, durations) / 1e9
        return waits

    def _note_missing(self) -> None:
        missing = set(range(self.n_ranks)) - {meta.rank for meta in self._metas}
        if missing:
            names = ", ".join(map(str, sorted(missing)[:20]))
            text = f"{len(missing)} of {self.n_ranks} ranks have no log here: {names}"
            self._source.problems.note(self._source.label, None, "missing_ranks", text)

    def _note(self, rank: _Rank) -> None:
        """Note what a rank's log lacks."""
        note, log = self._source.problems.note, rank.log
        if log.end is None:
            note(log.file, None, "incomplete", "no last line: killed, or still running")
        elif log.end.exception:
            note(log.file, None, "incomplete", f"training ended by {log.end.exception}")
        for reason in (log.meta.layers_missing, log.end and log.end.layers_missing):
            if reason:
                note(log.file, None, "not_recorded", f"layers: {reason}")
        if log.meta.reductions_missing:
            note(log.file, None, "not_recorded", f"reductions: {log.meta.reductions_missing}")
        steady = [step for step in log.steps if step.disturbed_by is None]
        others = sum(step.shapes != rank.usual_shapes for step in steady)
        if others:
            text = f"{others} of {len(steady)} steps have other input shapes, or shapes that "
            note(log.file, None, "shapes_vary", text + "were not measured: not in layers")


def _is_complete(rank: _Rank) -> bool:
    return rank.log.end is not None and rank.log.end.exception is None


def _phase(run: Run, name: str, times: Sequence[Time], **where: Any) -> Phase:
    """A phase from the times of its occurrences."""
    wall = [time.wall for time in times]
    cpu = [time.cpu for time in times if time.cpu is not None]
    if len(wall) > 1:
        where.update(min_s=min(wall), max_s=max(wall))
    known = sum(cpu) if len(cpu) == len(wall) else None
    return Phase(run.run_id, name, sum(wall), cpu_s=known, n=len(wall), **where)


def _edges(run: Run, ranks: Sequence[_Rank]) -> Iterator[Edge]:
    """The layer graph, as the first rank that measured it saw it."""
    for rank in ranks:
        if rank.shapes is None:
            continue
        calls = {shape.layer: shape.n for shape in rank.shapes.layers}
        names = [module.name for module in rank.log.modules]
        for src, dst, n_bytes in rank.shapes.edges:
            n = calls.get(dst)
            yield Edge(run.run_id, names[src], names[dst], n_bytes / n if n else None)
        return
