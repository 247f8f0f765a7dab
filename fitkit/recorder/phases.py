"""Phases: those of the open step, and those outside of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fitkit.recorder.stamps import PHASE, PHASE_END, Stamp, code_of
from fitkit.records import PHASES

# In these the network may run, but it does not train.
_NOT_TRAINING = frozenset(("eval", "checkpoint", "init", "staging"))
_BEGIN = {name: code_of(PHASE, index) for index, name in enumerate(PHASES)}
_END = {name: code_of(PHASE_END, index) for index, name in enumerate(PHASES)}


class Phases:
    """Keeps the phases that are open, and the waits for the data of the next step.

    Parameters
    ----------
    stamps
        Stamps of the open step.
    stamp
        Adds one to them.
    write
        Writes a line of the log.

    Attributes
    ----------
    early
        Stamps of waits for the data of the next step.
    """

    def __init__(
        self,
        stamps: list[Stamp],
        stamp: Callable[[int], None],
        write: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._stamps, self._stamp, self._write = stamps, stamp, write
        self._open: list[str] = []  # of the step
        self._around: list[tuple[str, Stamp]] = []  # outside of steps, with their begin
        self.early: list[Stamp] = []

    @property
    def is_open(self) -> bool:
        """Whether a phase of the step is open."""
        return bool(self._open)

    @property
    def is_training(self) -> bool:
        """Whether none is open in which the network runs without being trained."""
        return _NOT_TRAINING.isdisjoint(self._open)

    def holds(self, name: str) -> bool:
        """Whether this phase of the step is open."""
        return name in self._open

    def begin(self, name: str, in_step: bool) -> None:
        """Begin a phase.

        Raises
        ------
        ValueError
            If the name is not one of ``fitkit.records.PHASES``.
        """
        if name not in _BEGIN:
            raise ValueError(f"no phase {name!r}; one of {', '.join(PHASES)}")
        if in_step:
            self._open.append(name)
            self._stamp(_BEGIN[name])
        else:
            self._around.append((name, self._mark(_BEGIN[name])))

    def end(self, name: str | None = None) -> None:
        """End the innermost phase that is open.

        Raises
        ------
        RuntimeError
            If none is, or another one than the name says.
        """
        innermost = self._open[-1] if self._open else self._around[-1][0] if self._around else None
        if innermost is None or name not in (None, innermost):
            raise RuntimeError(f"the phase that is open is {innermost}")
        if self._open:
            self._stamp(_END[self._open.pop()])
        else:
            self._end_around()

    def end_step(self) -> None:
        """End what an exception, or the user, left open in the step."""
        while self._open:
            self.end()

    def drop_step(self) -> None:
        """Forget the phases of the step, and the waits for its data."""
        self._open.clear()
        self.early.clear()

    def close(self) -> None:
        """End those outside of steps."""
        while self._around:
            self._end_around()
        self._write_early()

    def wait_in_vain(self) -> None:
        """End a wait for data that did not come: it belongs to no step."""
        n_early = len(self.early)
        self.end("io")
        del self.early[n_early:]

    def _mark(self, code: int) -> Stamp:
        """A stamp that is not one of the open step."""
        self._stamp(code)
        return self._stamps.pop()

    def _end_around(self) -> None:
        name, begin = self._around.pop()
        end = self._mark(_END[name])
        around = [other for other, _ in self._around]
        if name == "io" and _NOT_TRAINING.isdisjoint(around):
            self.early += [begin, end]
            return
        self._write_early()  # the step that it was for comes later: this is no part of its time
        self._write_phase(name, around[-1] if around else None, begin, end)

    def _write_early(self) -> None:
        for begin, end in zip(self.early[::2], self.early[1::2], strict=True):
            self._write_phase("io", None, begin, end)
        self.early.clear()

    def _write_phase(self, name: str, parent: str | None, begin: Stamp, end: Stamp) -> None:
        line = {"phase": name, "start_ns": begin[1], "wall_ns": end[1] - begin[1]}
        line["cpu_ns"] = end[2] - begin[2]
        self._write("phase", {**line, "parent": parent} if parent else line)
