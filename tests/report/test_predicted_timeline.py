"""Predictions as a timeline: the order of phases and layers, and what is left out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fitkit.report.predicted_timeline import predicted_timeline, refused


def row(seconds: float | None, **features: Any) -> dict[str, Any]:
    low, high = (None, None) if seconds is None else (seconds / 2, seconds * 2)
    status = "refused" if seconds is None else "inside"
    figures = {"predicted_s": seconds, "low_s": low, "high_s": high, "status": status}
    return {**features, **figures, "reason": "why" if seconds is None else ""}


def names(rows: list[dict[str, Any]], *configuration: str) -> list[tuple[str, str, str, str]]:
    return [
        (one.process, one.track, one.category, one.name)
        for one in predicted_timeline(rows, configuration, "step")
    ]


def test_a_configuration_is_a_process_of_one_slice() -> None:
    rows = [row(0.5, n_workers=1, local_batch=2.0), row(0.75, n_workers=2, local_batch=2.5)]
    found = predicted_timeline(rows, ["n_workers", "local_batch"], "step")
    assert [(one.process, one.name, one.start_s, one.duration_s) for one in found] == [
        ("n_workers 1, local_batch 2", "step", 0.0, 0.5),
        ("n_workers 2, local_batch 2.5", "step", 0.0, 0.75),
    ]
    assert found[0].args == {
        "n_workers": 1, "local_batch": 2.0, "predicted_s": 0.5, "low_s": 0.25, "high_s": 1.0,
        "status": "inside",
    }  # fmt: skip


def test_phases_follow_each_other_as_in_a_step() -> None:
    phases = ["odd", "optimizer", "backward", "io", "forward", "init", "other"]
    found = predicted_timeline([row(1.0 + k, phase=p) for k, p in enumerate(phases)], [], "phases")
    order = ["init", "io", "forward", "backward", "optimizer", "other", "odd"]
    assert [(one.name, one.category) for one in found] == [(name, name) for name in order]
    assert [one.track for one in found] == ["once in a run", *["each step"] * 6]
    assert {one.process for one in found} == {"phases"}
    for one, following in pairwise(found):
        assert following.start_s == one.start_s + one.duration_s


def test_layers_run_forward_then_backward_reversed_then_are_updated() -> None:
    rows = [
        row(1.0, network="n", layer=layer, layer_type="Linear", phase=phase)
        for layer in ("a", "b", "c")
        for phase in ("optimizer", "backward", "forward")
    ]
    order = [("forward", "a"), ("forward", "b"), ("forward", "c"), ("backward", "c"),
             ("backward", "b"), ("backward", "a"), ("optimizer", "a"), ("optimizer", "b"),
             ("optimizer", "c")]  # fmt: skip
    expected = [("network n", "each step", *one) for one in order]
    assert names(rows, "network") == expected
    shuffled = [one | {"layer_index": "abc".index(one["layer"])} for one in (*rows[4:], *rows[:4])]
    assert names(shuffled, "network") == expected
    waiting = row(1.0, network="n", layer="ddp", phase="backward", layer_index=None)
    assert names([waiting, *shuffled], "network")[6][2:] == ("backward", "ddp")


def test_what_is_asked_twice_is_drawn_once_but_layers_without_a_name() -> None:
    rows = [row(1.0, layer="a", phase="forward", run_id=run) for run in ("x", "y")]
    assert names(rows) == [("step", "each step", "forward", "a")]
    assert len(names([row(1.0, n=1), row(1.0, n=1), row(1.0, n=2)], "n")) == 2
    alike = [row(1.0, layer_type="Linear", phase="forward", flop=n) for n in (1, 2, 2)]
    assert names(alike) == [("step", "each step", "forward", "Linear")] * 3


def test_what_is_refused_is_said_and_not_drawn() -> None:
    rows = [row(None, phase="comm", n_nodes=None), row(1.0, phase="io"), row(0.0, phase="comm")]
    found = predicted_timeline(rows, [], "phases")
    assert [(one.name, one.duration_s) for one in found] == [("io", 1.0), ("comm", 0.0)]
    assert refused(rows) == [{"phase": "comm", "status": "refused", "reason": "why"}]


def test_other_cases_of_a_part_have_further_tracks() -> None:
    rows = [row(float(n), layer=layer, phase="forward", rank=n) for layer in "ab" for n in (1, 2)]
    found = predicted_timeline(rows, [], "step")
    assert [(one.track, one.name, one.start_s, one.duration_s) for one in found] == [
        ("each step", "a", 0.0, 1.0), ("each step, case 2", "a", 0.0, 2.0),
        ("each step", "b", 1.0, 1.0), ("each step, case 2", "b", 2.0, 2.0),
    ]  # fmt: skip
