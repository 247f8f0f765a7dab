"""What a log says of its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Read = Callable[..., Any]
Line = Callable[..., str]


@pytest.fixture
def describe(read: Read, record: Line) -> Callable[..., Any]:
    """The run of a log that states these facts, after these lines."""

    def call(*lines: str, label: str = "result_0.txt", n_ranks: int = 1, **facts: Any) -> Any:
        log = [
            *lines,
            *(record(0, key, value) for key, value in facts.items()),
            *(record(1, "init_start") for _ in range(n_ranks)),
            record(2, "init_stop"),
        ]
        return read(log, label).run

    return call


@pytest.mark.parametrize(
    ("platform", "n_ranks", "system", "n_nodes"),
    [
        ("8xNVIDIA DGX A100", 64, "NVIDIA DGX A100", 8),
        ("1xDGX-1 with V100", 1, "DGX-1 with V100", 1),
        ("2xXE8545x4A100-SXM-40GB", 8, "XE8545x4A100-SXM-40GB", 2),
        ("128.0xNVIDIA DGX A100", 4, "NVIDIA DGX A100", None),
        ("64xBox", 16, "Box", None),  # ranks, not machines
        ("32xCLX-8260L_CPUs", 1, "CLX-8260L_CPUs", None),
        ("abci_512xV100_tensorflow", 1, "abci_V100_tensorflow", None),
        ("tpu-v3-32", 1, "tpu-v3-32", None),
        ("X86", 4, "X86", None),
        ("8x", 8, "8x", 8),
    ],
)
def test_the_machine_and_its_size(
    describe: Any, platform: str, n_ranks: int, system: str, n_nodes: int | None
) -> None:
    run = describe(submission_platform=platform, n_ranks=n_ranks)
    assert (run.system, run.n_nodes) == (system, n_nodes)


def test_a_template_that_was_not_filled_in(describe: Any) -> None:
    facts = {"submission_platform": "16xSUBMISSION_PLATFORM_PLACEHOLDER"}
    facts["submission_benchmark"] = "deepcam"
    label = "hpc/results/dgxa100_n16_ngc21.09_pytorch/strong_deepcam/result_1.txt"
    assert describe(label=label, **facts).system == "dgxa100_ngc21.09_pytorch"
    assert describe(label="a/b/result_1.txt", **facts).system is None
    assert describe(label="deepcam/result_1.txt", **facts).system is None


def test_workers(describe: Any) -> None:
    assert describe(n_ranks=8).n_workers == 8
    assert describe(n_ranks=1).n_workers is None
    assert describe(number_of_ranks=128).n_workers == 128
    assert describe(global_batch_size=256, local_batch_size=4).n_workers == 64
    assert describe(global_batch_size=256, local_batch_size=7).n_workers is None
    of_devices = {"number_of_nodes": 16, "accelerators_per_node": 8}
    run = describe(global_batch_size=512, **of_devices)
    assert (run.n_nodes, run.n_devices, run.n_workers, run.local_batch) == (16, 128, 128, 4.0)
    # Eight devices train two samples at once: they share them.
    shared = {"number_of_nodes": 1, "accelerators_per_node": 8, "gradient_accumulation_steps": 4}
    run = describe(global_batch_size=8, **shared)
    assert (run.n_devices, run.n_workers, run.local_batch) == (8, None, None)
    assert describe(number_of_nodes=512, accelerators_per_node=0).n_devices is None


def test_what_the_launcher_prints(describe: Any) -> None:
    run = describe("+ echo ':::DLPAL maskrcnn.sif 1841 2 node[001-002]'")
    assert (run.job_id, run.n_nodes) == ("1841", 2)


@pytest.mark.parametrize(
    ("framework", "name", "version"),
    [
        ("PyTorch NVIDIA Release 24.04", "pytorch", "NVIDIA Release 24.04"),
        ("NVIDIA NeMo Framework Release 24.04", "nemo", "NVIDIA Framework Release 24.04"),
        ("something else", None, None),
    ],
)
def test_the_description_of_the_machine(
    describe: Any, framework: str, name: str | None, version: str | None
) -> None:
    stated = {
        "system_name": "Eos", "number_of_nodes": "2", "accelerators_per_node": "4",
        "accelerator_model_name": "NVIDIA L40S", "framework": framework,
    }  # fmt: skip
    run = describe(f":::SYSJSON {json.dumps(stated)} ", global_batch_size=64)
    assert (run.n_nodes, run.n_devices, run.n_workers) == (2, 8, 8)
    assert (run.device, run.system) == ("NVIDIA L40S", "Eos")
    assert (run.framework, run.framework_version) == (name, version)


def test_the_entry_of_version_0_6(describe: Any) -> None:
    run = describe(submission_entry={"framework": "TensorFlow 1.13.1", "power": "none"})
    assert (run.framework, run.framework_version) == ("tensorflow", "1.13.1")
    assert describe(submission_entry="{'framework': 'x'}").framework is None


def test_precision_and_length(describe: Any) -> None:
    run = describe(precision_mode="amp", max_sequence_length=512, submission_benchmark="bert")
    assert (run.precision, run.sequence_length, run.network) == ("amp", 512, "bert")


def test_a_batch_that_is_stated_twice(read: Read, record: Line) -> None:
    found = read([record(0, "global_batch_size", 32), record(0, "global_batch_size", 64)])
    assert found.run.global_batch == 32
    assert found.said("contradictory_facts") == ["global_batch_size is 32, then 64"]
