"""The configuration in BrainScript logs: sections, overrides, schedules, damage."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk.facts import FactReader, run_columns, schedule_value


def said(*lines: str) -> FactReader:
    reader = FactReader()
    for line in lines:
        reader.read(line, None)
    return reader


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("64:256:1024", [64, 256, 1024, 1024]),
        ("64:256:", [64, 256, 256]),
        ("0.1*3:0.01", [0.1, 0.1, 0.1, 0.01, 0.01]),
        ("0*2 : 0.7", [0, 0, 0.7]),
        ("(1.0*1:0.5)", [1.0, 0.5]),
        ("128", [128, 128]),
        ("a:b", [None]),
        ("", [None]),
        ("1*2*3", [None]),
        ("1*x", [None]),
        ("nan", [None]),
    ],
)
def test_value_of_a_schedule(schedule: str, values: list[float | None]) -> None:
    assert [schedule_value(schedule, epoch) for epoch in range(1, len(values) + 1)] == values


DUMP = """
>>>>>>>>>>>>>>>>>>>> RAW CONFIG (VARIABLES NOT RESOLVED) >>>>>>>>>>>>>>>>>>>>
precision = "float"
minibatchSize = 7
first = [
    SGD = [
        minibatchSize = 9
<<<<<<<<<<<<<<<<<<<< RAW CONFIG (VARIABLES NOT RESOLVED)  <<<<<<<<<<<<<<<<<<<<
configparameters: my.cntk:command=first:second
configparameters: my.cntk:deviceId=1
configparameters: my.cntk:epochSize=13
configparameters: my.cntk:first=[
    action = "train"
    modelPath = "C:\\Some Folder\\nets/First.dnn"   // the "first" one's [file]
    Builder = {
        layers[layer:1..L-1] = if layer > 1 then A(x[layer-1]) else B
        net = Sequential ( Dense {64, init = "a"} :
            Dense {10} )
    }
    SGD = [ epochSize = 0 ; minibatchSize = 64*2:256   # twice
        learningRatesPerMB = 1.0:0.5
        momentumAsTimeConstant = 1024
        ParallelTrain = [
            parallelizationMethod = "BlockMomentumSGD"
            BlockMomentumSGD = [
                blockSizePerWorker=2048
            ]
        ]
    ]
    reader =
    [
        epochSize = 5
        features = { dim = 3 ; format = "dense" }
    ]
] [SGD=[maxEpochs=3,ParallelTrain=[parallelizationStartEpoch=2]]]

configparameters: my.cntk:second={
minibatchSize = 10
    action = train
    SGD = { maxEpochs = 4 }
}
Commands: first second
Precision = "double"
""".splitlines()


def test_configuration_of_each_command() -> None:
    found = said(*DUMP).facts
    first, second = found.of_command("first"), found.of_command("SECOND")
    assert [first.minibatch(epoch) for epoch in (1, 2, 3, 9)] == [64, 64, 256, 256]
    assert (second.minibatch(), second.epoch_samples, first.epoch_samples) == (10, 13, None)
    config = found.config
    assert [config.integer(name, "maxEpochs", "SGD") for name in ("first", "second")] == [3, 4]
    assert config.get("first", "epochSize", "reader") == "5"
    assert (first.network, second.network, first.chip) == ("First", None, "GPU 1")
    assert first.learning_rate == 1 / 64
    assert first.momentum == pytest.approx(0.939413, abs=5e-7)  # as CNTK itself prints it
    assert (found.precision, found.of_command(None).minibatch()) == ("float64", None)


def test_block_of_each_worker_from_the_configuration() -> None:
    lines = [*DUMP, "CNTKCommandTrainBegin: first"]
    averaging = "Parallel training (2 workers) using ModelAveraging"
    assert said(*lines, averaging).facts.of_command("first").worker_block_samples is None
    momentum = "Parallel training (2 workers) using BlockMomentumSGD with block momentum = 0.5"
    assert said(*lines, momentum).facts.of_command("first").worker_block_samples == 2048
    total = "configparameters: a:t=[SGD=[ParallelTrain=[ModelAveragingSGD=[blockSize=3000]]]]"
    found = said(total, "CNTKCommandTrainBegin: t", averaging).facts.of_command("t")
    assert found.worker_block_samples == 1500


def test_old_logs_do_not_name_the_one_command_that_trains() -> None:
    line = "configparameters: a:t=[ action=train; SGD=[minibatchSize=32; learningRatesPerMB=0.5] ]"
    assert said(line).facts.of_command(None).learning_rate == 0.5 / 32


def test_a_dump_that_is_cut_ends_with_the_next_statement() -> None:
    reader = said("configparameters: a:t=[", "    SGD = [", "CNTKCommandTrainBegin: t")
    assert not reader.read("    minibatchSize = 3", None)
    assert reader.facts.of_command("t").minibatch() is None


def test_a_learning_rate_of_few_digits_is_completed_and_a_changed_one_is_not() -> None:
    dump = "configparameters: a:t=[SGD=[minibatchSize=1024 ; learningRatesPerMB=0.1]]"
    start = "Starting Epoch 1: learning rate per sample = {}  effective momentum = 0.656119 "
    begin = "CNTKCommandTrainBegin: t"
    rates = [
        said(dump, begin, start.format(rate)).facts.of_command("t").learning_rate
        for rate in ("0.000098", "0.000781")
    ]
    assert rates == [0.1 / 1024, 0.000781]


WORDS = [*(word for line in DUMP for word in line.split()), "\x00", "٣", "9" * 400, "[", "]", "="]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*WORDS, *DUMP])), max_size=40))
@example([["configparameters: a:t=[", "[" * 5000], ["]" * 9000, "minibatchSize = " + "1:" * 5000]])
@example([["configparameters: a:t=[a="], ["configparameters: :=[", 'minibatchSize="', "1"]])
def test_damaged_dumps_raise_nothing(lines: list[list[str]]) -> None:
    reader = said(*(" ".join(words) for words in lines))
    for name in ("first", "second", "t"):
        command = reader.facts.of_command(name)
        values = run_columns(reader.facts, command)
        assert values["epoch_samples"] is None or values["epoch_samples"] > 0
        assert command.is_shared(1) in (None, False)
