"""A job from its logs: accounting, launcher, output with a training inside. All are made up."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.diagnosis.job_phases import job_phases
from fitkit.ingestion import Options

START = 1772452800  # 2026-03-02 12:00:00 UTC, 06:00 at the machine
ACCOUNTING = (
    "03/02/2026 07:00:00;E;9300001.bw;user=U1 group=G1 account=A1 jobname=x queue=normal "
    f"ctime={START - 900} qtime={START - 900} etime={START - 600} start={START} owner=U1@h2ologin1 "
    "exec_host=26742/0-15+26743/0-15 login_node=nid25428 Resource_List.nodes=2:ppn=16:xk "
    f"Resource_List.walltime=06:00:00 session=1 end={START + 3600} Exit_status=1 "
    "resources_used.walltime=00:59:58\n"
)
ALPS = (
    "2026-03-02T06:00:02.500000-06:00 9157 Bound apid 0 resId 7 pagg 0x1 batchId '9300001'\n"
    "2026-03-02T06:00:05.000000-06:00 9157 Placed apid 70000001 resId 7 pagg 0x1 uid 1 "
    "numCmds 1 cmd0 'x' nids: 26742-26743 (nid0 26742)\n"
    "2026-03-02T06:59:58.000000-06:00 9157 Released apid 70000001 resId 7 pagg 0x1 claim\n"
)
MAPPING = """
[input]
format = "lines"
[[input.patterns]]
name = "step"
pattern = '^STEP (?P<step>[0-9]+) took (?P<t>[0-9.]+) s'
[[records]]
table = "steps"
from = "step"
[records.columns]
n_steps = 1
first_step = "step"
duration_s = "t"
"""


@pytest.fixture
def logs(tmp_path: Path, job_output: Any, data: Path) -> Path:
    """A folder with an accounting log, one of ALPS, and the output of the job around CNTK's log."""
    folder = tmp_path / "logs"
    folder.mkdir()
    log = data / "cntk" / "mlpbig_dp_n2_mb256_rep1" / "train.logrank0"
    output = job_output(log.read_text(), codes="1", stamp="Mon Mar  2 06:00:01 CST 2026")
    (folder / "train.o9300001").write_text(output)
    (folder / "20260302").write_text(ACCOUNTING)
    (folder / "apsched-20260302").write_text(ALPS)
    return folder


def test_three_logs_of_a_job_are_one(logs: Path, tmp_path: Path) -> None:
    store = fitkit.ingest(logs, tmp_path / "ds")
    assert set(store.read("sources").format) == {"alps", "jobout", "torque"}
    counts = store.counts()
    assert (counts["jobs"], counts["launches"], counts["runs"], counts["links"]) == (2, 2, 1, 1)
    (link,) = store.read("links").to_dict("records")
    (run,) = store.read("runs").to_dict("records")
    assert link == {
        "job_id": "9300001.bw", "attempt": 1, "run_id": run["run_id"], "method": "envelope",
        "score": 1.0, "system": "bw",
    }  # fmt: skip
    assert (run["framework"], run["job_id"]) == ("cntk", "9300001.bw")
    phases = job_phases(store)
    assert dict(zip(phases.phase, phases.duration_s, strict=True)) == {
        "hold": 300.0, "queue": 600.0, "prologue": 5.0, "launch+init+train+teardown": 3595.0,
    }  # fmt: skip
    assert set(phases.clock_skew_s) == {1.0}


def test_with_the_time_of_the_log_its_phases_are_known(logs: Path, tmp_path: Path) -> None:
    started = Options(metadata={"started_at": datetime(2026, 3, 2, 12, 0, 8, tzinfo=UTC)})
    store = fitkit.ingest(logs / "train.o9300001", tmp_path / "ds", options=started)
    fitkit.ingest([logs / "20260302", logs / "apsched-20260302"], store)
    phases = job_phases(store)
    assert phases.phase.tolist()[2:4] == ["prologue", "launch"]
    assert phases.duration_s.tolist()[2:4] == [5.0, 3.0]
    assert phases.duration_s.sum() == 4500.0
    assert not phases.is_negative.any()


def test_links_do_not_depend_on_the_order_of_the_logs(logs: Path, tmp_path: Path) -> None:
    whole = fitkit.ingest(logs, tmp_path / "whole")
    parts = Dataset(tmp_path / "parts")
    for name in ("train.o9300001", "apsched-20260302", "20260302"):
        fitkit.ingest(logs / name, parts)
    assert parts.read("links").equals(whole.read("links"))
    again = fitkit.ingest(logs, tmp_path / "whole")
    assert again.counts() == whole.counts()


