"""The steps and phases of a training loop, read off the calls that it makes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol


class StepLog(Protocol):
    """What is told of steps and phases: a ``fitkit.recorder.Recorder``."""

    def begin_step(self) -> None:
        """A step begins."""

    def end_step(self, disturbed_by: str | None = None) -> None:
        """It is over."""

    def drop_step(self) -> None:
        """It was none."""

    def begin_phase(self, name: str) -> None:
        """A phase begins, of the open step if there is one."""

    def end_phase(self) -> None:
        """The phase that began last is over."""

    def close(self) -> None:
        """Nothing more is told."""


class TrainingLoop:
    """Follows one training loop.

    A step begins with the first batch fetched or the first forward call after an update. It ends
    when the next one begins, or evaluation does: what the program does after its update, such as
    reading the loss, is part of the step. Forward lasts from the call of the network to the
    backward pass, the loss included. Calls without gradients are evaluation, which lasts until
    training goes on.

    Parameters
    ----------
    log
        What is told.
    loaders
        Keys of the data loaders that are known to feed the training.
    """

    def __init__(self, log: StepLog, loaders: set[Hashable]) -> None:
        self._log = log
        self._loaders = loaders
        self._fetched: set[Hashable] = set()  # since the network was last called
        self._is_open = False
        self._is_called = False  # the network was, in the open step
        self._is_updated = False  # so whatever comes next of training or evaluation ends the step
        self._phase: str | None = None  # of the open step, or outside of steps
        self._updates: list[Hashable] = []  # under way: a gradient scaler, in it an optimizer

    def fetch_begins(self, loader: Hashable) -> None:
        """A batch is asked for."""
        self._end_if_updated()
        if loader in self._loaders:
            self._begin()
            self._enter("io")

    def fetch_ends(self, loader: Hashable, found: bool) -> None:
        """A batch has come, or there is none left."""
        self._leave("io")
        if found:
            self._fetched.add(loader)
        elif not self._is_called:
            self._drop()

    def forward_begins(self, is_training: bool) -> None:
        """The network is called."""
        if self._phase == "backward":  # activations are computed anew
            return
        fetched, self._fetched = self._fetched, set()
        self._end_if_updated()
        if is_training:
            self._loaders |= fetched
            self._begin()
            self._is_called = True
            self._enter("forward")
            return
        if not self._is_called:
            self._drop()
        if self._is_open:
            self._leave(self._phase)
        else:
            self._enter("eval")

    def forward_fails(self, is_training: bool) -> None:
        """An exception has left the network."""
        if is_training:
            self._end("exception")

    def backward_begins(self) -> bool:
        """Gradients are computed; whether this is the call whose end counts."""
        if not self._is_open or self._phase == "backward":
            return False
        self._enter("backward")
        return True

    def backward_ends(self, failed: bool) -> None:
        """The gradients are there. An optimizer may have asked for them."""
        if failed:
            self._end("exception")
        elif self._updates:
            self._enter("optimizer")
        else:
            self._leave("backward")

    def update_begins(self, by: Hashable) -> None:
        """An optimizer steps, or a gradient scaler makes it."""
        self._forget(by)  # it failed the last time
        self._updates.append(by)
        if self._is_open:
            self._enter("optimizer")

    def update_ends(self, by: Hashable, is_recorded: bool) -> None:
        """It has, or the scaler found that it must not."""
        self._forget(by)
        if self._is_open and not self._updates:
            self._leave("optimizer")
            self._is_updated |= is_recorded

    def save_begins(self) -> None:
        """Something is saved."""
        self._end_if_updated()
        self._enter("checkpoint")

    def save_ends(self) -> None:
        """It has been."""
        self._leave("checkpoint")

    def close(self) -> None:
        """The program ends."""
        if not self._is_updated:
            self._drop()
        self._log.close()

    def _begin(self) -> None:
        if not self._is_open:
            self._leave(self._phase)
            self._is_open = True
            self._log.begin_step()

    def _end_if_updated(self) -> None:
        if self._is_updated:
            self._end()

    def _end(self, disturbed_by: str | None = None) -> None:
        if self._is_open:
            self._leave(self._phase)
            self._over()
            self._log.end_step(disturbed_by)

    def _drop(self) -> None:
        if self._is_open:
            self._leave(self._phase)
            self._over()
            self._log.drop_step()

    def _over(self) -> None:
        self._is_open = self._is_called = self._is_updated = False

    def _forget(self, by: Hashable) -> None:
        if by in self._updates:
            del self._updates[self._updates.index(by) :]

    def _enter(self, phase: str) -> None:
        if self._phase != phase:
            self._leave(self._phase)
            self._phase = phase
            self._log.begin_phase(phase)

    def _leave(self, phase: str | None) -> None:
        if phase is not None and phase == self._phase:
            self._phase = None
            self._log.end_phase()
