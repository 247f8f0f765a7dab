"""compose(): a made dataset whose parts are known, and the sample runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.composition import compose
from fitkit.composition.parts import network_layers, step_accounts
from fitkit.dataset import Dataset
from fitkit.errors import FitError, InputError
from fitkit.records import Comm, Layer, Phase, Run, SourceRow, Step

SOURCE = SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}")
BATCHES = (8, 32, 128)
CONSTANT, OPTIMIZER, REDUCE, SHARE = 0.01, 0.004, 0.3, 0.5
N_STEPS = 6


def run_records(batch, workers, *, share=SHARE, collectives=True, network="net", extra=()):
    """A run whose layers, collectives and steps follow from the batch.

    Forward is 2·cell + head, backward twice as long; a step sends two messages.
    """
    run_id = f"{network}-{batch}-{workers}"
    calls = {"cell": 2, "head": 1}
    call_s = {"cell": 1e-3 + 1e-3 * batch, "head": 2e-3 + 5e-4 * batch}
    forward = sum(calls[name] * call_s[name] for name in calls)
    comm = 2 * REDUCE if workers > 1 else 0.0
    exposed = max(0.0, comm - share * 2 * forward)
    step = CONSTANT + OPTIMIZER + 3 * forward + exposed
    yield Run(run_id, "s", network=network, local_batch=batch, n_workers=workers)
    for rank in range(workers):
        yield Step(run_id, rank, N_STEPS, N_STEPS * step)
        phases = {
            "forward": forward, "backward": 2 * forward + exposed, "optimizer": OPTIMIZER,
            "other": CONSTANT,
        }  # fmt: skip
        if workers > 1 and not collectives:
            phases["comm"] = comm
        yield Phase(run_id, "step", N_STEPS * step, rank, n=N_STEPS)
        for phase, seconds in phases.items():
            yield Phase(run_id, phase, N_STEPS * seconds, rank, parent="step", n=N_STEPS)
        for index, (name, seconds) in enumerate(call_s.items()):
            for phase, factor in (("forward", 1), ("backward", 2)):
                yield layer(run_id, rank, name, phase, seconds * factor, calls[name], index, batch)
        for name, index, phase, seconds in extra:
            yield layer(run_id, rank, name, phase, seconds, 1, index, batch)
        for _ in range(2 * N_STEPS if workers > 1 and collectives else 0):
            yield Comm(run_id, rank, "all_reduce", REDUCE, workers, 1, 4000)


def layer(run_id, rank, name, phase, seconds, calls, index, batch):
    return Layer(
        run_id, rank, name, "Linear", phase, calls * N_STEPS, index, batch, seconds,
        median_s=seconds, min_s=seconds,
    )  # fmt: skip


def stored(folder, *runs):
    dataset = Dataset(folder)
    with dataset.writing():
        dataset.write(SOURCE, [record for run in runs for record in run])
    return dataset


@pytest.fixture
def store(tmp_path):
    """A dataset of the runs that it is called with."""
    return lambda *runs: stored(tmp_path / "ds", *runs)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The runs with nothing odd, put together once."""
    return compose(stored(tmp_path_factory.mktemp("plain") / "ds", *made()))


def made(**facts):
    return [run_records(batch, workers, **facts) for batch in BATCHES for workers in (1, 2)]


def without_optimizer(run):
    return [record for record in run if getattr(record, "phase", "") != "optimizer"]


