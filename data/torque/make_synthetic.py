"""Write ``synthetic_20260301``: one day of a made-up Torque accounting log.

The same seed gives the same bytes. The form is that of Blue Waters, the jobs are invented.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SEED = 20260301
FIRST_NUMBER = 9300001
MIDNIGHT = 1772344800  # 2026-03-01 00:00 at the machine, where UTC is six hours ahead
UTC_OFFSET = timedelta(hours=-6)
DAY_S = 86400

# kind: how many; an array counts once for each of its members
JOBS = {
    "completed": 34, "failed": 7, "array": 5, "timeout": 4, "deleted": 3, "deleted_in_queue": 2,
    "rerun": 1, "aborted": 1, "running": 1, "waiting": 1, "from_yesterday": 1,
}  # fmt: skip
LIMITS_S = (1800, 3600, 7200, 14400)
NODE_KINDS = {"xe": 32, "xk": 16}  # suffix of the node request, slots of such a node
NETWORKS = ("mlp", "lenet", "alexnet", "resnet20", "lstm")
FAILURES = (1, 1, 2, 127, 137, 265, -3)  # 265: killed by signal 9


@dataclass
class Job:
    """What is invented about a job; instants are seconds since midnight."""

    kind: str
    person: int
    jobname: str
    nodes: list[tuple[str, list[int]]]  # kind of node, nids in rank order
    limit_s: int
    queued: int
    eligible: int
    start: int
    end: int
    status: int
    job_id: str = ""

    @property
    def n_nodes(self) -> int:
        """Nodes of all kinds."""
        return sum(len(nids) for _, nids in self.nodes)


class Machine:
    """Hands out nids in blocks of neighbours, none of them twice."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.next_nid = {"xe": 1200, "xk": 23808}

    def allocate(self, kind: str, n_nodes: int) -> list[int]:
        """Nodes of one kind; the blocks come in arbitrary order, as on the torus."""
        blocks: list[list[int]] = []
        while (missing := n_nodes - sum(map(len, blocks))) > 0:
            self.next_nid[kind] += 2 * self.rng.randrange(1, 12)
            size = min(missing, self.rng.choice((2, 2, 4, 8, 16, 32)))
            blocks.append([self.next_nid[kind] + i for i in range(size)])
            self.next_nid[kind] += size + size % 2
        self.rng.shuffle(blocks)
        return [nid for block in blocks for nid in block]


