"""The mappings of public tables: row counts, and values read by hand from the raw files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.ingestion import Options
from fitkit.parsers import read_mapping

MAPPINGS = Path(__file__).parents[3] / "benchmarks" / "mappings"
TABLES = {
    "sia_pollux": "public_tables/sia_pollux/all_points.csv",
    "mlperf": "mlperf/mlperf_runs.csv.gz",
    "vtrain_megatron": "public_tables/vtrain/ground_truth_single.csv",
    "vtrain_allreduce": "public_tables/vtrain/*_LUT",
    "deepbench_allreduce": "public_tables/deepbench/allreduce.csv",
    "deepbench_ops": "public_tables/deepbench/ops_train.csv",
    "neusight_linear": "public_tables/neusight_ops/linear.csv.gz",
    "neusight_ln": "public_tables/neusight_ops/ln.csv.gz",
    "neusight_softmax": "public_tables/neusight_ops/softmax.csv.gz",
    "pipedream": "public_tables/pipedream_profiles/layers.csv",
    "gavel_pairs": "public_tables/gavel/colocated_pairs.csv",
    "gavel_isolated": "public_tables/gavel/isolated_throughput.csv",
    "chimera": "public_tables/chimera_prof/*_[pv]100.csv",
    "extradeep_io": "public_tables/extradeep_io/cifar10_io.csv",
}
Stored = Callable[[str], Dataset]


@pytest.fixture(scope="module")
def stored(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """The dataset of a mapping, made once."""
    folder, made = tmp_path_factory.mktemp("public"), dict[str, Dataset]()

    def call(name: str) -> Dataset:
        if name not in made:
            options = Options(mapping=MAPPINGS / f"{name}.toml")
            made[name] = fitkit.ingest(shared / TABLES[name], folder / name, options=options)
        return made[name]

    return call


def row(frame: pd.DataFrame, **values: Any) -> dict[str, Any]:
    """The only row with these values, without what is missing."""
    for name, value in values.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0].dropna().to_dict()


def test_every_mapping_is_tested_and_says_where_its_table_is_from() -> None:
    assert sorted(path.stem for path in MAPPINGS.iterdir()) == sorted(TABLES)
    for path in MAPPINGS.iterdir():
        head = re.findall(r"^# (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert any(line.startswith("Origin: ") for line in head), path.name
        assert any(line.startswith("Units: ") for line in head), path.name
        name = re.escape(f"--mapping benchmarks/mappings/{path.name} -d ")
        assert re.fullmatch(rf"fitkit ingest .* {name}\w+", head[-1]), path.name
        assert read_mapping(path).blocks


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("sia_pollux", {"runs": 10_584, "steps": 10_584, "phases": 10_584}),
        ("mlperf", {"runs": 6_036, "steps": 4_977, "phases": 20_612}),
        ("vtrain_megatron", {"runs": 1_440, "steps": 1_440}),
        ("vtrain_allreduce", {"runs": 6, "comms": 6 * 1_024}),
        ("deepbench_allreduce", {"runs": 4, "comms": 133}),
        ("deepbench_ops", {"runs": 9, "layers": 2_710 + 1_221}),
        ("neusight_linear", {"runs": 6, "layers": 6_174}),
        ("neusight_ln", {"runs": 6, "layers": 458}),
        ("neusight_softmax", {"runs": 6, "layers": 458}),
        ("pipedream", {"runs": 9, "layers": 2 * 1_360}),
        ("gavel_pairs", {"pairs": 2 * 646}),
        ("gavel_isolated", {"runs": 323, "steps": 323}),
        ("chimera", {"runs": 6, "layers": 2 * 36}),
        ("extradeep_io", {"runs": 20, "phases": 20, "io": 40}),
    ],
)
def test_row_counts(stored: Stored, name: str, counts: dict[str, int]) -> None:
    found = {table: n for table, n in stored(name).counts().items() if n}
    n_files = found.pop("sources")
    assert found == counts
    assert n_files == {"vtrain_allreduce": 6, "chimera": 6}.get(name, 1)
    if "runs" in counts:
        runs = set(stored(name).read("runs").run_id)
        assert len(runs) == counts["runs"]
        for table in counts.keys() - {"runs", "pairs"}:
            assert set(stored(name).read(table).run_id) <= runs


def test_sia_pollux(stored: Stored) -> None:
    # bert,aws,placements,1,1,1,4,0.45532355,0.013738612
    runs, steps = stored("sia_pollux").read("runs"), stored("sia_pollux").read("steps")
    phases = stored("sia_pollux").read("phases")
    run = row(runs, run_id="bert-aws-placements-1-1x1-4")
    assert (run["placement"], run["local_batch"], run["global_batch"]) == ("1", 4.0, 4)
    assert row(steps, run_id=run["run_id"])["duration_s"] == 0.45532355
    comm = row(phases, run_id=run["run_id"])
    assert (comm["duration_s"], comm["phase"], comm["parent"]) == (0.013738612, "comm", "step")
    # bert,aws,scalability,,6,6,4,1.4923269,1.0928203: no placement.
    run = row(runs, run_id="bert-aws-scalability--6x6-4")
    assert "placement" not in run
    assert (run["n_nodes"], run["n_workers"], run["global_batch"]) == (6, 6, 24)
    assert row(steps, run_id=run["run_id"])["duration_s"] == pytest.approx(1.492327, abs=1e-6)
    assert runs.placement.notna().sum() == 4_248 + 1_951 + 1_926
    assert "1123" in set(runs.placement.dropna())
    assert set(runs.placement.dropna().map(type)) == {str}


def test_mlperf(stored: Stored) -> None:
    runs, phases = stored("mlperf").read("runs"), stored("mlperf").read("phases")
    name = "hpc_v0.7/CSCS/daint_gpu_n128_tf2.2.0/cosmoflow//1"
    run = row(runs, run_id=name)
    assert (run["device"], run["n_nodes"], run["n_workers"]) == ("P100", 128, 128)
    assert (run["global_batch"], run["local_batch"]) == (256, 2.0)
    assert run["family"] == "hpc_v0.7|CSCS|cosmoflow|P100|daint_gpu_tf2.2.0"
    step = row(stored("mlperf").read("steps"), run_id=name)
    assert (step["duration_s"], step["n_steps"], step["n_samples"]) == (0.358708, 1, 256)
    own = phases[phases.run_id == name].set_index("phase")
    assert own.duration_s.to_dict() == {
        "init": 2.158, "staging": 0.022, "train": 24046.1, "epoch": 24032.4, "eval": 1773.63,
    }  # fmt: skip
    assert own.loc[["epoch", "eval"]].n.tolist() == [64, 64]
    assert own.loc[["epoch", "eval"]].parent.tolist() == ["train", "train"]
    assert runs.device.isna().sum() == 430
    assert phases.phase.value_counts().to_dict() == {
        "init": 6_036, "train": 6_032, "staging": 195, "epoch": 3_411, "eval": 4_938,
    }  # fmt: skip
    # Of the others train_samples are steps, tokens or a budget.
    told = runs[runs.epoch_samples.notna()]
    assert set(told.network) == {"bert", "dlrm", "gnmt", "resnet", "rnnt"}
    assert len(told) == 2_690
    states = runs.state.value_counts(dropna=False).to_dict()
    assert {states["completed"], states["incomplete"]} == {5_950, 55 + 5 + 2}
    assert runs.state.isna().sum() == 24
    retinanet = runs[runs.network == "retinanet"].run_id.str[:10]
    assert set(retinanet) == {"train_v2.0", "train_v3.1", "train_v4.0", "train_v5.0"}
    weak = runs[runs.run_id.str.contains("/weak/")]
    assert len(weak) > 0
    assert weak.n_nodes.isna().all()


def test_vtrain(stored: Stored) -> None:
    # 8,32,4,1024,16,24,1024,2,2,2,219.732754
    runs = stored("vtrain_megatron").read("runs")
    run = row(runs, run_id="megatron-h1024-l24-b32-m4-t2d2p2")
    steps = stored("vtrain_megatron").read("steps")
    assert row(steps, run_id=run["run_id"])["duration_s"] == 0.219732754
    names = (
        "n_devices", "n_workers", "tensor_parallel", "pipeline_parallel", "global_batch",
        "local_batch", "micro_batch", "sequence_length", "hidden_size", "n_heads", "n_layers",
    )  # fmt: skip
    assert [run[name] for name in names] == [8, 2, 2, 2, 32, 16, 4, 1024, 1024, 16, 24]
    # 1048576,262144,float,92790,19.78,92150,19.91 in a100_AR_GPU8_1M_1024M_LUT
    comms = stored("vtrain_allreduce").read("comms")
    comm = row(comms, run_id="vtrain-allreduce-a100x8", n_bytes=1_048_576)
    assert (comm["duration_s"], comm["n_ranks"]) == (92_790e-9, 8)
    comm = row(comms, run_id="vtrain-allreduce-v100x8", n_bytes=1_073_741_824)
    assert comm["duration_s"] == 0.013969
    runs = stored("vtrain_allreduce").read("runs")
    assert row(runs, run_id="vtrain-allreduce-v100x2")["device"] == "v100"


def test_deepbench(stored: Stored) -> None:
    # IA_KNL7250,100000,2,,0.09,8.9,Intel MLSL,0.0
    comms = stored("deepbench_allreduce").read("comms")
    knl = comms[comms.run_id == "deepbench-allreduce-IA_KNL7250"]
    comm = row(knl, n_bytes=400_000, n_ranks=2)
    assert comm["duration_s"] == pytest.approx(0.09e-3, rel=1e-15)
    assert "n_nodes" not in comm
    assert comms.n_nodes.notna().sum() == 35
    # AMD_MI25,fp32,gemm,"M=1760,N=16,K=1760,tA=N,tB=N",99123200,0.059,,
    layers = stored("deepbench_ops").read("layers")
    amd = layers[layers.run_id == "deepbench-AMD_MI25-fp32"]
    layer = row(amd, layer="gemm M=1760,N=16,K=1760,tA=N,tB=N")
    assert (layer["duration_s"], layer["median_s"], layer["flop"]) == (59e-6, 59e-6, 99_123_200)
    # The row of this convolution ends in 0.0,0.208,0.296,0.274.
    conv = amd[amd.layer == "conv W=700,H=161,C=1,N=4,K=32,S=20,R=5,hs=2,vs=2"]
    assert conv.set_index("phase").duration_s.to_dict() == {
        "forward": pytest.approx(208e-6), "backward": pytest.approx(570e-6),
    }  # fmt: skip
    assert conv.flop.isna().all()


def test_neusight(stored: Stored) -> None:
    # linear,1.1338346401850383,NVIDIA L4,...,1,1024,2560,2560
    layers = stored("neusight_linear").read("layers")
    on_l4 = layers[layers.run_id == "neusight-linear-NVIDIA L4"]
    layer = row(on_l4, layer="linear 1x1024x2560x2560")
    assert layer["duration_s"] == pytest.approx(1.1338346401850383e-3, rel=1e-15)
    assert layer["flop"] == 2 * 1024 * 2560 * 2560
    assert (layer["input_bytes"], layer["output_bytes"]) == (10_485_760, 10_485_760)
    assert (layer["n_params"], layer["weight_shape"]) == (6_553_600, "2560x2560")
    # linear,26.540971120198567,NVIDIA L4,...,1,32768,4096,1024: inputs 32768 x 1024.
    layer = row(on_l4, layer="linear 1x32768x4096x1024")
    assert (layer["input_bytes"], layer["output_bytes"]) == (134_217_728, 536_870_912)
    # ln,0.8186048150062561,Tesla V100-PCIE-32GB,...,32768,1600
    norm = stored("neusight_ln").read("layers")
    found = row(norm[norm.run_id == "neusight-ln-Tesla V100-PCIE-32GB"], layer="ln 32768x1600")
    assert found["duration_s"] == pytest.approx(0.8186048150062561e-3, rel=1e-15)
    assert (found["n_params"], found["input_bytes"]) == (3_200, 4 * 32_768 * 1_600)
    soft = stored("neusight_softmax").read("layers")
    v100 = soft[soft.run_id == "neusight-softmax-Tesla V100-PCIE-32GB"]
    assert row(v100, layer="softmax 32768x1600")["duration_s"] == pytest.approx(0.7137216e-3)


def test_pipedream(stored: Stored) -> None:
    # alexnet,node18,Linear,...,1.737,3.072,4194304,1.5101133e+08
    layers = stored("pipedream").read("layers")
    alexnet = layers[layers.run_id == "pipedream-alexnet"]
    forward = row(alexnet, layer="node18", phase="forward")
    backward = row(alexnet, layer="node18", phase="backward")
    assert (forward["duration_s"], backward["duration_s"]) == (1.737e-3, 3.072e-3)
    assert forward["n_params"] == 9_216 * 4_096 + 4_096
    assert (forward["output_bytes"], forward["layer_type"]) == (4_194_304, "Linear")


def test_gavel(stored: Stored) -> None:
    # k80,ResNet-18 (batch size 16),1,ResNet-18 (batch size 32),1,4.79,7.18,2.54,3.12,0.53,0.43
    pairs = stored("gavel_pairs").read("pairs")
    both = pairs[
        pairs.pair_id == "k80: ResNet-18 (batch size 16) x1 | ResNet-18 (batch size 32) x1"
    ]
    one = row(both, job="ResNet-18 (batch size 16)")
    other = row(both, job="ResNet-18 (batch size 32)")
    assert (one["neighbour"], other["neighbour"]) == (other["job"], one["job"])
    assert (one["alone_per_s"], one["together_per_s"]) == (4.7952946, 2.5399796)
    assert other["normalised_throughput"] == pytest.approx(3.1201925 / 7.1758205)
    assert pairs.groupby("pair_id").size().eq(2).all()
    # k80,1,ResNet-18 (batch size 32),ResNet-18,32,1,7.1758205
    steps, runs = stored("gavel_isolated").read("steps"), stored("gavel_isolated").read("runs")
    name = "k80-1-ResNet-18 (batch size 32)-x1"
    assert row(steps, run_id=name)["duration_s"] == 1 / 7.1758205
    run = row(runs, run_id=name)
    assert (run["n_nodes"], run["placement"], run["local_batch"]) == (1, "1", 32)
    assert runs.placement.isna().sum() == 26 + 3 * 17 + 26 + 3 * 19


def test_chimera_and_extradeep(stored: Stored) -> None:
    # 1,1.010894775390625,1.207137107849121,... in bert-base_time_memory_p100.csv
    layers = stored("chimera").read("layers")
    first = layers[(layers.run_id == "chimera-bert-base-p100") & (layers.local_batch == 1)]
    times = first.set_index("phase").duration_s
    assert times["forward"] == pytest.approx(1.010894775390625e-3, rel=1e-15)
    assert times["backward"] == pytest.approx(1.207137107849121e-3, rel=1e-15)
    io, phases = stored("extradeep_io").read("io"), stored("extradeep_io").read("phases")
    posix = row(io, run_id="cifar10_g2_r1.log", module="POSIX")
    assert (posix["n_opens"], posix["read_bytes"]) == (173, 373_769_868)
    stdio = row(io, run_id="cifar10_g6_r1.log", module="STDIO")
    assert stdio["meta_s"] == pytest.approx(35.620535, abs=1e-6)
    assert row(phases, run_id="cifar10_g6_r1.log")["duration_s"] == 131.0
