"""Outputs of jobs: the job, its launches, and the log inside read by the parser of its format."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS, Source, SourceFile, identify
from fitkit.parsers.cntk import CntkParser
from fitkit.parsers.jobout import JobOutputParser
from fitkit.records import Record, Run, Step

MIB = 1 << 20


def bare(records: Sequence[Record]) -> list[Record]:
    """Records without what tells their source."""
    return [
        replace(record, **{name: "x" for name in ("run_id", "source_id", "job_id")
                           if hasattr(record, name)})
        for record in records
    ]  # fmt: skip


# -- real outputs of Blue Waters -------------------------------------------------------------


def test_a_real_output_of_fourteen_iterations(read: Any, shared: Path) -> None:
    found, notes = read(shared / "hpc" / "bluewaters_jobout_9086117_pytorch_resnet.out")
    assert {table: len(rows) for table, rows in found.items()} == {
        "jobs": 1, "launches": 1, "runs": 1, "steps": 14,
    }  # fmt: skip
    (job,), (launch,), (run,) = found["jobs"], found["launches"], found["runs"]
    assert (job.job_id, job.attempt, job.system, job.queue) == ("9086117.bw", 1, "bw", "normal")
    assert (job.login_node, job.prologue_s) == ("nid25428", 0.117)
    assert (job.n_nodes_reported, job.n_slots_reported, job.node_kind) == (1, 16, "xk")
    assert job.wall_limit_s == 6 * 3600
    assert job.started_at == datetime(2018, 10, 8, 16, 9, 50, tzinfo=UTC)  # 11:09:50 CDT
    assert (job.exit_code, job.state, job.hosts) == (None, None, None)
    assert (launch.launch_id, launch.job_id, launch.exit_code) == ("70046152", "9086117.bw", 1)
    assert (launch.user_s, launch.system_s) == (4936.0, 1034.0)
    assert launch.memory_bytes == 1757440 * 1024
    # The last line has no end: 116314 may be the beginning of a longer number.
    assert (launch.n_blocks_in, launch.n_blocks_out) == (1969380, None)
    assert (run.job_id, run.framework, run.state) == ("9086117.bw", None, None)
    assert [step.first_step for step in found["steps"]] == list(range(14))
    assert {(step.n_steps, step.duration_s) for step in found["steps"]} == {(1, None)}
    assert [(line, code) for _, line, code, _ in notes] == [(38, "truncated"), (None, "no_times")]


def test_a_real_output_without_training(read: Any, shared: Path) -> None:
    found, notes = read(shared / "hpc" / "bluewaters_jobout_9136604_pytorch_short.out")
    (job,), (launch,) = found["jobs"], found["launches"]
    assert (job.job_id, job.prologue_s, job.line) == ("9136604.bw", 0.199, 2)
    assert (job.wall_limit_s, job.node_kind, job.n_slots_reported) == (21600.0, "xk", 16)
    assert job.started_at == datetime(2018, 10, 24, 0, 14, 19, tzinfo=UTC)
    assert (launch.launch_id, launch.user_s, launch.exit_code) == ("70348902", 26.0, None)
    assert launch.memory_bytes == 1526968 * 1024
    assert (found.keys(), notes) == ({"jobs", "launches"}, [])


def test_a_real_program_that_was_killed(read: Any, shared: Path) -> None:
    found, notes = read(shared / "hpc" / "bluewaters_aprun_killed_8503624.err")
    (launch,) = found.pop("launches")
    assert (launch.launch_id, launch.exit_signal, launch.job_id) == ("66244051", 15, None)
    assert found == {}
    assert [(line, code) for _, line, code, _ in notes] == [(2, "rank_killed")]


def test_names_are_hashed_unless_they_are_kept(read: Any, job_output: Any) -> None:
    log = job_output("")
    (job,) = read(log)[0]["jobs"]
    names = [job.user, job.group, job.account, job.name]
    assert len({*names}) == 4
    assert not {*names} & {"tra001", "TRAIN_xyz", "xyz", "synthetic-job", None}
    (kept,) = read(log, keep_names=True)[0]["jobs"]
    assert [kept.user, kept.group, kept.account, kept.name] == [
        "tra001", "TRAIN_xyz", "xyz", "synthetic-job",
    ]  # fmt: skip


# -- what is inside --------------------------------------------------------------------------


def test_a_log_of_cntk_is_read_as_if_nothing_were_around_it(
    read: Any, job_output: Any, data: Path
) -> None:
    path = data / "cntk" / "mlpbig_dp_n2_mb256_rep1" / "train.logrank0"
    plain = Source("plain", (SourceFile(path, path.name),))
    expected = list(CntkParser().parse(plain))
    found, notes = read(job_output(path.read_text(), codes="1"))
    (job,), (launch,) = found.pop("jobs"), found.pop("launches")
    assert (job.job_id, launch.exit_code, launch.memory_bytes) == ("9300001.bw", 1, 2 * MIB)
    assert bare([r for rows in found.values() for r in rows]) == bare(
        sorted(expected, key=lambda r: [*found].index(_table(r)))
    )
    (run,) = found["runs"]
    assert (run.job_id, run.run_id, run.n_workers) == ("9300001.bw", job.source_id[:16], 2)
    assert run.source_id == job.source_id == launch.source_id
    assert [code for *_, code, _ in notes] == [code for *_, code, _ in plain.problems.notes]


def _table(record: Record) -> str:
    return {"Run": "runs", "Step": "steps", "Phase": "phases"}.get(type(record).__name__, "layers")


@pytest.mark.parametrize(
    ("name", "n_steps"), [("synthetic_maskrcnn.log", 10), ("deepspeed_zero2_w2.log", None)]
)
def test_other_logs_of_training(
    read: Any, job_output: Any, data: Path, name: str, n_steps: int | None
) -> None:
    path = data / "training_log" / name
    file = SourceFile(path, path.name)
    expected = list(identify(file).parse(Source("plain", (file,))))
    found, _ = read(job_output(path.read_text()))
    steps = [record for record in expected if isinstance(record, Step)]
    assert n_steps in (None, len(steps))
    assert bare(found.get("steps", [])) == bare(steps)
    assert found["runs"][0].framework == "pytorch"


def test_each_job_of_an_output_has_its_own_run(read: Any, job_output: Any, log_text: Any) -> None:
    output = (
        job_output(log_text(3), 1, job_id="7.bw")
        + job_output(log_text(4), 2, job_id="8.bw")
        + job_output("Iteration 1\n", 3, job_id="7.bw")
    )
    found, _ = read(output)
    jobs = [(job.job_id, job.attempt) for job in found["jobs"]]
    assert jobs == [("7.bw", 1), ("8.bw", 1), ("7.bw", 2)]
    run_ids = [run.run_id for run in found["runs"]]
    assert run_ids == [run_ids[0], f"{run_ids[0]}-2", f"{run_ids[0]}-3"]
    assert [run.job_id for run in found["runs"]] == ["7.bw", "8.bw", "7.bw"]
    n_steps = [sum(step.run_id == run_id for step in found["steps"]) for run_id in run_ids]
    assert n_steps == [3, 4, 1]
    assert [launch.job_id for launch in found["launches"]] == ["7.bw", "8.bw", "7.bw"]


def test_lines_keep_their_numbers(read: Any, job_output: Any) -> None:
    good = "Finished Epoch[1 of 3]: loss = 2.3 * 4096 7.3s (558.4 samples/s);\n"
    output = job_output(good + good.replace("7.3s", "7.3q").replace("1 of", "2 of"))
    (number,) = [n for n, line in enumerate(output.splitlines(), 1) if "7.3q" in line]
    with pytest.raises(ParseError, match=rf"^job\.out:{number}: cannot read"):
        read(output)


def test_a_log_of_two_formats_is_not_read(read: Any, job_output: Any, log_text: Any) -> None:
    cntk = "Finished Epoch[1 of 3]: loss = 2.3 * 4096 7.3s (558.4 samples/s);\n"
    found, notes = read(job_output(cntk + log_text(2)))
    assert found.keys() == {"jobs", "launches"}
    assert [note[2:] for note in notes] == [("ambiguous_log", "could be of several: cntk, pytorch")]


# -- iterations without times ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "groups"),
    [
        ([1, 2, 3], [(0, 1), (1, 1), (2, 1)]),
        ([0, 1, 2], [(0, 1), (1, 1), (2, 1)]),
        ([100, 200, 300], [(0, 100), (100, 100), (200, 100)]),
        ([0, 100, 200], [(0, 1), (1, 100), (101, 100)]),
        ([1, 101, 201], [(0, 1), (1, 100), (101, 100)]),
        ([501, 502], [(500, 1), (501, 1)]),
        ([5], [(4, 1)]),
        ([1, 2, 1, 2], [(None, 1)] * 4),
    ],
)
def test_lines_that_count_iterations(
    read: Any, job_output: Any, numbers: list[int], groups: list[tuple[int | None, int]]
) -> None:
    found, notes = read(job_output("".join(f"Iteration: {n} | Loss: 2\n" for n in numbers)))
    assert [(step.first_step, step.n_steps) for step in found["steps"]] == groups
    assert all(step.duration_s is None for step in found["steps"])
    text = f"{len(numbers)} lines count iterations and state no time"
    assert [note[2:] for note in notes] == [("no_times", text)]


# -- stamps ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp", "tz", "at", "is_local"),
    [
        ("Mon Oct  8 11:09:50 CDT 2018", None, datetime(2018, 10, 8, 16, 9, 50), False),
        ("Fri Dec  7 11:09:50 CST 2018", None, datetime(2018, 12, 7, 17, 9, 50), False),
        ("Fri Dec  7 11:09:50 CST 2018", "Asia/Shanghai", datetime(2018, 12, 7, 3, 9, 50), True),
        ("Sun Nov  5 01:30:00 CDT 2017", "America/Chicago", datetime(2017, 11, 5, 6, 30), True),
        ("Sun Nov  5 01:30:00 CST 2017", "America/Chicago", datetime(2017, 11, 5, 7, 30), True),
        ("Mon Oct  8 11:09:50 2018", "UTC", datetime(2018, 10, 8, 11, 9, 50), True),
    ],
)
def test_the_prologue_dates_the_start(
    read: Any, job_output: Any, stamp: str, tz: str | None, at: datetime, is_local: bool
) -> None:
    found, notes = read(job_output("", stamp=stamp), **({"tz": tz} if tz else {}))
    (job,) = found["jobs"]
    assert (job.started_at, job.is_local_time) == (at.replace(tzinfo=UTC), is_local)
    assert notes == []


@pytest.mark.parametrize(
    "stamp", ["Mon Oct  8 11:09:50 IST 2018", "Mon Oct  8 11:09:50 2018", "Mon Feb 30 1:0:0 2018"]
)
def test_a_stamp_of_unknown_zone_is_left_out(read: Any, job_output: Any, stamp: str) -> None:
    found, notes = read(job_output("", stamp=stamp))
    assert (found["jobs"][0].started_at, found["jobs"][0].is_local_time) == (None, None)
    assert [code for *_, code, _ in notes] == ["no_timezone"]


# -- recognition, damage ---------------------------------------------------------------------


def test_no_other_sample_is_taken_for_one(shared: Path, data: Path) -> None:
    paths = [*(shared / "hpc").iterdir(), *data.glob("torque/s*"), *data.glob("training_log/*.log")]
    heads = {path.name: SourceFile(path, path.name).head() for path in paths}
    ours = {name for name, head in heads.items() if JobOutputParser().recognises(head)}
    assert ours == {
        "bluewaters_jobout_9086117_pytorch_resnet.out",
        "bluewaters_jobout_9136604_pytorch_short.out",
        "bluewaters_aprun_killed_8503624.err",
    }


def test_what_one_of_the_parsers_inside_learns_changes_the_version() -> None:
    assert JobOutputParser(PARSERS[:2]).version == 2 + PARSERS[0].version + PARSERS[1].version


@pytest.mark.parametrize(
    ("end", "codes", "user_s", "job_id"),
    [
        ("Application 70000001 exit codes: 1, 14", 1, None, "9300001.bw"),
        ("Application 70000001 exit codes: 14", None, None, "9300001.bw"),
        ("Application 70000001 resources: utime ~12", None, None, "9300001.bw"),
        ("Application 70000001 resources: utime ~12s, stime ~7", None, 12.0, "9300001.bw"),
    ],
)
def test_the_last_value_of_a_line_without_an_end_is_left_out(
    read: Any, tmp_path: Path, job_output: Any, end: str, codes: int, user_s: float, job_id: str
) -> None:
    head = job_output("", codes="").partition("Application")[0]
    path = tmp_path / "job.out"
    path.write_text(head + end)
    found, notes = read(path)
    (job,), (launch,) = found["jobs"], found["launches"]
    assert (job.job_id, launch.exit_code, launch.user_s) == (job_id, codes, user_s)
    assert launch.system_s is None
    assert [code for *_, code, _ in notes] == ["truncated"]
    path.write_text(head[: head.index("9300001.bw") + 4])
    found, notes = read(path)
    assert ("jobs" in found, [code for *_, code, _ in notes]) == (False, ["truncated"])


def test_a_stamp_that_is_none_is_not_quoted(read: Any, tmp_path: Path, job_output: Any) -> None:
    path = tmp_path / "job.out"
    path.write_text(job_output("", stamp="alice smith"))
    for tz, code in ((None, "no_timezone"), ("UTC", "bad_value")):
        _, notes = read(path, **({"tz": tz} if tz else {}))
        assert [code for *_, code, _ in notes] == [code]
        assert "alice" not in str(notes)


def test_a_cut_compressed_output_gives_what_is_there(
    read: Any, job_output: Any, tmp_path: Path
) -> None:
    lines = "".join(f"Iteration: {n} | Loss: {n * 37 % 101}\n" for n in range(1, 5000))
    path = tmp_path / "job.out.gz"
    path.write_bytes(gzip.compress(job_output(lines).encode(), mtime=0)[:-2000])
    found, notes = read(path)
    assert len(found["jobs"]) == 1
    assert 0 < len(found["steps"]) < 4999
    assert [code for *_, code, _ in notes].count("truncated") == 1


@settings(max_examples=40, deadline=None)
@given(
    cut=st.integers(0, 2000),
    noise=st.lists(st.binary(max_size=40), max_size=4),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_damage_never_raises_anything_else(
    cut: int, noise: list[bytes], end: str, tmp_path_factory: Any, job_output: Callable[..., str]
) -> None:
    text = job_output("Iteration: 1 | Loss: 2\nIteration: 2 | Loss: 1\n", codes="1")
    content = text.replace("\n", end).encode()
    for k, part in enumerate(noise):
        place = (k + 1) * cut % (len(content) + 1)
        content = content[:place] + part + content[place:]
    path = tmp_path_factory.mktemp("damage") / "job.out"
    path.write_bytes(content[: len(content) - cut] if cut < len(content) else content)
    source = Source("job", (SourceFile(path, "job.out"),))
    for record in JobOutputParser().parse(source):
        assert not isinstance(record, Run) or record.run_id == source.run_id


@settings(max_examples=15, deadline=None)
@given(places=st.lists(st.integers(0, 8), max_size=5))
def test_lines_of_aprun_between_those_of_a_log_change_nothing(
    places: list[int], tmp_path_factory: Any, job_output: Any, log_text: Any
) -> None:
    lines = log_text(6).splitlines(keepends=True)
    for place in sorted(places, reverse=True):
        lines.insert(place, "Application 12 exit codes: 0\n")
    path = tmp_path_factory.mktemp("between") / "job.out"
    found = []
    for text in (log_text(6), "".join(lines)):
        path.write_text(job_output(text))
        inner = [parser for parser in PARSERS if parser.name == "pytorch"]
        source = Source("job", (SourceFile(path, "job.out"),))
        found.append([r for r in JobOutputParser(inner).parse(source) if isinstance(r, Run | Step)])
    assert bare(found[0]) == bare(found[1])
    assert len(found[0]) == 7
