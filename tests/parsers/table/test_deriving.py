"""Columns of jobs that follow from others: intervals, hosts, names, zones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.errors import ParseError

Reader = Callable[..., Any]
JOBS = """
[[records]]
table = "jobs"
[records.columns]
job_id = "id"
attempt = 1
scheduler = { constant = "trace" }
"""


def test_intervals_follow_from_instants(read: Reader) -> None:
    places = {"queued": "q", "eligible": "e", "started": "s", "ended": "x"}
    mapping = JOBS + "\n".join(
        f'{name}_at = {{ value = "{column}", unit = "s" }}' for name, column in places.items()
    )
    one, two = read("id,q,e,s,x\n1,10,30,70,\n2,10,,70,\n", mapping).of("jobs")
    assert (one.hold_s, one.queue_s, one.run_s) == (20.0, 40.0, None)
    assert (two.hold_s, two.queue_s, two.is_local_time, two.line) == (None, None, False, 3)
    said = read("id,q\n1,5\n", JOBS + 'queue_s = "q"\n')
    assert (said.of("jobs")[0].queue_s, said.of("jobs")[0].is_local_time) == (5.0, None)


def test_hosts_are_counted_once_each(read: Reader) -> None:
    mapping = JOBS + 'hosts = "h"\n'
    (job,) = read('id;h\n1;"n[01-03],n05,n01"\n', mapping).of("jobs")
    assert (job.hosts, job.n_nodes) == ("n[01-03,05]", 4)
    assert job.hosts_hash == read("id;h\n1;n05,n03,n02,n01\n", mapping).of("jobs")[0].hosts_hash
    (job,) = read("id,h\n1,\n", mapping).of("jobs")
    assert (job.hosts, job.n_nodes, job.hosts_hash) == (None, None, None)
    (job,) = read("id,h\n1,c1\n", mapping + "n_nodes = 7\n").of("jobs")
    assert (job.hosts, job.n_nodes) == ("c1", 7)
    with pytest.raises(ParseError, match=r"t\.csv:2: cannot read: hosts: not a list of hosts"):
        read('id;h\n1;"c[1-"\n', mapping)


def test_names_are_hashed_unless_they_are_kept(read: Reader) -> None:
    mapping = JOBS + 'user = "u"\nname = "n"\n'
    one, two = read("id,u,n\n1,jane,a\n2,jane,\n", mapping).of("jobs")
    assert one.user == two.user
    assert (len(one.user), two.name) == (16, None)
    (job,) = read("id,u,n\n1,jane,a\n", mapping, keep_names=True).of("jobs")
    assert (job.user, job.name) == ("jane", "a")


def test_local_times_of_jobs(read: Reader) -> None:
    mapping = JOBS + 'started_at = "s"\nended_at = "e"\n'
    table = "id,s,e\n1,2020-01-01 00:00:00,2020-01-01 00:01:40\n"
    found = read(table, mapping)
    (job,) = found.of("jobs")
    assert (job.started_at, job.run_s, job.is_local_time) == (None, None, None)
    assert found.codes == [(2, "no_timezone")]
    (job,) = read(table, mapping, tz="Asia/Shanghai", system="mine").of("jobs")
    assert (job.started_at.isoformat(), job.run_s) == ("2019-12-31T16:00:00+00:00", 100.0)
    assert (job.is_local_time, job.system) == (True, "mine")


def test_states_are_words_of_the_table(read: Reader) -> None:
    renamed = 'state = { value = "s", map = { done = "COMPLETED" }, other = "UNKNOWN" }\n'
    table = "id,s\n1,done\n2,what\n3,\n"
    jobs = read(table, JOBS + renamed).of("jobs")
    assert [job.state for job in jobs] == ["COMPLETED", "UNKNOWN", None]
    with pytest.raises(
        ParseError, match=r"t\.csv:2: cannot read: state is 'done', none of COMPLETED"
    ):
        read(table, JOBS + 'state = "s"\n')
