"""Jobs of sacct: real tables, attempts, steps, cells that are missing or bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fitkit.parsers.host_lists import expand_hosts, hash_hosts
from fitkit.parsers.names import name_writer
from fitkit.parsers.sacct import SacctParser
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Job

Read = Callable[..., tuple[list[Any], list[Any], list[Any]]]
COLUMNS = "JobID|Submit|Eligible|Start|End|Elapsed|Timelimit|State|ExitCode|NNodes|NodeList"
NAMES = ("user", "group", "account", "name")


def table(*rows: str, columns: str = COLUMNS) -> str:
    return "\n".join([columns, *rows, ""])


def ids(jobs: list[Any]) -> list[tuple[str, int]]:
    return [(job.job_id, job.attempt) for job in jobs]


def test_1500_real_jobs(read_file: Read, shared: Path) -> None:
    path = shared / "hpc" / "xdmod_slurm_phillips_first1500.log"
    jobs, launches, notes = read_file(path, tz="America/New_York")
    assert (len(jobs), launches, notes) == (1500, [], [])
    # cut -d'|' -f17 FILE | sort | uniq -c
    states = {"FAILED": 1447, "COMPLETED": 51, "CANCELLED": 1, "TIMEOUT": 1}
    assert Counter(job.state for job in jobs) == states
    assert len({job.job_id for job in jobs}) == 1500
    assert {job.attempt for job in jobs} == {1}
    first = jobs[0]
    source = Source(path.name, (SourceFile(path, path.name),))
    names = map(name_writer(source), ["noror", "chaff", "chaff"])
    assert (first.user, first.group, first.account) == tuple(names)
    assert first.name is not None
    assert len(first.name) == 16
    assert replace(first, source_id="", **dict.fromkeys(NAMES)) == Job(
        source_id="",
        job_id="163485",
        attempt=1,
        scheduler="slurm",
        system="phillips",
        queue="focaccia",
        state="CANCELLED",
        state_raw="CANCELLED",
        submitted_at=datetime(2016, 12, 22, 12, 15, 12, tzinfo=UTC),
        queued_at=datetime(2016, 12, 22, 12, 15, 12, tzinfo=UTC),
        eligible_at=datetime(2016, 12, 22, 12, 15, 12, tzinfo=UTC),
        started_at=datetime(2016, 12, 22, 12, 15, 13, tzinfo=UTC),
        ended_at=datetime(2017, 1, 2, 1, 42, 19, tzinfo=UTC),
        hold_s=0.0,
        queue_s=1.0,
        run_s=10 * 86400 + 13 * 3600 + 27 * 60 + 6.0,
        walltime_s=10 * 86400 + 13 * 3600 + 27 * 60 + 6.0,
        wall_limit_s=37 * 86400 + 14 * 3600.0,
        n_nodes=1,
        n_nodes_reported=1,
        n_slots_reported=12,
        n_devices=2,
        hosts="cpn-f11-31",
        hosts_hash=hash_hosts(["cpn-f11-31"]),
        exit_code=0,
        is_local_time=True,
        line=1,
    )
    eight = [
        f"cpn-f13-{k}" for k in
        ("03-01", "03-02", "04-01", "04-02", "05-01", "05-02", "06-01", "06-02")
    ]  # fmt: skip
    assert expand_hosts(jobs[1].hosts or "") == eight
    assert (jobs[1].n_nodes, jobs[1].n_nodes_reported, jobs[1].state) == (8, 8, "TIMEOUT")
    assert all(job.run_s == job.walltime_s for job in jobs)


def test_real_arrays(read_file: Read, shared: Path) -> None:
    jobs, _, notes = read_file(shared / "hpc" / "xdmod_slurm_job_arrays.log", tz="UTC")
    assert notes == []
    assert [(job.job_id, job.array_index) for job in jobs] == [
        ("4103947_100", 100), ("4103947_[1-3]", None), ("4103947_[1,5]", None),
        ("4103947_[9-11,20]", None), ("4103947_[91,100-102]", None),
        ("4103947_[9-11,13,16-20]", None),
    ]  # fmt: skip
    assert {(job.n_nodes, job.n_nodes_reported, job.n_slots_reported) for job in jobs} == {
        (32, 32, 256)
    }
    hosts = expand_hosts(jobs[0].hosts or "")
    assert (hosts[7:9], hosts[-5:]) == (
        ["d09n04s01", "d09n04s02"], ["d13n03", "d13n05", "d13n07", "d13n08", "d13n16"],
    )  # fmt: skip
    # 26 June 13:57:00 to 28 June 02:55:50
    assert {(job.queue_s, job.run_s) for job in jobs} == {(86400 + 12 * 3600 + 3530.0, 259200.0)}


def test_real_jobs_that_have_not_ended(read_file: Read, shared: Path) -> None:
    jobs, _, notes = read_file(shared / "hpc" / "xdmod_slurm_non_ended.log", tz="UTC")
    assert notes == []
    running, pending = jobs
    assert (running.state, running.state_raw, running.ended_at) == ("UNFINISHED", "RUNNING", None)
    assert (running.run_s, running.exit_code) == (None, None)
    assert running.walltime_s == 22 * 3600 + 32 * 60 + 22
    assert (pending.state, pending.started_at, pending.ended_at) == ("PENDING", None, None)
    assert (pending.queue_s, pending.hold_s) == (None, 0.0)


def test_a_real_name_that_is_not_ascii(read_file: Read, shared: Path) -> None:
    path = shared / "hpc" / "xdmod_slurm_utf8.log"
    (job,), _, notes = read_file(path, tz="UTC", keep_names=True)
    assert (job.name, job.state, job.n_nodes, notes) == ("aàb", "TIMEOUT", 1, [])


def test_times_without_a_zone_are_never_taken_for_utc(read_file: Read, shared: Path) -> None:
    # ceems-dev/ceems #432: stamps without an offset became zero.
    path = shared / "hpc" / "xdmod_slurm_job_arrays.log"
    jobs, _, notes = read_file(path)
    assert notes == [("no_timezone", 1)]
    assert {(job.submitted_at, job.run_s, job.is_local_time) for job in jobs} == {
        (None, None, None)
    }
    assert {job.walltime_s for job in jobs} == {259200.0}


def test_epochs_and_offsets_need_no_zone(read: Read) -> None:
    # SLURM_TIME_FORMAT=%s, or one with %z
    epochs = (
        "1|1000000000|1000000010|1000000060|1000000160|00:01:40|UNLIMITED|COMPLETED|0:0|2|c[1-2]"
    )
    stamps = (
        "2|2001-09-09T03:46:40+0200|2001-09-09T03:46:50+0200|2001-09-09T01:47:40+0000"
        "|2001-09-09T01:49:20+0000|00:01:40|UNLIMITED|COMPLETED|0:0|2|c[1-2]"
    )
    jobs, _, notes = read(table(epochs, stamps))
    assert notes == []
    first, second = (replace(job, job_id="", line=None) for job in jobs)
    assert first == second
    assert first.submitted_at == datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    assert (first.hold_s, first.queue_s, first.run_s) == (10.0, 50.0, 100.0)
    assert (first.wall_limit_s, first.is_local_time) == (None, False)


def test_cells_without_a_value(read: Read) -> None:
    # aws-samples/hpc-cost-simulator #61, neilmunday/slurm-mail #58: Start None, Partition_Limit.
    rows = (
        "1|1000000000|Unknown|None|1000000160|00:00:00|Partition_Limit|CANCELLED by 7|0:0|1|",
        # Old versions write the end of a job that never started as its start, too.
        "2|1000000000|1000000000|1000000160|1000000160|00:00:00||CANCELLED|0:0|4|None assigned",
    )
    (one, two), _, notes = read(table(*rows))
    assert notes == []
    assert (one.state, one.state_raw, one.exit_code) == ("CANCELLED", "CANCELLED", 0)
    assert (one.eligible_at, one.started_at, one.wall_limit_s) == (None, None, None)
    assert (two.started_at, two.queue_s, two.run_s, two.hosts) == (None, None, None, None)
    assert (two.ended_at, two.n_nodes, two.n_nodes_reported) == (
        datetime(2001, 9, 9, 1, 49, 20, tzinfo=UTC), None, 4,
    )  # fmt: skip


def test_a_bad_cell_costs_neither_row_nor_file(read: Read) -> None:
    # apel/apel #114: Slurm 15.08 filled two columns of memory with "16?".
    columns = "JobID|State|MaxRSS|MaxVMSize|Elapsed|NodeList"
    rows = ("1|COMPLETED|16?|16?|00:01:00|c1", "2|COMPLETED|2K|3K|one hour|c[1-", "3|FAILED||||c3")
    jobs, _, notes = read(table(*rows, columns=columns))
    assert [(job.memory_bytes, job.walltime_s, job.hosts) for job in jobs] == [
        (None, 60.0, "c1"), (2048, None, None), (None, None, "c3"),
    ]  # fmt: skip
    assert notes == [("bad_value", 2), ("bad_value", 3), ("bad_value", 3)]


def test_a_suspended_job_has_run_for_less_than_its_span(read: Read) -> None:
    # ubccr/xdmod PR 729: end - start > elapsed
    (job,), _, _ = read(table("1|100|100|200|1200|00:10:00|1-00:00:00|COMPLETED|0:0|1|c1"))
    assert (job.run_s, job.walltime_s) == (1000.0, 600.0)


def test_requeued_and_reused_identifiers(read: Read) -> None:
    # troycomi/reportseff #25, facebookincubator/submitit #1660, princeton-ddss/blackfish PR 487:
    # rows of requeued jobs were lost; an identifier came back years later.
    columns = "JobID|Submit|Start|End|State"
    rows = (
        "7|1000000300|1000000400|1000000500|COMPLETED",
        "7|1000000000|1000000100|1000000200|NODE_FAIL",
        "8|1000000000|1000000100|1000000200|PREEMPTED",
        "8|1000000000|1000000300|1000000400|COMPLETED",
        "9|1000000000|1000000100|1000000200|FAILED",
        "9|1200000000|1200000100|1200000200|COMPLETED",
        "9|1200000000|1200000100|1200000200|COMPLETED",
    )
    jobs, _, notes = read(table(*rows, columns=columns))
    assert ids(jobs) == [("7", 2), ("7", 1), ("8", 1), ("8", 2), ("9", 1), ("9", 1)]
    assert notes == [("duplicate_records", 8)]
    (job,), _, _ = read(table("7|1000000000|RUNNING|2", columns="JobID|Submit|State|Restarts"))
    assert job.attempt == 3


def test_steps_are_launches(read: Read) -> None:
    columns = "JobID|Start|End|State|ExitCode|NTasks|NodeList|MaxRSS|UserCPU|SystemCPU|TotalCPU"
    rows = (
        "5|100|400|FAILED|1:0||c[1-2]|||||".removesuffix("|"),
        "5.batch|100|400|FAILED|1:0|1|c1|3M|00:01.500|00:00.500|00:02.000",
        "5.extern|100|400|COMPLETED|0:0|2|c[1-2]|1K|00:00:00|00:00:00|00:00:00",
        "5.0|110|390|FAILED|0:9|8|c[1-2]|2G|01:00:00|00:00:30|01:00:30",
        "6+0.1|110|Unknown|RUNNING|0:0|4|c3||||",
    )
    (job,), launches, notes = read(table(*rows, columns=columns))
    assert notes == []
    assert (job.job_id, job.memory_bytes, job.exit_code) == ("5", 2 * 1024**3, 1)
    first, second = launches
    assert (first.launch_id, first.job_id, first.n_ranks, first.n_nodes) == ("5.0", "5", 8, 2)
    assert (first.user_s, first.system_s, first.memory_bytes) == (3600.0, 30.0, 2 * 1024**3)
    assert (first.exit_code, first.exit_signal, first.hosts) == (None, 9, "c[1-2]")
    assert first.ended_at == datetime(1970, 1, 1, 0, 6, 30, tzinfo=UTC)
    assert (second.launch_id, second.job_id, second.ended_at) == ("6+0.1", "6+0", None)


def test_parts_of_a_heterogeneous_job_are_jobs(read: Read) -> None:
    columns = "JobID|JobIDRaw|State|NodeList"
    jobs, _, _ = read(table("6+0|6|COMPLETED|c1", "6+1|7|COMPLETED|g[1-3]", columns=columns))
    assert [(job.job_id, job.n_nodes) for job in jobs] == [("6+0", 1), ("6+1", 3)]
    jobs, _, _ = read(table("6|COMPLETED|c1", columns="JobIDRaw|State|NodeList"))
    assert jobs[0].job_id == "6"


def test_a_number_is_one_of_its_cluster(read: Read) -> None:
    columns = "JobID|Cluster|Submit|Start|End|State|MaxRSS"
    rows = (
        "5|a|1000000000|1000000100|1000000200|NODE_FAIL|", "5.0|a||1000000110|1000000200|FAILED|1K",
        "5|b|1000000000|1000000300|1000000400|COMPLETED|", "5.0|b||1000000310|1000000400|FAILED|2K",
    )  # fmt: skip
    jobs, launches, notes = read(table(*rows, columns=columns))
    assert [(job.system, job.attempt, job.memory_bytes) for job in jobs] == [
        ("a", 1, 1024), ("b", 1, 2048),
    ]  # fmt: skip
    assert [(one.launch_id, one.system) for one in launches] == [("5.0", "a"), ("5.0", "b")]
    assert notes == []


def test_an_element_of_an_array_has_a_raw_number_besides(read: Read) -> None:
    columns = "JobID|JobIDRaw|State|AllocGRES"
    jobs, _, _ = read(table("400_3|403|FAILED|gpu:2", "404|404|FAILED|", columns=columns))
    assert [(job.job_id, job.raw_id, job.array_index) for job in jobs] == [
        ("400_3", "403", 3), ("404", None, None),
    ]  # fmt: skip
    assert [job.n_devices for job in jobs] == [2, None]


def test_the_time_that_elapsed_tells_which_of_two_like_hours_it_was(read: Read) -> None:
    # 27 October 2024: 03:00 at +02:00 is followed by 02:00 at +01:00.
    columns = "JobID|State|Elapsed|Start|End"
    rows = (
        "1|COMPLETED|00:00:10|2024-10-27T02:30:00|2024-10-27T02:30:10",
        "2|COMPLETED|01:00:10|2024-10-27T02:30:00|2024-10-27T02:30:10",
        "3|COMPLETED|00:30:00|2024-10-27T02:50:00|2024-10-27T02:20:00",
        "4|COMPLETED|02:00:00|2024-10-27T01:30:00|2024-10-27T02:30:00",
        "5|COMPLETED||2024-10-27T02:50:00|2024-10-27T02:20:00",
    )
    jobs, _, notes = read(table(*rows, columns=columns), tz="Europe/Berlin")
    assert notes == []
    assert [job.run_s for job in jobs] == [10.0, 3610.0, 1800.0, 7200.0, 1800.0]
    assert jobs[1].started_at == datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    assert jobs[1].ended_at == datetime(2024, 10, 27, 1, 30, 10, tzinfo=UTC)
    gap = "1|COMPLETED|00:00:10|2024-03-31T02:30:00|2024-03-31T03:30:10"
    (job,), _, notes = read(table(gap, columns=columns), tz="Europe/Berlin")
    assert notes == [("bad_value", 2)]  # 02:00 was followed by 03:00
    assert job.run_s == 10.0


def test_odd_states_are_kept_in_the_words_of_the_log(read: Read) -> None:
    jobs, _, notes = read(table("1|REVOKED", "2|EXPEDITING", "3|what?", columns="JobID|State"))
    assert [(job.state, job.state_raw) for job in jobs] == [
        ("ABORTED", "REVOKED"), ("UNKNOWN", "EXPEDITING"), (None, None),
    ]  # fmt: skip
    assert notes == [("bad_value", 4)]


def test_an_end_before_the_start_is_noted_and_kept(read: Read) -> None:
    (job,), _, notes = read(table("1|1000|900|FAILED", columns="JobID|Start|End|State"))
    assert (job.run_s, notes) == (-100.0, [("negative_time", 2)])


def test_names_of_people_stay_in_the_log(read: Read) -> None:
    columns = "JobID|User|Account|State|JobName"
    text = table("1|jane|lab|FAILED|secret", "2|jane|lab|FAILED|x|y", columns=columns)
    jobs, _, _ = read(text)
    assert not {"jane", "lab", "secret"} & {getattr(job, name) for job in jobs for name in NAMES}
    assert jobs[0].user == jobs[1].user != jobs[0].account
    (job, _), _, _ = read(text, keep_names=True)
    assert (job.user, job.account, job.name) == ("jane", "lab", "secret")


def test_the_user_may_name_the_machine(read: Read) -> None:
    (job,), _, _ = read(table("1|FAILED|c", columns="JobID|State|Cluster"), system="mine")
    assert job.system == "mine"
    assert SacctParser().group([]) == []
