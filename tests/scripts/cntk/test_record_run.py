"""data/scripts/cntk/record_run.py on a made-up machine: neither CNTK nor Open MPI is needed."""

import gzip
import importlib.util
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

import fitkit
from fitkit.ingestion.metadata import check_metadata

SCRIPT = Path(__file__).parents[3] / "data" / "scripts" / "cntk" / "record_run.py"
_spec = importlib.util.spec_from_file_location("record_run", SCRIPT)
record_run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(record_run)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="programs are shell scripts here")
COMMON = "--mb 256 --epoch-size 4096 --freq 2 --cntrace 100 --log train.log --rank-suffix"
PROFILED = f"{COMMON} --profile prof --node-timing --epochs 2"


def options(text):
    return record_run.read_options(shlex.split(text))


# -- what is asked for -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "commands"),
    [
        ("", [f"--data data.ctf --model mlp --dist dp {PROFILED}"]),
        ("--method one-bit", [f"--data data.ctf --model mlp --dist dp --bits 1 {PROFILED}"]),
        (
            "--method block-momentum --block-size 512",
            [f"--data data.ctf --model mlp --dist bm --block 512 --dfreq 1 {PROFILED}"],
        ),
        (
            "--network cnnw --widths 8,16 --no-profiler --epochs 3",
            [f"--data data.ctf --model cnnw --widths 8,16 --dist dp {COMMON} --epochs 3"],
        ),
        (
            "--epochs 5 --restart-after 2",
            [
                f"--data data.ctf --model mlp --dist dp {COMMON} --ckpt checkpoint.dnn "
                f"--epochs {rest}"
                for rest in ("2 --epochs-label 5", "5 --restore")
            ],
        ),
    ],
)
def test_options_become_the_arguments_of_the_training(asked, commands):
    assert list(map(shlex.join, record_run.training_commands(options(asked)))) == commands


@pytest.mark.parametrize(
    ("asked", "samples", "output"),
    [
        ("", 40_000, "mlp_data-parallel_n1_mb256"),
        ("--ranks 3 --method one-bit", 40_000, "mlp_one-bit_n3_mb256"),
        ("--ranks 4 --epochs 4 --restart-after 1", 48_000,
         "mlp_data-parallel_n4_mb256_restarted"),
        ("--samples 8192 --network mlpw --widths 64,32 --minibatch 64", 8192,
         "mlpw_64-32_data-parallel_n1_mb64"),
    ],
)  # fmt: skip
def test_every_rank_has_a_chunk_of_data_and_every_run_a_name(asked, samples, output):
    found = options(asked)
    assert (found.samples, found.output) == (samples, Path("cntk-runs") / output)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("--ranks 0", "0 is no number from 1"),
        ("--minibatch 1e3", "1e3 is no number from 1"),
        ("--widths 64", "--widths goes with"),
        ("--network mlpw", "--widths goes with"),
        ("--network mlpw --widths 64,x", "numbers such as"),
        ("--epochs 2 --restart-after 2", "must leave an epoch"),
        ("--method asgd", "invalid choice"),
        ("-o .", ". is there already"),
    ],
)
def test_what_cannot_be_is_refused(asked, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        options(asked)
    assert message in capsys.readouterr().err


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit, match="0"):
        options("--help")
    assert "example: record_run.py --ranks 2" in capsys.readouterr().out


# -- what the machine has --------------------------------------------------------------------


