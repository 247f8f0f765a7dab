"""How workers share the samples that lines count, as facts become known."""

from __future__ import annotations

from fitkit.parsers.cntk.facts import FactReader
from fitkit.parsers.cntk.sharing import SERIAL, Share, Sharing
from fitkit.parsers.cntk.training import Command

MOMENTUM = "Parallel training (4 workers) using BlockMomentumSGD with block size per worker = 64"

LOOP = (
    "Starting minibatch loop, DataParallelSGD training (myRank = 0, numNodes = 2, "
    "numGradientBits = 32)."
)


def test_facts_count_from_when_they_are_read() -> None:
    reader, command = FactReader(), Command(None, "run")
    sharing = Sharing(reader)
    assert (sharing.n_workers(command), sharing.of(command, 1)) == (None, Share(1, None))
    reader.read(MOMENTUM, 0)
    assert sharing.of(command, 1) == Share(1, None)
    sharing.forget()
    assert (sharing.n_workers(command), sharing.of(command, 1)) == (4, Share(4, None))


def test_before_training_is_parallel_each_worker_does_the_whole_epoch() -> None:
    reader, command = FactReader(), Command(None, "run")
    for line in (
        "Starting Epoch 1: learning rate per sample = 0.1  effective momentum = 0.9",
        "Starting minibatch loop.",
        "Starting Epoch 2: learning rate per sample = 0.1  effective momentum = 0.9",
        LOOP,
    ):
        reader.read(line, 0)
    sharing = Sharing(reader)
    assert [sharing.of(command, epoch) for epoch in (1, 2)] == [Share(1, SERIAL), Share(1, None)]