def test_a_step_is_put_together_from_what_was_planted(plain):
    found = plain
    (model,) = found.models.values()
    constant, overlap = model.parameters_
    assert model.form_ == "share"
    assert constant.estimate == pytest.approx(CONSTANT, rel=1e-3)
    assert overlap.estimate == pytest.approx(SHARE, abs=0.005)
    row = found.rows[(found.rows.local_batch == 32) & (found.rows.n_workers == 2)].iloc[0]
    # 2 · (1 + 32) + 2 + 16 ms forward, twice that backward, 600 − 84 ms that nothing hides.
    assert row[["forward_s", "backward_s", "optimizer_s", "comm_s"]].tolist() == pytest.approx(
        [0.084, 0.168, 0.004, 0.6], rel=1e-3
    )
    assert row.measured_s == pytest.approx(0.01 + 0.084 + 0.168 + 0.004 + 0.516)
    assert row.predicted_s == pytest.approx(row.measured_s, rel=1e-2)
    assert found.overall["n"] == 6
    assert found.overall["mape"] < 0.01
    assert found.notes == []


def test_the_phase_comm_stands_in_for_collectives(store):
    found = compose(store(*made(collectives=False)))
    two = found.rows[found.rows.n_workers == 2]
    assert two.comm_s.tolist() == pytest.approx([2 * REDUCE] * 3)
    assert found.rows[found.rows.n_workers == 1].comm_s.tolist() == [0.0] * 3
    assert found.overall["mape"] < 0.01


def test_alone_the_overlap_is_undetermined_and_steps_are_known(store):
    found = compose(store(*made()), where="n_workers == 1")
    (model,) = found.models.values()
    assert not model.is_determined
    assert found.overall["mape"] < 0.01
    assert "overlapped_share" in str(found.summary())
    assert "none to full" in str(found.summary())


def test_communication_that_nobody_recorded_is_named(store):
    silent = [[r for r in run if not isinstance(r, Comm)] for run in made()]
    with pytest.raises(FitError, match=r"net-\d+-2: several workers, but no communication was"):
        compose(store(*silent))


def test_what_waits_for_the_gradients_is_no_layer(store, plain):
    wrapper = ("DataParallel", None, "backward", 0.7)
    found = compose(store(*made(extra=[wrapper])))
    assert found.rows.backward_s.tolist() == plain.rows.backward_s.tolist()


def test_a_layer_that_only_the_left_out_runs_have_is_named(store):
    new = [("extra", 2, "forward", 0.1), ("extra", 2, "backward", 0.1)]
    runs = [run_records(b, 1, extra=new if b == 32 else ()) for b in BATCHES]
    found = compose(store(*runs))
    assert found.rows.local_batch[found.rows.predicted_s.isna()].tolist() == [32]
    assert found.overall["n"] == 2
    assert any(note.startswith("local_batch = 32: run_id net-32-1: layer extra has no")
               for note in found.notes)  # fmt: skip


def test_a_layer_too_short_for_the_clock_is_no_gap(store):
    short = [("mask", 2, "forward", 4e-7), ("mask", 2, "backward", 0.0)]
    found = compose(store(*made(extra=short)))
    assert found.overall["n"] == 6
    assert found.overall["mape"] < 0.01


def test_models_that_were_fitted_elsewhere(store):
    dataset = store(*made(), *made(network="other"))
    steps = network_layers(dataset, "median")
    layers = fitkit.fit(steps[steps.run_id.str.startswith("net-")], "layers")
    found = compose(dataset, where='network == "net"', layers=layers)
    assert found.overall["mape"] < 0.01
    assert any("layers was fitted on 6 of these runs" in note for note in found.notes)
    with pytest.raises(FitError, match="nothing could be left out") as error:
        compose(dataset, where='network == "other"', layers=layers)
    assert "layer cell has no" in error.value.hint


def test_runs_without_an_optimizer_time_say_so(store):
    found = compose(store(*map(without_optimizer, made())))
    assert found.rows.optimizer_s.tolist() == [0.0] * 6
    (model,) = found.models.values()
    assert model.parameters_[0].estimate == pytest.approx(CONSTANT + OPTIMIZER, rel=1e-2)
    assert "6 runs have no optimizer time: the constant holds it" in found.notes


