"""OnDemand: a value for each group, computed when it is first read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from fitkit.models.columns import Key
from fitkit.parallel import one_thread

V = TypeVar("V")


class OnDemand(Mapping[Key, V], Generic[V]):
    """A value for each group, computed once, when it is first read.

    Parameters
    ----------
    groups
        Keys, in order.
    compute
        From a key to its value; None of a group that has none, which is not here then.
    """

    def __init__(self, groups: Iterable[Key], compute: Callable[[Key], V | None]) -> None:
        self._compute = compute
        self._unread = dict.fromkeys(groups)
        self._groups = tuple(self._unread)
        self._read: dict[Key, V | None] = {}

    def read(self, groups: Iterable[Key]) -> None:
        """Compute what is not known yet of these groups."""
        new = [key for key in dict.fromkeys(groups) if key in self._unread]
        if new:
            with one_thread():
                for key in new:
                    self._read[key] = self._compute(key)
                    del self._unread[key]

    def __getitem__(self, key: Key) -> V:
        self.read([key])
        value = self._read[key]
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[Key]:
        self.read(self._groups)
        return (key for key in self._groups if self._read[key] is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
