"""Reading of accounting logs of Torque: right, fast, in little memory.

  python benchmarks/job_logs.py write TARGET [--megabytes N] [--seed N] [--days | --full-machine]
  python benchmarks/job_logs.py tables [--megabytes N]
  python benchmarks/job_logs.py speed [--megabytes N] [--repeats N]

``write`` makes a synthetic log in the form of Blue Waters: no job in it has run. With ``--days``
the target is a folder of day files. ``tables`` compares the table of such a log with what was
made, and with the tables of its gz copy and of two processes. ``speed`` ingests logs of that
size, each in a process of its own. This file is also what the processes run (``--worker PATH``).
"""

from __future__ import annotations

import argparse
import gzip
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from time import process_time

MB = 1_000_000
LEAST_MB_PER_S = 30.0
MOST_MB = 250.0
TEXT = """
`fitkit.ingest` hashes and reads a log and writes the tables. Megabytes of the log for each CPU
second of the call, everything being imported; the most of {repeats}. Memory is the peak of the
whole process, interpreter included, with the allocator that the command `fitkit` chooses.
"""

# -- a log of any size --------------------------------------------------------------------------

FIRST_DAY = 1583042400  # 2020-03-01 00:00 where UTC is six hours ahead, as all the time here
UTC_OFFSET = timedelta(hours=-6)
FIRST_NUMBER = 9300001
DAY_S = 86400
ARRIVAL_S = 25  # mean time between submissions: about 3,500 jobs a day
# Nodes of a job and how often; the mean is about 120, 1.3 kB of host list.
SIZES = {
    1: 30, 2: 12, 4: 12, 8: 10, 16: 9, 32: 8, 64: 6, 128: 6, 256: 4, 512: 2, 1024: 1.5, 4096: 1,
    22636: 0.1,
}  # fmt: skip
KINDS = {
    "completed": 78, "failed": 8, "timeout": 4, "deleted": 3, "deleted_in_queue": 3, "rerun": 2,
    "aborted": 1, "array": 1,
}  # fmt: skip
STATES = {
    "completed": "COMPLETED", "failed": "FAILED", "timeout": "TIMEOUT", "deleted": "CANCELLED",
    "deleted_in_queue": "CANCELLED", "rerun": "COMPLETED", "aborted": "ABORTED",
    "array": "COMPLETED",
}  # fmt: skip
FAILURES = (1, 2, 127, 137, 255, 265, -3)
NODES = {"xe": (range(1, 22637), 32), "xk": (range(22641, 26869), 16)}  # nids, slots of a node
NAMES = ("amr3d", "namd_run", "cnn_train", "wrf_3.2", "qmc", "x", "dm5-8506-M9") * 9 + (
    "cnn lr=0.1;b=2",
)


