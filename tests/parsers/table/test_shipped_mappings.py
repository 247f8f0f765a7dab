"""Mappings that come with fitkit, found by name: public traces of deep-learning clusters.

Rows of Helios, of Philly and below the headers of PAI are synthetic: written from the descriptions
of the columns, for no real ones are at hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.errors import InputError
from fitkit.ingestion import Options
from fitkit.parsers import read_mapping
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.table import TableParser
from fitkit.parsers.table.mapping_file import SHIPPED
from fitkit.records import Record

NAMES = ("acme", "helios", "openb", "pai", "pai_instances", "pai_tasks", "philly")
ReadText = Callable[..., tuple[list[Any], list[str]]]


def parse(path: Path, mapping: str | Path, **metadata: Any) -> tuple[list[Record], list[str]]:
    """Records, and codes of the notes."""
    problems = ProblemLog()
    source = Source(path.name, (SourceFile(path, path.name),), metadata, problems)
    records = list(TableParser(read_mapping(mapping)).parse(source))
    return records, [code for _, _, code, _ in problems.notes]


@pytest.fixture
def parse_text(tmp_path: Path) -> ReadText:
    def call(text: str, mapping: str, **metadata: Any) -> tuple[list[Any], list[str]]:
        path = tmp_path / "trace.csv"
        path.write_text(text, encoding="utf-8")
        return parse(path, mapping, **metadata)

    return call


def test_every_mapping_says_where_its_table_is_from() -> None:
    assert sorted(path.stem for path in SHIPPED.glob("*.toml")) == list(NAMES)
    for path in SHIPPED.glob("*.toml"):
        head = re.findall(r"^# (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert any(line.startswith("Origin: ") for line in head), path.name
        assert any(line.startswith("Units: ") for line in head), path.name
        assert re.fullmatch(rf"fitkit ingest \S+ --mapping {path.stem} .*-d \w+", head[-1])


def test_a_file_of_that_name_wins_and_a_folder_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("acme").mkdir()
    assert read_mapping("acme").blocks[0].table == "jobs"
    Path("philly").write_text('[[records]]\ntable = "runs"\n[records.columns]\n', encoding="utf-8")
    assert read_mapping("philly").blocks[0].table == "runs"
    with pytest.raises(InputError, match="azure: No such file") as caught:
        read_mapping("azure")
    assert "or one of acme, helios, openb" in caught.value.hint


def test_acme_by_name_from_the_folder_of_files(shared: Path, tmp_path: Path) -> None:
    options = Options(mapping="acme")
    files = sorted((shared / "hpc").glob("acme_*_examples.csv"))
    jobs = fitkit.ingest(files, tmp_path / "acme", options=options).read("jobs")
    assert len(jobs) == 2 + 2
    assert sorted(jobs.user.value_counts()) == [2, 2]  # one user of each cluster, hashed
    assert not {"uf794", "u5907"} & set(jobs.user)
    jobs = jobs.set_index("job_id")
    # 5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,00:18:54,00:20:51,117,32,936.0
    job = jobs.loc["5778432"].dropna()
    assert (job.state, job.queue_s, job.run_s) == ("FAILED", 32.0, 117.0)
    assert (job.n_devices, job.n_nodes_reported, job.n_slots_reported) == (8, 1, 128)
    assert job.submitted_at == datetime(2023, 2, 28, 16, 18, 22, tzinfo=UTC)
    assert "eligible_at" not in job
    # Kalos: 11:28:42, 11:28:54, 11:30:04; its duration of 82 s counts the queue of 12 s.
    job = jobs.loc["dlc1t2ypl09b8qtp"]
    assert (job.state, job.queue_s, job.run_s, job.n_devices) == ("CANCELLED", 12.0, 70.0, 64)


def test_pods_of_openb(shared: Path) -> None:
    records, notes = parse(
        shared / "hpc" / "alibaba_gpu2023_openb_pod_list_multigpu20.csv", "openb"
    )
    assert (len(records), notes) == (8_324, [])
    # cut -d, -f4 FILE | sort | uniq -c
    counts = {0: 1_088, 1: 6_989, 2: 54, 4: 52, 8: 141}
    assert Counter(job.n_devices for job in records) == counts  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("table", "mapping"),
    [("job", "pai"), ("task", "pai_tasks"), ("instance", "pai_instances")],
)
def test_a_header_alone_gives_no_rows_and_a_note(
    shared: Path, parse_text: ReadText, table: str, mapping: str
) -> None:
    path = shared / "hpc" / f"alibaba_gpu2020_pai_{table}_table.header"
    assert parse(path, mapping) == ([], ["no_rows"])
    # The mapping names exactly the columns of the header, in its order.
    assert read_mapping(mapping).layout.columns == tuple(path.read_text().strip().split(","))


@pytest.mark.parametrize(
    ("table", "column"), [("machine_spec", "cap_gpu"), ("sensor_table", "gpu_wrk_util")]
)
def test_headers_of_tables_that_are_no_jobs(
    shared: Path, tmp_path: Path, table: str, column: str
) -> None:
    mapping = tmp_path / "m.toml"
    mapping.write_text(
        '[[records]]\ntable = "launches"\n[records.columns]\nlaunch_id = "machine"\n'
        f'n_ranks = "{column}"\n'
    )
    path = shared / "hpc" / f"alibaba_gpu2020_pai_{table}.header"
    assert parse(path, mapping) == ([], ["no_rows"])


def test_minibatches_of_a_pai_job_are_steps_without_seconds(shared: Path, tmp_path: Path) -> None:
    mapping = tmp_path / "m.toml"
    # Their times are normalised to 0..1000, so no unit can be said.
    mapping.write_text(
        '[[records]]\ntable = "steps"\n[records.columns]\n'
        'rank = "worker"\nn_steps = 1\nfirst_step = "time"\n'
    )
    records, notes = parse(shared / "hpc" / "alibaba_gpu2020_minibatch_job_1_norm.csv", mapping)
    steps = records[1:]
    assert (len(steps), notes) == (3_000, [])
    ranks = Counter(step.rank for step in steps)  # type: ignore[union-attr]
    assert ranks == dict.fromkeys(range(10), 300)


PAI_JOBS = """\
4b3f,8cb3,58540f,Terminated,4550879.0,4551416.0
aa00,bb00,58540f,Failed,4550879.0,
cc00,dd00,17aa17,Running,4550880.0,
ee00,ff00,17aa17,Odd,4550881.0,4550882.0
"""


def test_pai_synthetic(parse_text: ReadText) -> None:
    jobs, notes = parse_text(PAI_JOBS, "pai")
    assert notes == []
    assert [job.state for job in jobs] == ["COMPLETED", "FAILED", "UNFINISHED", "UNKNOWN"]
    assert (jobs[3].state_raw, jobs[0].line, jobs[0].system) == ("Odd", 1, "pai")
    assert jobs[0].submitted_at == datetime(1970, 2, 22, 16, 7, 59, tzinfo=UTC)
    assert (jobs[0].ended_at - jobs[0].submitted_at).total_seconds() == 537.0
    assert (jobs[0].started_at, jobs[0].run_s, jobs[1].ended_at) == (None, None, None)
    assert jobs[0].user == jobs[1].user != jobs[2].user
    header = "job_name,inst_id,user,status,start_time,end_time\n"
    assert len(parse_text(header + PAI_JOBS, "pai")[0]) == 4

    (task,), notes = parse_text(
        "4b3f,worker,16.0,Terminated,4550900.0,4551416.0,600.0,29.3,50.0,MISC\n", "pai_tasks"
    )
    assert (task.launch_id, task.job_id, task.n_ranks) == ("4b3f/worker", "4b3f", 16)
    assert (task.ended_at - task.started_at).total_seconds() == 516.0
    (one,), _ = parse_text(
        "4b3f,worker,i1,w1,8cb3,Terminated,4550900.0,4551416.0,8b1f55\n", "pai_instances"
    )
    assert (one.launch_id, one.n_ranks, one.n_nodes, one.hosts) == ("w1", 1, 1, "8b1f55")


HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:30,2020-04-01 00:10:30,600,30
2,u1,vcB,16,128,2,NODE_FAIL,2020-04-01 01:00:00,2020-04-01 01:00:00,2020-04-01 02:00:00,3600,0
3,u2,vcB,1,4,1,CANCELLED,2020-04-01 01:00:00,None,2020-04-01 01:30:00,0,1800
"""


