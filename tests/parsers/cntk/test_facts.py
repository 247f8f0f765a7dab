"""What CNTK's lines state of a run: build, machine, workers, method, configuration, learner."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk.facts import SIGNS, FactReader, run_columns
from fitkit.parsers.cntk.lines import read_lines
from fitkit.parsers.line_filter import matching_lines
from fitkit.parsers.source import Source, SourceFile

PATTERN = "|".join(SIGNS)
Read = Callable[..., FactReader]


def said(*lines: str, rank: int | None = None) -> FactReader:
    reader = FactReader()
    for line in lines:
        reader.read(line, rank)
    return reader


@pytest.fixture
def baseline(shared: Path) -> Read:
    """Reads a public log; with the filter, or each of its lines."""

    def read(name: str, pattern: str = PATTERN) -> FactReader:
        (path,) = (shared / "cntk" / "public_baselines").glob(f"{name}*.gz")
        file, reader = SourceFile(path, path.name), FactReader()
        for line in read_lines(Source(path.name, (file,)), file, None, pattern):
            reader.read(line.text, line.rank)
        return reader

    return read


@pytest.fixture
def recorded(shared: Path) -> Read:
    """Reads the text files of a run that we recorded."""

    def read(name: str) -> FactReader:
        folder, reader = shared / "cntk" / "real_runs" / name, FactReader()
        for path in sorted(folder.glob("*rank?")) + sorted(folder.glob("mpirun_*")):
            file = SourceFile(path, path.name)
            rank = int(path.name[-1]) if path.name[-1].isdigit() else None
            for line in read_lines(Source(path.name, (file,)), file, rank, PATTERN):
                reader.read(line.text, line.rank)
        return reader

    return read


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            "CNTK 2.0.rc9+ (my/new abc123, Jan  2 2017 03:04:05) on node7 at 2017/01/02 03:05:06",
            {"version": "2.0.rc9+", "branch": "my/new", "commit": "abc123", "host": "node7",
             "built_at": "Jan  2 2017 03:04:05", "started_at": datetime(2017, 1, 2, 3, 5, 6)},
        ),
        ("running on box at 2015/02/30 11:38:28", {"host": "box", "started_at": None}),
        ("Running on x at 2015/10/06 11:38:28", {"started_at": datetime(2015, 10, 6, 11, 38, 28)}),
        ("\t\tBuild SHA1: 0123456789abcdef (modified)", {"commit": "0123456789abcdef"}),
        ("\t\tBuild Branch: HEAD", {"branch": "HEAD"}),
        ("\t\tBuilt time: Apr 23 2019 21:28:38", {"built_at": "Apr 23 2019 21:28:38"}),
        ("\t\tBuild target: CPU-only", {"build_target": "CPU-only"}),
        (
            "requestnodes [W]: using 3 out of 4 MPI nodes (5 requested); we (2) are in (yes)",
            {"n_used": 3, "n_available": 4, "n_requested": 5, "is_single_host": None},
        ),
        (
            "requestnodes [W]: using 3 out of 3 MPI nodes on a single host (3 requested); we (0) a",
            {"n_used": 3, "is_single_host": True},
        ),
        (
            "requestnodes [W]: using 3 out of 3 MPI nodes on multiple hosts (3 requested)",
            {"is_single_host": False},
        ),
        ("ping [mpihelper]: 6 nodes pinging each other", {"n_used": 6}),
        ("=== Running mpiexec -n 3 /bin/cntk configFile=a", {"n_requested": 3}),
        ("=== Running C:\\Program Files\\MPI\\/mpiexec.exe -n 4 x", {"n_requested": 4}),
        ("Using 12 CPU threads.", {"n_threads": 12}),
        ("WARNING: flag is specified. Using 1 CPU thread for processing.", {"n_threads": 1}),
        ("    CPU Model Name: Some CPU @ 2 GHz", {"cpu": "Some CPU @ 2 GHz"}),
        ("    Hardware threads: 24", {"n_hardware_threads": 24}),
        ("    Total Memory: 1000 kB", {"memory_bytes": 1_024_000}),
        (
            '\t\tDevice[1]: cores = 9; computeCapability = 3.5; type = "Card X"; memory = 3 MB',
            {"gpus": {1: "Card X"}},
        ),
        ("Selected CPU as the process wide default device.", {"process_device": "CPU"}),
        (
            "Selected GPU[2] Card Y as the process wide default device.",
            {"process_device": "GPU 2", "gpus": {2: "Card Y"}},
        ),
        ('precision = "float"', {"precision": "float32"}),
        ('Precision = "double"', {"precision": "float64"}),
        ('    precision = "double"', {"precision": None}),
        ("EXCEPTION occurred: disk", {"failures": [(None, "EXCEPTION occurred: disk")]}),
        ("The training criterion is not a number (NAN).", {"has_nan_criterion": True}),
        ("wall: import+build 3.5s, train 7.25s (rank 1)", {"walls": [(1, 3.5, 7.25)]}),
    ],
)  # fmt: skip
def test_lines_of_the_run(line: str, facts: dict[str, Any]) -> None:
    found = said(line).facts
    assert {name: getattr(found, name) for name in facts} == facts


WORKERS = "Parallel training (5 workers) using "
BEGIN = "Starting minibatch loop, "
BUFFERED = "BufferedAsyncGradientAggregation is ENABLED."
LOOP = f"{BEGIN}DataParallelSGD training (myRank = 1, numNodes = 4, numGradientBits"


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        (f"{LOOP} = 32), distributed reading is ENABLED.", ("data_parallel", 4, 32, None)),
        (
            f"{BEGIN}DataParallelSGD training (NumNodes = 3, NumGradientBits = 1), {BUFFERED}",
            ("data_parallel_async", 3, 1, None),
        ),
        (
            f"{BEGIN}DataParallelASGD training (numNodes = 2, SamplesSyncToServer = 256), x",
            ("asynchronous", 2, None, 256),
        ),
        (
            f"{WORKERS}BlockMomentumSGD with x, block size per worker = 9 samples, using",
            ("block_momentum", 5, None, 9),
        ),
        ("Parallel training (3 workers) using ModelAveraging", ("model_averaging", 3, None, None)),
        ("Initializing dataParallelSGD with FP32 aggregation.", ("data_parallel", None, 32, None)),
        ("Initializing dataParallelSGD for 2-bit quantization.", ("data_parallel", None, 2, None)),
        ("Starting minibatch loop.", (None, None, None, None)),
    ],
)
def test_lines_of_the_method(line: str, stated: tuple[Any, ...]) -> None:
    found = said(line).facts.of_command(None)
    block = found.worker_block_samples
    assert (found.method, found.n_workers, found.gradient_bits, block) == stated
    is_local = found.method in ("asynchronous", "block_momentum", "model_averaging")
    assert found.groups_are_local == is_local


SERIAL = "Starting minibatch loop."
START = "Starting Epoch {}: learning rate per sample = 0.1  effective momentum = 0.9 "
PARTS = (
    "minibatchiterator: epoch {}: frames [0..9] (first utterance at frame 0), data subset 0 of {}"
)
AVERAGING = "Parallel training (2 workers) using ModelAveraging"


@pytest.mark.parametrize(
    ("lines", "shared_epochs"),
    [
        ([START.format(1), SERIAL, START.format(2), f"{LOOP} = 32)."], [False, True, None]),
        ([START.format(1), SERIAL, START.format(2), SERIAL], [False, False, False]),
        # Model averaging does not say in each epoch that it is at work: the parts of the data do.
        ([AVERAGING, START.format(1), SERIAL, START.format(2), SERIAL], [None, None, None]),
        ([AVERAGING, PARTS.format(0, 1), PARTS.format(1, 2)], [False, True, None]),
        # What is split for evaluations and for the precomputation is not the epoch.
        ([AVERAGING, PARTS.format(0, 2), START.format(1), PARTS.format(0, 1), SERIAL,
          PARTS.format(0, 2), START.format(2), PARTS.format(1, 2), SERIAL], [False, True, None]),
        ([AVERAGING, PARTS.format(0, 2), PARTS.format(1, 2), PARTS.format(0, 1)],
         [True, True, None]),
        ([START.format(1), SERIAL, START.format(2), AVERAGING, SERIAL], [False, True, None]),
        (["configparameters: a:x=[action=train;SGD=[ParallelTrain=[parallelizationStartEpoch=2]]]",
          AVERAGING, START.format(1), SERIAL, START.format(2), SERIAL], [False, True, True]),
        (["parallelTrain option is not enabled. ParallelTrain config will be ignored."],
         [False, False, False]),
        (["Learning rate per 64 samples: 0.05"], [False, False, False]),
        ([], [None, None, None]),
    ],
)  # fmt: skip
def test_epochs_that_workers_share(lines: list[str], shared_epochs: list[bool | None]) -> None:
    found = said(*lines).facts.of_command(None)
    assert [found.is_shared(epoch) for epoch in (1, 2, 3)] == shared_epochs


def test_ranks_that_contradict_each_other_are_named() -> None:
    reader = FactReader()
    for rank, bits in ((0, 32), (1, 32), (2, 1)):
        reader.read("CNTKCommandTrainBegin: t", rank)
        reader.read(f"Initializing dataParallelSGD for {bits}-bit quantization.", rank)
        reader.read('Precision = "float"', rank)
    said_of_bits = "t: gradient_bits: rank 0 says 32, rank 1 says 32, rank 2 says 1"
    assert reader.notes == [("ranks_disagree", said_of_bits)]
    assert reader.facts.of_command("t").gradient_bits == 1


def test_one_commit_is_named_twice_and_two_are_odd() -> None:
    full, short = (
        "\t\tBuild SHA1: abc123def456",
        "CNTK 2.0 (HEAD abc123, x) on h at 2017/01/02 03:04:05",
    )
    for lines in ((full, short), (short, full)):
        assert (said(*lines).facts.commit, said(*lines).notes) == ("abc123def456", [])
    reader = said(short, "\t\tBuild SHA1: 9999999")
    assert reader.facts.commit == "9999999"
    assert reader.notes == [("build_unclear", "the log names the builds 9999999 and abc123")]


def test_the_reader_of_an_evaluation_does_not_hide_the_chunks_of_the_training() -> None:
    lines = [f"minibatchutterancesource: 948 utterances grouped into {n} chunks" for n in (3, 1)]
    assert said(*lines).facts.of_command(None).n_chunks == 3


def test_learners_of_python() -> None:
    model = "model mlp: 178110 parameters; workers 1; rank 0; minibatch 256; precision float64"
    rates = (
        "Learning rate per minibatch: 0.5",
        "Momentum per 64 samples: 0.5",
        "Learning rate per minibatch: 0.25",
    )
    found = said(model, *rates).facts
    command = found.of_command(None)
    assert (command.learning_rate, command.momentum) == (0.5 / 256, 0.5**4)
    assert (found.network, found.precision) == ("mlp", "float64")
    columns = run_columns(found, command)
    assert (columns["n_workers"], columns["sync_method"]) == (1, "single")
    assert found.shares_work(command, is_python=True) is False
    silent = said("CNTKCommandTrainBegin: train").facts
    shares = [silent.shares_work(silent.of_command("train"), is_python=p) for p in (True, False)]
    assert shares == [True, None]  # distributed learners of Python do not write their rate


EXPECTED: dict[str, dict[str, Any]] = {
    "2015-12-08__Speech_DNN_Parallel1Bit": {
        "framework_version": None, "build": None, "host": "localhost", "network": "cntkSpeech",
        "device": None, "n_nodes": None, "n_workers": 3, "n_workers_requested": 3,
        "n_workers_available": 3, "n_threads": None, "precision": "float64",
        "sync_method": "data_parallel", "gradient_bits": 1, "block_samples": None,
        "epoch_samples": 20480, "counted_samples": "global", "learning_rate": 1 / 64,
        "momentum": 0.9,
    },
    "v1.7.2__Speech_DNN_ParallelBM": {
        "framework_version": None, "build": "026b1e772b963461e189f8f00aa7ed6951298f84",
        "host": "localhost", "network": "cntkSpeech",
        "device": "Intel(R) Xeon(R) CPU E5-2630 v2 @ 2.60GHz", "n_nodes": None, "n_workers": 2,
        "n_workers_requested": 2, "n_workers_available": 2, "n_threads": 12,
        "precision": "float64", "sync_method": "block_momentum", "gradient_bits": None,
        "block_samples": 2048, "epoch_samples": 20480, "counted_samples": "local",
        "learning_rate": 1 / 64, "momentum": 0.9,
    },
    "v2.0__ParallelTraining_AsynchronousSGD": {
        "framework_version": "2.0rc1+", "build": "e1f48f4c145ed8b7e34d064758d449a8e7cc46b5",
        "host": "msraml-tesla03", "network": "03_ResNet", "device": "Tesla K40m", "n_nodes": 1,
        "n_workers": 2, "n_workers_requested": 2, "n_workers_available": 2, "n_threads": None,
        "precision": "float32", "sync_method": "asynchronous", "gradient_bits": None,
        "block_samples": 128, "epoch_samples": None, "counted_samples": "local",
        "learning_rate": 0.004, "momentum": 0.0,
    },
    "v2.0__Speech_External_ParallelMALSTM": {
        "framework_version": "2.0.beta2.0+", "build": "c4232e", "host": "DPHAIM-25",
        "network": None, "device": None, "n_nodes": 1, "n_workers": 3, "n_workers_requested": 3,
        "n_workers_available": None, "n_threads": 8, "precision": None,
        "sync_method": "model_averaging", "gradient_bits": None, "block_samples": None,
        "epoch_samples": None, "counted_samples": "local", "learning_rate": None,
        "momentum": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_columns_of_public_logs(baseline: Read, name: str) -> None:
    facts = baseline(name).facts
    (command,) = [c for c in facts.commands.values() if c.method]
    assert run_columns(facts, command) == EXPECTED[name]


def test_two_trainings_of_one_log_are_told_apart(baseline: Read) -> None:
    facts = baseline("v1.1__Speech_SVD").facts
    columns = [run_columns(facts, facts.of_command(name)) for name in ("speechTrain", "SVDTrain")]
    assert [c["network"] for c in columns] == ["cntkSpeech", "cntkSpeech.svd"]
    assert [c["learning_rate"] for c in columns] == [1 / 64, 0.1 / 1024]
    assert [c["momentum"] for c in columns] == [0.9, 0.656119]
    assert [sorted(facts.of_command(n).epochs) for n in ("speechTrain", "SVDTrain")] == [
        [1, 2, 3], [1, 2],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "v2.0__Text_SLU", "v2.0__Examples_Image_Classification", "v1.5__Speech_DNN",
        "v2.0__Examples_Image_GettingStarted",
    ],
)  # fmt: skip
def test_the_filter_drops_no_line_that_counts(baseline: Read, name: str) -> None:
    few, every = baseline(name).facts, baseline(name, "").facts
    assert {k: v for k, v in vars(few).items() if k not in ("config", "commands")} == {
        k: v for k, v in vars(every).items() if k not in ("config", "commands")
    }
    assert vars(few.config) == vars(every.config)
    for key, command in every.commands.items():
        assert vars(few.commands[key]) | {"config": None} == vars(command) | {"config": None}


def test_facts_of_our_runs(recorded: Read) -> None:
    facts = recorded("starved_worker_n2").facts
    command = facts.of_command("train")
    assert (facts.commit, facts.n_requested, facts.is_single_host) == (
        "ae9c9c7c5f9e6072cc9c94c254f816dbdc1c5be6", 2, True,
    )  # fmt: skip
    # 17 lines of rank 1, of 4 each: 15 of 512 samples, one of 448, one of 60.
    assert facts.syncs == {1: (68, 15 * 512 + 448 + 60)}
    assert (command.minibatch(), command.n_epochs, facts.shares_work(command)) == (256, 2, True)
    assert facts.walls == [(0, 3.849, 7.303), (1, 4.352, 6.726)]

    facts = recorded("tagged_first4_nometric_n1").facts
    columns = run_columns(facts, facts.of_command("train"))
    assert math.isclose(columns["learning_rate"], 0.05 / 64)
    assert facts.shares_work(facts.of_command("train"), is_python=True) is False

    facts = recorded("mlp_bm_n2").facts
    columns = run_columns(facts, facts.of_command("train"), counts_are_local=True)
    # --block 1024 of two workers
    assert (columns["sync_method"], columns["block_samples"]) == ("block_momentum", 512)
    assert columns["counted_samples"] == "local"

    failures = recorded("failed_double_reader_n2").facts.failures
    assert failures[0][1].startswith("About to throw exception 'The Variable 'Input('features'")
    assert failures[-1][1].startswith("mpirun detected that one or more processes exited with")


WORDS = [
    word
    for line in (
        START.format(1),
        PARTS.format(1, 2),
        AVERAGING,
        LOOP,
        "Learning rate per 1 samples: 1",
    )
    for word in [*line.split(), line]
]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*WORDS, "\x00", "٣", "9" * 400])), max_size=40))
@example([["Starting Epoch 999999999: learning rate per sample = 1e999, momentum = -1"]])
@example([["minibatch epoch 9: data subset 0 of 0"], ["Learning rate per 000 samples: 1"]])
def test_damaged_lines_raise_nothing(lines: list[list[str]]) -> None:
    reader = FactReader()
    for number, words in enumerate(lines):
        reader.read(" ".join(words), number % 3 or None)
    command = reader.facts.of_command(None)
    assert run_columns(reader.facts, command)["n_workers"] == reader.facts.workers_of(command)
    assert [epoch for epoch in command.epochs if epoch < 0] == []


def test_signs_are_patterns_of_the_filter(tmp_path: Path) -> None:
    lines = [
        "nothing here",
        "\t\tBuild SHA1: 0123456789",
        "MPI Rank 0: ]",
        "[1,0]<stderr>:    ] [a=[b=1]]",
    ]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    file = SourceFile(tmp_path / "log", "log")
    found = matching_lines(Source("log", (file,)), file, PATTERN)
    assert [number for number, _ in found] == [2, 3, 4]
