"""Sample logs against the records expected of them; ``make samples`` writes those anew."""

import json
import os
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest

from fitkit.parsers import Source, SourceFile, identify
from fitkit.records import TABLE_OF
from fitkit.schema import each_record

DATA = Path(__file__).parents[2] / "data"
SAMPLES = [
    "cntk/shape_mlpw_128_mb16_rep1",
    "cntk/mlpbig_dp_n2_mb256_rep1",
    "cntk_methods/mlp_block-momentum_n2_mb128",
    "cntk_methods/mlp_data-parallel_n2_mb256_restarted",
    "graphs/X100_synthetic.prof",
    "graphs/syntheticLayerGpuProfileX100.txt",
    "graphs/synthetic_graph.json",
    "graphs/synthetic_pipedream.txt",
    "graphs/synthetic_piper.json",
    "kineto/vggsmall_w2_b16",
    "nccl_tests/synthetic_all_reduce_n16.txt",
    "pytorch/vggsmall_w2_b4_rep1",
    "recorder/vggsmall_w2_b4_rep1",
    "torque/synthetic_20260301",
    "training_log/deepspeed_zero2_w2.log",
    "training_log/synthetic_megatron_core.log",
    "training_log/torchrun_restart.log",
]
EVERY = 7  # of long tables the first rows and every seventh are kept: enough to read in a diff


def records_of(sample: str) -> list[str]:
    path = DATA / sample
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    files = tuple(SourceFile(p, p.name) for p in paths if p.name != "run.toml")
    source = Source(sample, files)
    records = list(each_record(identify(files[0]).parse(source)))
    records += source.problems.records(source.source_id)
    seen: dict[str, int] = {}
    lines = []
    for record in records:
        table = TABLE_OF[type(record)]
        count = seen[table] = seen.get(table, -1) + 1
        if count < 2 * EVERY or count % EVERY == 0:
            known = {key: _plain(v) for key, v in asdict(record).items() if v is not None}
            lines.append(json.dumps({"table": table, **known}))
    return lines


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize("sample", SAMPLES)
def test_sample_gives_the_expected_records(sample: str):
    found = records_of(sample)
    expected = DATA / "expected" / f"{sample.replace('/', '-')}.records.jsonl"
    if os.environ.get("FITKIT_UPDATE_SAMPLES"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8").splitlines()