def program(path, text):
    """A shell script that stands for a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def libraries(folder, names=("libmpi.so.40", "libmpi_cxx.so.40")):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.30").write_bytes(b"")
        (folder / name).symlink_to(f"{name}.30")
    return folder


def test_python36_is_the_named_one_the_one_on_the_path_or_of_pyenv(tmp_path):
    named = program(tmp_path / "named", "echo 3.6")
    on_path = program(tmp_path / "bin" / "python3.6", "echo 3.6")
    of_pyenv = program(tmp_path / "pyenv/versions/3.6.15/bin/python", "echo 3.6")
    there = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert record_run.find_python36({**there, "PYTHON36": named}) == named
    assert record_run.find_python36(there) == on_path
    program(Path(on_path), "exit 127")  # a shim of pyenv, whose version is not switched on
    assert record_run.find_python36(there) == of_pyenv


def test_no_python36_is_said_with_what_to_do(tmp_path):
    nowhere = {"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    with pytest.raises(record_run.RecordingError, match=r"pyenv install 3\.6\.15.* PYTHON36"):
        record_run.find_python36(nowhere)
    newer = program(tmp_path / "python", "echo 3.8")
    with pytest.raises(record_run.RecordingError, match="python is no Python"):
        record_run.find_python36({"PYTHON36": newer})
    with pytest.raises(record_run.RecordingError, match="absent is no Python"):
        record_run.find_python36({"PYTHON36": str(tmp_path / "absent")})


def test_mpirun_is_open_mpis(tmp_path):
    environment = {"PATH": str(tmp_path)}
    with pytest.raises(record_run.RecordingError, match="no mpirun: install Open MPI 4"):
        record_run.find_mpirun(environment)
    mpirun = program(tmp_path / "mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    assert record_run.find_mpirun(environment) == (mpirun, "4.1.4")
    program(tmp_path / "mpirun", "echo 'HYDRA build details: Version: 4.0.2'")
    with pytest.raises(record_run.RecordingError, match="is not Open MPI's"):
        record_run.find_mpirun(environment)


def test_libraries_are_sought_beside_mpirun_then_where_the_linker_looks(tmp_path):
    known = (
        "\tlibmpi.so.40 (libc6,x86-64) => /far/lib64/libmpi.so.40\n"
        "\tlibmpi.so.40 (libc6) => /far/lib32/libmpi.so.40\n"
        "\tlibmpi_cxx.so.40 (libc6,x86-64) => /far/lib64/libmpi_cxx.so.40\n"
        "\tlibm.so.6 (libc6,x86-64) => /other/libm.so.6"
    )
    program(tmp_path / "bin" / "ldconfig", f"cat <<'END'\n1 libs found\n{known}\nEND")
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": "/own:"}
    found = record_run.library_folders(str(tmp_path / "mpi/bin/mpirun"), environment)
    beside = [tmp_path / "mpi/lib", tmp_path / "mpi/lib64"]
    assert found == [*beside, Path("/own"), Path("/far/lib64")]


def test_links_have_the_names_that_the_wheel_asks_for(tmp_path):
    here = libraries(tmp_path / "lib64")
    record_run.link_libraries(tmp_path / "links", [tmp_path / "lib", here])
    found = {link.name: link.resolve() for link in (tmp_path / "links").iterdir()}
    assert found == {
        "libmpi.so.12": here / "libmpi.so.40.30",
        "libmpi_cxx.so.1": here / "libmpi_cxx.so.40.30",
    }


def test_a_missing_library_is_named(tmp_path):
    here = libraries(tmp_path / "lib", names=["libmpi.so.40"])
    with pytest.raises(record_run.RecordingError, match=r"no libmpi_cxx\.so\.40: install Open MPI"):
        record_run.link_libraries(tmp_path / "links", [here])


# -- what is kept ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("Redirecting log to file /w k/run/a.logrank0", "Redirecting log to file a.logrank0"),
        ('File "/home/a.b/.cache/cntk_run.py", line 9', 'File "cntk_run.py", line 9'),
        ("[node17:812] mca in /usr/lib/x.so on node17.site", "[host:812] mca in x.so on host"),
        ("metric = 88.77% * 4096 2.564s (1597.5 samples/s);",) * 2,
        ("see https://docs.site/a/b; node170, my-node17 and 1/2/3",) * 2,
        ("Times166 = Times (P5, x) : [200 x 784], [784 x *] -> [200 x *]",) * 2,
    ],
)  # fmt: skip
def test_folders_and_hosts_are_taken_out(text, stripped):
    hosts = ["node17.site", "node17", "localhost", ""]
    assert record_run.strip(text, [Path("/w k"), Path("/w k/run")], hosts) == stripped


def test_only_mpiruns_output_names_hosts(tmp_path):
    (tmp_path / "train.logrank0").write_bytes(b"train.logrank0 /a/b\xff\n")
    (tmp_path / "mpirun_stderr.txt").write_bytes(b"train: killed on train.site\n")
    (tmp_path / "x_detail_0.json").write_bytes(b"[]")
    record_run.clean(tmp_path, [], "train.site")
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert gzip.decompress(kept.pop("x_detail_0.json.gz")) == b"[]"
    assert kept == {
        "train.logrank0": b"train.logrank0 b\xff\n",
        "mpirun_stderr.txt": b"host: killed on host\n",
    }


def test_run_toml_says_what_the_log_does_not():
    asked = options("--ranks 2 --method block-momentum --threads 4 --system 'a \"b\\' --device c")
    text = record_run.describe(asked, datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC), "4.1.4")
    said = tomllib.loads(text)
    assert said == {
        "started_at": datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC),
        "n_threads": 4,
        "block_samples": 1024,
        "system": 'a "b\\',
        "device": "c",
    }
    check_metadata(said)
    assert text.splitlines()[1].startswith("# mpirun -n 2 python cntk_run.py --data data.ctf ")


@pytest.mark.parametrize(("method", "bits"), [("one-bit", 1), ("data-parallel", 32)])
def test_run_toml_says_the_bits_of_a_gradient(method, bits):
    text = record_run.describe(options(f"--method {method}"), datetime.now(UTC), "4.1.4")
    assert tomllib.loads(text)["gradient_bits"] == bits


# -- the run ---------------------------------------------------------------------------------

PYTHON = r"""
case "$*" in
    -c*) echo 3.6 ;;
    *"-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *mkdata.py*) echo "$2" > "$3"; echo made >> "${0%/*}/made" ;;
esac
"""
MPIRUN = r"""
[ "$1" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit
echo "$LD_LIBRARY_PATH" > "$SEEN/libraries"
echo "$OMP_NUM_THREADS" > "$SEEN/threads"
ls data.ctf > /dev/null || exit 3
echo 'requestnodes [MPIWrapperMpi]: using 1 out of 1 MPI nodes on a single host (1 requested); '\
     "we (0) are in (participating) $PWD/data.ctf node17" >&2
cat > train.logrank0 <<END
train.logrank0
CNTKCommandTrainBegin: train
 Minibatch[   1-   2]: loss = 2.419727 * 512, metric = 89.65% * 512;
Finished Epoch[1 of 1]: loss = 2.328493 * 512, metric = 88.77% * 512 2.500s (204.8 samples/s);
CNTKCommandTrainEnd: train
END
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that lays down a machine whose mpirun does something more."""

    def make(more=""):
        program(tmp_path / "mpi/bin/python3.6", PYTHON)
        program(tmp_path / "mpi/bin/mpirun", MPIRUN + more)
        libraries(tmp_path / "mpi/lib")
        monkeypatch.setattr(record_run.platform, "node", lambda: "node17")
        monkeypatch.setattr(record_run.platform, "system", lambda: "Linux")
        monkeypatch.setattr(record_run.platform, "machine", lambda: "x86_64")
        monkeypatch.setenv("PATH", f"{tmp_path}/mpi/bin:{os.environ['PATH']}")
        monkeypatch.setenv("SEEN", str(tmp_path))
        monkeypatch.delenv("PYTHON36", raising=False)
        return f"-o {tmp_path}/runs/new --cache {tmp_path}/cache --system here"

    yield make
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_run_is_a_folder_that_fitkit_reads(machine, tmp_path, capsys):
    asked = shlex.split(machine("mkdir prof; echo '[]' > prof/d_detail_0.json"))
    assert record_run.main([*asked, "--threads", "3"]) == 0
    output = tmp_path / "runs/new"
    assert capsys.readouterr().out == f"fitkit ingest {output}\n"
    assert [path.name for path in sorted(output.iterdir())] == [
        "d_detail_0.json.gz", "mpirun_stderr.txt", "mpirun_stdout.txt", "run.toml",
        "train.logrank0",
    ]  # fmt: skip
    said = (output / "mpirun_stderr.txt").read_text()
    assert said.endswith("we (0) are in (participating) data.ctf host\n")
    assert (tmp_path / "threads").read_text() == "3\n"
    assert (tmp_path / "libraries").read_text().splitlines()[0].split(":")[0].endswith("/links")
    assert sorted((tmp_path / "runs").iterdir()) == [output]
    (output / "d_detail_0.json.gz").unlink()  # the real profiler's list is never empty
    fitkit.ingest([output], tmp_path / "dataset")
    (run,) = pd.read_parquet(tmp_path / "dataset" / "runs").to_dict("records")
    expected = {"system": "here", "n_threads": 3, "gradient_bits": 32, "state": "completed"}
    assert {key: run[key] for key in expected} == expected


def test_cntk_and_the_data_are_made_once(machine, tmp_path):
    asked = shlex.split(machine())
    assert record_run.main(asked) == 0
    asked[1] += "_again"
    assert record_run.main(asked) == 0
    assert (tmp_path / "cache/environment/bin/made").read_text() == "made\n"
    assert (tmp_path / "cache/samples_40000.ctf").read_text() == "40000\n"


def test_the_parts_of_a_restarted_run_are_one_log(machine, tmp_path):
    asked = shlex.split(machine())
    assert record_run.main([*asked, "--epochs", "2", "--restart-after", "1"]) == 0
    output = tmp_path / "runs/new"
    assert (output / "train.logrank0").read_text().count("Finished Epoch[1 of 1]") == 2
    assert (output / "mpirun_stderr.txt").read_text().count("requestnodes") == 2


def test_a_run_that_fails_leaves_nothing_and_says_why(machine, tmp_path, capsys):
    assert record_run.main(shlex.split(machine("echo no memory >&2; exit 7"))) == 1
    error = capsys.readouterr().err
    assert "mpirun ended with status 7" in error
    assert error.endswith("no memory\n")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="no wheel of CNTK"
)
@pytest.mark.parametrize(
    ("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "kill"]
)
def test_an_interrupted_run_leaves_nothing(stop, status, machine, tmp_path):
    asked = machine("echo $$ > $SEEN/pid; exec sleep 60")
    process = subprocess.Popen(
        [sys.executable, "-S", str(SCRIPT), *shlex.split(asked)], stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    pid = tmp_path / "pid"
    for _ in range(1000):
        if pid.is_file() and pid.read_text():
            break
        time.sleep(0.01)
    process.send_signal(stop)
    assert process.wait(timeout=30) == status
    assert list((tmp_path / "runs").iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