def test_helios_synthetic(parse_text: ReadText) -> None:
    jobs, notes = parse_text(HELIOS, "helios", tz="Asia/Shanghai", system="venus")
    assert notes == []
    assert [(job.job_id, job.state, job.queue) for job in jobs] == [
        ("1", "COMPLETED", "vcA"), ("2", "NODE_FAIL", "vcB"), ("3", "CANCELLED", "vcB"),
    ]  # fmt: skip
    assert (jobs[0].run_s, jobs[0].queue_s, jobs[0].n_devices, jobs[0].system) == (
        600.0, 30.0, 8, "venus",
    )  # fmt: skip
    assert jobs[0].started_at == datetime(2020, 3, 31, 16, 0, 30, tzinfo=UTC)
    assert (jobs[2].started_at, jobs[0].is_local_time) == (None, True)
    jobs, notes = parse_text(HELIOS, "helios")
    assert notes == ["no_timezone"]
    assert [(job.started_at, job.run_s) for job in jobs][:2] == [(None, 600.0), (None, 3600.0)]


PHILLY = """\
[{"status": "Pass", "vc": "ee9e8c", "jobid": "application_1_0001", "user": "ce2f4c",
  "submitted_time": "2017-10-07 01:19:21", "attempts": [
   {"start_time": "2017-10-07 01:20:28", "end_time": "2017-10-07 01:30:28", "detail":
     [{"ip": "m10", "gpus": ["gpu0", "gpu1"]}, {"ip": "m11", "gpus": ["gpu5", "gpu6"]}]},
   {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 03:00:00", "detail":
     [{"ip": "m20", "gpus": ["gpu0", "gpu1", "gpu2", "gpu3"]}]}]},
 {"status": "Killed", "vc": "ee9e8c", "jobid": "application_1_0002", "user": "ce2f4c",
  "submitted_time": "2017-10-08 00:00:00", "attempts": []},
 {"status": "Failed", "vc": "11cb48", "jobid": "application_1_0003", "user": "aa2f4c",
  "submitted_time": "2017-10-08 00:00:00", "attempts": [
   {"start_time": "2017-10-08 00:00:10", "end_time": null, "detail": []}]}]
"""


