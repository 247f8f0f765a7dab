"""A plan made visible: figures of a small plan by hand, and public instances."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fitkit.planner.looking import (
    headline,
    idle_share,
    plan_html,
    plan_json,
    plan_summary,
    plan_trace,
)
from fitkit.planner.plan import FrontierPoint, Plan, PlannedLayer, Schedule
from fitkit.planner.search import plan
from fitkit.planner.timeline import BackgroundSpan, Span, timeline


def layer(number: int, gpus: tuple[int, ...], start: float, *parts: float) -> PlannedLayer:
    transfer, compute, sync = parts
    return PlannedLayer(
        number, f"l{number}", "Linear", len(gpus), start, start + sum(parts), transfer, compute,
        sync, 1.5, gpus,
    )  # fmt: skip


# Four GPUs: l0 on all for 2 s, l1 on two for 3 s, l2 on two others for 1 s beside it; 1 s more.
LAYERS = (
    layer(0, (0, 1, 2, 3), 0.0, 0.0, 1.5, 0.5),
    layer(1, (0, 1), 2.0, 1.0, 2.0, 0.0),
    layer(2, (2, 3), 2.5, 0.0, 1.0, 0.0),
)
SMALL = Plan(
    6.0, 2 * 4 + 3 * 2 + 1 * 2 + 1 * 4, LAYERS, instance="net", n_gpus=5, global_batch=64,
    options={"amplification": 2.0, "gpu_time_budget": None, "memory_bytes": 16e9, "schedule": "x"},
    frontier=(FrontierPoint(6.0, 20.0, (4, 2, 2)), FrontierPoint(9.0, 9.0, (1, 1, 1))),
    baselines={"data_parallel": Schedule(8.0, 40.0, LAYERS), "single_gpu": Schedule(9.0, 9.0, ())},
    warnings=("a warning",),
)  # fmt: skip


def test_every_gpu_at_any_time() -> None:
    one, other, none = timeline(SMALL)
    assert [track.label for track in (one, other, none)] == ["GPUs 0 to 1", "GPUs 2 to 3", "GPU 4"]
    shared = (Span(0, 1.5, "compute", "l0", 0), Span(1.5, 2, "synchronisation", "l0", 0))
    rest = Span(5, 6, "step", "launch, optimizer and loss")
    assert one.spans == (
        *shared, Span(2, 3, "transfer", "l1", 1), Span(3, 5, "compute", "l1", 1), rest
    )  # fmt: skip
    assert other.spans == (
        *shared, Span(2, 2.5, "idle", ""), Span(2.5, 3.5, "compute", "l2", 2),
        Span(3.5, 5, "idle", ""), rest,
    )  # fmt: skip
    assert none.spans == (Span(0, 6, "idle", ""),)
    assert [track.share("idle", 6.0) for track in (one, other, none)] == [0, 2 / 6, 1]
    assert [track.n_gpus for track in (one, other, none)] == [2, 2, 1]
    assert len(timeline(SMALL, join=False)) == 5


def test_background_jobs_fill_idle_times() -> None:
    jobs = [BackgroundSpan(2, "job", 3.75, 4.5), BackgroundSpan(4, "job", 0.0, 6.0)]
    tracks = timeline(SMALL, jobs)
    # GPU 2 does no longer what GPU 3 does.
    assert [track.label for track in tracks] == ["GPUs 0 to 1", "GPU 2", "GPU 3", "GPU 4"]
    assert [(span.kind, span.start_s, span.end_s) for span in tracks[1].spans[4:-1]] == [
        ("idle", 3.5, 3.75), ("background", 3.75, 4.5), ("idle", 4.5, 5),
    ]  # fmt: skip
    assert [span.kind for span in tracks[3].spans] == ["background"]
    for span in (BackgroundSpan(0, "job", 1.0, 1.5), BackgroundSpan(4, "job", 5.0, 7.0)):
        with pytest.raises(ValueError, match="where its GPU is not idle"):
            timeline(SMALL, [span])
    with pytest.raises(ValueError, match="job is on GPU 5, of 5"):
        timeline(SMALL, [BackgroundSpan(5, "job", 0.0, 1.0)])


def test_idle_time_is_what_gpu_time_leaves() -> None:
    # 5 GPUs for 6 s, of which 20 GPU-seconds are used.
    assert idle_share(SMALL, 5) == pytest.approx(1 - 20 / 30)
    tracks = timeline(SMALL)
    idle = sum(track.n_gpus * track.share("idle", 6.0) for track in tracks) / 5
    assert idle == pytest.approx(idle_share(SMALL, 5))


def test_the_document() -> None:
    document = plan_json(replace(SMALL, layers=(replace(LAYERS[0], amplification=float("inf")),)))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert list(document)[:8] == [
        "instance", "n_gpus", "global_batch", "iter_s", "gpu_s", "layers", "frontier", "baselines",
    ]  # fmt: skip
    (row,) = document["layers"]
    assert row.items() >= {"id": 0, "name": "l0", "n_gpus": 4, "start_s": 0.0, "end_s": 2.0}.items()
    assert (row["amplification"], row["gpus"]) == (None, [0, 1, 2, 3])
    assert document["frontier"][1] == {"iter_s": 9.0, "gpu_s": 9.0, "layers": [1, 1, 1]}
    assert document["baselines"]["single_gpu"]["gpu_s"] == 9.0
    assert (document["options"]["gpu_time_budget"], document["warnings"]) == (None, ["a warning"])


def test_the_summary() -> None:
    text = str(plan_summary(SMALL))
    # 6 s against 8 s; 20 GPU-seconds against 40.
    assert text.startswith(
        "A step of 64 samples takes 6 s on up to 4 GPUs: 25.0 % shorter than data-parallel on 5, "
        "with 50.0 % less GPU-time."
    )
    assert "memory bytes        16.0 GB" in text
    assert "gpu time budget" not in text
    assert "Frontier: 2 plans" in text
    assert "! a warning" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["1", "l1", "2", "3", "s", "50.0", "%", "1", "s", "0", "s"] in lines
    assert ["data-parallel", "8", "s", "40", "s", "0", "%"] in lines


@pytest.mark.parametrize(
    ("iter_s", "gpu_s", "said"),
    [
        (8.0, 40.0, "data-parallel training is the best there is within the limits."),
        (8.0, 20.0, "no shorter than data-parallel on 5, with 50.0 % less GPU-time."),
        (10.0, 30.0, "25.0 % longer than data-parallel on 5, with 25.0 % less GPU-time."),
        (4.0, 44.0, "50.0 % shorter than data-parallel on 5, with 10.0 % more GPU-time."),
        (4.0, 40.0, "50.0 % shorter than data-parallel on 5, with the same GPU-time."),
    ],
)
def test_the_headline(iter_s: float, gpu_s: float, said: str) -> None:
    assert headline(replace(SMALL, iter_s=iter_s, gpu_s=gpu_s)).endswith(said)


def test_the_headline_without_limits() -> None:
    same = replace(SMALL, iter_s=8.0, gpu_s=40.0, options={"schedule": "serial"})
    assert headline(same).endswith("data-parallel training is the best there is.")


def test_the_headline_of_one_gpu_without_baselines() -> None:
    alone = replace(SMALL, layers=(layer(0, (0,), 0.0, 0.0, 6.0, 0.0),), baselines={})
    assert headline(alone) == "A step of 64 samples takes 6 s on up to 1 GPU."


def events(path: Path) -> list[dict[str, Any]]:
    return [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]


def test_the_trace_has_a_track_for_each_gpu(tmp_path: Path) -> None:
    path = tmp_path / "plan.trace.json"
    plan_trace(SMALL, path, background=[BackgroundSpan(4, "job", 0.0, 6.0)])
    document = json.loads(path.read_text())
    tracks = {
        event["tid"]: event["args"]["name"]
        for event in document["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert list(tracks.values()) == [f"GPU {gpu}" for gpu in range(5)]
    found = events(path)
    on_2 = [(e["name"], e["ts"], e["dur"]) for e in found if tracks[e["tid"]] == "GPU 2"]
    assert on_2 == [
        ("l0", 0, 2e6), ("compute", 0, 1.5e6), ("synchronisation", 1.5e6, 0.5e6),
        ("idle", 2e6, 0.5e6), ("l2", 2.5e6, 1e6), ("compute", 2.5e6, 1e6),
        ("idle", 3.5e6, 1.5e6), ("launch, optimizer and loss", 5e6, 1e6),
    ]  # fmt: skip
    assert [e["cat"] for e in found if e["name"] == "job"] == ["background"]
    first = next(e for e in found if e["name"] == "l1")
    assert first["args"]["gpus"] == "0-1"
    assert document["otherData"]["options"]["amplification"] == 2.0


@pytest.mark.parametrize(
    ("name", "branches", "limit"),
    [
        ("vgg16_B32_nvswitch_2128gbps", False, None),
        ("inception_v3_B16_eth_100gbps", True, None),
        ("inception_v3_B16_nvswitch_2128gbps", True, 1.5),  # lanes send into their joins
    ],
)
def test_public_instances(
    shared: Path, tmp_path: Path, name: str, branches: bool, limit: float | None
) -> None:
    path = shared / "deeppool" / "instances" / f"{name}.json"
    found = plan(
        path, n_gpus=8, parallel_branches=branches, frontier=not branches, amplification=limit
    )
    tracks = timeline(found)
    assert sum(track.n_gpus for track in tracks) == 8
    # Without gaps and without overlaps, a step on every GPU.
    for track in tracks:
        ends = [0.0, *(span.end_s for span in track.spans)]
        starts = [*(span.start_s for span in track.spans), found.iter_s]
        assert starts == pytest.approx(ends, rel=1e-6, abs=1e-12)
    busy = sum(track.n_gpus * (1 - track.share("idle", found.iter_s)) for track in tracks)
    assert busy * found.iter_s == pytest.approx(found.gpu_s, rel=1e-6)
    plan_trace(found, tmp_path / "t.json")
    slices = events(tmp_path / "t.json")
    sent = sum(e["dur"] for e in slices if e["name"].endswith(" into the join"))
    assert (sent > 0) == (limit is not None)
    whole = sum(e["dur"] for e in slices if e.get("cat") == "layer")
    assert (whole + sent) / 1e6 == pytest.approx(found.gpu_s, rel=1e-4)
    assert sent / 1e6 == pytest.approx(
        sum(one.sent_s * one.n_gpus for one in found.layers), rel=1e-4
    )
    plan_html(found, tmp_path / "p.html")
    assert (tmp_path / "p.html").stat().st_size > 0
    plan_html(found, tmp_path / "p.html")
    assert found.layers[-1].name in (tmp_path / "p.html").read_text(encoding="utf-8")
    document = json.loads(json.dumps(plan_json(found), allow_nan=False))
    assert len(document["layers"]) == len(found.layers)
    assert len(str(plan_summary(found)).splitlines()) > 20
