"""CNTK as its Python front end writes it: progress logs, MPI output, profiler files.

One run is one folder: ``train.logrank0`` … of every rank, what mpirun wrote to standard output
and error, ``*_summary_0.txt`` and ``*_detail_0.json`` of the profiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fitkit.errors import ParseError
from fitkit.parsers.cntk.network import Network, Node
from fitkit.parsers.cntk.profiler import (
    PHASE_OF,
    Profile,
    SummaryRow,
    read_summary,
    read_trace,
)
from fitkit.parsers.cntk.progress import RankProgress, RunText, TextReader, Window
from fitkit.parsers.source import Source, SourceFile, group_by_folder
from fitkit.parsers.statistics import call_statistics
from fitkit.records import Edge, Layer, Phase, Record, Run, Step

_BEGIN = rb"(?<![^\r\n])"  # of a line
_SIGNS = re.compile(
    rb"CNTKCommandTrain(?:Info|Begin|End): |CNTK Performance Profiler Summary|\"cat\":\"PERF\"|"
    rb"Validating --> \S+ = \w+ ?\(|\[MPIWrapper\w*\]: using \d+|\[mpihelper\]: \d+ nodes|"
    + _BEGIN + rb"(?: ?Minibatch\[ *\d+- *\d+\]: |Finished Epoch ?\[ *\d+|"
    rb"Redirecting log to file |Training \d+ parameters in \d+ (?:out of \d+ )?parameter tensors)"
)  # fmt: skip
_ELEMENT_BYTES = {"float16": 2, "float32": 4, "float64": 8}


@dataclass
class _Files:
    """Everything that the files of one run say."""

    text: RunText
    summaries: dict[int, dict[str, SummaryRow]] = field(default_factory=dict)
    profiles: dict[int, Profile] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        return sorted({*self.text.ranks, *self.summaries, *self.profiles})


class CntkParser:
    """Logs of the Microsoft Cognitive Toolkit, Python front end."""

    name = "cntk"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether the head holds a line that only CNTK writes."""
        return _SIGNS.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is one folder."""
        return group_by_folder(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the run, its steps, phases, layers and edges.

        Raises
        ------
        ParseError
            If a file cannot be read, or two files claim to be the same rank of the run.
        """
        found = _read(source)
        run = _run(source, found)
        yield run
        yield from _epochs(run, found)
        comm = _transfer_times(source, found, run.n_workers)
        for rank in found.ranks:
            if rank in found.profiles:
                yield from _profiled(run, rank, found, comm)
            elif rank in found.summaries:
                yield from _summarised(run, rank, found.summaries[rank])
            yield from _layers(run, rank, found)
        yield from _edges(run, found.text.network)


def _read(source: Source) -> _Files:
    reader = TextReader(source)
    found = _Files(reader.text)
    seen: dict[tuple[str, int], SourceFile] = {}
    for file in source.files:
        kind, rank = _kind(file)
        if kind != "text" or rank >= 0:
            earlier = seen.setdefault((kind, rank), file)
            if earlier is not file:
                raise ParseError(
                    file.label, 0, f"a second {kind} of rank {rank} beside {earlier.label}",
                    "put the files of each run into a folder of its own",
                )  # fmt: skip
        if kind == "summary":
            found.summaries[rank] = read_summary(source, file)
        elif kind == "trace":
            found.profiles[rank] = read_trace(source, file)
        else:
            reader.read(file)
    reader.finish()
    return found


def _kind(file: SourceFile) -> tuple[str, int]:
    """What a file is, and of which rank; -1 for text that belongs to all ranks."""
    head = file.head(4096)
    if b"CNTK Performance Profiler Summary" in head:
        kind = "summary"
    elif head.lstrip().startswith(b"["):
        kind = "trace" if b'"cat":"PERF"' in head else "text"
    else:
        kind = "text"
    named = re.search(r"rank(\d{1,9})$" if kind == "text" else r"_(\d{1,9})\.\w+$", file.name)
    return kind, int(named[1]) if named else -1 if kind == "text" else 0


