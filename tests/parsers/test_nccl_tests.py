"""Tables of nccl-tests and rccl-tests: figures of hand-written rows, and what a table tells."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fitkit
from fitkit.errors import ParseError
from fitkit.features import collective_times
from fitkit.models.collectives import CollectiveModel
from fitkit.parsers.nccl_tests import NcclTestsParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Comm, Record, Run
from fitkit.schema import to_arrow

PARSER = NcclTestsParser()
SAMPLES = {
    path.name: path.read_bytes()
    for path in sorted((Path(__file__).parents[2] / "data" / "nccl_tests").glob("*.txt"))
}
THREADS = (
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 "
    "agg iters: 1 validate: 1 graph: 0\n#\n# Using devices\n"
)
COLUMNS = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time"
    "   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)"
    "  (GB/s)  (GB/s)\n"
)
# The row that the design page shows: 8 MiB on eight GPUs.
ROW = (
    "     8388608       2097152     float     sum      -1    81.16  103.36  180.88      0    80.46"
    "  104.26  182.45      0\n"
)
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 181.665 \n#\n"


def devices(n_ranks: int, per_node: int = 8, name: str = "NVIDIA H100 80GB HBM3") -> str:
    return "".join(
        f"#  Rank {rank:2d} Group  0 Pid {4100 + rank:6d} on  node{rank // per_node:02d} device "
        f"{rank % per_node:2d} [0000:{rank:02x}:00] {name}\n"
        for rank in range(n_ranks)
    )


def table(rows: str = ROW, n_ranks: int = 8, per_node: int = 8, program: str = "all_reduce") -> str:
    start = f"# Collective test starting: {program}_perf\n"
    return start + THREADS + devices(n_ranks, per_node) + COLUMNS + rows + END


@dataclass(frozen=True)
class Found:
    """Records and notes of a file."""

    records: list[Record]
    notes: list[tuple[str, int | None, str, str]]

    @property
    def runs(self) -> list[Run]:
        return [record for record in self.records if isinstance(record, Run)]

    @property
    def comms(self) -> list[Comm]:
        return [record for record in self.records if isinstance(record, Comm)]

    @property
    def codes(self) -> list[tuple[int | None, str]]:
        return [(line, code) for _, line, code, _ in self.notes]


def read(
    text: str | bytes, name: str = "job.log", *, skip_bad_lines: bool = False, **metadata: Any
) -> Found:
    """Read a file; what the tables could not hold would fail here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        source = Source(name, (SourceFile(path, name),), metadata, ProblemLog(skip_bad_lines))
        records = list(PARSER.parse(source))
    to_arrow("runs", [record for record in records if isinstance(record, Run)])
    to_arrow("comms", [record for record in records if isinstance(record, Comm)])
    to_arrow("diagnostics", source.problems.records("id"))
    return Found(records, source.problems.notes)


def test_a_row_is_two_times() -> None:
    found = read(table())
    (run,) = found.runs
    assert (run.device, run.n_nodes, run.n_workers, run.n_devices) == (
        "NVIDIA H100 80GB HBM3", 1, 8, 8,
    )  # fmt: skip
    assert (run.framework, run.precision, run.state) == ("nccl-tests", "float32", "completed")
    assert run.placement == "8"
    outer, inner = found.comms
    assert outer == Comm(
        run.run_id, 0, "all_reduce", pytest.approx(81.16e-6), 8, 1, 8388608, topology="intra"
    )
    assert inner.duration_s == pytest.approx(80.46e-6)
    # What the tool computed: size over time, and 2 (n - 1) / n of it.
    assert 8388608 / outer.duration_s / 1e9 == pytest.approx(103.36, abs=0.005)
    assert abs(103.36 * 2 * 7 / 8 - 180.88) < 0.005
    assert found.notes == []


def test_several_machines() -> None:
    found = read(table(ROW.replace("180.88", "193.80").replace("182.45", "195.49"), 16))
    assert [(c.n_ranks, c.n_nodes, c.topology) for c in found.comms] == [(16, 2, "inter")] * 2
    assert (found.runs[0].placement, found.notes) == ("88", [])


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", ""])
def test_launchers_label_the_lines(prefix: str) -> None:
    text = "".join(prefix + line for line in table().splitlines(keepends=True))
    assert PARSER.recognises(text.encode())
    found = read(text)
    assert (len(found.comms), found.runs[0].n_workers, found.notes) == (2, 8, [])