def test_a_group_of_one_batch_has_no_prediction(store):
    lazy = [
        r for r in run_records(256, 1, network="lonely") if getattr(r, "phase", 0) != "optimizer"
    ]
    dataset = store(*made(), lazy)
    layers = fitkit.fit(network_layers(dataset, "median"), "layers")
    found = compose(dataset, layers=layers)
    assert found.overall["n"] == 6
    assert "1 of 7 configurations have no prediction" in found.notes


def test_a_layer_counts_as_often_as_a_step_calls_it(store):
    frame = network_layers(store(*made()), "median").set_index(["run_id", "layer", "phase"])
    assert frame.n_calls["net-8-2", "cell", "forward"] == 2
    assert frame.n_calls["net-8-1", "head", "backward"] == 1
    assert len(frame) == 6 * 2 * 2


def test_what_is_left_of_each_whole(store):
    dataset = store(run_records(32, 2, share=0.0))
    found = step_accounts(dataset, ["net-32-2"]).set_index("whole")
    # Two ranks of six steps; the layers explain forward, and backward but for 0.6 s of messages.
    assert found.measured_s["forward"] == pytest.approx(12 * 0.084)
    assert found.other_s["forward"] == pytest.approx(0)
    assert found.other_s["backward"] == pytest.approx(12 * 0.6)
    assert found.other_share["step"] == pytest.approx(0.01 / (0.01 + 0.004 + 3 * 0.084 + 0.6))
    assert found.adds_up.to_dict() == {"forward": True, "backward": False, "step": True}


def test_repetitions_are_left_out_together(store):
    def again(batch, workers):
        return [_renamed(record) for record in run_records(batch, workers)]

    runs = [*made(), *(again(batch, workers) for batch in BATCHES for workers in (1, 2))]
    found = compose(store(*runs))
    assert found.rows.n_repeats.tolist() == [2] * 6
    assert found.overall["mape"] < 0.01


def _renamed(record):
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return type(record)(**{**values, "run_id": record.run_id + "-again"})


# -- bad input -----------------------------------------------------------------------------


def test_bad_arguments(store, tmp_path):
    with pytest.raises(InputError, match="no dataset here"):
        compose(tmp_path / "nowhere")
    dataset = store(*made())
    with pytest.raises(ValueError, match="no column 'colour'"):
        compose(dataset, leave_out="colour")
    with pytest.raises(ValueError, match="cannot leave one network out"):
        compose(dataset, leave_out="network")
    with pytest.raises(FitError, match="no rows"):
        compose(dataset, where="n_workers == 9")


def test_runs_without_layers_cannot_be_put_together(store):
    bare = [[r for r in run if not isinstance(r, Layer)] for run in made()]
    with pytest.raises(FitError, match="no run has timed layers"):
        compose(store(*bare))


# -- real runs -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def samples(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("composed") / "runs"
    choice = ("pytorch/tinygpt_w?_b[124]_*", "cntk/mlpbig_dp_n1_mb[126]*", "cntk/mlpbig_dp_n2_*")
    return fitkit.ingest([data / pattern for pattern in choice], folder)


@pytest.mark.parametrize(("network", "n", "bar"), [("tinygpt", 6, 0.05), ("mlpbig", 7, 0.05)])
def test_steps_of_the_sample_runs_follow_from_other_batches(samples, network, n, bar):
    found = fitkit.compose(samples, where=f'network == "{network}"')
    assert found.overall["n"] == n
    assert found.overall["mape"] < bar
    (model,) = found.models.values()
    # One bucket of gradients leaves after the last of them: nothing can hide it.
    assert model.is_determined
    assert model.parameters_[1].status == "zero"
    accounts = found.accounts.groupby("whole").adds_up.mean()
    assert accounts["step"] == 1
    assert accounts["backward"] == 1
    assert np.isfinite(pd.Series(found.overall)).all()
    assert set(found.groups.n_workers) == {1, 2}
    assert set(found.params_.term) == {p.term for p in model.parameters_}
