"""States of the Hugging Face Trainer; ``resumed.json`` is one of 53 steps after a checkpoint."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.trainer_state import TrainerStateParser
from fitkit.records import Phase, Record, Run, Step
from fitkit.schema import to_arrow

RESUMED = Path(__file__).with_name("resumed.json")
Entry = dict[str, Any]


def read(*files: SourceFile, **metadata: Any) -> tuple[list[Record], list[tuple[str, str]]]:
    """Records, and codes and texts of the notes; what the tables could not hold would fail here."""
    source = Source("run", files, metadata, ProblemLog())
    records = list(TrainerStateParser().parse(source))
    for table, kind in (("runs", Run), ("steps", Step), ("phases", Phase)):
        to_arrow(table, [one for one in records if isinstance(one, kind)])
    return records, [(code, text) for _, _, code, text in source.problems.notes]


@pytest.fixture(scope="module")
def read_state() -> Callable[..., Any]:
    """Reads a state with these entries."""

    def call(*history: Any, **facts: Any) -> Any:
        state = {"global_step": 30, "max_steps": 30, "log_history": list(history), **facts}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trainer_state.json"
            path.write_text(json.dumps(state, indent=2, sort_keys=True), encoding="utf-8")
            return read(SourceFile(path, path.name))

    return call


def loss(step: int) -> Entry:
    return {"epoch": step / 10, "loss": 0.5, "learning_rate": 1e-5, "step": step}


def evaluation(step: int, seconds: float, name: str = "eval") -> Entry:
    return {"epoch": step / 10, f"{name}_loss": 0.4, f"{name}_runtime": seconds, "step": step}


def end(step: int, seconds: float, steps_per_s: float, samples_per_s: float) -> Entry:
    return {
        "epoch": step / 10, "step": step, "train_loss": 0.5, "train_runtime": seconds,
        "train_steps_per_second": steps_per_s, "train_samples_per_second": samples_per_s,
    }  # fmt: skip


def steps(records: list[Record]) -> list[tuple[int | None, int, float | None, int | None]]:
    found = [record for record in records if isinstance(record, Step)]
    return [(s.first_step, s.n_steps, s.duration_s, s.n_samples) for s in found]


def phases(records: list[Record]) -> list[tuple[str, str | None, float, int | None]]:
    found = [record for record in records if isinstance(record, Phase)]
    return [(p.phase, p.parent, p.duration_s, p.epoch) for p in found]


def test_a_whole_training(read_state: Any) -> None:
    records, notes = read_state(
        loss(10), evaluation(10, 2.0), loss(20), evaluation(20, 3.0), loss(30),
        end(30, 65.0, 0.462, 14.769), evaluation(30, 2.5), train_batch_size=32,
    )  # fmt: skip
    run = records[0]
    assert isinstance(run, Run)
    assert (run.global_batch, run.n_workers, run.local_batch, run.state) == (
        32,
        1,
        32.0,
        "completed",
    )
    assert steps(records) == [(0, 30, 60.0, 960)]
    assert phases(records) == [
        ("train", None, 65.0, None),
        ("eval", "train", 2.0, 1),
        ("eval", "train", 3.0, 2),
        ("eval", None, 2.5, 3),  # after the training
    ]
    assert notes == []


def test_a_resumed_training_of_our_own() -> None:
    """53 of 153 steps in 1.238 s, of which two evaluations took 0.2285 s and 0.1996 s."""
    records, notes = read(SourceFile(RESUMED, RESUMED.name))
    ((first, n, seconds, samples),) = steps(records)
    assert (first, n, samples) == (100, 53, 53 * 8)
    assert seconds == pytest.approx(1.238 - 0.2285 - 0.1996)
    assert phases(records) == [
        ("train", None, 1.238, None),
        ("eval", None, 0.119, 1),  # before the checkpoint
        ("eval", "train", 0.2285, 2),
        ("eval", "train", 0.1996, 3),
        ("eval", None, 0.1451, 3),
    ]
    ((code, text),) = notes
    assert code == "resumed"
    assert text.endswith("are 53 steps, where the history has 153: resumed after step 100")


def test_run_times_between_entries(read_state: Any) -> None:
    """Where the Trainer counts tokens, each entry has the run time so far."""
    first = {**loss(10), "train_runtime": 12.0, "train_tokens_per_second": 100.0}
    second = {**loss(20), "train_runtime": 24.0, "train_tokens_per_second": 100.0}
    records, _ = read_state(
        first, evaluation(10, 2.0), second, end(30, 36.5, 0.822, 6.575), train_batch_size=8
    )
    assert steps(records) == [(0, 10, 12.0, 80), (10, 10, 10.0, 80), (20, 10, 12.5, 80)]
    assert phases(records)[0] == ("train", None, 36.5, None)


def test_two_trainings_one_after_the_other(read_state: Any) -> None:
    records, notes = read_state(
        evaluation(5, 1.0), end(10, 21.0, 0.476, 3.81), evaluation(10, 1.0),
        evaluation(20, 4.0), end(30, 44.0, 0.455, 3.636),
    )  # fmt: skip
    assert steps(records) == [(0, 10, 20.0, 80), (10, 20, 40.0, 160)]
    parents = [parent for name, parent, _, _ in phases(records) if name == "eval"]
    assert parents == ["train", None, "train"]
    assert notes == []


def test_workers_or_accumulation_cannot_be_told_apart(read_state: Any) -> None:
    records, _ = read_state(end(30, 60.0, 0.5, 16.0), train_batch_size=8)
    run = records[0]
    assert isinstance(run, Run)
    assert (run.global_batch, run.n_workers, run.local_batch) == (32, None, None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.json"
        path.write_text(
            json.dumps({"log_history": [end(30, 60.0, 0.5, 16.0)], "train_batch_size": 8})
        )
        run = read(SourceFile(path, "x"), n_workers=4)[0][0]
    assert isinstance(run, Run)
    assert (run.n_workers, run.local_batch, run.state) == (4, 8.0, None)


def test_rates_that_contradict_each_other(read_state: Any) -> None:
    records, notes = read_state(end(20, 60.0, 0.5, 16.0), train_batch_size=16)
    assert steps(records) == [(0, 20, 60.0, 640)]
    assert [code for code, _ in notes] == ["throughput_mismatch"]
    assert notes[0][1].endswith("are 30 steps, where the history has 20: stopped early")
    records, notes = read_state(end(30, 60.0, 0.5, 12.0), train_batch_size=16)
    assert steps(records) == [(0, 30, 60.0, None)]
    assert notes[0][1].endswith("are 24 samples a step, no multiple of train_batch_size 16")


def test_rounding_is_no_contradiction(read_state: Any) -> None:
    """0.003 steps a second in 10,000 s may be 35 steps as well as 25."""
    records, notes = read_state(end(34, 10_000.0, 0.003, 0.218), train_batch_size=64)
    assert steps(records) == [(0, 34, 10_000.0, 34 * 64)]
    assert notes == []


def test_a_history_without_times(read_state: Any) -> None:
    records, notes = read_state(loss(10), evaluation(10, 1.0, "test"), max_steps=99)
    assert isinstance(records[0], Run)
    assert records[0].state == "incomplete"
    assert phases(records) == [("eval", None, 1.0, 1)]
    assert notes == [("no_times", "no entry of the history has a run time")]


def test_checkpoints_are_of_the_run_of_their_folder(tmp_path: Path) -> None:
    files = []
    for folder, n in (("a/checkpoint-10", 1), ("a", 3), ("a/checkpoint-20", 2), ("b", 1)):
        path = tmp_path / folder / "trainer_state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        history = [loss(10 * i) for i in range(1, n + 1)]
        path.write_text(
            json.dumps({"log_history": history, "global_step": 10 * n, "max_steps": 30})
        )
        files.append(SourceFile(path, f"{folder}/trainer_state.json"))
    families = TrainerStateParser().group(files)
    assert [len(family) for family in families] == [3, 1]
    run = read(*families[0])[0][0]
    assert isinstance(run, Run)
    assert run.state == "completed"


@pytest.mark.parametrize(
    ("head", "yes"),
    [
        (RESUMED.read_bytes(), True),
        (b'{"global_step":3,"log_history":[]}', True),
        (b'[{"global_step": 3, "log_history": []}]', False),
        (b'{"global_step": 3}', False),
        (b'{"traceEvents": [{"name": "global_step"}], "log_history": 1}', False),
        (b"", False),
    ],
)
def test_what_is_recognised(head: bytes, yes: bool) -> None:
    assert TrainerStateParser().recognises(head) is yes


# -- damage ----------------------------------------------------------------------------------

HOSTILE = [None, [], {}, "", "x", True, -1, 0, 1e308, float("nan"), 10**30, "1e400", 1e-320, [[]]]


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_hostile_values_are_read_or_refused(read_state: Any, data: st.DataObject) -> None:
    history: list[Any] = [evaluation(10, 2.0), loss(20), end(30, 65.0, 0.462, 14.769)] * 2
    for _ in range(data.draw(st.integers(1, 4))):
        entry = history[data.draw(st.integers(0, len(history) - 1))] = dict(history[0])
        entry.update(end(30, 9.0, 3.3, 26.0))
        entry[data.draw(st.sampled_from(sorted(entry)))] = data.draw(st.sampled_from(HOSTILE))
    key = data.draw(st.sampled_from(["global_step", "max_steps", "train_batch_size", "x"]))
    read_state(*history, 3, **{key: data.draw(st.sampled_from(HOSTILE))})


def test_damaged_bytes_are_read_or_refused(tmp_path: Path) -> None:
    whole, path = RESUMED.read_bytes(), tmp_path / "trainer_state.json"
    draw = random.Random(3)  # noqa: S311
    n_read = 0
    for _ in range(80):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] ^= draw.randint(1, 255)
        path.write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
        with suppress(ParseError):
            read(SourceFile(path, path.name))
            n_read += 1
    assert n_read > 0
    for content in (b"[]", b"3", b'{"log_history": 3}', b"{"):
        path.write_bytes(content)
        with pytest.raises(ParseError):
            read(SourceFile(path, path.name))
