"""The recorder: phases, modules, gradients and reductions of each step of one process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fitkit.recorder.describing import Network, describe, place_of
from fitkit.recorder.devices import device_column, device_stamp
from fitkit.recorder.log import LogWriter, clocks
from fitkit.recorder.module_calls import ModuleCalls
from fitkit.recorder.phases import Phases
from fitkit.recorder.reductions import Reductions
from fitkit.recorder.stamps import (
    STEP,
    STEP_END,
    Stamp,
    code_of,
    columns,
    foreign_stamp,
    host_stamp,
)

if TYPE_CHECKING:
    from fitkit.recorder.capture import Capture

_BATCH = TypeVar("_BATCH")
_MAX_SHAPES = 8  # of a network whose inputs vary more, those of later steps are not measured


class Recorder:
    """Records where the time of each training step goes, into one log for each rank.

    Parameters
    ----------
    folder
        Where the logs go; one folder for each run.
    model
        The module that is trained, wrapped for distributed training if it will be.
    optimizer
        Its optimizer, or several: their ``step`` is then recorded as the phase ``optimizer``.
    network
        Name of the network; the class of the module if it is not said.
    local_batch
        Samples a step and process, if the first dimension of the first input does not tell.
    rank, world_size
        This process among how many; from torch.distributed, or ``RANK`` and ``WORLD_SIZE``, if
        they are not said.

    Raises
    ------
    ImportError
        If torch is not installed.
    FileExistsError
        If the folder holds a log of this rank already.

    Examples
    --------
    ::

        with Recorder("runs/first", model, optimizer=optimizer) as recorder:
            for x, y in recorder.data(loader):
                with recorder.step():
                    with recorder.phase("forward"):
                        loss = criterion(model(x), y)
                    with recorder.phase("backward"):
                        loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: Any,
        *,
        optimizer: Any = None,
        network: str | None = None,
        local_batch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        torch = _import_torch()
        self._network: Network = describe(model)
        self._cuda = torch.cuda if self._network.device_type == "cuda" else None
        place = place_of(rank, world_size)
        self._stamps: list[Stamp] = []  # of the step that is open
        self._step = -1
        self._in_step = self._in_optimizer = self._closed = False
        self._shapes: dict[Any, int | None] = {}
        self._capture_next = bool(self._network.watched)
        self._make_stamps()
        self._log = LogWriter(Path(folder), place["rank"])
        try:
            self._attach(model, optimizer, place, network=network, local_batch=local_batch)
        except BaseException:
            self._log.discard()
            raise

    def _attach(self, model: Any, optimizer: Any, place: dict[str, Any], **said: Any) -> None:
        """Begin the log, and put the recorder where it sees what happens."""
        self._phases = Phases(self._stamps, self._stamp, self._log.write)
        self._reductions = Reductions(self._stamp, self._stamp_elsewhere)
        said.update(self._reductions.register(model))
        self._log.begin({**place, **self._network.facts}, said, self._network.layers)
        self._handles = [
            handle
            for one in _listed(optimizer)
            for handle in (
                one.register_step_pre_hook(self._optimizer_begins),
                one.register_step_post_hook(self._optimizer_ends),
            )
        ]
        self._calls = ModuleCalls(self._network.watched, self._stamp)

    @property
    def path(self) -> Path:
        """The log of this rank."""
        return self._log.path

    # --- steps --------------------------------------------------------------------------------

    @contextmanager
    def step(self) -> Iterator[None]:
        """One optimiser step; an exception marks it as disturbed and goes on its way."""
        self.begin_step()
        try:
            yield
        except BaseException:
            self.end_step(disturbed_by="exception")
            raise
        self.end_step()

    def begin_step(self) -> None:
        """Begin a step.

        Raises
        ------
        RuntimeError
            If one is open, or the recorder is closed.
        """
        if self._in_step or self._closed:
            raise RuntimeError("the recorder is closed" if self._closed else "a step is open")
        self._step += 1
        self._in_step, self._in_optimizer = True, False
        self._stamps.clear()
        self._reductions.launched.clear()
        self._calls.begin_step()
        if self._capture_next:
            from fitkit.recorder.capture import Capture

            self._capture_next = False
            self._calls.capture = Capture(self._calls.in_backward)
        self._stamp(code_of(STEP))
        self._calls.recording = self._reductions.recording = True

    def end_step(self, disturbed_by: str | None = None) -> None:
        """End the step and write it.

        Parameters
        ----------
        disturbed_by
            Why it is no sample of training, if it is none.

        Raises
        ------
        RuntimeError
            If no step is open.
        """
        self._check_step()
        self._phases.end_step()
        self._stamp(code_of(STEP_END))
        capture = self._leave_step()
        if self._calls.failed:
            disturbed_by = disturbed_by or "exception"
        shapes = self._number_of_shapes(capture if disturbed_by is None else None)
        if capture is not None and disturbed_by is None:
            disturbed_by = "shape capture"
        elif capture is not None:
            self._capture_next = True
        stamps = [*self._phases.early, *self._stamps]
        self._phases.early.clear()
        line: dict[str, Any] = {
            "step": self._step, "shapes": shapes, "disturbed_by": disturbed_by
        }  # fmt: skip
        line = {key: value for key, value in line.items() if value is not None}
        line.update(columns(stamps))
        if self._cuda is not None:
            line["device_ns"] = device_column(stamps, self._cuda)
        if self._reductions.launched:
            line["reductions"] = self._reductions.launched
        self._log.write("step", line)

    def drop_step(self) -> None:
        """Forget the step that is open, and the waits for its data, as if it had not begun.

        Raises
        ------
        RuntimeError
            If no step is open.
        """
        self._check_step()
        self._phases.drop_step()
        self._capture_next |= self._leave_step() is not None
        self._step -= 1

    # --- phases -------------------------------------------------------------------------------

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase of the step, or outside of steps; phases may contain others."""
        self.begin_phase(name)
        try:
            yield
        finally:
            self.end_phase(name)

    def begin_phase(self, name: str) -> None:
        """Begin a phase.

        Raises
        ------
        ValueError
            If the name is not one of ``fitkit.records.PHASES``.
        """
        self._phases.begin(name, self._in_step)
        self._follow_phases()

    def end_phase(self, name: str | None = None) -> None:
        """End the innermost phase that is open.

        Raises
        ------
        RuntimeError
            If none is, or another one than the name says.
        """
        self._phases.end(name)
        self._follow_phases()

    def data(self, loader: Iterable[_BATCH]) -> Iterator[_BATCH]:
        """Iterate over a loader; each wait is the phase ``io`` of the step that comes next."""
        iterator: Iterator[_BATCH] | None = None
        while True:
            self.begin_phase("io")
            try:
                iterator = iter(loader) if iterator is None else iterator
                batch = next(iterator)
            except BaseException as error:
                self._phases.wait_in_vain()
                if isinstance(error, StopIteration):
                    return
                raise
            self.end_phase("io")
            yield batch

    def event(self, name: str, seconds: float) -> None:
        """A part of the initialisation that was timed elsewhere, e.g. the import of torch.

        Parameters
        ----------
        name
            What it was, in any words.
        seconds
            How long it took.
        """
        self._log.write("init", {"name": str(name), "seconds": float(seconds)})

    # --- end ----------------------------------------------------------------------------------

    def close(self, exception: BaseException | None = None) -> None:
        """Remove the hooks and end the log; a step that is open is marked as disturbed.

        Parameters
        ----------
        exception
            What ended the training, if it did not end by itself.
        """
        if self._closed:
            return
        try:
            if self._in_step:
                self.end_step(disturbed_by="exception" if exception else "close")
            self._phases.close()
            end = {"n_steps": self._step + 1, **clocks(), "layers_missing": self._calls.given_up}
            end["exception"] = None if exception is None else type(exception).__name__
            self._log.write("end", {key: value for key, value in end.items() if value is not None})
        finally:
            self._closed = True
            self._let_go()
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(exception)

    # --- inside -------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """Leave the model and the optimizer as they were, and keep neither."""
        self._calls.remove()
        self._network.watched.clear()
        for handle in self._handles:
            handle.remove()

    def _make_stamps(self) -> None:
        append = self._stamps.append
        if self._cuda is None:
            self._stamp, self._stamp_elsewhere = host_stamp(append), foreign_stamp(append)
        else:
            self._stamp = self._stamp_elsewhere = device_stamp(append, self._cuda)

    def _check_step(self) -> None:
        if not self._in_step:
            raise RuntimeError("no step is open")

    def _leave_step(self) -> Capture | None:
        """No more stamps; returns what captured shapes in this step, if anything did."""
        self._calls.recording = self._reductions.recording = self._in_step = False
        capture, self._calls.capture = self._calls.capture, None
        if capture is not None:
            capture.stop()
        self._calls.end_step()
        return capture

    def _follow_phases(self) -> None:
        self._calls.in_phase = self._phases.is_open
        self._calls.recording = self._in_step and self._phases.is_training

    def _optimizer_begins(self, *_: Any) -> None:
        if self._in_step and not self._phases.holds("optimizer"):
            self.begin_phase("optimizer")
            self._in_optimizer = True

    def _optimizer_ends(self, *_: Any) -> None:
        if self._in_optimizer:
            self._in_optimizer = False
            self.end_phase("optimizer")

    def _number_of_shapes(self, capture: Capture | None) -> int | None:
        """Number of the set of shapes that this step had; None if it is not measured."""
        calls = self._calls.outermost
        if not calls:
            return None
        key: Any = calls[0] if len(set(calls)) == 1 else tuple(calls)
        if capture is not None and not capture.has_failed and self._shapes.get(key) is None:
            number = sum(known is not None for known in self._shapes.values())
            self._shapes[key] = number
            self._log.write("shapes", {"shapes": number, **capture.result(calls)})
        elif key not in self._shapes and len(self._shapes) < _MAX_SHAPES:
            self._shapes[key] = None
            self._capture_next = True  # perhaps the next step has these shapes, too
        return self._shapes.get(key)


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError("the recorder needs PyTorch: pip install fitkit[torch]") from error
    return torch


def _listed(optimizer: Any) -> list[Any]:
    if optimizer is None:
        return []
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
