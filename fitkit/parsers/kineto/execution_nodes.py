"""The nodes of an execution trace as they stand in the file, read piece by piece.

A piece of many nodes is decoded at once. Where that fails, because the file is cut or damaged or
an old PyTorch wrote ``inf`` as it is, nodes are taken one by one, and only those are repaired or
left out that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

PIECE_BYTES = 4 << 20
MAX_NODE_BYTES = 16 << 20
"""A node that is longer is taken to be damaged."""
_MAX_HEAD = 16 << 20
_NODES = re.compile(rb'"nodes"\s{0,64}:\s{0,64}\[')
_FIRST_KEY = re.compile(rb'\s{0,64}\{\s{0,64}"([a-z_]{1,40})"')
_RECORD = re.compile(rb'"rf_id"')
_FILLING = re.compile(rb"[\s,]*+")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?P<end>"?)|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL)
# Figures that are none; inside of a text they would be lost, so only damaged nodes are searched.
_WORDS = re.compile(
    rb"(?<=[\[,:])\s{0,64}-?(?:inf|nan|infinity|N/A)(?=\s{0,64}[,\]}])", re.IGNORECASE
)
_END = re.compile(rb'\}\s{0,64}(\])\s{0,64}(?:,\s{0,64}"[^"\n]{1,200}"\s{0,64}:|\}\s{0,64}$)')


class Values(msgspec.Struct, gc=False):
    """Inputs or outputs of schema 1.1.1."""

    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []


class Attribute(msgspec.Struct, gc=False):
    """An attribute of schema 1.1.1."""

    name: str
    value: Any = None


class RawNode(msgspec.Struct, gc=False):
    """A node of either schema."""

    id: int
    name: str
    inputs: Values | list[Any] = []
    outputs: Values | list[Any] = []
    # schema 1.1.1
    ctrl_deps: int | None = None
    attrs: list[Attribute] = []
    # schema 1.0.1
    parent: int | None = None
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0
    op_schema: str = ""
    input_shapes: list[Any] = []
    input_types: list[str] = []
    output_shapes: list[Any] = []
    output_types: list[str] = []


_DECODER = msgspec.json.Decoder(list[RawNode])


def recognises_nodes(head: bytes) -> bool:
    """Whether a file that begins so is an execution trace."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    array = _NODES.search(head)
    if array is None or b'"traceEvents"' in head:
        return False
    return bool(_RECORD.search(head, array.end()))


