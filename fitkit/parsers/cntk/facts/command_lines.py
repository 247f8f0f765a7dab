"""Lines that state facts of a command: when it begins, its method, network, epochs, learner."""

from __future__ import annotations

import re

from fitkit.parsers.cntk.facts.command import CommandFacts, EpochStart
from fitkit.parsers.cntk.facts.statements import COUNT, RANK, Statements, Stream, kind
from fitkit.parsers.values import number

_NAME = r"[^\s:#]{1,200}"
_NUMBER = r"[-+]?\d{1,30}(?:[.,]\d{0,30})?(?:[eE][-+]?\d{1,4})?"
_CHIP = r"(?P<device>CPU|GPU \d{1,4})"
_MOST_EPOCHS = 1_000_000
_BUFFERED = "BufferedAsyncGradientAggregation is ENABLED"
_LOOP_METHOD = re.compile(r"(?P<name>DataParallelA?SGD) training \((?P<fields>[^)]{0,500})\)")
_READING = re.compile(r"distributed reading is:? (ENABLED|DISABLED)")
_LOOP_FIELDS = (
    ("n_workers", re.compile(rf"[nN]umNodes = ({RANK})")),
    ("gradient_bits", re.compile(r"[nN]umGradientBits = (\d{1,3})")),
    ("block_samples", re.compile(rf"SamplesSyncToServer = ({COUNT})")),
)


def _train_info(said: Statements, _stream: Stream, found: re.Match[str]) -> None:
    if found[1] != "CNTKNoMoreCommands_Total":
        said.facts.of_command(found[1]).n_epochs = int(found[2])


