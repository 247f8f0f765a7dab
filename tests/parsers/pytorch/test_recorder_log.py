"""PyTorch recorder logs: times of modules worked out by hand, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.records import Comm, Layer, Phase, Step

NAME = "layers_rank1.jsonl"
LAYER = {"id": 0, "name": "", "type": "Net", "params": 2}
WRONG = [None, "1", [], {}, 1.5, -1, 1 << 63, 10**30, True, float("nan"), float("inf")]
Read = Callable[..., Any]
Text = Callable[..., str]
Events = Callable[..., list[list[Any]]]


def test_self_times_of_nested_modules(three_steps: str, log: Read) -> None:
    parsed = log(three_steps, NAME)
    forward = {
        x.layer: (x.n, x.layer_type, x.layer_index, x.n_params, x.duration_s, x.cpu_s)
        for x in parsed.of(Layer, rank=1, phase="forward")
    }
    us = pytest.approx
    assert forward == {
        # 110..300, without the body (120..210) and the head (230..290)
        "Net": (3, "Net", 0, 2, us(40e-6), us(20e-6)),
        # 120..210, without 130..170 and 180..200
        "body": (3, "Sequential", 1, 0, us(30e-6), us(15e-6)),
        "body.0": (3, "Linear", 2, 20, us(40e-6), us(20e-6)),
        "body.1": (3, "ReLU", 3, 0, us(20e-6), us(10e-6)),
        "head": (3, "Linear", 4, 4, us(60e-6), us(30e-6)),
    }
    rest = [p.duration_s for p in parsed.of(Phase, parent="forward", step=0)]
    assert rest == [us(20e-6)]  # 100..110 and 300..310


def test_backward_is_the_time_to_the_node_of_the_next_leaf(three_steps: str, log: Read) -> None:
    parsed = log(three_steps, NAME)
    backward = {x.layer: (x.duration_s, x.cpu_s) for x in parsed.of(Layer, phase="backward")}
    us = pytest.approx
    assert backward == {
        "head": (us(70e-6), us(35e-6)),  # 330..400
        "body.1": (us(50e-6), us(25e-6)),  # 400..450
        "body.0": (us(50e-6), us(25e-6)),  # 450..500, the last node
        "DistributedDataParallel": (us(100e-6), None),  # 500..600: only the reduction is left
    }
    inside = {p.phase: p.duration_s for p in parsed.of(Phase, parent="backward", step=1)}
    assert inside == {"comm": us(100e-6), "other": us(10e-6)}  # 320..330
    (one,) = {(c.op, c.duration_s, c.n_ranks, c.n_bytes) for c in parsed.of(Comm)}
    assert one == ("all_reduce", us(80e-6), 2, 104)


def test_without_a_reduction_the_rest_is_the_last_layer(
    events: Events, recorder_log: Text, log: Read
) -> None:
    parsed = log(recorder_log(events(1000, reduced=False)), NAME)
    backward = {x.layer: (x.duration_s, x.cpu_s) for x in parsed.of(Layer, phase="backward")}
    assert backward["body.0"] == (pytest.approx(150e-6), None)  # 450..600
    assert "DistributedDataParallel" not in backward
    assert [p.phase for p in parsed.of(Phase, parent="backward")] == ["other"]
    assert parsed.of(Comm) == []


def test_steps_and_phases_of_a_recorder_log(three_steps: str, log: Read) -> None:
    parsed = log(three_steps, NAME)
    run = parsed.run
    assert (run.instrument, run.network, run.n_params, run.n_threads) == ("recorder", "net", 26, 1)
    assert (run.n_workers, run.local_batch, run.global_batch, run.state) == (2, 4.0, 8, None)
    # 1000 us on its own clock, which stood at 500 us at 1.8e9 s
    assert run.started_at == datetime.fromtimestamp(1_800_000_000, UTC).replace(microsecond=500)
    us = pytest.approx
    steps = [(s.first_step, s.duration_s, s.cpu_s) for s in parsed.of(Step, rank=1)]
    # To the begin of the next one; the last to the end of its optimizer. CPU time from the first
    # module of one to that of the next.
    assert steps == [
        (0, us(1e-3), us(0.5e-3)),
        (1, us(1e-3), us(0.5e-3)),
        (2, us(650e-6), None),
    ]
    phases = {p.phase: (p.duration_s, p.cpu_s) for p in parsed.of(Phase, parent="step", step=0)}
    assert phases == {
        "io": (us(30e-6), None),
        "forward": (us(210e-6), us(52.5e-6)),
        "backward": (us(280e-6), us(70e-6)),
        "optimizer": (us(40e-6), us(10e-6)),
        "other": (us(440e-6), None),
    }


def test_a_phase_may_come_twice_in_a_step(events: Events, recorder_log: Text, log: Read) -> None:
    """As with accumulated gradients."""
    both = events(1000, reduced=False) + events(2000, reduced=False)
    parsed = log(recorder_log(both), NAME)
    phases = {p.phase: p.duration_s for p in parsed.of(Phase, parent="step")}
    assert phases["forward"] == pytest.approx(420e-6)
    assert phases["backward"] == pytest.approx(560e-6)
    (last,) = parsed.of(Layer, layer="body.0", phase="backward")
    assert (last.n, last.duration_s) == (2, pytest.approx(150e-6))


def test_missing_cpu_stamps_are_unknown_times(
    events: Events, recorder_log: Text, log: Read
) -> None:
    bare = [event[:4] if event[0] == "p" else event[:3] for event in events(1000, reduced=False)]
    parsed = log(recorder_log(bare, bare), NAME)
    assert {layer.cpu_s for layer in parsed.of(Layer)} == {None}
    assert {phase.cpu_s for phase in parsed.of(Phase)} == {None}
    assert all(layer.duration_s for layer in parsed.of(Layer))


def test_a_log_that_does_not_date_its_clock(
    events: Events, recorder_log: Text, meta: dict[str, Any], log: Read
) -> None:
    undated = {key: value for key, value in meta.items() if key != "epoch_ns"}
    parsed = log(recorder_log(events(1000), meta=undated), NAME)
    assert parsed.run.started_at is None
    assert [step.started_at for step in parsed.of(Step)] == [None]


def test_a_recorder_log_without_steps(recorder_log: Text, log: Read) -> None:
    parsed = log(recorder_log(), NAME)
    assert parsed.records == [parsed.run]


def test_a_cut_last_step_is_noted(three_steps: str, log: Read) -> None:
    for cut in (1, 30, 500):
        parsed = log(three_steps.rstrip("\n")[:-cut], NAME)
        assert parsed.codes == [(4, "truncated")]
        assert [step.first_step for step in parsed.of(Step)] == [0, 1]


def test_a_broken_step_in_the_middle(events: Events, recorder_log: Text, log: Read) -> None:
    text = recorder_log(events(1000), '{"kind":"step","step":1,"ev":[["p",', events(3000))
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:3: cannot read: "):
        log(text, NAME)
    parsed = log(text, NAME, skip_bad_lines=True)
    assert parsed.codes == [(3, "bad_line")]
    steps = [(s.first_step, s.duration_s, s.cpu_s) for s in parsed.of(Step)]
    # The first does not last until the third.
    us = pytest.approx(650e-6)
    assert steps == [(0, us, None), (2, us, None)]


def changed(step: list[list[Any]], index: int, position: int, value: Any) -> list[list[Any]]:
    step = list(step)
    step[index] = [*step[index][:position], value, *step[index][position + 1 :]]
    return step


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize(
    ("index", "position"),
    [(0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (12, 2), (22, 1), (22, 2), (22, 4), (23, 4)],
)  # a phase, a module, its stamps, a backward node, a reduction
def test_an_event_of_another_shape_is_a_bad_line(
    events: Events, recorder_log: Text, log: Read, index: int, position: int, value: Any
) -> None:
    text = recorder_log(events(0), changed(events(1000), index, position, value), events(2000))
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:3: cannot read: "):
        log(text, NAME)
    assert log(text, NAME, skip_bad_lines=True).codes == [(3, "bad_line")]


@pytest.mark.parametrize(
    "step",
    [
        "null", "[]", "7", '"ev"', "{}", '{"step":1}', '{"step":1,"ev":null}', '{"step":1,"ev":[]}',
        '{"step":1,"ev":["p"]}', '{"step":1,"ev":[[]]}', '{"step":1,"ev":[["p"]]}',
        '{"step":1,"ev":[["p","data",1]]}', '{"step":1,"ev":[[["p"],"data",1,2]]}',
        '{"step":1,"ev":{"p":"data"}}', '{"step":1,"ev":[["p",["data"],1,2]]}',
        '{"step":"1","ev":[["p","data",1,2]]}', '{"ev":[["p","data",1,2]]}',
        '{"step":1,"ev":[["p","data",2,1]]}', '{"step":1,"ev":[["p","data",1,' + "9" * 5000 + "]]}",
        '{"step":1,"ev":[["f0",5,1],["p","data",1,2]]}',
        '{"step":1,"ev":[["f1",0,1],["p","data",1,2]]}',
        '{"step":1,"ev":[["f0",0,1],["p","data",1,2]]}',
        '{"step":1,"ev":[["f0",0,1],["f1",1,2],["p","data",1,2]]}',
        '{"step":1,"ev":[["f0",0,3],["f1",0,2],["p","data",1,2]]}',
        "[" * 100_000, '{"step":' * 100_000,
    ],
)  # fmt: skip
def test_a_step_of_another_shape_is_a_bad_line(
    events: Events, recorder_log: Text, log: Read, step: str
) -> None:
    text = recorder_log(events(0), step, events(2000))
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:3: cannot read: "):
        log(text, NAME)
    assert log(text, NAME, skip_bad_lines=True).codes == [(3, "bad_line")]


@pytest.mark.parametrize(
    "change",
    [
        *({key: value} for key in ("rank", "world_size") for value in ("1", [], 1.5, -1)),
        *({key: 10**30} for key in ("rank", "params", "batch_per_rank", "epoch_ns", "perf_ns")),
        *({key: value} for key in ("model", "torch") for value in (1, [], {})),
        *({"epoch_ns": value} for value in ("1", float("inf"), True)),
        *({"layers": value} for value in (None, "Net", 7, [None], ["Net"], [[]], [{}])),
        *({"layers": [{**LAYER, "params": value}]} for value in (None, "2", float("inf"), -1)),
        {"layers": [{**LAYER, "name": None}]},
        {"layers": [{**LAYER, "type": ["Net"]}]},
    ],
    ids=repr,
)  # fmt: skip
def test_a_meta_line_of_another_shape_is_refused(
    events: Events, recorder_log: Text, meta: dict[str, Any], log: Read, change: dict[str, Any]
) -> None:
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:1: not the meta line"):
        log(recorder_log(events(0), meta={**meta, **change}), NAME)


def test_a_meta_line_that_is_no_json_is_refused(meta: dict[str, Any], log: Read) -> None:
    head = json.dumps(meta)[:-1]
    for rest in ("", ', "x": ' + "[" * 100_000, ', "x": ' + "9" * 5000 + "}"):
        with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:1: not the meta line"):
            log(head + rest + "\n", NAME)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_recognises_its_own(meta: dict[str, Any], separators: tuple[str, str]) -> None:
    head = json.dumps(meta, separators=separators).encode()
    assert PyTorchParser().recognises(head) is True
