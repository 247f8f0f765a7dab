"""The tables: one frozen class each, the single source of every schema.

A parser yields these records; `fitkit.schema` derives the Parquet and JSON schemas from them.
The unit of a column is the end of its name: ``_s`` seconds, ``_bytes`` bytes, ``_flop``
floating-point operations, ``_per_s`` a rate, ``_at`` an instant in UTC, ``n_`` a count, ``_id``
an identifier.
``None`` means that the log does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, get_args

PhaseName = Literal[
    "hold", "queue", "prologue", "launch", "init", "staging", "precompute", "io", "forward",
    "backward", "compute", "comm", "wait", "grad_accumulate", "optimizer", "checkpoint", "eval",
    "teardown", "other", "step", "epoch", "train", "total",
    # Trial epochs of an adaptive search, e.g. for the best minibatch size.
    "search",
    # What a device did in a step, or a gap of it: only below the parent "device".
    "device", "overlap", "copy", "idle", "launch_gap",
]  # fmt: skip
PHASES: tuple[str, ...] = get_args(PhaseName)


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt of one entry of the resource manager."""

    source_id: Annotated[str, "the source it was read from"]
    job_id: Annotated[str, "identifier that the resource manager gave, server included"]
    attempt: Annotated[int, "how often the job had been started, counted from 1"]
    scheduler: Annotated[str, "torque, pbs, slurm, ..."]
    system: Annotated[str | None, "the machine"] = None
    queue: Annotated[str | None, "queue or partition"] = None
    array_index: Annotated[int | None, "which element of a job array it is"] = None
    raw_id: Annotated[
        str | None, "number that the job has for itself, if job_id is another: JobIDRaw of sacct"
    ] = None
    user: Annotated[str | None, "who ran it: a salted hash unless names are kept"] = None
    group: Annotated[str | None, "the user's group: a salted hash unless names are kept"] = None
    account: Annotated[str | None, "who paid for it: a salted hash unless names are kept"] = None
    name: Annotated[str | None, "name of the job: a salted hash unless names are kept"] = None
    state: Annotated[
        str | None,
        "COMPLETED, FAILED, CANCELLED, ABORTED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, UNFINISHED, "
        "PENDING or UNKNOWN",
    ] = None
    state_raw: Annotated[str | None, "the state in the log's own words, if it has one"] = None
    submitted_at: Annotated[datetime | None, "when the job was submitted"] = None
    queued_at: Annotated[datetime | None, "when it entered its queue"] = None
    eligible_at: Annotated[datetime | None, "when it was first allowed to run"] = None
    started_at: Annotated[datetime | None, "when it started"] = None
    ended_at: Annotated[datetime | None, "when it ended"] = None
    hold_s: Annotated[float | None, "eligible_at minus queued_at"] = None
    queue_s: Annotated[float | None, "started_at minus eligible_at: the wait for nodes"] = None
    prologue_s: Annotated[float | None, "time of the prologue, as the job's output states it"] = (
        None
    )
    run_s: Annotated[float | None, "ended_at minus started_at"] = None
    n_nodes: Annotated[int | None, "different hosts in the host list"] = None
    n_slots: Annotated[int | None, "execution slots in the host list"] = None
    n_nodes_reported: Annotated[int | None, "node count that the log states"] = None
    hosts: Annotated[
        str | None, "hosts in rank order, runs of numbers as ranges: 26742-26743,26728-26729"
    ] = None
    n_slots_reported: Annotated[int | None, "execution slots that the log states"] = None
    n_devices: Annotated[int | None, "accelerators that were requested or given"] = None
    node_kind: Annotated[
        str | None, "kind of the nodes by the request: xe, xk, mixed, ...; null if it does not say"
    ] = None
    hosts_hash: Annotated[str | None, "SHA-1 of the list of hosts: equal for equal sets"] = None
    login_node: Annotated[str | None, "host that ran the job script"] = None
    wall_limit_s: Annotated[float | None, "requested wall-clock limit"] = None
    walltime_s: Annotated[float | None, "wall-clock time that the resource manager charged"] = None
    cpu_s: Annotated[
        float | None, "CPU time that was charged; on a Cray that of the script's shell alone"
    ] = None
    memory_bytes: Annotated[int | None, "resident memory that was charged"] = None
    exit_code: Annotated[int | None, "exit status of the job script"] = None
    exit_signal: Annotated[int | None, "signal that ended the job"] = None
    is_local_time: Annotated[
        bool | None, "whether instants are local stamps, in the zone that the user said"
    ] = None
    line: Annotated[int | None, "line of the log that decided the row"] = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a parallel program inside a job: an aprun, an srun step."""

    source_id: Annotated[str, "the source it was read from"]
    launch_id: Annotated[str, "identifier that the launcher gave: apid, step"]
    job_id: Annotated[str | None, "the job it was started in, as far as the log names it"] = None
    system: Annotated[str | None, "the machine, if the log or the user names it"] = None
    started_at: Annotated[datetime | None, "when it was placed"] = None
    ended_at: Annotated[datetime | None, "when its nodes were released"] = None
    n_nodes: Annotated[int | None, "different hosts"] = None
    n_ranks: Annotated[int | None, "processes"] = None
    hosts: Annotated[str | None, "hosts in rank order, as in jobs"] = None
    user_s: Annotated[float | None, "CPU time in user mode, as the launcher rounds it"] = None
    system_s: Annotated[float | None, "CPU time in the system, as the launcher rounds it"] = None
    memory_bytes: Annotated[int | None, "largest resident memory of a process"] = None
    n_blocks_in: Annotated[int | None, "blocks read; a hint, for their size is not stated"] = None
    n_blocks_out: Annotated[int | None, "blocks written; a hint likewise"] = None
    exit_code: Annotated[int | None, "exit status of the program"] = None
    exit_signal: Annotated[int | None, "signal that ended it"] = None


@dataclass(frozen=True, slots=True)
class Run:
    """One training execution."""

    run_id: Annotated[str, "identifier: what the log states, else 16 digits of the source's hash"]
    source_id: Annotated[str, "the source it was read from"]
    job_id: Annotated[str | None, "the resource manager's job, if the log names it"] = None
    framework: Annotated[str | None, "cntk, pytorch, tensorflow, ..."] = None
    framework_version: Annotated[str | None, "version of the framework"] = None
    network: Annotated[str | None, "the neural network that was trained"] = None
    device: Annotated[str | None, "the chip that computed, e.g. epyc-1core or A100-SXM4-40GB"] = (
        None
    )
    system: Annotated[str | None, "the machine or cluster"] = None
    n_nodes: Annotated[int | None, "machines"] = None
    n_devices: Annotated[int | None, "devices that computed"] = None
    n_workers: Annotated[int | None, "data-parallel participants"] = None
    n_effective_workers: Annotated[int | None, "participants that really computed"] = None
    global_batch: Annotated[int | None, "samples a step, all workers together"] = None
    local_batch: Annotated[float | None, "samples a step and effective worker"] = None
    precision: Annotated[str | None, "element type of the parameters"] = None
    sync_method: Annotated[
        str | None,
        "single, data_parallel, data_parallel_async (aggregation overlaps the next step), "
        "model_averaging, block_momentum or asynchronous (parameter server)",
    ] = None
    n_params: Annotated[int | None, "trained parameters that the log states"] = None
    n_threads: Annotated[int | None, "compute threads a worker"] = None
    instrument: Annotated[
        str | None, "what was measuring: none, recorder or profiler; each has its own overhead"
    ] = None
    state: Annotated[str | None, "completed or incomplete; null if the log cannot tell"] = None
    started_at: Annotated[datetime | None, "first instant that the log dates"] = None
    placement: Annotated[
        str | None, "devices on each machine, a digit for each: 1123; null if the log does not say"
    ] = None
    tensor_parallel: Annotated[
        int | None, "devices that share each layer's tensors, if the log says"
    ] = None
    pipeline_parallel: Annotated[int | None, "stages of the pipeline, if the log says"] = None
    micro_batch: Annotated[
        int | None, "samples that pass the pipeline together, if the log says"
    ] = None
    sequence_length: Annotated[int | None, "tokens of a sample, if the log says"] = None
    hidden_size: Annotated[int | None, "width of a transformer, if the log says"] = None
    n_heads: Annotated[int | None, "attention heads of a layer, if the log says"] = None
    n_layers: Annotated[int | None, "layers of a transformer, if the log says"] = None
    build: Annotated[str | None, "commit that the framework was built from"] = None
    host: Annotated[str | None, "machine of rank 0, as the log names it"] = None
    n_workers_requested: Annotated[int | None, "workers that were asked for, if it says"] = None
    n_workers_available: Annotated[int | None, "workers that were started, if it says"] = None
    gradient_bits: Annotated[int | None, "bits a gradient value is sent with, if it says"] = None
    block_samples: Annotated[
        int | None, "samples of a worker between two synchronisations, if the log says"
    ] = None
    epoch_samples: Annotated[int | None, "samples of a whole epoch, if the log says"] = None
    counted_samples: Annotated[
        str | None, "what the log's own counts are of: global (all workers) or local (one)"
    ] = None
    first_epoch: Annotated[
        int | None, "number of its first epoch, if it goes on from the checkpoint of another run"
    ] = None
    learning_rate: Annotated[float | None, "of the first epoch, for a sample"] = None
    momentum: Annotated[float | None, "of the first epoch, for a minibatch"] = None
    family: Annotated[
        str | None, "runs of one submission that differ in scale alone; related runs are pooled"
    ] = None


@dataclass(frozen=True, slots=True)
class Step:
    """A group of consecutive optimiser steps that the log reports as one."""

    run_id: Annotated[str, "the run it belongs to"]
    rank: Annotated[int, "the process, counted from 0"]
    n_steps: Annotated[int, "optimiser steps in the group"]
    duration_s: Annotated[float | None, "wall-clock time of the whole group"]
    epoch: Annotated[int | None, "counted from 1"] = None
    first_step: Annotated[int | None, "first step of the group, counted from 0 in the run"] = None
    n_samples: Annotated[int | None, "training samples consumed, all workers together"] = None
    cpu_s: Annotated[float | None, "CPU time of the whole group"] = None
    started_at: Annotated[datetime | None, "when the group started"] = None
    disturbed_by: Annotated[
        str | None, "why the group is no sample of training, e.g. profiler start; fits leave it out"
    ] = None
    attempt: Annotated[
        int | None, "how often training had been started, counted from 1; epochs can repeat"
    ] = None


@dataclass(frozen=True, slots=True)
class Phase:
    """Time that one rank spent in one phase, in one step or in several."""

    run_id: Annotated[str, "the run it belongs to"]
    phase: Annotated[str, "one of " + ", ".join(PHASES)]
    duration_s: Annotated[float, "wall-clock time, all n occurrences together"]
    rank: Annotated[int | None, "the process, counted from 0"] = None
    epoch: Annotated[int | None, "counted from 1"] = None
    step: Annotated[int | None, "counted from 0 in the run; null: over all steps"] = None
    parent: Annotated[str | None, "the phase that contains this one; null: the run itself"] = None
    started_at: Annotated[datetime | None, "when it started"] = None
    cpu_s: Annotated[float | None, "CPU time, all occurrences together"] = None
    n: Annotated[int, "occurrences"] = 1
    n_bytes: Annotated[int | None, "bytes moved"] = None
    min_s: Annotated[
        float | None, "shortest occurrence; of one dated to the second, the least it can be"
    ] = None
    max_s: Annotated[
        float | None, "longest occurrence; of one dated to the second, the most it can be"
    ] = None
    attempt: Annotated[
        int | None, "how often training had been started, counted from 1; epochs can repeat"
    ] = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the network in one phase on one rank: statistics over its calls."""

    run_id: Annotated[str, "the run it belongs to"]
    rank: Annotated[int, "the process, counted from 0"]
    layer: Annotated[str, "name in the network"]
    layer_type: Annotated[str, "the framework's word for the operation"]
    phase: Annotated[str, "forward, backward or optimizer"]
    n: Annotated[int, "calls measured; 0: the shape is known, no time is"]
    layer_index: Annotated[int | None, "position in the network, counted from 0"] = None
    local_batch: Annotated[float | None, "samples in one call"] = None
    duration_s: Annotated[float | None, "mean wall-clock time of a call"] = None
    cpu_s: Annotated[float | None, "mean CPU time of a call"] = None
    min_s: Annotated[float | None, "shortest call"] = None
    p10_s: Annotated[float | None, "10th percentile of the calls"] = None
    median_s: Annotated[float | None, "median call"] = None
    p90_s: Annotated[float | None, "90th percentile of the calls"] = None
    cpu_min_s: Annotated[float | None, "smallest CPU time of a call"] = None
    cpu_median_s: Annotated[float | None, "median CPU time of a call"] = None
    flop: Annotated[
        float | None,
        "floating-point operations of a call; backward counts the gradients that are computed: "
        "of the weights, and of the input where an earlier layer needs it",
    ] = None
    n_params: Annotated[int | None, "trained parameters that the layer owns"] = None
    weight_shape: Annotated[str | None, "dimensions of its weights, e.g. 512x784"] = None
    input_bytes: Annotated[float | None, "activations that enter the layer in a call"] = None
    output_bytes: Annotated[float | None, "activations that leave the layer in a call"] = None
    input_grad_bytes: Annotated[
        float | None, "gradient of the input that a backward call writes; 0 if none is needed"
    ] = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Data that flows from one layer to another in the forward pass."""

    run_id: Annotated[str, "the run it belongs to"]
    src: Annotated[str, "layer that produces"]
    dst: Annotated[str, "layer that consumes"]
    n_bytes: Annotated[float | None, "bytes a call"] = None


@dataclass(frozen=True, slots=True)
class Comm:
    """One collective operation as one rank saw it."""

    run_id: Annotated[str, "the run it belongs to"]
    rank: Annotated[int, "the process, counted from 0"]
    op: Annotated[str, "all_reduce, all_gather, broadcast, ..."]
    duration_s: Annotated[float, "wall-clock time from start to end, waiting included"]
    n_ranks: Annotated[int | None, "participants"] = None
    n_nodes: Annotated[int | None, "machines that they run on"] = None
    n_bytes: Annotated[int | None, "size of the message"] = None
    wait_s: Annotated[float | None, "the part that was waiting for others"] = None
    topology: Annotated[str | None, "class of the link, e.g. intra or inter"] = None
    started_at: Annotated[datetime | None, "when this rank started"] = None


@dataclass(frozen=True, slots=True)
class Io:
    """File input and output of one rank through one interface."""

    run_id: Annotated[str | None, "the run it belongs to"]
    job_id: Annotated[str | None, "the resource manager's job"]
    rank: Annotated[int | None, "the process, counted from 0; null: shared by all"]
    module: Annotated[str, "the interface, e.g. POSIX"]
    n_opens: Annotated[int | None, "files opened"] = None
    read_bytes: Annotated[int | None, "bytes read"] = None
    written_bytes: Annotated[int | None, "bytes written"] = None
    read_s: Annotated[float | None, "time in reads"] = None
    write_s: Annotated[float | None, "time in writes"] = None
    meta_s: Annotated[float | None, "time in opens, seeks and stats"] = None
    first_open_s: Annotated[float | None, "first open, from the start of the job"] = None
    last_read_s: Annotated[float | None, "end of the last read, from the start of the job"] = None
    is_partial: Annotated[bool | None, "the figures are lower bounds"] = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A job that shares a device with another one: a row for each of the two."""

    source_id: Annotated[str, "the source it was read from"]
    pair_id: Annotated[str, "identifier that both rows of the pair have"]
    device: Annotated[str | None, "the chip that both share"]
    job: Annotated[str, "the job that was timed"]
    neighbour: Annotated[str, "the job beside it"]
    n_workers: Annotated[int | None, "data-parallel participants of the job"] = None
    alone_per_s: Annotated[float | None, "steps a second without the neighbour"] = None
    together_per_s: Annotated[float | None, "steps a second beside the neighbour"] = None
    normalised_throughput: Annotated[float | None, "together_per_s over alone_per_s"] = None