def test_older_versions() -> None:
    # 2.0: other words in the header, no column for the root, an error instead of wrong results.
    text = (
        "# nThread: 1 nGpus: 4 minBytes: 8 maxBytes: 134217728 step: 2(factor) warmup iters: 5 "
        "iters: 20 validation: 1 \n#\n# Using devices\n"
        + "".join(
            f"#   Rank  {rank} Pid  12345 on   dgx1 device  {rank} [0x0{rank}] Tesla V100-SXM2\n"
            for rank in range(4)
        )
        + "#\n#                                                     out-of-place\n"
        "#       size         count    type   redop     time   algbw   busbw  error     time   "
        "algbw   busbw  error\n"
        "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)\n"
        "     1048576        262144   float     sum    51.40   20.40   30.60  2e-07    52.74   "
        "19.88   29.82  2e-07\n"
        " Out of bounds values : 0 OK\n# Avg bus bandwidth    : 30.21 \n"
    )
    assert PARSER.recognises(text.encode())
    found = read(text)
    # 30.60 / 20.40 is 1.5: the factor of an all-reduce on four ranks.
    assert [(c.op, c.n_ranks) for c in found.comms] == [("all_reduce", 4)] * 2
    assert found.comms[0].duration_s == pytest.approx(51.40e-6)
    assert (found.runs[0].device, found.notes) == ("Tesla V100-SXM2", [])


@pytest.mark.parametrize(
    ("columns", "n_rows"),
    [
        ("none -1 81.16 103.36 90.44 0 80.46 104.26 91.23 0", 2),
        ("none -1 81.16 103.36 90.44 N/A 80.46 104.26 91.23 N/A", 2),
        ("none -1 81.16 103.36 90.44 0 N/A N/A N/A N/A", 1),
        ("81.16 103.36 90.44 0 80.46 104.26 91.23 0", 2),
        ("-1 81.16 103.36 90.44 0", 1),
    ],
)
def test_columns_that_a_collective_does_not_have(columns: str, n_rows: int) -> None:
    found = read(table(f"8388608 2097152 float {columns}\n", program="all_gather"))
    assert [c.op for c in found.comms] == ["all_gather"] * n_rows
    assert found.notes == []


@pytest.mark.parametrize(
    ("program", "op"),
    [
        ("all_gather", "all_gather"), ("reduce_scatter", "reduce_scatter"),
        ("alltoall", "all_to_all"), ("gather", "gather"), ("scatter", "scatter"),
    ],
)  # fmt: skip
def test_collectives_where_each_rank_keeps_its_share(program: str, op: str) -> None:
    # 7 / 8 of 103.36 is 90.44.
    row = ROW.replace("180.88", "90.44").replace("182.45", "91.23")
    found = read(table(row, program=program))
    assert ([c.op for c in found.comms], found.notes) == ([op] * 2, [])


@pytest.mark.parametrize(
    ("program", "op"),
    [("broadcast", "broadcast"), ("reduce", "reduce"), ("sendrecv", "send_recv")],
)
def test_collectives_whose_bandwidths_are_equal(program: str, op: str) -> None:
    row = ROW.replace("180.88", "103.36").replace("182.45", "104.26")
    found = read(table(row, program=program))
    assert ([c.op for c in found.comms], found.notes) == ([op] * 2, [])