@dataclass(frozen=True)
class MadeJob:
    """What is invented about a job; instants are seconds since 1970."""

    job_id: str
    kind: str
    person: int
    name: str
    node_kind: str
    nids: list[int]
    limit_s: int
    queued: int
    eligible: int
    start: int
    end: int
    status: int

    def state(self) -> str:
        """The state of its last attempt."""
        return STATES[self.kind]

    def n_attempts(self) -> int:
        """Rows that it gives."""
        return 2 if self.kind == "rerun" else 1

    def shared(self, start: int, count: int) -> str:
        """Pairs that the S and the E record share."""
        n_slots = NODES[self.node_kind][1]
        slots = f"/0-{n_slots - 1}"
        hosts = f"{slots}+".join(map(str, self.nids)) + slots
        wanted = f"{len(self.nids)}:ppn={n_slots}:{self.node_kind}"
        user = f"USER{self.person:06}U"
        return (
            f"user={user} group=GRP{self.person % 311:04}G account=A{self.person % 457:05}A "
            f"jobname={self.name} queue=normal ctime={self.queued} qtime={self.queued} "
            f"etime={self.eligible} start_count={count} start={start} "
            f"owner={user}@h2ologin{self.person % 3 + 1} exec_host={hosts} "
            f"login_node=nid{27560 + self.person % 24} "
            f"Resource_List.flags=commtolerant:commlocal Resource_List.neednodes={wanted} "
            f"Resource_List.nodect={len(self.nids)} Resource_List.nodes={wanted} "
            f"Resource_List.partition=bwsched Resource_List.walltime={clock(self.limit_s)} "
        )

    def outcome(self) -> str:
        """Pairs that only the E record has."""
        n_slots = NODES[self.node_kind][1] * len(self.nids)
        used_s = self.end - self.start - 6
        return (
            f"session={self.start % 30011} total_execution_slots={n_slots} "
            f"unique_node_count={len(self.nids)} end={self.end} Exit_status={self.status} "
            f"resources_used.cput={self.start % 57} resources_used.energy_used=0 "
            f"resources_used.mem={9000 + self.start % 20011}kb "
            f"resources_used.vmem={90000 + self.start % 110017}kb "
            f"resources_used.walltime={clock(used_s)}"
        )

    def records(self) -> Iterator[tuple[int, str, str]]:
        """Instant, letter and text of its records."""
        yield self.queued, "Q", "queue=normal"
        if self.kind == "aborted":
            yield self.eligible + 1, "A", ""
        if self.kind == "deleted_in_queue":
            yield self.eligible + 1, "D", f"requestor=USER{self.person:06}U@h2ologin1"
        if self.kind in ("aborted", "deleted_in_queue"):
            return
        if self.kind == "rerun":
            yield self.start - 600, "S", self.shared(self.start - 600, 1)
            yield self.start - 300, "R", ""
        shared = self.shared(self.start, self.n_attempts())
        yield self.start, "S", shared
        if self.kind == "deleted":
            yield self.end - 4, "D", f"requestor=USER{self.person:06}U@h2ologin1"
        yield self.end, "E", shared + self.outcome()


def made_jobs(seed: int) -> Iterator[MadeJob]:
    """Jobs without end, in the order of their submission."""
    rng = random.Random(seed)  # noqa: S311 - nothing secret here
    queued, number, kinds = FIRST_DAY, FIRST_NUMBER + MB * seed, list(KINDS)
    while True:
        queued += int(rng.expovariate(1 / ARRIVAL_S))
        kind = rng.choices(kinds, list(KINDS.values()))[0]
        for index in range(5 if kind == "array" else 1):
            member = f"[{index}]" if kind == "array" else ""
            yield _made_job(rng, f"{number}{member}.synthetic", kind, queued)
        number += 1


def _made_job(rng: random.Random, job_id: str, kind: str, queued: int) -> MadeJob:
    node_kind = rng.choices(["xe", "xk"], [4, 1])[0]
    n_nodes = 1 if kind == "array" else rng.choices(list(SIZES), list(SIZES.values()))[0]
    eligible = queued + (rng.randrange(60, 90000) if rng.random() < 0.1 else 0)
    start = eligible + 2 + int(rng.expovariate(1 / 9000)) + 700 * (kind == "rerun")
    limit_s = rng.choice((1800, 3600, 7200, 14400, 86400))
    run_s = rng.randrange(20, limit_s - 120)
    if kind == "timeout":
        run_s = limit_s + rng.randrange(2, 30)
    status = 271 if kind in ("timeout", "deleted") else 0
    if kind == "failed":
        status = rng.choice(FAILURES)
    return MadeJob(
        job_id, kind, int(rng.paretovariate(0.8)) % 4000, rng.choice(NAMES), node_kind,
        _placed(rng, node_kind, n_nodes), limit_s, queued, eligible, start, start + run_s, status,
    )  # fmt: skip