class _Window:
    """What is in memory of a file that is read from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.text = b""
        self.is_last = False  # whether it reaches to the end of the file
        self.damage = ""
        self._blocks = blocks

    def fill(self, n_bytes: int) -> None:
        """Read on until so many bytes are in memory, or the file ends."""
        parts, n = [self.text], len(self.text)
        while n < n_bytes and not self.is_last:
            try:
                block = next(self._blocks, b"")
            except EOFError as error:
                block, self.damage = b"", str(error)
            self.is_last = not block
            parts.append(block)
            n += len(block)
        self.text = b"".join(parts)

    def drop(self, n_bytes: int) -> None:
        """Forget the first bytes."""
        self.text = self.text[n_bytes:]


class NodeArray:
    """Iterates over the nodes of a file.

    Attributes
    ----------
    metadata
        What stands around the array, known after the last node.
    n_repaired, n_lost
        Nodes.
    has_ended
        Whether the end of the array was found.
    damage
        Why a compressed file ends early; empty if it does not.
    """

    def __init__(self, blocks: Iterator[bytes], piece_bytes: int = PIECE_BYTES) -> None:
        self.metadata: dict[str, Any] = {}
        self.n_repaired = self.n_lost = 0
        self.has_ended = False
        self._window, self._piece_bytes = _Window(blocks), piece_bytes
        self._between = _FILLING
        self._reach = MAX_NODE_BYTES

    @property
    def damage(self) -> str:
        """Why a compressed file ends early."""
        return self._window.damage

    def find(self) -> bool:
        """Move to the first node; False if the file has no array of nodes."""
        window = self._window
        while True:
            window.fill(len(window.text) + self._piece_bytes)
            array = _NODES.search(window.text)
            if array and (window.is_last or len(window.text) > array.end() + 1024):
                break
            if window.is_last or len(window.text) > _MAX_HEAD:
                return False
        self.metadata = _object(window.text[: array.start()].rstrip(b", \t\r\n") + b"}")
        window.drop(array.end())
        key = _FIRST_KEY.match(window.text)
        name = re.escape(key[1]) if key else b"id|name"
        # Every node begins with the same key.
        self._between = re.compile(
            rb'\}\s{0,64},\s{0,64}(?=\{\s{0,64}"(?:' + name + rb')"\s{0,64}:)'
        )
        return True

    def __iter__(self) -> Iterator[RawNode]:
        window = self._window
        wanted = self._piece_bytes
        while not self.has_ended:
            window.fill(wanted)
            text = window.text
            cut = self._cut(text)
            nodes = _decoded(text[:cut]) if cut else None
            if nodes is None and (window.is_last or len(text) > MAX_NODE_BYTES):
                cut = len(text)
            if nodes is None:
                cut = yield from self._one_by_one(text, cut)
            elif window.is_last:
                self.has_ended, cut = True, cut + 1
            yield from nodes or ()
            if window.is_last and not self.has_ended:
                return
            window.drop(cut)
            wanted = self._piece_bytes + (0 if cut else len(text))
        self._read_tail()

    def _cut(self, text: bytes) -> int:
        """Where the last whole node seems to end: before the end of the array or another node."""
        pattern, place = (_END, 1) if self._window.is_last else (self._between, 0)
        cut = 0
        for found in pattern.finditer(text):
            cut = found.start(place) + 1 - place
        return cut

    def _one_by_one(self, text: bytes, cut: int) -> Generator[RawNode, None, int]:
        """Nodes of a text that cannot be decoded as a whole; returns up to where it is read."""
        is_last = self._window.is_last
        at = _filled(text, 0)
        while at < cut:
            if text.startswith(b"]", at):
                self.has_ended = True
                return at + 1
            end = _element_end(text, at, self._reach)
            nodes = self._repaired(text[at:end]) if end else None
            if nodes is None:
                if not end and not is_last and len(text) - at < self._reach:
                    return at  # it goes on beyond the text
                following = self._between.search(text, at)
                if not end and following is None:
                    return at if is_last else len(text)
                end = following.end() if following else end
                self.n_lost += 1
                self._reach = max(self._reach // 2, 1 << 16)  # long nodes are less likely now
            yield from nodes or ()
            at = _filled(text, end)
        return at

    def _repaired(self, text: bytes) -> list[RawNode] | None:
        """A node, or none; figures that are none become null if nothing else helps."""
        nodes = _decoded(text)
        if nodes is None:
            nodes = _decoded(_WORDS.sub(b"null", text))
            self.n_repaired += nodes is not None
        return nodes

    def _read_tail(self) -> None:
        self._window.fill(_MAX_HEAD)
        self.metadata |= _object(b'{"nodes":[]' + self._window.text)
        self.metadata.pop("nodes", None)


def _decoded(text: bytes) -> list[RawNode] | None:
    """Nodes between commas; None if that is not what the text is."""
    try:
        return _DECODER.decode(b"[" + text.strip(b", \t\r\n") + b"]")
    except (msgspec.DecodeError, RecursionError):
        return None


def _object(text: bytes) -> dict[str, Any]:
    """A JSON object, empty if it is none."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _filled(text: bytes, at: int) -> int:
    """The next place with something other than blanks and commas."""
    filling = _FILLING.match(text, at)
    return filling.end() if filling else at


def _element_end(text: bytes, at: int, reach: int) -> int:
    """Where the object ends that begins at a place; 0 if it does not within reach."""
    if not text.startswith(b"{", at):
        return 0
    depth = 0
    for token in _TOKEN.finditer(text, at, at + reach):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif not token["end"]:
            return 0
        if not depth:
            return token.end()
    return 0
