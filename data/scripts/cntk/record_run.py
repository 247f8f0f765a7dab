"""Record one run of CNTK 2.7 on this machine: a folder that ``fitkit ingest`` reads.

``make cntk-run OPTIONS='--ranks 2 --method one-bit'``, or
``python data/scripts/cntk/record_run.py --ranks 2 --method one-bit``. It needs Linux on x86-64,
Python 3.6, Open MPI 4 and, the first time, PyPI: docs/recording_cntk.md. The network trains on
synthetic data of a fixed seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
# The wheel's own version says 2.7; this is the build of the sample runs, ae9c9c7c5f9e.
REQUIREMENT = "cntk==2.7.post1"
# The wheel was linked with Open MPI 1.10, whose functions Open MPI 4 still has.
LINKS = {"libmpi.so.12": "libmpi.so.40", "libmpi_cxx.so.1": "libmpi_cxx.so.40"}
INSTALL_MPI = "install Open MPI 4 with its C++ library (Debian, Ubuntu: apt install openmpi-bin)"
INSTALL_PYTHON = (
    "CNTK 2.7 runs on Python 3.6 alone: install it (pyenv install 3.6.15, or "
    "conda create -n python36 python=3.6) and name its program in PYTHON36"
)
METHODS = ("data-parallel", "one-bit", "block-momentum")
# Network → whether --widths gives the sizes of its hidden layers.
NETWORKS = {"mlp": False, "mlpbig": False, "cnn": False, "mlpw": True, "cnnw": True}
STANDARD_STREAMS = ("mpirun_stdout.txt", "mpirun_stderr.txt")
# CNTK gives each rank whole chunks of 32 MiB, some 11,800 samples: with fewer chunks than ranks,
# some ranks only wait.
SAMPLES, SAMPLES_OF_RANK = 40_000, 12_000


class RecordingError(Exception):
    """Why no run was recorded, and what to do."""


# -- what is asked for -------------------------------------------------------------------------


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command line, checked against each other.

    Raises
    ------
    SystemExit
        With the usage, at an option that cannot be.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: record_run.py --ranks 2 --method block-momentum --block-size 1024",
    )  # fmt: skip
    add = parser.add_argument
    add("-o", "--output", type=Path, help="the folder to make [cntk-runs/<network>_<method>_…]")
    add("--ranks", type=_positive, default=1, help="processes, all on this machine [1]")
    add("--network", choices=NETWORKS, default="mlp", help="what is trained [mlp]")
    add("--widths", help="hidden layers of mlpw or filters of cnnw, e.g. 512,256")
    add("--method", choices=METHODS, default="data-parallel", help="how ranks synchronise")
    add("--block-size", type=_positive, default=2048, help="block momentum: samples a block [2048]")
    add("--minibatch", type=_positive, default=256,
        help="samples of all ranks together, of one rank under block momentum [256]")  # fmt: skip
    add("--epochs", type=_positive, default=2, help="epochs of the whole run [2]")
    add("--epoch-size", type=_positive, default=4096, help="samples an epoch [4096]")
    add("--restart-after", type=_positive, metavar="EPOCHS",
        help="end after so many epochs and start again from the checkpoint")  # fmt: skip
    add("--no-profiler", dest="profiler", action="store_false", help="progress logs alone")
    add("--samples", type=_positive, help="size of the data [40000, or 12000 a rank]")
    add("--threads", type=_positive, default=1, help="threads a rank [1]")
    add("--system", help="your name for the machine, kept in run.toml; its host name is not")
    add("--device", help="your name for the processor, kept in run.toml")
    add("--cache", type=Path, default=_cache(os.environ), help="CNTK and data, kept [%(default)s]")
    options = parser.parse_args(arguments)
    _complete(parser, options)
    return options


def _complete(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if NETWORKS[options.network] != bool(options.widths):
        parser.error("--widths goes with --network mlpw or cnnw, and they need it")
    if options.widths and not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", options.widths):
        parser.error("--widths holds numbers such as 512,256")
    if options.restart_after and options.restart_after >= options.epochs:
        parser.error("--restart-after must leave an epoch to do: give more --epochs")
    if options.restart_after:
        options.profiler = False  # it would start after the first checkpoint only
    options.samples = options.samples or max(SAMPLES, SAMPLES_OF_RANK * options.ranks)
    options.output = options.output or Path("cntk-runs") / _name(options)
    if options.output.exists():
        parser.error(f"{options.output} is there already")


def _positive(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 to 999999999")
    return int(text)


def _name(options: argparse.Namespace) -> str:
    parts = [options.network, *([options.widths.replace(",", "-")] if options.widths else [])]
    parts += [options.method, f"n{options.ranks}", f"mb{options.minibatch}"]
    return "_".join([*parts, *(["restarted"] if options.restart_after else [])])


def _cache(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fitkit-cntk"


def training_commands(options: argparse.Namespace) -> list[list[str]]:
    """Arguments of `cntk_run.py`: twice if the run is restarted."""
    command = ["--data", "data.ctf", "--model", options.network]
    command += ["--widths", options.widths] if options.widths else []
    command += {
        "data-parallel": ["--dist", "dp"],
        "one-bit": ["--dist", "dp", "--bits", "1"],
        # Nothing but the lines of --dfreq tells that the log counts the samples of one rank.
        "block-momentum": ["--dist", "bm", "--block", str(options.block_size), "--dfreq", "1"],
    }[options.method]
    command += ["--mb", str(options.minibatch), "--epoch-size", str(options.epoch_size)]
    command += ["--freq", "2", "--cntrace", "100", "--log", "train.log", "--rank-suffix"]
    command += ["--profile", "prof", "--node-timing"] if options.profiler else []
    epochs, first = str(options.epochs), options.restart_after
    if not first:
        return [[*command, "--epochs", epochs]]
    command += ["--ckpt", "checkpoint.dnn"]
    return [
        [*command, "--epochs", str(first), "--epochs-label", epochs],
        [*command, "--epochs", epochs, "--restore"],
    ]


# -- what the machine has ----------------------------------------------------------------------


def find_python36(environment: Mapping[str, str]) -> str:
    """A Python 3.6: $PYTHON36, else python3.6 on the path, else one of pyenv's.

    Raises
    ------
    RecordingError
        If there is none, or $PYTHON36 is another version.
    """
    named = environment.get("PYTHON36")
    pyenv = Path(environment.get("PYENV_ROOT") or Path.home() / ".pyenv")
    others = [shutil.which("python3.6", path=environment.get("PATH")) or ""]
    others += map(str, sorted(pyenv.glob("versions/3.6.*/bin/python"), reverse=True))
    for python in [named] if named else others:
        if _version(python) == "3.6":
            return python
    raise RecordingError(f"PYTHON36={named} is no Python 3.6" if named else INSTALL_PYTHON)


def _version(python: str) -> str:
    """Version of a Python; empty if it does not start, like the stand-ins that pyenv makes."""
    try:
        return _output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    except (OSError, RecordingError):
        return ""


def find_mpirun(environment: Mapping[str, str]) -> tuple[str, str]:
    """Path and version of Open MPI's mpirun.

    Raises
    ------
    RecordingError
        If there is none, or it is another MPI's.
    """
    mpirun = shutil.which("mpirun", path=environment.get("PATH"))
    if mpirun is None:
        raise RecordingError(f"there is no mpirun: {INSTALL_MPI}")
    version = re.search(r"\(Open ?MPI\) (\S+)", _output([mpirun, "--version"]))
    if version is None:
        raise RecordingError(f"{mpirun} is not Open MPI's: {INSTALL_MPI}")
    return mpirun, version[1]


def library_folders(mpirun: str, environment: Mapping[str, str]) -> list[Path]:
    """Where libraries may lie: beside mpirun, $LD_LIBRARY_PATH, what the linker knows."""
    prefix = Path(mpirun).resolve().parents[1]
    folders = [prefix / "lib", prefix / "lib64"]
    folders += map(Path, filter(None, environment.get("LD_LIBRARY_PATH", "").split(":")))
    ldconfig = shutil.which("ldconfig", path=f"{environment.get('PATH', '')}:/sbin:/usr/sbin")
    known = _output([ldconfig, "-p"]) if ldconfig else ""
    found = re.findall(r"^\s*libmpi\S* \(.*x86-64.*\) => (\S+)$", known, re.MULTILINE)
    return list(dict.fromkeys([*folders, *(Path(library).parent for library in found)]))


def link_libraries(links: Path, folders: Sequence[Path]) -> None:
    """Make a folder with Open MPI's libraries under the names that CNTK's wheel asks for.

    Raises
    ------
    RecordingError
        If a library is in none of the folders.
    """
    links.mkdir()
    for wanted, present in LINKS.items():
        library = next((f / present for f in folders if (f / present).exists()), None)
        if library is None:
            raise RecordingError(f"there is no {present}: {INSTALL_MPI}")
        (links / wanted).symlink_to(library.resolve())


def _output(command: Sequence[str]) -> str:
    """Standard output of a short command, or the end of what it says of its failure."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RecordingError(f"{' '.join(command)} failed:\n{_end(done.stderr or done.stdout)}")
    return done.stdout.strip()