def _placed(rng: random.Random, node_kind: str, n_nodes: int) -> list[int]:
    """Nodes in blocks of neighbours, the blocks in any order, as on the torus."""
    nids = NODES[node_kind][0]
    n_nodes = min(n_nodes, len(nids))
    block = min(n_nodes, rng.choice((2, 4, 16, 64)))
    n_blocks = -(-n_nodes // block)
    begins = rng.sample(range(0, len(nids) - block + 1, block), min(n_blocks, len(nids) // block))
    found = [nids[begin + i] for begin in begins for i in range(block)]
    return found[:n_nodes]


def full_machine(job_id: str, at: int) -> Iterator[tuple[int, str]]:
    """S and E of a job on every node in the old form, an entry for each slot: lines of 8 MB."""
    hosts = "+".join(f"{nid}/{slot}" for nid in range(1, 26869) for slot in range(32))
    pairs = (
        f"user=USER000001U group=GRP0001G account=A00001A jobname=full queue=normal ctime={at} "
        f"qtime={at} etime={at} start={at} owner=USER000001U@h2ologin1 exec_host={hosts} "
        "Resource_List.nodect=26868 Resource_List.nodes=26868:ppn=32 "
        "Resource_List.walltime=02:00:00 "
    )
    yield at, line(at, "S", job_id, pairs)
    end = f"session=1 total_execution_slots=859776 end={at + 60} Exit_status=0"
    yield at + 60, line(at + 60, "E", job_id, pairs + end)


def line(instant: int, letter: str, job_id: str, text: str) -> str:
    """A record with its local stamp."""
    local = datetime.fromtimestamp(instant, UTC) + UTC_OFFSET
    return f"{local:%m/%d/%Y %H:%M:%S};{letter};{job_id};{text}\n"


def clock(seconds: int) -> str:
    """Duration as hh:mm:ss."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def lines_of(jobs: Iterable[MadeJob]) -> Iterator[tuple[int, str]]:
    """Instants and lines of the records of jobs, in the order of their instants."""
    waiting: list[tuple[int, int, str, str, str]] = []
    order = 0
    for job in jobs:
        while waiting and waiting[0][0] < job.queued:
            instant, _, letter, job_id, text = heappop(waiting)
            yield instant, line(instant, letter, job_id, text)
        for instant, letter, text in job.records():
            heappush(waiting, (instant, order, letter, job.job_id, text))
            order += 1
    while waiting:
        instant, _, letter, job_id, text = heappop(waiting)
        yield instant, line(instant, letter, job_id, text)


def write(target: Path, megabytes: float, seed: int = 0, letters: str = "") -> None:
    """Write one file of about so many megabytes; of some types of records alone if they are named.

    Its jobs still run where it ends.
    """
    written = 0
    with target.open("wb") as file:
        for _, text in lines_of(made_jobs(seed)):
            if not letters or text[20] in letters:
                written += file.write(text.encode())
            if written >= megabytes * MB:
                return


def write_days(folder: Path, jobs: Iterable[MadeJob]) -> list[Path]:
    """Write all records of jobs into day files, as the server does."""
    texts: dict[str, list[str]] = {}
    for instant, text in lines_of(jobs):
        day = datetime.fromtimestamp(instant, UTC) + UTC_OFFSET
        texts.setdefault(f"synthetic_{day:%Y%m%d}", []).append(text)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return [folder / name for name in texts]


def write_long(target: Path, megabytes: float, seed: int = 0) -> None:
    """Write such a log with a job on the full machine in the middle and at its end."""
    write(target, megabytes / 2, seed)
    with target.open("ab") as file:
        for number, part in enumerate((megabytes / 2, 0)):
            for _, text in full_machine(f"{number}.synthetic", FIRST_DAY):
                file.write(text.encode())
            rest = target.with_name("rest")
            write(rest, part, seed + 1)
            file.write(rest.read_bytes() if part else b"")
            rest.unlink()


# -- tables -------------------------------------------------------------------------------------


def table_of(path: Path, folder: Path, n_jobs: int = 1) -> list[dict[str, object]]:
    """Rows of ``jobs``, without their source, of a log that is ingested into a folder."""
    import fitkit

    dataset = fitkit.ingest(path, folder, n_jobs=n_jobs)
    rows = dataset.arrow("jobs").drop_columns(["source_id"]).to_pylist()
    return sorted(rows, key=lambda row: (row["job_id"], row["attempt"]))


def agrees(rows: list[dict[str, object]], jobs: list[MadeJob]) -> bool:
    """Whether the rows say what was made."""
    found = {(row["job_id"], row["attempt"]): row for row in rows}
    same = len(rows) == sum(job.n_attempts() for job in jobs)
    for job in jobs:
        row = found[job.job_id, job.n_attempts()]
        same = same and row["state"] == job.state()
        if job.kind not in ("aborted", "deleted_in_queue"):
            seconds = job.eligible - job.queued, job.start - job.eligible, job.end - job.start
            same = same and (row["hold_s"], row["queue_s"], row["run_s"]) == seconds
            same = same and (row["n_nodes"], row["node_kind"]) == (len(job.nids), job.node_kind)
    return same


def tables(megabytes: float) -> bool:
    """Print whether tables are equal; whether all are."""
    jobs = list(islice(made_jobs(1), max(1, int(megabytes * 250))))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_days(folder / "days", jobs)
        rows = table_of(folder / "days", folder / "ds1")
        packed = folder / "packed"
        packed.mkdir()
        for path in (folder / "days").iterdir():
            with gzip.open(packed / f"{path.name}.gz", "wb", 1) as target:
                shutil.copyfileobj(path.open("rb"), target)
        found = {
            "what was made": agrees(rows, jobs),
            "two processes": table_of(folder / "days", folder / "ds2", 2) == rows,
            "gz": table_of(packed, folder / "ds3") == rows,
        }
    print(f"## Tables of Torque's logs\n\n{len(jobs):,} jobs, {len(rows):,} rows, compared with\n")
    print("| | equal |\n|---|---|")
    for name, same in found.items():
        print(f"| {name} | {'yes' if same else 'NO'} |")
    print()
    return all(found.values())


# -- speed --------------------------------------------------------------------------------------


def work(path: Path) -> None:
    """Ingest a log and print CPU seconds and peak memory; something small was ingested before."""
    import fitkit.cli  # chooses the allocator that the command has

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "small", 0.01)
        fitkit.ingest(folder / "small", folder / "before")
        start = process_time()
        fitkit.ingest(path, folder / "ds")
        seconds = process_time() - start
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    print(seconds, int(peak.split()[1]) * 1024 / MB)


def cost(path: Path, repeats: int) -> tuple[float, float]:
    """CPU seconds, the fewest, and megabytes, the most, of ingesting a log."""
    found = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "speed", "--worker", str(path)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append([float(value) for value in output.split()[-2:]])
    return min(seconds for seconds, _ in found), max(peak for _, peak in found)


def speed(megabytes: float, repeats: int) -> bool:
    """Print speed and memory; whether the bars are met."""
    print("## Speed on Torque's logs\n" + TEXT.format(repeats=repeats))
    print("| log | MB | MB per CPU s | bar | peak MB | bar |\n|---|---|---|---|---|---|")
    kept = True
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "20200301"
        logs = {
            "all records": partial(write, path, megabytes),
            "E records alone": partial(write, path, megabytes, letters="E"),
            "lines of 8 MB among them": partial(write_long, path, megabytes),
        }
        for title, make in logs.items():
            make()
            seconds, peak = cost(path, repeats)
            size = path.stat().st_size / MB
            print(
                f"| {title} | {size:.0f} | {size / seconds:.1f} | {LEAST_MB_PER_S:.0f} "
                f"| {peak:.0f} | {MOST_MB:.0f} |"
            )
            kept = kept and size / seconds >= LEAST_MB_PER_S and peak <= MOST_MB
    print()
    return kept


def main() -> None:
    """Run what the command line asks for; exit 1 if a bar is missed or tables differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    writing = verbs.add_parser("write")
    writing.add_argument("target", type=Path)
    writing.add_argument("--days", action="store_true", help="a folder of day files")
    writing.add_argument("--full-machine", action="store_true", help="with lines of 8 MB")
    writing.add_argument("--seed", type=int, default=0)
    verbs.add_parser("tables")
    verbs.add_parser("speed").add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    verbs.choices["speed"].add_argument("--repeats", type=int, default=3)
    for verb, default in (("write", 10.0), ("tables", 10.0), ("speed", 300.0)):
        verbs.choices[verb].add_argument("--megabytes", type=float, default=default)
    given = parser.parse_args()
    if given.verb == "write" and given.days:
        write_days(given.target, islice(made_jobs(given.seed), int(given.megabytes * 250)))
    elif given.verb == "write":
        (write_long if given.full_machine else write)(given.target, given.megabytes, given.seed)
    elif given.verb == "tables":
        sys.exit(not tables(given.megabytes))
    elif given.worker:
        work(given.worker)
    else:
        sys.exit(not speed(given.megabytes, given.repeats))


if __name__ == "__main__":
    main()
