"""Lines that state facts of the whole run: build, machine, ranks, precision, failures."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime

from fitkit.parsers.cntk.facts.run import Syncs, Wall
from fitkit.parsers.cntk.facts.statements import COUNT, RANK, Statements, Stream, kind
from fitkit.parsers.values import number

_AT = r"on (?P<host>\S+) at (?P<at>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)"
_SECONDS = r"\d{1,12}(?:\.\d{0,12})?(?:[eE][-+]?\d{1,3})?"
_PRECISIONS = {"float": "float32", "double": "float64", "half": "float16"}
_COMMIT = re.compile(r"[0-9a-f]{5,40}\b")
_MOST = 10_000  # walls, failures, GPUs, hosts


def _banner(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    """CNTK 2.0.beta6.0+ (HEAD 5f1fab, Dec 15 2016 06:29:34) on HOST at 2016/12/15 08:28:16."""
    facts, groups = said.facts, found.groupdict()
    if version := groups.get("version"):
        said.say("version", version, stream.rank)
        facts.branch, facts.built_at = groups["branch"], groups["built"].strip()
        _take_commit(said, groups["commit"])
    if stream.rank is not None and len(facts.hosts) < _MOST:
        facts.hosts[stream.rank] = groups["host"]
    if not stream.rank:  # rank 0, or nobody knows
        facts.host = groups["host"]
    with suppress(ValueError):  # a day that there is not
        at = datetime.strptime(groups["at"], "%Y/%m/%d %H:%M:%S")
        facts.started_at = min(at, facts.started_at or at)


def _take_commit(said: Statements, commit: str) -> None:
    """Keep a commit; the banner has only the first digits of it."""
    known = said.facts.commit or commit
    if not (known.startswith(commit) or commit.startswith(known)):
        first, second = sorted((known, commit))
        said.note("build_unclear", f"the log names the builds {first} and {second}")
    if known == commit or not known.startswith(commit):
        said.facts.commit = commit


def _build(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    kind, value = found[1], found[2].strip()
    if kind == "Build SHA1":
        if commit := _COMMIT.match(value):  # "(modified)" may follow
            _take_commit(said, commit[0])
    elif kind == "Built time":
        said.facts.built_at = value
    elif kind == "Build Branch":
        said.facts.branch = value
    else:
        said.facts.build_target = value


def _ranks(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    used, available, hosts, requested, rank = found.groups()
    own = int(rank) if rank else None
    said.say("n_used", int(used), own)
    said.say("n_available", int(available), own)
    if requested:
        said.say("n_requested", int(requested), own)
    if hosts:  # ranks say so one after the other, and once before they know
        said.say("is_single_host", hosts == "a single host", own)


def _pinging(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    said.say("n_used", int(found[1]), stream.rank)


def _launch(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    if said.facts.n_requested is None:  # the test driver says it before MPI does
        said.facts.n_requested = int(found[1])


def _cpu(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    said.facts.cpu = found[1].strip()[:200]


def _hardware_threads(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    said.facts.n_hardware_threads = int(found[1])


def _memory(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    said.facts.memory_bytes = int(found[1]) * 1024


def _threads(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    said.facts.n_threads = int(found[1])


def _gpu(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    if len(said.facts.gpus) < _MOST:
        said.facts.gpus[int(found[1])] = found[2][:200]


def _process_device(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    gpu, name = found["gpu"], (found["name"] or "").strip()[:200]
    said.facts.process_device = f"GPU {int(gpu)}" if gpu else "CPU"
    if gpu and name and len(said.facts.gpus) < _MOST:
        said.facts.gpus[int(gpu)] = name


def _precision(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    said.say("precision", _PRECISIONS[found[1]], stream.rank)


def _failure(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    said.facts.has_nan_criterion |= "not a number" in found[0]
    if len(said.facts.failures) < _MOST:
        said.facts.failures.append((stream.rank, found[0].strip()[:500]))


def _script(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    """Our own recording script: ``model mlp: 178110 parameters; workers 2; rank 0; ...``."""
    own = int(found["rank"])
    said.facts.network = found["network"]
    said.say("n_workers", int(found["workers"]), own)
    said.say("precision", found["precision"], own)
    said.facts.config.set("", "", "minibatchSize", found["minibatch"])


def _wall(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    init, train = number(found["init"]), number(found["train"])
    if init is not None and train is not None and len(said.facts.walls) < _MOST:
        said.facts.walls.append(Wall(int(found["rank"]), init, train))


def _synced(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    before = said.facts.syncs.get(stream.rank, Syncs(0, 0))
    n_syncs, n_samples = int(found[1]), int(found[2])
    said.facts.syncs[stream.rank] = Syncs(before.n_syncs + n_syncs, before.n_samples + n_samples)


KINDS = (
    kind(
        ") on ",
        r"CNTK (?P<version>\S{1,50}) \((?P<branch>\S{1,200}) (?P<commit>[0-9a-f]{5,40})\b"
        rf"[^,)]{{0,100}},(?P<built>[^)]{{0,100}})\) {_AT}",
        _banner,
        r"\) on \S+ at \d{4}/",
    ),
    kind("running on ", rf"^running {_AT}", _banner),
    kind("Running on ", rf"^Running {_AT}", _banner),
    *(
        kind(f"{name}: ", rf"^\s*({name}): (.{{1,200}})", _build)
        for name in ("Built time", "Build Branch", "Build SHA1", "Build target")
    ),
    kind(
        " MPI nodes",
        rf"using ({RANK}) out of ({RANK}) MPI nodes(?: on (a single host|multiple hosts))?"
        rf"(?: \(({RANK}) requested\)(?:; we \(({RANK})\) are)?)?",
        _ranks,
    ),
    kind("[mpihelper]", rf"\[mpihelper\]: ({RANK}) nodes", _pinging, r"mpihelper\]: \d+ nodes"),
    kind("=== Running ", rf"=== Running .{{0,1000}}?mpi(?:exec|run)\S* -n ({RANK}) ", _launch),
    kind("CPU Model Name: ", r"CPU Model Name: (\S.*)", _cpu),
    kind("Hardware threads: ", rf"Hardware threads: ({COUNT})", _hardware_threads),
    kind("Total Memory: ", rf"Total Memory: ({COUNT}) kB", _memory),
    kind(" CPU thread", rf"Using ({RANK}) CPU threads?\b", _threads),
    kind("Device[", r"Device\[(\d{1,4})\]: cores = .{0,200}?type = \"([^\"]{1,200})\"", _gpu),
    kind(
        "process wide default device",
        r"Selected (?:CPU|GPU\[(?P<gpu>\d{1,4})\](?P<name>.{0,200}?)) as the process wide",
        _process_device,
    ),
    kind("recision", r"^[pP]recision *= *\"?(float|double|half)\"?\s*$", _precision, "recision *="),
    kind("EXCEPTION occurred", r"EXCEPTION occurred.*", _failure),
    kind("About to throw exception", r"About to throw exception.*", _failure),
    kind("criterion is not a number", r".*criterion is not a number.*", _failure),
    kind("with non-zero status", r".*with non-zero status.*", _failure),
    kind(
        "; workers ",
        rf"model (?P<network>\S{{1,200}}): \d+ parameters; workers (?P<workers>{RANK}); "
        rf"rank (?P<rank>{RANK}); minibatch (?P<minibatch>{COUNT}); precision "
        r"(?P<precision>\w{1,20})",
        _script,
    ),
    kind(
        "wall: import+build ",
        rf"wall: import\+build (?P<init>{_SECONDS})s, train (?P<train>{_SECONDS})s "
        rf"\(rank (?P<rank>{RANK})\)",
        _wall,
    ),
    kind("#Syncs", rf"#Syncs elapsed = ({COUNT}), #Samples elapsed = ({COUNT})", _synced),
)
