"""What a BrainScript log, or one of Python, states of one of its training commands."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from fitkit.parsers.cntk.facts.config import Config, schedule_value

_METHODS = {
    "dataparallelsgd": "data_parallel",
    "dataparallelasgd": "asynchronous",
    "blockmomentumsgd": "block_momentum",
    "modelaveraging": "model_averaging",
    "modelaveragingsgd": "model_averaging",
}
_SECTIONS = {"block_momentum": "BlockMomentumSGD", "model_averaging": "ModelAveragingSGD"}
_ROUNDING = 5e-7  # of a learning rate that is printed with six decimals


@dataclass
class EpochStart:
    """What the lines at the beginning of an epoch state.

    Attributes
    ----------
    learning_rate
        For a sample.
    momentum, momentum_samples
        For a minibatch; and as a time constant, in samples.
    n_parts
        Parts that the reader splits the data of the epoch into, one for each worker.
    is_parallel
        Whether the line that starts its minibatches names a parallel method or reading; None
        before that line.
    """

    learning_rate: float | None = None
    momentum: float | None = None
    momentum_samples: float | None = None
    n_parts: int | None = None
    is_parallel: bool | None = None


_UNKNOWN = EpochStart()


@dataclass
class CommandFacts:
    """What is stated of one command; of the unnamed one what belongs to none.

    Attributes
    ----------
    action
        train, test, edit, ...
    method
        How workers keep in step: a word of ``Run.sync_method``; None if no line says.
    n_workers
        That the method's lines name.
    block_samples
        Samples of a worker between two synchronisations.
    reports_learner
        Whether a learner of its own wrote its rate, which Python's distributed learners do not.
    is_parallel_off
        Whether a line says that training in parallel is not enabled.
    n_chunks
        Chunks of the training data: no more workers can have data of their own.
    device
        ``CPU`` or ``GPU 0``.
    n_network_nodes
        Nodes of its computation graph.
    model_path
        Where it saves the network.
    n_epochs
        Epochs that it is to train.
    learner_rate, learner_momentum
        What Python's learner writes: a value, and the samples that it is for (None: a minibatch).
    """

    name: str
    config: Config
    action: str | None = None
    method: str | None = None
    n_workers: int | None = None
    gradient_bits: int | None = None
    block_samples: int | None = None
    has_distributed_reading: bool | None = None
    reports_learner: bool = False
    is_parallel_off: bool = False
    n_chunks: int | None = None
    device: str | None = None
    n_network_nodes: int | None = None
    model_path: str | None = None
    n_epochs: int | None = None
    learner_rate: tuple[float, int | None] | None = None
    learner_momentum: tuple[float, int | None] | None = None
    epochs: dict[int, EpochStart] = field(default_factory=dict)

    def set_method(self, name: str, *, is_buffered: bool = False) -> None:
        """Take the name that a line gives the method."""
        method = _METHODS.get(name.lower(), self.method)
        self.method = "data_parallel_async" if is_buffered else method

    @property
    def shares_work(self) -> bool | None:
        """Whether lines show that workers share the work, or that each is alone; else None."""
        if self.method is not None:
            return True
        started = any(epoch.is_parallel is not None for epoch in self.epochs.values())
        return False if started or self.reports_learner or self.is_parallel_off else None

    @property
    def groups_are_local(self) -> bool:
        """Whether BrainScript's lines of minibatches count the samples of one worker."""
        return self.method in ("block_momentum", "model_averaging", "asynchronous")

    @property
    def epochs_are_local(self) -> bool:
        """Whether BrainScript's lines of finished epochs count the samples of one worker.

        With block momentum and model averaging, they count those of all workers although the
        lines of minibatches do not.
        """
        return self.method == "asynchronous"

    def is_shared(self, epoch: int) -> bool | None:
        """Whether workers share an epoch, counted from 1; None if nothing tells.

        Before ``parallelizationStartEpoch``, every rank does all the work of the epoch.
        """
        start = self.epochs.get(epoch, _UNKNOWN)
        if start.is_parallel or (start.n_parts or 0) > 1:
            return True
        if start.is_parallel is False and self._names_parallel_epochs:
            return False
        if start.n_parts == 1 and any((e.n_parts or 0) > 1 for e in self.epochs.values()):
            return False
        first = self.config.integer(
            self._place, "parallelizationStartEpoch", "ParallelTrain", "SGD"
        )
        if first is not None and self.method is not None:
            return epoch >= first
        return False if self.shares_work is False else None

    @property
    def _names_parallel_epochs(self) -> bool:
        """Whether the method says in each epoch that it is at work, or does so in another one."""
        named = any(epoch.is_parallel for epoch in self.epochs.values())
        return named or self.method in ("data_parallel", "data_parallel_async", "asynchronous")

    def minibatch(self, epoch: int = 1) -> float | None:
        """Configured samples of a minibatch in an epoch; all workers together."""
        return self._scheduled("minibatchSize", epoch)

    @property
    def epoch_samples(self) -> int | None:
        """Configured samples of an epoch; None if it is as large as the data."""
        return self.config.integer(self._place, "epochSize", "SGD")

    @property
    def worker_block_samples(self) -> int | None:
        """Samples of a worker between two synchronisations, as lines or the configuration say.

        ``blockSize`` is that of all workers (CNTK, "Multiple GPUs and machines").
        """
        if self.block_samples is not None or (section := _SECTIONS.get(self.method or "")) is None:
            return self.block_samples
        places = section, "ParallelTrain", "SGD"
        for name in ("blockSizePerWorker", "syncFrequencyInFrames"):
            if (samples := self.config.integer(self._place, name, *places)) is not None:
                return samples
        block = self.config.integer(self._place, "blockSize", *places)
        return block // self.n_workers if block and self.n_workers else None

    @property
    def chip(self) -> str | None:
        """``CPU`` or ``GPU 0``, as a line or the configuration says."""
        if self.device is not None:
            return self.device
        configured = self.config.get(self._place, "deviceId") or ""
        if re.fullmatch(r"\d{1,4}", configured):
            return f"GPU {int(configured)}"
        return "CPU" if configured == "-1" else None

    @property
    def network(self) -> str | None:
        """Name of the network: that of its file, without folder and suffix."""
        path = self.config.get(self._place, "modelPath") or self.model_path or ""
        name = re.split(r"[\\/]", path)[-1]
        return re.sub(r"\.(?:dnn|model|cmf)$", "", name) or None

    @property
    def learning_rate(self) -> float | None:
        """Of the first epoch, for a sample.

        The configuration has more digits than the line of the epoch, which wins if they differ.
        """
        if self.learner_rate is not None:
            value, samples = self.learner_rate
            n_samples = samples or self.minibatch()
            return value / n_samples if n_samples else None
        configured = self._scheduled("learningRatesPerSample", 1)
        of_minibatch, batch = self._scheduled("learningRatesPerMB", 1), self.minibatch()
        if configured is None and of_minibatch is not None and batch:
            configured = of_minibatch / batch
        stated = self._first.learning_rate
        if stated is None or (configured is not None and abs(configured - stated) <= _ROUNDING):
            return configured
        return stated

    @property
    def momentum(self) -> float | None:
        """Of the first epoch, for a minibatch.

        From a time constant ``T`` it is ``exp(-minibatch / T)`` (CNTK's ``SGD.cpp``).
        """
        if self.learner_momentum is not None:
            value, samples = self.learner_momentum
            batch = self.minibatch()
            if samples is None or samples == batch:
                return value
            return value ** (batch / samples) if batch and samples and 0 <= value <= 1 else None
        if self._first.momentum is not None:
            return self._first.momentum
        batch, constant = self.minibatch(), self._scheduled("momentumAsTimeConstant", 1)
        if constant is None or batch is None:
            return self._scheduled("momentumPerMB", 1)
        return math.exp(-batch / constant) if constant > 0 else 0.0

    @property
    def _place(self) -> str:
        """Its name in the configuration; old logs do not say which command begins."""
        return self.name or self.config.only_training

    @property
    def _first(self) -> EpochStart:
        return self.epochs[min(self.epochs)] if self.epochs else _UNKNOWN

    def _scheduled(self, name: str, epoch: int) -> float | None:
        schedule = self.config.get(self._place, name, "SGD")
        return schedule_value(schedule, epoch) if schedule else None
