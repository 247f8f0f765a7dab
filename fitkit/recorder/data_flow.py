"""The layer graph: which layer's data enter which other layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class _Made(NamedTuple):
    """Who made the data of a storage: the number of the call, and its module."""

    call: int
    module: int
    storage: Any  # a weak reference, which keeps its address from being used again


class DataFlow:
    """Follows data from the outputs of leaves, modules that call no other one, to their inputs.

    A leaf makes what it returns. An operation between leaves passes on what it takes; where it
    joins the data of several leaves, as a residual connection does, it counts as a part of the
    last of them, which the others then feed. So the graph has no more edges than the network has
    connections, and what crosses a cut through it is what crosses that cut through the network.

    Attributes
    ----------
    edges
        Bytes from one module to another, all calls together.
    """

    def __init__(self) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self.edges: dict[tuple[int, int], int] = {}
        self._weak_reference = StorageWeakRef
        self._made: dict[int, _Made] = {}
        self._n_calls = 0
        self._joined: list[tuple[_Made, _Made, int, int]] = []  # from, to, storage, bytes
        self._moved: set[tuple[int, int, int]] = set()

    def mark(self) -> int:
        """Where the flow is; `call` takes back what has been joined since."""
        return len(self._joined)

    def operate(self, taken: list[Any], made: Iterable[Any]) -> None:
        """An operator has made tensors of others."""
        known = [(tensor, maker) for tensor in taken if (maker := self._maker(tensor))]
        last = max((maker for _, maker in known), default=None, key=lambda maker: maker.call)
        for tensor, maker in known:
            if last is not None and maker.call != last.call:
                self._joined.append((maker, last, _storage_of(tensor), n_bytes_of(tensor)))
        for tensor in made:
            self._set(tensor, last)

    def call(self, module: int, taken: list[Any], made: list[Any], mark: int) -> None:
        """A leaf has returned; what it joined within is its own affair."""
        del self._joined[mark:]
        self._n_calls += 1
        called = _Made(self._n_calls, module, None)
        for tensor in taken:
            if maker := self._maker(tensor):
                self._joined.append((maker, called, _storage_of(tensor), n_bytes_of(tensor)))
        for tensor in made:
            self._set(tensor, called)

    def forget(self) -> None:
        """Settle the edges, and let go of the storages."""
        for maker, taker, storage, n_bytes in self._joined:
            move = maker.call, taker.call, storage
            if move in self._moved:  # it is there already
                continue
            self._moved.add(move)
            edge = maker.module, taker.module
            self.edges[edge] = self.edges.get(edge, 0) + n_bytes
        self._joined.clear()
        self._made.clear()

    def _maker(self, tensor: Any) -> _Made | None:
        return self._made.get(_storage_of(tensor))

    def _set(self, tensor: Any, made: _Made | None) -> None:
        address = _storage_of(tensor)
        if made is None:
            self._made.pop(address, None)
        elif address:
            reference = self._weak_reference(tensor.untyped_storage())
            self._made[address] = made._replace(storage=reference)


def n_bytes_of(tensor: Any) -> int:
    """Bytes of a tensor's elements; 0 of one that does not say."""
    try:
        return int(tensor.numel() * tensor.element_size())
    except (RuntimeError, NotImplementedError, AttributeError):
        return 0


def _storage_of(tensor: Any) -> int:
    """Address of what a tensor's elements lie in; 0 if they lie in several places."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, AttributeError):
        return 0