def _run(source: Source, found: _Files) -> Run:
    text, facts = found.text, found.text.facts
    logged = facts.n_workers or (len(found.ranks) if len(found.ranks) > 1 else None)
    n_workers: int | None = source.metadata.get("n_workers") or logged
    if n_workers and 0 < len(found.ranks) < n_workers:
        source.problems.note(
            source.label, None, "missing_ranks", f"logs of {len(found.ranks)} of {n_workers} ranks"
        )
    starved = _n_starved(source, found)
    effective = max(n_workers - starved, 0) if n_workers else None
    batch = next((r.batch for r in text.ranks.values() if r.batch), None)
    if text.counts_are_local and batch and effective:
        batch *= effective
    ended = bool(text.ranks) and all(rank.ended for rank in text.ranks.values())
    if not ended:
        source.problems.note(source.label, None, "incomplete", _where_it_stops(text))
    elif not any(epoch.seconds for rank in text.ranks.values() for epoch in rank.epochs):
        source.problems.note(source.label, None, "no_times", "no progress line states a time")
    run = Run(
        run_id=source.run_id,
        source_id=source.source_id,
        framework="cntk",
        framework_version=facts.framework_version,
        network=facts.network,
        n_nodes=facts.n_nodes,
        n_workers=logged,
        n_effective_workers=effective,
        global_batch=round(batch) if batch else None,
        local_batch=batch / effective if batch and effective else None,
        precision=facts.precision,
        sync_method=_sync_method(n_workers, found),
        n_params=facts.n_params,
        instrument="profiler" if found.summaries or found.profiles else "none",
        state="completed" if ended else "incomplete",
    )
    return source.complete(run)


def _n_starved(source: Source, found: _Files) -> int:
    """Ranks that aggregate and never compute: there are fewer chunks of data than ranks."""
    starved = [
        rank
        for rank, rows in found.summaries.items()
        if "Gradient Aggregation" in rows and "Forward + Backward" not in rows
    ]
    if starved:
        source.problems.note(
            source.label, None, "starved_worker",
            f"ranks without a minibatch of their own: {', '.join(map(str, starved))}",
        )  # fmt: skip
    return len(starved)


def _where_it_stops(text: RunText) -> str:
    epochs = [epoch.epoch for rank in text.ranks.values() for epoch in rank.epochs]
    return f"no end line; {max(epochs, default=0)} epochs finished"


def _sync_method(n_workers: int | None, found: _Files) -> str | None:
    if n_workers == 1:
        return "single"
    if found.text.counts_are_local:
        return "block_momentum"
    if any("Gradient Aggregation" in rows for rows in found.summaries.values()):
        return "data_parallel"
    return None


def _epochs(run: Run, found: _Files) -> Iterator[Record]:
    share = (run.n_effective_workers or 1) if found.text.counts_are_local else 1
    for rank, progress in sorted(found.text.ranks.items()):
        first = 0
        for epoch in progress.epochs:
            if epoch.seconds is not None:
                yield Phase(
                    run.run_id, "epoch", epoch.seconds, rank, epoch.epoch, n=1, parent="train"
                )
            if rank not in found.profiles:
                yield Step(
                    run.run_id, rank, epoch.n_steps, epoch.seconds, epoch.epoch, first,
                    epoch.samples * share,
                )  # fmt: skip
            first += epoch.n_steps
        if rank not in found.profiles:
            yield from _unfinished(run, rank, progress.windows, first, share)
    for rank, phase, seconds in found.text.spans:
        yield Phase(run.run_id, phase, seconds, rank)


def _unfinished(
    run: Run, rank: int, windows: Sequence[Window], first: int, share: int
) -> Iterator[Step]:  # fmt: skip
    """Minibatches after the last finished epoch: their number is known, their time is not."""
    for window in windows:
        count = window.last - window.first + 1
        samples = None if window.samples is None else window.samples * share
        yield Step(run.run_id, rank, count, None, window.epoch, first + window.first - 1, samples)


def _transfer_times(source: Source, found: _Files, n_workers: int | None) -> list[float] | None:
    """Transfer time of each step: the shortest aggregation over the ranks; the rest is waiting."""
    steps = [profile.steps for profile in found.profiles.values()]
    if not any("Gradient Aggregation" in rows for rows in found.summaries.values()) and not any(
        "comm" in step.phases for rank in steps for step in rank
    ):
        return None
    n_ranks = max(len(found.ranks), n_workers or 0)
    if len(found.profiles) < n_ranks or len({len(rank) for rank in steps}) > 1:
        source.problems.note(
            source.label, None, "wait_unknown",
            "no traces of all ranks that match step by step: comm includes waiting for the slowest",
        )  # fmt: skip
        return None
    return [min(s.phases.get("comm", 0.0) for s in same) for same in zip(*steps, strict=True)]