def test_where_the_collective_is_named() -> None:
    bare = THREADS + devices(8) + COLUMNS + ROW + END
    assert read(bare, "all_reduce_n8.txt").comms[0].op == "all_reduce"
    assert read(bare, "slurm-12-reduce.out").comms[0].op == "reduce"
    command = "+ mpirun -np 8 ./build/all_reduce_perf -b 8 -e 128M -f 2\n"
    assert read(command + bare).comms[0].op == "all_reduce"
    # By the factor: of a reduction without a root only two are possible.
    assert read(bare).comms[0].op == "all_reduce"
    scatter = bare.replace("180.88", "90.44").replace("182.45", "91.23")
    assert read(scatter).comms[0].op == "reduce_scatter"
    assert read(bare.replace("-1", " 0")).comms[0].op == "reduce"
    for unknown in (bare.replace("sum", "none"), bare.replace("180.88", "150.0")):
        with pytest.raises(ParseError, match="which collective") as caught:
            read(unknown)
        assert "all_reduce_perf.txt" in caught.value.hint


def test_ranks_follow_from_the_bandwidths() -> None:
    bare = "# Collective test starting: all_reduce_perf\n" + COLUMNS + ROW + END
    found = read(bare)
    assert [(c.n_ranks, c.n_nodes, c.topology) for c in found.comms] == [(8, None, None)] * 2
    assert found.codes == [(None, "ranks_inferred")]
    # 2.04 / 1.11 fits 11 to 14 ranks: rounding hides which.
    small = ROW.replace("103.36  180.88", "1.11  2.04").replace("104.26  182.45", "1.11  2.04")
    small = small.replace("81.16", "7557.30").replace("80.46", "7557.30")
    unsure = read(bare.replace(ROW, small))
    assert [c.n_ranks for c in unsure.comms] == [None, None]
    assert unsure.codes == [(None, "ranks_unknown")]
    assert [c.n_ranks for c in read(bare.replace(ROW, small), n_workers=12).comms] == [12, 12]
    named = read(bare.replace("all_reduce", "broadcast").replace("180.88", "103.36"))
    assert (None, "ranks_unknown") in named.codes


def test_bandwidths_that_contradict_the_header() -> None:
    found = read(table(n_ranks=2))
    assert [code for _, code in found.codes] == ["busbw_mismatch"]
    assert "2 of 2 times is not that of all_reduce on 2 ranks" in found.notes[0][3]
    found = read(table(ROW.replace("81.16", "162.32")))
    assert [code for _, code in found.codes] == ["algbw_mismatch"]
    # Bandwidths of small messages have two digits, and are rounded away.
    tiny = "8 2 float sum -1 12.34 0.00 0.00 0 12.30 0.00 0.00 0\n"
    assert read(table(tiny)).notes == []


def test_several_tests_in_one_file() -> None:
    row = ROW.replace("180.88", "90.44").replace("182.45", "91.23")
    half = row.replace("float", "half")
    found = read(table() + "noise\n" + table(row, program="all_gather") + table(half, program="x"),
                 "reduce_scatter.txt")  # fmt: skip
    ids = [run.run_id for run in found.runs]
    assert len(set(ids)) == 3
    assert [id_.rpartition("-")[2] for id_ in ids] == ["0", "1", "2"]
    assert [(c.run_id, c.op) for c in found.comms[::2]] == list(
        zip(ids, ["all_reduce", "all_gather", "reduce_scatter"], strict=True)
    )
    assert [run.precision for run in found.runs] == ["float32", "float32", "float16"]
    # Without a line that says that a test starts, its header does.
    assert len(read(table() + THREADS + devices(8) + COLUMNS + ROW).runs) == 2


def test_processes_that_each_print_are_apart() -> None:
    # Built without MPI, every task is a test of its own with one rank.
    one = table(ROW.replace("180.88", "0.00").replace("182.45", "0.00"), 1)
    lines = [f"{task}: {line}\n" for line in one.splitlines() for task in range(2)]
    found = read("".join(lines))
    assert [(run.n_workers, run.state) for run in found.runs] == [(1, "completed")] * 2


def test_what_the_tool_says_of_itself() -> None:
    head = "# nccl-tests version 2.17.1 nccl-headers=22706 nccl-library=22706\n"
    (run,) = read(head + table()).runs
    assert (run.framework, run.framework_version) == ("nccl-tests", "2.17.1")
    (run,) = read(head.replace("nccl-tests", "rccl-tests") + table()).runs
    assert run.framework == "rccl-tests"


