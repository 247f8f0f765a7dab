"""The micro-benchmark: standard operators and collectives, in logs that ingest reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fitkit
from fitkit.cli import run
from fitkit.features import FRAMES

torch = pytest.importorskip("torch", reason="the micro-benchmark needs torch")

from fitkit.recorder import microbench  # noqa: E402
from fitkit.recorder.microbench import SETS, measure  # noqa: E402


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> fitkit.Dataset:
    """The two quickest sets, each batch as few times as it can be."""
    folder = tmp_path_factory.mktemp("microbench")
    assert measure(folder / "logs", 0.0, ["lookups", "tokens"]) == []
    return fitkit.ingest(folder / "logs", folder / "ds")


def test_every_batch_is_timed_twice(timed: fitkit.Dataset) -> None:
    runs = timed.read("runs", ["run_id", "network", "instrument", "n_workers"])
    assert runs.groupby("network").size().to_dict() == {
        "microbench-lookups": 2 * 4,
        "microbench-tokens": 2 * 5,
    }
    assert set(runs.instrument) == {"recorder"}


def test_operators_have_sizes_and_both_times(timed: fitkit.Dataset) -> None:
    frame = FRAMES["layers"](timed, "median")
    tokens = frame[(frame.network == "microbench-tokens") & (frame.local_batch == 4)]
    assert {"Embedding", "LayerNorm", "Linear", "GELU", "Softmax"} <= set(tokens.layer_type)
    # 4 samples of 48 words, 128 values each, times 128×384 weights.
    first = tokens[(tokens.layer == "2") & (tokens.phase == "forward")].iloc[0]
    assert first.flop == 2 * 4 * 48 * 128 * 384
    assert first.n_params == 128 * 384 + 384
    assert first.input_bytes == 4 * 4 * 48 * 128
    assert (tokens.cpu_s > 0).all()
    assert (tokens.duration_s > 0).all()


def test_all_kinds_of_operators_are_in_a_set() -> None:
    kinds = {type(m).__name__ for each in SETS for m in each.network(torch, 1).modules()}
    assert {
        "Linear", "Conv2d", "LayerNorm", "BatchNorm2d", "ReLU", "GELU", "Softmax", "Dropout",
        "Embedding", "Flatten", "MaxPool2d",
    } <= kinds  # fmt: skip


def test_a_gpu_gets_wider_networks() -> None:
    for each in SETS:
        one, four = (each.network(torch, factor) for factor in (1, 4))
        sizes = [sum(p.numel() for p in network.parameters()) for network in (one, four)]
        assert sizes[1] > 3 * sizes[0]
        assert each.network(torch, 4)(each.data(torch, 1, 4)).numel() > 0


def test_collectives_of_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbench, "_REDUCED", (256, 65_536))
    missing = measure(tmp_path / "logs", 0.0, ["collectives"])
    if missing:
        pytest.skip(missing[0])
    found = FRAMES["comms"](fitkit.ingest(tmp_path / "logs", tmp_path / "ds"), "median")
    assert set(found.op) == {"all_reduce"}
    assert set(found.n_ranks) == {2}
    assert sorted(found.n_bytes) == [4 * 256, 4 * 65_536]
    assert (found.duration_s > 0).all()


def test_what_cannot_be_measured_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    (said,) = measure(tmp_path, 0.0, ["collectives"])
    assert said == "collectives: this PyTorch has no torch.distributed"


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def quick(folder: Path) -> list[str]:
        return measure(folder, 0.0, ["lookups"])

    monkeypatch.setattr(microbench, "measure", quick)
    assert run(["record", "--microbench", "-d", str(tmp_path / "logs"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["logs"]) == 8
    assert all(row["n_steps"] == 8 for row in document["logs"])
    # A second time beside the first; and into a dataset that is there.
    assert run(["record", "--microbench", "-d", str(tmp_path / "logs")]) == 0
    assert "logs/run2" in capsys.readouterr().err
    dataset = fitkit.ingest(tmp_path / "logs", tmp_path / "ds")
    before = len(dataset.read("runs", ["run_id"]))
    assert before == 16
    assert run(["record", "--microbench", "-d", str(tmp_path / "ds")]) == 0
    assert len(dataset.read("runs", ["run_id"])) == before + 8


def test_a_command_or_the_microbench(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record"]) == 2
    assert "--microbench" in capsys.readouterr().err
    assert run(["record", "--microbench", "python"]) == 2
    assert "leave it out" in capsys.readouterr().err