def _profiled(
    run: Run, rank: int, found: _Files, transfers: list[float] | None
) -> Iterator[Record]:
    profile = found.profiles[rank]
    epochs = _epoch_of_steps(found.text.ranks.get(rank), len(profile.steps))
    samples = run.global_batch if epochs else None
    for index, step in enumerate(profile.steps):
        epoch = epochs[index] if epochs else None
        yield Step(run.run_id, rank, 1, step.seconds, epoch, index, samples)
        phases = dict(step.phases)
        if transfers is not None and "comm" in phases:
            phases["wait"] = phases["comm"] - transfers[index]
            phases["comm"] = transfers[index]
        phases["other"] = step.seconds - sum(phases.values())
        yield Phase(run.run_id, "step", step.seconds, rank, epoch, index)
        for phase, seconds in phases.items():
            yield Phase(run.run_id, phase, seconds, rank, epoch, index, "step")
        if step.nodes and "compute" in phases:
            passes = {
                which: sum(s for (_, name), s in step.nodes.items() if name == which)
                for which in ("forward", "backward")
            }
            # The first iteration also builds the network: no node accounts for that time.
            passes["other"] = phases["compute"] - sum(passes.values())
            for phase, seconds in passes.items():
                yield Phase(run.run_id, phase, seconds, rank, epoch, index, "compute")
    if profile.teardown_s:
        yield Phase(run.run_id, "teardown", profile.teardown_s, rank)


def _epoch_of_steps(progress: RankProgress | None, n_steps: int) -> list[int] | None:
    """Epoch of each profiled step, if the profiler saw every step of every epoch."""
    epochs = progress.epochs if progress else []
    if sum(epoch.n_steps for epoch in epochs) != n_steps:
        return None
    return [epoch.epoch for epoch in epochs for _ in range(epoch.n_steps)]


def _summarised(run: Run, rank: int, rows: dict[str, SummaryRow]) -> Iterator[Phase]:
    iteration = rows.get("Minibatch Iteration")
    inside = 0.0
    for name, row in rows.items():
        if phase := PHASE_OF.get(name):
            yield _total(run, rank, phase, row)
            inside += row.total_s if phase != "io" else 0.0
    if iteration is not None:
        # In Python, an iteration is what follows the read of its minibatch.
        yield Phase(
            run.run_id, "other", iteration.total_s - inside, rank, parent="step", n=iteration.n
        )


def _total(run: Run, rank: int, phase: str, row: SummaryRow) -> Phase:
    return Phase(
        run.run_id,
        phase,
        row.total_s,
        rank,
        parent="step",
        n=row.n,
        min_s=row.min_s,
        max_s=row.max_s,
    )


def _layers(run: Run, rank: int, found: _Files) -> Iterator[Layer]:
    network = found.text.network
    profile = found.profiles.get(rank)
    if profile is None and rank != min(found.ranks, default=0):
        return  # shapes alone are the same on every rank: once is enough
    calls: dict[tuple[str, str], list[float]] = {}
    for step in profile.steps if profile else ():
        for key, seconds in step.nodes.items():
            calls.setdefault(key, []).append(seconds)
    for index, node in enumerate(network.layers()):
        for phase in ("forward", "backward"):
            times = calls.get((node.name, phase), [])
            if times or phase == "forward":
                yield _layer(run, rank, network, node, index, phase, times)


def _layer(
    run: Run, rank: int, network: Network, node: Node, index: int, phase: str, times: list[float]
) -> Layer:  # fmt: skip
    per_sample = network.product_flop(node)
    batch = run.local_batch
    needs_input = phase == "backward" and network.needs_input_gradient(node)
    gradients = 1 + needs_input if phase == "backward" else 1
    weights = network.weights(node)
    inputs = network.activations(node)
    return Layer(
        run_id=run.run_id,
        rank=rank,
        layer=node.name,
        layer_type=node.op,
        phase=phase,
        n=len(times),
        layer_index=index,
        local_batch=batch,
        flop=per_sample * batch * gradients if per_sample is not None and batch else None,
        n_params=network.n_params(node),
        weight_shape="x".join(map(str, weights.dimensions)) if weights else None,
        input_bytes=_bytes(run, inputs),
        output_bytes=_bytes(run, [node]),
        input_grad_bytes=_bytes(run, inputs if needs_input else []),
        **call_statistics(times),
    )


def _bytes(run: Run, nodes: Sequence[Node]) -> float | None:
    """Activations of the nodes in one call; CNTK computes in float32 unless it says otherwise."""
    if run.local_batch is None:
        return None
    width = _ELEMENT_BYTES.get(run.precision or "float32", 4)
    return float(sum(n.size * width * (run.local_batch if n.is_batched else 1) for n in nodes))


def _edges(run: Run, network: Network) -> Iterator[Edge]:
    for source, target in network.edges():
        yield Edge(run.run_id, source.name, target.name, _bytes(run, [source]))