def test_odd_results_are_noted() -> None:
    wrong = ROW.replace("      0    80.46", "     17    80.46")
    assert read(table(wrong)).codes == [(None, "wrong_results")]
    assert read(table().replace(END, "")).codes == [(None, "incomplete")]
    found = read(table("8388608 2097152 float sum -1 0.00 0.00 0.00 0 80.46 104.26 182.45 0\n"))
    assert (len(found.comms), [code for _, code in found.codes]) == (1, ["bad_value"])
    mixed = table().replace("HBM3\n", "PCIe\n", 1)
    assert [code for _, code in read(mixed).codes] == ["mixed_devices"]
    assert read(mixed).runs[0].device is None
    assert read(mixed, device="H100").runs[0].device == "H100"
    assert read(THREADS).codes == [(None, "no_times")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("81.16", "8x.16"), ("81.16", "nan"), ("81.16", "-1"), ("103.36", "1e999"),
        ("8388608", "9" * 30), ("float", "flot"), ("180.88", ""), ("  sum ", "  sum sum "),
        ("    -1", "   1.5"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read(old: str, new: str) -> None:
    text = table(ROW + ROW.replace(old, new) + ROW)
    with pytest.raises(ParseError, match=r"^job\.log:16: cannot read: "):
        read(text)
    found = read(text, skip_bad_lines=True)
    assert (found.codes, len(found.comms)) == ([(16, "bad_line")], 4)


def test_a_last_row_that_may_be_cut_is_not_believed() -> None:
    text = table(ROW + ROW).removesuffix(END)
    assert len(read(text).comms) == 4
    for cut in (1, 2, 30, 80):
        found = read(text[:-cut])
        assert len(found.comms) == 2
        assert [code for _, code in found.codes] == ["truncated", "incomplete"]


@pytest.mark.parametrize(
    "head",
    [
        b"", b"nThread", b"busbw", b"# nThread is", b"size(B),count,type,time(ns),busbw(GB/s)",
        b"operation,gpus,bytes,time_us,busbw_gb_per_s", b"\0" * 99,
        b"8388608 2097152 float sum -1 81.16 103.36 180.88 0 80.46 104.26 182.45 0",
    ],
)  # fmt: skip
def test_other_files_are_not_claimed(head: bytes) -> None:
    assert not PARSER.recognises(head)


def test_recognises_its_own() -> None:
    assert len(SAMPLES) == 5
    for name, text in SAMPLES.items():
        assert PARSER.recognises(text), name
    assert PARSER.recognises((COLUMNS + ROW).encode())
    assert PARSER.recognises(THREADS.replace("\n", "\r\n").encode())
    files = [SourceFile(Path(name), name) for name in SAMPLES]
    assert PARSER.group(files) == [(file,) for file in files]


def test_the_samples_are_fitted(tmp_path: Path, data: Path) -> None:
    """End to end: the recipe finds the latencies and bandwidths that the tables were made with."""
    folder = data / "nccl_tests"
    dataset = fitkit.ingest(sorted(folder.glob("*.txt")), tmp_path / "dataset")
    frame = collective_times(dataset)
    assert len(frame) == 7 * 10
    model = CollectiveModel().fit(frame, frame.duration_s)
    for n_ranks, n_nodes, topology in ((2, 1, "intra"), (8, 1, "intra"), (16, 2, "inter")):
        latency, bandwidth = model.latency_bandwidth("all_reduce", n_ranks, topology)
        made = {1: (18e-6, 220e9), 2: (35e-6, 80e9)}[n_nodes]
        assert latency == pytest.approx(made[0] * (1 + 0.1 * n_ranks), rel=0.05)
        assert bandwidth == pytest.approx(made[1] * n_ranks / (2 * (n_ranks - 1)), rel=0.05)


@pytest.mark.parametrize("device", ["a100", "v100"])
@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_measured_bandwidths_tell_the_ranks(shared: Path, device: str, n_ranks: int) -> None:
    """Tables of vTrain, which its authors cut out of nccl-tests' output, put back into rows."""
    name = f"{device}_AR_GPU{n_ranks}_1M_1024M_LUT"
    lines = (shared / "public_tables" / "vtrain" / name).read_text().splitlines()[1:]
    rows, times = [], []
    for size, count, kind, *halves in (line.split(",") for line in lines):
        row = f"{size} {count} {kind} sum -1"
        for time_ns, busbw in zip(halves[::2], halves[1::2], strict=True):
            times.append(int(time_ns) / 1e9)
            # As the tool prints times: with four or five digits.
            us = int(time_ns) / 1e3
            digits = 0 if us >= 10000 else 1 if us >= 100 else 2
            row += f" {us:.{digits}f} {int(size) / int(time_ns):.2f} {busbw} 0"
        rows.append(row + "\n")
    found = read("# Collective test starting: all_reduce_perf\n" + COLUMNS + "".join(rows) + END)
    assert found.runs[0].n_workers == n_ranks
    assert found.codes == [(None, "ranks_inferred")]
    assert len(found.comms) > 100
    assert [comm.duration_s for comm in found.comms] == pytest.approx(times, rel=1e-4)


DAMAGE = settings(max_examples=40, deadline=None)
HOSTILE = [b"9" * 400, b"1e999", b"9e99", b"nan", b"inf", b"N/A", b"-1", b"\0", b"\n", b"0", b""]


@DAMAGE
@given(
    name=st.sampled_from(sorted(SAMPLES)), share=st.floats(0, 1), length=st.integers(0, 12),
    put=st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=8)), skip=st.booleans(),
)  # fmt: skip
def test_damaged_tables(name: str, share: float, length: int, put: bytes, skip: bool) -> None:
    text = SAMPLES[name]
    place = int(share * len(text))
    damaged = text[:place] + put + text[place + length :]
    PARSER.recognises(damaged)
    with suppress(ParseError):
        read(damaged, name, skip_bad_lines=skip)