def test_philly_synthetic(parse_text: ReadText) -> None:
    jobs, notes = parse_text(PHILLY, "philly", tz="America/Los_Angeles")
    assert notes == []
    found = {(job.job_id[-1], job.attempt): job for job in jobs}
    assert len(jobs) == len(found) == 4
    first, second = found["1", 1], found["1", 2]
    assert (first.state, first.state_raw, second.state) == ("FAILED", None, "COMPLETED")
    assert (first.hosts, first.n_nodes, first.n_devices) == ("m[10-11]", 2, 4)
    assert (second.hosts, second.n_nodes, second.n_devices) == ("m20", 1, 4)
    assert (first.run_s, second.run_s, first.queue) == (600.0, 3600.0, "ee9e8c")
    assert first.started_at == datetime(2017, 10, 7, 8, 20, 28, tzinfo=UTC)
    never, open_ = found["2", 1], found["3", 1]
    assert (never.state, never.started_at, never.n_devices) == ("CANCELLED", None, None)
    assert (open_.state, open_.ended_at, open_.hosts) == ("FAILED", None, None)
    assert first.user == second.user == never.user != open_.user
    assert parse_text(PHILLY, "philly")[1] == ["no_timezone", "no_timezone"]
    assert parse_text("[]", "philly") == ([], ["no_rows"])


def test_a_shipped_mapping_is_part_of_what_a_source_is(shared: Path, tmp_path: Path) -> None:
    dataset = Dataset(tmp_path / "d")
    path = shared / "hpc" / "acme_seren_readme_examples.csv"
    fitkit.ingest(path, dataset, options=Options(mapping="acme"))
    fitkit.ingest(path, dataset, options=Options(mapping=SHIPPED / "acme.toml"))
    assert dataset.counts()["jobs"] == 2