def _begin(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    stream.enter(said.facts.of_command(found[1]))
    stream.command.action = found[2] if found.lastindex == 2 else "train"


def _unnamed(said: Statements, stream: Stream, _found: re.Match[str]) -> None:
    """An action of which only the kind is printed; the name of a training follows."""
    stream.enter(said.facts.of_command(None))


def _parallel_off(_said: Statements, stream: Stream, _found: re.Match[str]) -> None:
    stream.command.is_parallel_off = True


def _network(_said: Statements, stream: Stream, found: re.Match[str]) -> None:
    stream.command.n_network_nodes = int(found["nodes"])
    stream.command.device = found["device"]


def _builder(_said: Statements, stream: Stream, found: re.Match[str]) -> None:
    stream.command.device = found["device"]


def _model_path(_said: Statements, stream: Stream, found: re.Match[str]) -> None:
    stream.command.model_path = found[1].strip()


def _workers(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    """Parallel training (2 workers) using BlockMomentumSGD with ..."""
    stream.command.set_method(found["method"])
    stream.is_parallel = True
    said.say("n_workers", int(found["workers"]), stream.rank, stream.command)
    if found["block"]:
        said.say("block_samples", int(found["block"]), stream.rank, stream.command)


def _gradients(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    if stream.command.method is None:
        stream.command.set_method("DataParallelSGD")
    said.say("gradient_bits", int(found[1] or found[2]), stream.rank, stream.command)


def _start(command: CommandFacts, epoch: int) -> EpochStart:
    """What is known of an epoch; of too many, it is not kept."""
    if len(command.epochs) < _MOST_EPOCHS:
        return command.epochs.setdefault(epoch, EpochStart())
    return command.epochs.get(epoch, EpochStart())


def _epoch(_said: Statements, stream: Stream, found: re.Match[str]) -> None:
    epoch = int(found["epoch"])
    start = _start(stream.command, epoch)
    start.learning_rate = _number(found["rate"])
    start.momentum = _number(found["momentum"])
    start.momentum_samples = _number(found["constant"])
    stream.epoch, stream.awaits_parts, stream.is_parallel = epoch, True, False


def _number(text: str | None) -> float | None:
    return number(text.replace(",", ".")) if text else None


def _parts(_said: Statements, stream: Stream, found: re.Match[str]) -> None:
    """Data are split for training, but for the precomputation and evaluations as well."""
    epoch, n_parts = int(found[1]) + 1, int(found[2])
    if stream.epoch is None:  # no line begins an epoch: numbers that go back are of evaluations
        if epoch >= max(stream.command.epochs, default=0):
            _start(stream.command, epoch).n_parts = n_parts
    elif stream.awaits_parts and epoch == stream.epoch:
        _start(stream.command, epoch).n_parts = n_parts
        stream.awaits_parts = False


def _chunks(_said: Statements, stream: Stream, found: re.Match[str]) -> None:
    if not stream.command.n_chunks:  # the reader of the evaluation follows
        stream.command.n_chunks = int(found[1])


def _loop(said: Statements, stream: Stream, found: re.Match[str]) -> None:
    """Starting minibatch loop, DataParallelSGD training (myRank = 0, numNodes = 4, ...), ..."""
    command, rest = stream.command, found[1]
    method, reading = _LOOP_METHOD.search(rest), _READING.search(rest)
    if method:
        command.set_method(method["name"], is_buffered=_BUFFERED in rest)
        for name, pattern in _LOOP_FIELDS:
            if value := pattern.search(method["fields"]):
                said.say(name, int(value[1]), stream.rank, command)
    if reading:
        command.has_distributed_reading = reading[1] == "ENABLED"
    if stream.epoch is not None:
        is_split = reading is not None and reading[1] == "ENABLED"
        _start(command, stream.epoch).is_parallel = stream.is_parallel or is_split or bool(method)


def _learner(_said: Statements, stream: Stream, found: re.Match[str]) -> None:
    """Python's learner writes its rate, and again when it changes; the first is kept."""
    stream.command.reports_learner = True
    name = "learner_rate" if found["kind"] == "Learning rate" else "learner_momentum"
    value, samples = _number(found["value"]), found["samples"]
    if value is not None and getattr(stream.command, name) is None:
        setattr(stream.command, name, (value, int(samples) if samples else None))


KINDS = (
    kind("Starting minibatch loop", r"Starting minibatch loop(.*)", _loop),
    kind(
        "Starting Epoch ",
        rf"Starting Epoch (?P<epoch>\d{{1,9}}): learning rate per sample = (?P<rate>{_NUMBER}),? +"
        rf"(?:effective )?momentum = (?P<momentum>{_NUMBER})"
        rf"(?:,? +momentum as time constant = (?P<constant>{_NUMBER}) samples)?",
        _epoch,
    ),
    kind("data subset ", rf"epoch (\d{{1,9}}): .*data subset {RANK} of ({RANK})", _parts),
    kind("Parallel training (", r"Parallel training \((?P<workers>" + RANK + r") workers\) using "
         r"(?P<method>BlockMomentumSGD|ModelAveraging)"
         rf"(?:.*block size per worker = (?P<block>{COUNT}) samples)?", _workers),
    kind(
        "Initializing dataParallelSGD",
        r"Initializing dataParallelSGD (?:with FP(\d{1,3}) aggregation|for (\d{1,3})-bit)",
        _gradients,
    ),
    kind("parallelTrain option is not enabled", r"parallelTrain option is not", _parallel_off),
    kind(
        " nodes",
        rf"(?:model with|Model has) (?P<nodes>{COUNT}) nodes(?: on|\. Using) {_CHIP}",
        _network,
        r" nodes(?: on|\. Using) [CG]PU",
    ),
    kind("Builder Using ", rf"Builder Using {_CHIP}", _builder),
    kind("CNTKModelPath: ", r"CNTKModelPath: (\S.{0,999})", _model_path),
    kind("Saving checkpoint model", r"Saving checkpoint model '([^']{1,1000}?)(?:\.\d{1,9})?'",
         _model_path),
    kind(" chunks", r"grouped into ([1-9]\d{0,11}) chunks", _chunks, r"grouped into \d+ chunks"),
    kind(
        " per ",
        r"^(?P<kind>Learning rate|Momentum) per (?:minibatch|(?P<samples>[1-9]\d{0,11}) samples): "
        rf"(?P<value>{_NUMBER})",
        _learner,
        r"(?:Learning rate|Momentum) per ",
    ),
    kind("CNTKCommandTrainInfo: ", rf"CNTKCommandTrainInfo: ({_NAME}) : ({COUNT})", _train_info),
    kind("CNTKCommandTrainBegin: ", rf"CNTKCommandTrainBegin: ({_NAME})", _begin),
    kind("CNTKCommandTrainEnd: ", r"CNTKCommandTrainEnd: ", _unnamed),
    kind(" command (", rf"^# ({_NAME}) command \((\w{{1,50}}) action\) +#", _begin,
         r" command \(\w+ action\)"),
    kind('# Action "', r'^# Action "\w{1,50}" +#', _unnamed),
)  # fmt: skip