@DAMAGE
@given(name=st.sampled_from(sorted(SAMPLES)), share=st.floats(0, 1))
def test_tables_that_are_cut(name: str, share: float) -> None:
    text = SAMPLES[name]
    try:
        whole, found = read(text, name), read(text[: int(share * len(text))], name)
    except ParseError as error:
        if "no line of a table" not in str(error):
            raise
        return
    times = [comm.duration_s for comm in found.comms]
    assert times == [comm.duration_s for comm in whole.comms][: len(times)]


def test_times_of_the_cpu_are_no_durations() -> None:
    text = table().replace("    time   algbw", " cputime   algbw")
    found = read(text)
    # 8388608 B at 103.36 and 104.26 GB/s.
    assert [round(comm.duration_s * 1e6, 2) for comm in found.comms] == [81.16, 80.46]
    odd = text.replace("    81.16", "     3.02")  # what a launch takes
    found = read(odd)
    assert round(found.comms[0].duration_s * 1e6, 2) == 81.16
    assert (None, "cpu_times") in found.codes
    small = read(text.replace("  103.36", "    0.01"))
    assert len(small.comms) == 1


def test_types_of_eight_bits_and_tables_of_several() -> None:
    run = read(table(ROW.replace("   float", "fp8_e4m3"))).runs[0]
    assert run.precision == "float8_e4m3fn"
    assert read(table(ROW.replace("   float", "fp8_e5m2"))).runs[0].precision == "float8_e5m2"
    found = read(table(ROW + ROW.replace("   float", "    half")))
    assert found.runs[0].precision is None
    assert (None, "mixed_precisions") in found.codes


def test_tables_of_processes_that_do_not_know_each_other() -> None:
    head = THREADS + devices(8)
    found = read(head + head + COLUMNS + ROW * 2 + END * 2, "all_reduce.txt")
    assert "interleaved_tables" in [code for _, code in found.codes]
    found = read(THREADS + devices(8) * 2 + COLUMNS + ROW + END, "all_reduce.txt")
    assert "interleaved_tables" in [code for _, code in found.codes]
    with pytest.raises(ParseError, match="no line of a table"):
        read("a,b\n1,2\n")


def test_ranks_of_the_user_contradict_the_header() -> None:
    found = read(table(), n_workers=4)
    assert (found.runs[0].n_workers, found.runs[0].n_effective_workers) == (4, 4)
    assert "metadata_conflict" in [code for _, code in found.codes]