def _end(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-30:])


def prepare_environment(cache: Path, python36: str) -> str:
    """The Python of a virtual environment that has CNTK; made once."""
    folder, complete = cache / "environment", cache / "environment" / "complete"
    python = str(folder / "bin" / "python")
    if not complete.is_file() or complete.read_text() != REQUIREMENT:
        _say(f"installing {REQUIREMENT} (440 MB) for {python36}")
        _output([python36, "-m", "venv", "--clear", str(folder)])
        _output([python, "-m", "pip", "install", "--quiet", REQUIREMENT])
        complete.write_text(REQUIREMENT)
    return python


def prepare_data(cache: Path, python: str, samples: int) -> Path:
    """The training data, 2.8 kB a sample; the same bytes everywhere, made once."""
    data = cache / f"samples_{samples}.ctf"
    if not data.is_file():
        _say(f"writing {samples} samples")
        part = data.with_suffix(".part")
        _output([python, str(HERE / "mkdata.py"), str(samples), str(part)])
        part.replace(data)
    return data


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


# -- the run -----------------------------------------------------------------------------------


def record(options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Record the run into ``options.output``: the whole folder, or none.

    Raises
    ------
    RecordingError
        If the machine lacks something, or the run fails.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise RecordingError("CNTK 2.7 has wheels for Linux on x86-64 only")
    mpirun, mpi_version = find_mpirun(environment)
    python36 = find_python36(environment)
    cache: Path = options.cache.absolute()
    cache.mkdir(parents=True, exist_ok=True)
    python = prepare_environment(cache, python36)
    data = prepare_data(cache, python, options.samples)
    output: Path = options.output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    # Hidden, on the disk of the output, and gone at the end however that comes.
    with tempfile.TemporaryDirectory(
        prefix=f".{output.name}-", dir=output.parent, ignore_cleanup_errors=True
    ) as hidden:
        place = Path(hidden)
        work, kept, links = (place / name for name in ("work", "kept", "links"))
        work.mkdir()
        kept.mkdir()
        link_libraries(links, library_folders(mpirun, environment))
        (work / "data.ctf").symlink_to(data)
        around = _surroundings(options, environment, links)
        start = [*_start(mpirun, options), python, str(HERE / "cntk_run.py")]
        started_at = datetime.now(UTC)
        for command in training_commands(options):
            _train([*start, *command], work, kept, around)
        for file in sorted(work.glob("prof/*")):
            file.rename(kept / file.name)
        clean(kept, [work, cache, HERE, Path.home()], platform.node())
        (kept / "run.toml").write_text(describe(options, started_at, mpi_version))
        kept.rename(output)


def _surroundings(
    options: argparse.Namespace, environment: Mapping[str, str], links: Path
) -> dict[str, str]:
    threads = str(options.threads)
    libraries = [str(links), environment.get("LD_LIBRARY_PATH", "")]
    return {
        **environment,
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONWARNINGS": "ignore",  # that there is no GPU, and no Ubuntu
        "TZ": "UTC",  # the profiler stamps in local time and names no zone
    }


def _start(mpirun: str, options: argparse.Namespace) -> list[str]:
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [mpirun, *as_root, "--oversubscribe", "-n", str(options.ranks)]


def _train(
    command: Sequence[str], work: Path, kept: Path, environment: Mapping[str, str]
) -> None:  # fmt: skip
    """Run one command and append what it writes: CNTK itself overwrites its log at a restart."""
    streams = [kept / name for name in STANDARD_STREAMS]
    with streams[0].open("ab") as out, streams[1].open("ab") as err:
        process = subprocess.Popen(command, cwd=work, env=environment, stdout=out, stderr=err)
        try:
            status = process.wait()
        except BaseException:
            process.terminate()  # mpirun ends its ranks
            process.wait()
            raise
    if status:
        said = _end(streams[1].read_text(errors="replace"))
        raise RecordingError(f"mpirun ended with status {status}:\n{said}")
    for log in sorted(work.glob("train.logrank*")):
        with (kept / log.name).open("ab") as whole:
            whole.write(log.read_bytes())


def clean(folder: Path, places: Sequence[Path], host: str) -> None:
    """Take folders and the host's name out of all files, and compress the traces."""
    for file in sorted(folder.iterdir()):
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        # Only mpirun writes host names; elsewhere a host called train would cost words of the log.
        hosts = [host, host.partition(".")[0]] if file.name in STANDARD_STREAMS else []
        stripped = strip(text, places, hosts).encode("utf-8", "surrogateescape")
        if file.suffix == ".json":
            file.unlink()
            file.with_suffix(".json.gz").write_bytes(gzip.compress(stripped, mtime=0))
        else:
            file.write_bytes(stripped)


def strip(text: str, places: Sequence[Path], hosts: Sequence[str]) -> str:
    """The text with names of files in place of their paths, and ``host`` in that of hosts."""
    known = sorted((f"{place}/" for place in places), key=len, reverse=True)
    folder = "|".join([*map(re.escape, known), r"/(?:[\w.+@-]+/)+"])
    text = re.sub(rf"(?<![\w./+-])(?:{folder})", "", text)
    for name in sorted({*hosts} - {"", "localhost"}, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "host", text)
    return text


def describe(options: argparse.Namespace, started_at: datetime, mpi_version: str) -> str:
    """``run.toml``: what the log does not say, and how the run was made, in comments."""
    lines = [f"# Recorded with {REQUIREMENT}, Python 3.6, Open MPI {mpi_version}:"]
    start = f"# mpirun -n {options.ranks} python cntk_run.py"
    lines += [" ".join([start, *command]) for command in training_commands(options)]
    lines.append(f"started_at = {started_at:%Y-%m-%dT%H:%M:%SZ}")
    lines.append(f"n_threads = {options.threads}")
    if options.method == "block-momentum":
        # What one worker reads: CNTK divides the block among the workers.
        lines.append(f"block_samples = {options.block_size // options.ranks}")
    else:
        lines.append(f"gradient_bits = {1 if options.method == 'one-bit' else 32}")
    # A JSON text is a TOML text, too.
    lines += [f"system = {json.dumps(options.system)}"] if options.system else []
    lines += [f"device = {json.dumps(options.device)}"] if options.device else []
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Record a run; 1 if it could not be."""
    options = read_options(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        record(options, os.environ)
    except (RecordingError, OSError) as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("interrupted; nothing is left")
        return 130
    print(f"fitkit ingest {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