@dataclass(frozen=True, slots=True)
class Link:
    """A job that a run belongs to."""

    job_id: Annotated[str, "the job"]
    attempt: Annotated[int, "its attempt"]
    run_id: Annotated[str, "the run"]
    method: Annotated[str, "how the link was found"]
    score: Annotated[float, "how sure it is, 0 to 1"]
    system: Annotated[str | None, "the machine of the job, if it is known"] = None


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source: what was ingested whole or not at all."""

    source_id: Annotated[str, "SHA-256 over the sorted pairs of file name and content hash"]
    path: Annotated[str, "relative to the argument that led to it"]
    format: Annotated[str, "the parser that read it"]
    parser_version: Annotated[int, "version of that parser"]
    n_bytes: Annotated[int, "bytes of all its files, decompressed"]
    n_diagnostics: Annotated[int, "rows that it has in the table diagnostics"]
    files: Annotated[str, "its files as JSON: [[name, SHA-256, bytes], ...], decompressed"]
    metadata: Annotated[str, "run.toml, --set and the hash of the mapping, as JSON"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something in a source that the reader should know."""

    source_id: Annotated[str, "the source"]
    path: Annotated[str, "file, relative to the argument that led to it"]
    line: Annotated[int | None, "line, counted from 1"]
    code: Annotated[str, "kind, e.g. bad_line, truncated, metadata_conflict"]
    text: Annotated[str, "what was found"]


Record = (
    Job | Launch | Run | Step | Phase | Layer | Edge | Comm | Io | Pair | Link
    | SourceRow | Diagnostic
)  # fmt: skip

TABLES: dict[str, type[Record]] = {
    "jobs": Job,
    "launches": Launch,
    "runs": Run,
    "steps": Step,
    "phases": Phase,
    "layers": Layer,
    "edges": Edge,
    "comms": Comm,
    "io": Io,
    "pairs": Pair,
    "links": Link,
    "sources": SourceRow,
    "diagnostics": Diagnostic,
}
TABLE_OF: dict[type[Record], str] = {record: table for table, record in TABLES.items()}
