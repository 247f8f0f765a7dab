"""Profiles of DeepPool: counts and sums of the real files, sizes by hand, and bad input."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS, ProblemLog, Source, SourceFile, parser_named

Read = Callable[..., Any]
CONV = 'conv2d{"in_channels":3,"kernel_size":3,"out_channels":8,"padding":1,"stride":2}'
RELU = 'ReLU2d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}'
LINEAR = 'linear{"bias":true,"in_features":5,"out_features":2}[4]5'
BLOCK = f"  {CONV}[4][3,9,9]   0.300      100       200\n  {RELU}[4][8,5,5]  0.030  10  20\n"
CLOSED = BLOCK + "            SUM(avg)  0.330\n"
A100_VGG = "A100_vgg.prof"


# By the manifest: layers of a block, batches. Lines of layers: grep -c '{' FILE.
@pytest.mark.parametrize(
    ("name", "network", "n_layers", "batches", "n_lines"),
    [
        ("A100_inception.prof", "inception", 107,
         [64, 63, 62, 61, 60, 59, 32, *range(16, 0, -1)], 2461),
        ("vggLayerGpuProfileA100.txt", "vgg", 22, [128, 64, 32, 16, 8, 4, 2, 1], 176),
        ("inceptionLayerGpuProfileA100.txt", "inception", 125, [128, 64, 32, 16, 8, 4, 2, 1], 1000),
        ("inceptionLayerGpuProfileA100V2.txt", "inception", 107, [64, 32, 16, 8, 4, 2, 1], 749),
        ("resnetLayerGpuProfileA100.txt", "resnet", 37, [128, 64, 32, 16, 8, 4, 2, 1], 296),
    ],
)  # fmt: skip
def test_blocks_of_the_public_files(
    shared: Path, read: Read, name: str, network: str, n_layers: int, batches: list[int],
    n_lines: int,
) -> None:  # fmt: skip
    found = read(shared / "deeppool" / "profiles" / name)
    assert [run.local_batch for run in found.runs] == batches
    assert {(run.network, run.device, run.state) for run in found.runs} == {
        (network, "A100", "completed")
    }
    assert found.codes == []  # the layers of each block add up to the sum that closes it
    of_run = Counter(row.run_id for row in found.layers if row.phase != "backward")
    assert [of_run[run.run_id] for run in found.runs] == [n_layers] * len(batches)
    assert sum(of_run.values()) == n_lines
    assert {row.phase for row in found.layers} == (
        {"forward", "backward"} if name.endswith(".prof") else {"compute"}
    )


def test_two_networks_in_one_file_are_told_apart(shared: Path, read: Read) -> None:
    name = "resnetLayerGpuProfileA100V2_resnet34_resnet152.txt"
    found = read(shared / "deeppool" / "profiles" / name)
    assert [run.network for run in found.runs] == ["resnet-37"] * 8 + ["resnet-156"] * 8
    assert [run.local_batch for run in found.runs] == [128, 64, 32, 16, 8, 4, 2, 1] * 2
    assert found.codes == ["no_rows"]  # one block is empty


def test_times_are_those_of_the_table(shared: Path, read: Read) -> None:
    """`layers.csv` holds the same profiles, as read by another program."""
    folder = shared / "deeppool" / "profiles"
    found = read(folder / "A100_inception.prof")
    with (folder / "layers.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "A100_inception.prof"]
    passes = {"forward": "fw_us", "backward": "bw_us"}
    for phase, column in passes.items():
        times = [row.duration_s for row in found.layers if row.phase == phase]
        assert times == pytest.approx([float(row[column]) / 1e6 for row in rows])
    kinds = [row.layer_type for row in found.layers if row.phase == "forward"]
    assert kinds == [row["layer_type"] for row in rows]


def test_the_backward_pass_that_is_timed_elsewhere(shared: Path, read: Read) -> None:
    found = read(shared / "deeppool" / "profiles" / A100_VGG)
    assert [run.local_batch for run in found.runs] == [64, 32, 16, 8, 6, 4, 3, 2, 1]
    assert set(found.codes) == {"backward_shifted"}
    assert "22 of 37; backward of linear_36 is nowhere" in found.text("backward_shifted")
    first = [row for row in found.layers if row.run_id == found.runs[0].run_id]
    names = [row.layer for row in first if row.phase == "forward"]
    assert names[:3] == ["conv2d_0+ReLU2d_1", "conv2d_2+ReLU2d_3", "maxPool2d_4"]
    assert (len(names), names[-1]) == (22, "linear_36")
    # conv 2157 and 6 us, its ReLU 1205 and 3730 us.
    assert [row.duration_s for row in first[:2]] == pytest.approx([3362e-6, 3736e-6])
    # The sum that closes the block is 103.081 ms; it leaves out 82 us of convolutions' backward.
    assert sum(row.duration_s for row in first) == pytest.approx(103.081e-3, abs=82e-6)


def test_sizes_and_work_of_vgg(shared: Path, read: Read) -> None:
    """VGG-16: 138,357,544 parameters, and 15.47e9 multiplications and additions an image."""
    found = read(shared / "deeppool" / "profiles" / A100_VGG)
    rows = [row for row in found.layers if row.run_id == found.runs[0].run_id]
    forward = [row for row in rows if row.phase == "forward"]
    assert sum(row.n_params for row in forward) == 138_357_544
    assert sum(row.flop or 0 for row in forward) / 64 == pytest.approx(2 * 15.47e9, rel=1e-3)
    assert all(one.output_bytes == after.input_bytes for one, after in pairwise(forward))
    backward = [row for row in rows if row.phase == "backward"]
    ratios = [b.flop / f.flop for f, b in zip(forward, backward, strict=True) if f.flop]
    assert ratios == [1.0] + [2.0] * 15  # no gradient of the images


def test_kernels_of_two_sizes(shared: Path, read: Read) -> None:
    found = read(shared / "deeppool" / "profiles" / "A100_inception.prof")
    row = next(row for row in found.layers if row.weight_shape == "128x128x1x7")
    # 17 x 17 in and out, 128 channels.
    assert row.output_bytes == row.input_bytes == 4 * 64 * 128 * 17 * 17
    assert row.n_params == 128 * 128 * 7 + 128
    assert row.flop == 2.0 * 64 * 128 * 128 * 7 * 17 * 17


def test_a_small_block(read: Read) -> None:
    found = read(CLOSED, "B200_net.prof")
    assert [(run.network, run.device, run.global_batch) for run in found.runs] == [
        ("net", "B200", 4)
    ]
    conv, _, relu, _ = found.layers
    # (9 + 2 - 3) // 2 + 1 = 5
    assert (conv.weight_shape, conv.output_bytes) == ("8x3x3x3", 4 * 4 * 8 * 25)
    assert (conv.layer, relu.layer, relu.n_params) == ("conv2d_0", "ReLU2d_1", 0)
    assert found.codes == []
    unnamed = read(CLOSED, "notes.md")
    assert (unnamed.runs[0].network, unnamed.runs[0].device) == (None, None)
    assert read(CLOSED, "notes.md", device="H100").runs[0].device == "H100"


def test_layers_at_several_batches_make_no_batch_of_the_run(read: Read) -> None:
    found = read(BLOCK + f"{LINEAR.replace('[4]', '[8]')} 0.3 100 200\nsum: 0.63\n")
    assert found.runs[0].local_batch is None
    assert [row.local_batch for row in found.layers] == [4, 4, 4, 4, 8, 8]


def test_a_kind_that_is_not_known_has_a_time(read: Read) -> None:
    found = read('attention{"heads":4}[2][8,64]  0.3 100 200\nsum: 0.30\n')
    row = found.layers[0]
    assert (row.output_bytes, row.flop, row.duration_s) == (None, None, pytest.approx(1e-4))


@pytest.mark.parametrize(
    "line",
    [
        f"{LINEAR} 0.300 100", f"{LINEAR} 0.300 -100 200", f"{LINEAR} nan 100 200",
        f"{LINEAR.replace('[4]', '[0]')} 0.300 100 200", f"{LINEAR} 0.300 1e2 200",
        f"{LINEAR.replace('5,', '-5,')} 0.300 100 200", f"{CONV}[4][3,0,9] 0.300 100 200",
        f"{CONV}[4][3,9] 0.300 100 200", f"{CONV.replace('3,', '', 1)}[4][3,9,9] 0.3 100 200",
        f"{CONV.replace('stride:2', 'stride:0')}[4][3,9,9]", f"{CONV}[4][3,9,9]",
        f"{CONV.replace('2}', '0}')}[4][3,9,9] 0.300 100 200",
        f"{CONV.replace(':3,', ':30,')}[4][3,9,9] 0.300 100 200", "a remark",
        f"{CONV}[999999999][3,99999999,9] 0.300 100 200",
    ],
)  # fmt: skip
def test_bad_lines_are_named(read: Read, line: str) -> None:
    text = BLOCK + line + "\nsum: 0.33\n"
    with pytest.raises(ParseError, match=r"net\.txt:3: cannot read: "):
        read(text)
    found = read(text, skip=True)
    assert (found.codes, len(found.layers)) == (["bad_line"], 4)


def test_a_file_that_is_cut(read: Read) -> None:
    whole = CLOSED * 2
    found = read(whole[: whole.rindex("ReLU2d") + 80])
    assert [run.state for run in found.runs] == ["completed", "incomplete"]
    assert found.codes == ["truncated", "incomplete"]
    assert len(found.layers) == 6
    assert "1 layers without the sum" in found.text("incomplete")


def test_a_sum_that_is_another(read: Read) -> None:
    found = read(CLOSED.replace("0.330", "0.430"))
    assert found.codes == ["sum_mismatch"]
    assert "add up to 0.330 ms, the line says 0.430 ms" in found.text("sum_mismatch")


def test_nothing_to_read(read: Read) -> None:
    for text in ("", "sum: 0.00\n", "# a remark\n"):
        with pytest.raises(ParseError, match=r"net\.txt: no line of a layer$"):
            read(text, parser="deeppool")
    with pytest.raises(ParseError, match="cannot read"):
        read(CLOSED.encode("utf-16"), parser="deeppool")


def test_it_alone_recognises_its_files(shared: Path, data: Path) -> None:
    folder = shared / "deeppool" / "profiles"
    paths = [*folder.glob("*.prof"), *folder.glob("*.txt"), *(data / "graphs").glob("*X100*")]
    assert len(paths) == 9
    for path in paths:
        assert [one.name for one in PARSERS if one.recognises(path.read_bytes())] == ["deeppool"]
    others = [*folder.glob("*.csv"), *folder.glob("*.json")]
    assert not any(parser_named("deeppool").recognises(path.read_bytes()) for path in others)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(alphabet='{}[],:"0123.9 \nsum(avg)linear-', max_size=40), at=st.floats(0, 1))
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, at: float
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "net.txt"
    place = int(at * len(CLOSED))
    path.write_text(CLOSED[:place] + text + CLOSED[place:])
    for skip in (False, True):
        source = Source("net.txt", (SourceFile(path, "net.txt"),), {}, ProblemLog(skip))
        try:
            rows = list(parser_named("deeppool").parse(source))
        except ParseError:
            continue
        times = [row.duration_s for row in rows if hasattr(row, "duration_s")]
        assert all(math.isfinite(time) for time in times if time is not None)
