"""What an MLPerf log says of its run: network, machine, workers, batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from fitkit.parsers.mlperf.lines import Event, Log
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.values import count, number, text
from fitkit.records import Run

_FRAMEWORK = re.compile(r"(?i)PyTorch|TensorFlow|MXNet|JAX|MindSpore|NeMo")
# As in 8xNVIDIA DGX A100, abci_512xV100_tensorflow and dgxa100_n8_ngc22.04_pytorch.
_SIZE = re.compile(r"(?<![^_])\d{1,7}(?:\.0)?x(?=\D)|_n\d{1,7}(?=_|$)")


@dataclass(frozen=True)
class Evidence:
    """Records of one run, what they state by their keys, and the log that they are from."""

    events: Sequence[Event]
    facts: Mapping[str, Any]
    log: Log

    def count(self, key: str) -> int | None:
        """A count that a record or the submitter's description of the machine states."""
        return count(self.facts.get(key)) or count(self.log.system.get(key))

    @property
    def n_processes(self) -> int | None:
        """Ranks, where each of them logs its initialisation; None if one speaks for all."""
        n_starts = sum(event.key == "init_start" for event in self.events)
        return n_starts if n_starts > 1 else None

    @property
    def n_devices(self) -> int | None:
        """Accelerators of all nodes."""
        per_node, stated = self.count("accelerators_per_node"), self.count("number_of_nodes")
        return per_node * stated if per_node and stated else None

    def n_nodes(self, n_workers: int | None) -> int | None:
        """Machines: as stated, by the launcher, or as in ``8xNVIDIA DGX A100``."""
        stated = self.count("number_of_nodes") or self.log.n_nodes
        if stated:
            return stated
        first = str(self.facts.get("submission_platform")).partition("x")[0]
        named = count(first) if first.isascii() and first.isdigit() else None
        # Some name devices or ranks so; what does not share out the workers evenly is not taken.
        fits = named == 1 or (named and n_workers and n_workers % named == 0)
        return named if fits else None

    def n_workers(self, batch: int | None, n_devices: int | None) -> int | None:
        """Data-parallel participants."""
        known = self.count("number_of_ranks") or self.n_processes
        if known:
            return known
        accumulated = self.count("gradient_accumulation_steps") or 1
        at_once = batch / accumulated if batch else 0
        local = number(self.facts.get("local_batch_size"))
        if local and at_once and at_once % local == 0:
            return count(at_once / local)
        # Devices that share a sample, as in tensor parallelism, are no workers.
        return n_devices if n_devices and n_devices <= at_once else None


def describe(source: Source, file: SourceFile, run_id: str, known: Evidence) -> Run:
    """The row of ``runs`` by the log; what follows from others does so from the user's, if any."""
    meta = source.metadata
    logged = known.count("global_batch_size")
    batch = meta.get("global_batch") or logged
    devices = known.n_devices
    said = known.n_workers(logged, devices)
    n_workers = meta.get("n_workers") or known.n_workers(batch, meta.get("n_devices") or devices)
    local = number(known.facts.get("local_batch_size"))
    framework, version = _framework(known)
    return Run(
        run_id=run_id,
        source_id=source.source_id,
        job_id=known.log.job_id,
        framework=framework,
        framework_version=version,
        network=text(known.facts.get("submission_benchmark")),
        device=text(known.log.system.get("accelerator_model_name")),
        system=_system(known, file),
        n_nodes=known.n_nodes(n_workers),
        n_devices=devices,
        n_workers=said if meta.get("n_workers") else n_workers,
        n_effective_workers=n_workers,
        global_batch=logged,
        local_batch=batch / n_workers if batch and n_workers else local,
        precision=text(known.facts.get("precision_mode")),
        state=_state(known.events),
        started_at=known.events[0].at,
        sequence_length=known.count("max_sequence_length"),
    )


def _system(known: Evidence, file: SourceFile) -> str | None:
    """The kind of machine, without its size: runs at several scales are runs of one system."""
    name = text(known.facts.get("submission_platform"))
    if name is None or "PLACEHOLDER" in name:  # a template that was not filled in
        name = text(known.log.system.get("system_name")) or _submission_folder(known, file)
    return None if name is None else _SIZE.sub("", name) or name


def _submission_folder(known: Evidence, file: SourceFile) -> str | None:
    """The submitter's name of the system, as in ``results/SYSTEM/BENCHMARK/result_0.txt``."""
    folders = PurePath(file.label).parts[:-1]
    benchmark = text(known.facts.get("submission_benchmark"))
    if benchmark and len(folders) > 1 and folders[-1].endswith(benchmark):
        return folders[-2]
    return None


def _framework(known: Evidence) -> tuple[str | None, str | None]:
    """Name and version, as in ``PyTorch NVIDIA Release 24.04``."""
    entry = known.facts.get("submission_entry")
    stated = text(known.log.system.get("framework"))
    if stated is None and isinstance(entry, dict):
        stated = text(entry.get("framework"))
    name = _FRAMEWORK.search(stated) if stated else None
    if stated is None or name is None:
        return None, None
    return name[0].lower(), " ".join(_FRAMEWORK.sub(" ", stated).split()) or None


def _state(events: Sequence[Event]) -> str | None:
    """What the end of the run says of itself; a run without one did not come to its end."""
    ends = [event for event in events if event.key == "run_stop"]
    if not ends:
        return "incomplete"
    status = ends[0].metadata.get("status")
    if not isinstance(status, str):
        return None
    return "completed" if status == "success" else "incomplete"
