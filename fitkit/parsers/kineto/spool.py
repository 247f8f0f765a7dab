"""Events on disk, read back by time: what does not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from types import TracebackType

import numpy as np

from fitkit.parsers.kineto.events import EVENT

_STRIDE = 512  # of so many rows the start of one stays in memory


class Spool:
    """A temporary file of events; use it in a ``with`` statement.

    Each batch is sorted by start and written behind the others, so that a window of time is a
    range of rows of each batch.

    Attributes
    ----------
    n_events
        How many it holds.
    """

    def __init__(self) -> None:
        self.n_events = 0
        self._file = tempfile.TemporaryFile(prefix="fitkit-")  # noqa: SIM115 - see close
        self._parts: list[_Part] = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def append(self, batch: np.ndarray) -> None:
        """Add events, an array of `EVENT`."""
        if not len(batch):
            return
        rows = batch[np.argsort(batch["start_ns"], kind="stable")]
        self._parts.append(_Part(self.n_events, rows))
        self._file.seek(self.n_events * EVENT.itemsize)
        self._file.write(rows.data)
        self.n_events += len(rows)

    def window(
        self, start_ns: int, end_ns: int, categories: Collection[int] | None = None
    ) -> np.ndarray:
        """Events that start in a window of time, sorted by start; equals in the order added.

        Parameters
        ----------
        start_ns, end_ns
            From the first instant on, and before the second.
        categories
            Only events of these.
        """
        found = [np.zeros(0, dtype=EVENT)]
        for part in self._parts:
            first, last = part.range_of(start_ns, end_ns)
            if first >= last:
                continue
            rows = self._read(part.first + first, last - first)
            wanted = (rows["start_ns"] >= start_ns) & (rows["start_ns"] < end_ns)
            if categories is not None:
                wanted &= np.isin(rows["category"], list(categories))
            found.append(rows[wanted])
        rows = np.concatenate(found)
        return rows[np.argsort(rows["start_ns"], kind="stable")]

    def _read(self, first: int, n: int) -> np.ndarray:
        self._file.seek(first * EVENT.itemsize)
        return np.frombuffer(self._file.read(n * EVENT.itemsize), dtype=EVENT)


class _Part:
    """Where the rows of one batch are."""

    def __init__(self, first: int, rows: np.ndarray) -> None:
        self.first, self.n = first, len(rows)
        self.fences = rows["start_ns"][::_STRIDE].copy()
        self.end_ns = int(rows["start_ns"][-1])

    def range_of(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Rows among which those of a window are."""
        if start_ns > self.end_ns or end_ns <= self.fences[0]:
            return 0, 0
        first = int(np.searchsorted(self.fences, start_ns, "left")) - 1
        last = int(np.searchsorted(self.fences, end_ns, "left"))
        return max(first, 0) * _STRIDE, min(last * _STRIDE, self.n)