def make_job(rng: random.Random, machine: Machine, kind: str) -> Job:
    """Invent one job."""
    node_kind = rng.choice(("xe", "xk", "xk"))
    n_nodes = rng.choice((1, 1, 2, 2, 4, 4, 8, 8, 16, 32, 64, 128))
    limit_s = rng.choice(LIMITS_S)
    queued = rng.randrange(600, 57600)
    hold = rng.randrange(60, 3600) if rng.random() < 0.15 else 0
    start = queued + hold + min(int(rng.expovariate(1 / 900)) + 2, 5400)
    run_s = rng.randrange(limit_s // 10, limit_s - 120)
    status = 0
    if kind == "failed":
        run_s = rng.randrange(5, limit_s // 2)
    elif kind == "timeout":
        status, run_s = 271, limit_s + rng.randrange(2, 30)
    elif kind == "deleted":
        status, run_s = 271, limit_s // 3
    return Job(
        kind, rng.randrange(1, 13), f"{rng.choice(NETWORKS)}-{node_kind}-{n_nodes}",
        [(node_kind, machine.allocate(node_kind, n_nodes))], limit_s,
        queued, queued + hold, start, start + run_s, status,
    )  # fmt: skip


def place_at_midnight(jobs: list[Job]) -> None:
    """Let one job begin the day before and one end the day after."""
    for job in jobs:
        if job.kind == "from_yesterday":
            job.queued, job.eligible, job.start = -9000, -9000, -7200
            job.limit_s, job.end = 14400, 3000
        elif job.kind == "running":
            job.queued = job.eligible = 79200
            job.start, job.limit_s = 80100, 14400


def make_jobs(rng: random.Random) -> list[Job]:
    """Invent all jobs of the day, numbered in the order of their submission."""
    machine = Machine(rng)
    jobs = [make_job(rng, machine, kind) for kind, n in JOBS.items() for _ in range(n)]
    jobs[0].nodes = [("xe", machine.allocate("xe", 4)), ("xk", machine.allocate("xk", 2))]
    jobs[0].jobname = "lenet-mixed-6"
    jobs[1].jobname = "lr sweep; b=32"  # free text may hold blanks, "=" and ";"
    failed = [job for job in jobs if job.kind == "failed"]
    for job, status in zip(failed, FAILURES, strict=True):
        job.status = status
    array = [job for job in jobs if job.kind == "array"]
    for index, job in enumerate(array):
        job.person, job.jobname, job.limit_s = array[0].person, "grid", 3600
        job.nodes = [("xk", machine.allocate("xk", 1))]
        job.queued = job.eligible = array[0].queued
        job.start = job.queued + 40 + 60 * index
        job.end = job.start + rng.randrange(900, 1500)
    place_at_midnight(jobs)
    number = FIRST_NUMBER
    for job in sorted(jobs, key=lambda job: (job.queued, job.kind != "array")):
        member = f"[{array.index(job)}]" if job in array else ""
        job.job_id = f"{number}{member}.bw"
        number += not member or job is array[-1]
    return jobs


def clock(seconds: int) -> str:
    """Duration as hh:mm:ss."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def request(job: Job, start: int, count: int) -> str:
    """Fields that the S and the E record share."""
    user = f"USER{job.person:04}U"
    wanted = "+".join(f"{len(nids)}:ppn={NODE_KINDS[kind]}:{kind}" for kind, nids in job.nodes)
    hosts = "+".join(f"{nid}/0-{NODE_KINDS[kind] - 1}" for kind, nids in job.nodes for nid in nids)
    queued, eligible = MIDNIGHT + job.queued, MIDNIGHT + job.eligible
    return (
        f"user={user} group=GRP{job.person % 5:03}G account=A{job.person % 5:04}A "
        f"jobname={job.jobname} queue=normal ctime={queued} qtime={queued} etime={eligible} "
        f"start_count={count} start={MIDNIGHT + start} owner={user}@h2ologin{job.person % 3 + 1} "
        f"exec_host={hosts} login_node=nid{27560 + job.person} "
        f"Resource_List.flags=commtolerant:commlocal Resource_List.neednodes={wanted} "
        f"Resource_List.nodect={job.n_nodes} Resource_List.nodes={wanted} "
        f"Resource_List.partition=bwsched Resource_List.walltime={clock(job.limit_s)} "
    )


def outcome(job: Job, rng: random.Random) -> str:
    """Fields that only the E record has; cput and mem are those of the login node's shell."""
    slots = sum(NODE_KINDS[kind] * len(nids) for kind, nids in job.nodes)
    used_s = max(job.end - job.start - rng.randrange(2, 12), 0)
    return (
        f"session={rng.randrange(2000, 30000)} total_execution_slots={slots} "
        f"unique_node_count={job.n_nodes} end={MIDNIGHT + job.end} Exit_status={job.status} "
        f"resources_used.cput={rng.randrange(1, 60)} resources_used.energy_used=0 "
        f"resources_used.mem={rng.randrange(9000, 30000)}kb "
        f"resources_used.vmem={rng.randrange(90000, 200000)}kb "
        f"resources_used.walltime={clock(used_s)}"
    )


def events(job: Job, rng: random.Random) -> list[tuple[int, str, str]]:
    """Instant, letter and text of the records of a job."""
    queued = (job.queued, "Q", "queue=normal")
    deletion = f"requestor=USER{job.person:04}U@h2ologin{job.person % 3 + 1}"
    if job.kind == "waiting":
        return [queued]
    if job.kind == "deleted_in_queue":
        return [queued, (job.eligible + 300, "D", deletion)]
    if job.kind == "aborted":
        return [queued, (job.eligible + 1, "A", "")]
    found = [queued]
    count = 1
    if job.kind == "rerun":
        found += [(job.start, "S", request(job, job.start, 1)), (job.start + 120, "R", "")]
        job.start, job.end, count = job.start + 600, job.end + 600, 2
    shared = request(job, job.start, count)
    found.append((job.start, "S", shared))
    if job.kind == "deleted":
        found.append((job.end - 4, "D", deletion))
    if job.kind != "running":
        found.append((job.end, "E", shared + outcome(job, rng)))
    return found


def day_file() -> str:
    """Text of the file: the records that fall on the day, in their order."""
    rng = random.Random(SEED)  # noqa: S311 - nothing secret here
    records = [
        (instant, order, job.job_id, letter, text)
        for job in make_jobs(rng)
        for order, (instant, letter, text) in enumerate(events(job, rng))
        if 0 <= instant < DAY_S
    ]
    lines = []
    for instant, _, job_id, letter, text in sorted(records):
        local = datetime.fromtimestamp(MIDNIGHT + instant, UTC) + UTC_OFFSET
        lines.append(f"{local:%m/%d/%Y %H:%M:%S};{letter};{job_id};{text}\n")
    return "".join(lines)


if __name__ == "__main__":
    target = Path(__file__).with_name("synthetic_20260301")
    target.write_bytes(day_file().encode())
    print(target.name, file=sys.stderr)