def test_the_job_in_the_environment_of_a_log(logs: Path, tmp_path: Path, log_text: Any) -> None:
    (logs / "other").mkdir()
    (logs / "other" / "train.log").write_text("PBS_JOBID=9300001.bw\n" + log_text(3))
    (logs / "vague").mkdir()
    (logs / "vague" / "train.log").write_text(
        "export SLURM_JOB_ID='1'\nSLURM_JOB_ID: 2\n" + log_text(4)
    )
    store = fitkit.ingest([logs / "other", logs / "vague", logs / "20260302"], tmp_path / "ds")
    runs = store.read("runs")
    assert sorted(runs.job_id.fillna("")) == ["", "9300001.bw"]
    (link,) = store.read("links").to_dict("records")
    assert (link["job_id"], link["method"], link["score"]) == ("9300001.bw", "job_id", 1.0)


@pytest.mark.parametrize(
    ("said", "job_id"),
    [
        ("SLURM_ARRAY_JOB_ID=400\nSLURM_ARRAY_TASK_ID=3\nSLURM_JOB_ID=403\n", "400_3"),
        ("'SLURM_ARRAY_TASK_ID': '0', 'SLURM_ARRAY_JOB_ID': '400'\n", "400_0"),
        ("SLURM_JOB_ID=403\nSLURM_ARRAY_TASK_COUNT=7\n", "403"),
        ("LSB_JOBID=7\nLSB_JOBINDEX=3\n", "7[3]"),
        ("LSB_JOBID=7\nLSB_JOBINDEX=0\n", "7"),
        ("SLURM_ARRAY_JOB_ID=4\nSLURM_ARRAY_TASK_ID=3\nSLURM_ARRAY_TASK_ID=4\n", None),
    ],
)
def test_the_element_of_an_array_in_the_environment_of_a_log(
    said: str, job_id: str | None, tmp_path: Path, log_text: Any
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text(said + log_text(3))
    store = fitkit.ingest(tmp_path / "logs", tmp_path / "ds")
    assert store.arrow("runs", ["job_id"]).to_pylist() == [{"job_id": job_id}]


def test_an_array_of_slurm_from_its_logs(tmp_path: Path, log_text: Any) -> None:
    folder = tmp_path / "logs"
    for name, said in (("slurm-400_3", ""), ("b", "SLURM_JOB_ID=404\n")):
        (folder / name).mkdir(parents=True)
        (folder / name / "train.log").write_text(said + log_text(3 + len(said)))
    (folder / "jobs.txt").write_text(
        "JobID|JobIDRaw|State|ExitCode\n400_3|403|FAILED|1:0\n400_4|404|FAILED|1:0\n"
    )
    links = fitkit.ingest(folder, tmp_path / "ds").read("links")
    assert sorted(zip(links.job_id, links.method, strict=True)) == [
        ("400_3", "path"), ("400_4", "job_id"),
    ]  # fmt: skip


def test_a_mapping_reads_what_is_inside(tmp_path: Path, job_output: Any) -> None:
    mapping, output = tmp_path / "steps.toml", tmp_path / "job.out"
    mapping.write_text(MAPPING)
    output.write_text(job_output("STEP 0 took 1.5 s\nSTEP 1 took 2.5 s\n"))
    store = fitkit.ingest(output, tmp_path / "ds", options=Options(mapping=mapping))
    assert store.read("steps").duration_s.tolist() == [1.5, 2.5]
    assert store.read("jobs").job_id.tolist() == store.read("runs").job_id.tolist()
    assert store.read("sources").format.tolist() == ["jobout"]
    mapping.write_text(MAPPING.replace('"t"', '{ value = "t", unit = "min" }'))
    fitkit.ingest(output, store, options=Options(mapping=mapping))
    assert store.read("steps").duration_s.tolist() == [90.0, 150.0]


def test_the_real_record(shared: Path, tmp_path: Path) -> None:
    store = fitkit.ingest(shared / "hpc" / "bluewaters_torque_2017_E_record.log", tmp_path / "ds")
    phases = job_phases(store)
    assert dict(zip(phases.phase, phases.duration_s, strict=True)) == {
        "hold": 129880.0, "queue": 665.0, "run": 14157.0,
    }  # fmt: skip
