"""What a parser is given and what it must offer: sources, their lines, and their problems."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast
from zipfile import BadZipFile, ZipFile
from zoneinfo import ZoneInfo

import pyarrow as pa

from fitkit.errors import ParseError
from fitkit.records import Diagnostic, Record, Run

HEAD_BYTES = 1 << 20
# Small: what the last read of a cut zstd file would have returned is lost with it.
_BLOCK = 1 << 16
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # without members
}
_TAR, _TAR_AT = b"ustar", 257  # mark of a tar archive, and where in its first header it is
_BOM = b"\xef\xbb\xbf"  # some programs of Windows begin a text with it
_UNPACK = "unpack it and name what is inside"
# Folders, and what macOS adds to a zip file.
_NO_MEMBER = re.compile(r"/$|^__MACOSX/")
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class SourceFile:
    """One file of a source.

    Attributes
    ----------
    path
        Where it is on this machine.
    label
        Its path relative to the argument that led to it: what messages and tables show.
    """

    path: Path
    label: str

    @property
    def name(self) -> str:
        """File name without a compression suffix."""
        return re.sub(r"\.(?:gz|zst|zip)$", "", self.path.name)

    @property
    def packing(self) -> str | None:
        """``gzip``, ``zstd``, ``zip`` or None; told from the content, not from the name."""
        with self.path.open("rb") as raw:
            magic = raw.read(4)
        return next((kind for mark, kind in _PACKED.items() if magic.startswith(mark)), None)

    def blocks(self, n_bytes: int | None = None) -> Iterator[bytes]:
        """Decompressed content in blocks; ends early where a compressed file is cut.

        Parameters
        ----------
        n_bytes
            Size of a block. What can be read of a damaged zstd file ends with a whole one.

        Raises
        ------
        EOFError
            After the last readable block of a compressed file that is cut or damaged.
        ParseError
            If it is a zip file that cannot be opened, or has not exactly one member; or a tar
            archive.
        """
        packing, is_first = self.packing, True
        with self._open(packing) as stream:
            while True:
                try:
                    # Unlike read(), read1() gives out what precedes the damage.
                    block = stream.read1(n_bytes or _BLOCK)
                except (EOFError, OSError, zlib.error, BadZipFile) as error:
                    if packing is None:
                        raise
                    raise EOFError(f"the {packing} file ends early or is damaged") from error
                if not block:
                    return
                if is_first and block[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
                    raise ParseError(self.label, 0, "a tar archive", _UNPACK)
                is_first = False
                yield block

    def _open(self, packing: str | None) -> AbstractContextManager[Any]:
        if packing == "gzip":
            return gzip.open(self.path, "rb")
        if packing == "zstd":
            return cast("BinaryIO", pa.input_stream(str(self.path), compression="zstd"))
        return self._member() if packing == "zip" else self.path.open("rb")

    @contextmanager
    def _member(self) -> Iterator[IO[bytes]]:
        """The only member of a zip file."""
        with ExitStack() as opened:
            try:
                archive = opened.enter_context(ZipFile(self.path))
                names = [name for name in archive.namelist() if not _NO_MEMBER.search(name)]
                stream = opened.enter_context(archive.open(names[0])) if len(names) == 1 else None
            except (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
                raise ParseError(self.label, 0, f"cannot unpack it: {error}", _UNPACK) from error
            if stream is None:
                what = f"a zip file of {len(names)} files; one alone can be read"
                raise ParseError(self.label, 0, what, _UNPACK)
            yield stream

    def head(self, n_bytes: int = HEAD_BYTES) -> bytes:
        """The beginning, decompressed; what can be read of it if the file is damaged.

        It does not begin with a byte order mark, which would hide what the file is.
        """
        parts = bytearray()
        with suppress(EOFError):  # a damaged tail must not hide what the file is
            for block in self.blocks():
                parts += block
                if len(parts) >= n_bytes + len(_BOM):
                    break
        return bytes(parts.removeprefix(_BOM)[:n_bytes])

    def digest(self, n_bytes: int | None = None) -> tuple[str, int]:
        """SHA-256 and length of the content, or of its first ``n_bytes``."""
        sha, total = hashlib.sha256(), 0
        with suppress(EOFError):  # the readable part identifies the file; parsing reports the rest
            for block in self.blocks():
                part = block if n_bytes is None else block[: n_bytes - total]
                sha.update(part)
                total += len(part)
                if n_bytes is not None and total >= n_bytes:
                    break
        return sha.hexdigest(), total


def _ended_lines(parts: list[bytes], block: bytes) -> list[bytes]:
    """Lines that end in this block; ``parts`` keeps the pieces of the one that does not."""
    if parts and parts[-1] == b"\r":  # held back below: the block decides what it ends
        block = parts.pop() + block
    held = [b"\r"] if block.endswith(b"\r") else []
    block = block[: len(block) - len(held)]
    first, *others = _LINE_END.split(block) if b"\r" in block else block.split(b"\n")
    parts.append(first)
    lines = []
    if others:
        lines = [b"".join(parts), *others[:-1]]
        parts[:] = others[-1:]
    parts += held
    return lines


def _decoded(line: bytes, number: int) -> str:
    """Text of a line; of the first one without a byte order mark."""
    return (line.removeprefix(_BOM) if number == 1 else line).decode("utf-8", "replace")


class ProblemLog:
    """Collects what a parser found odd, and decides whether a bad line is fatal.

    Parameters
    ----------
    skip_bad_lines
        Count and report a line that looks like ours but cannot be read, instead of raising.
    """

    def __init__(self, skip_bad_lines: bool = False) -> None:
        self.skip_bad_lines = skip_bad_lines
        self.notes: list[tuple[str, int | None, str, str]] = []
        # The last line of a file that does not end in a line end: it may be cut, which is normal.
        self.unfinished: tuple[str, int] | None = None

    def note(self, file: SourceFile | str, line: int | None, code: str, text: str) -> None:
        """Record something that the reader should know."""
        label = file if isinstance(file, str) else file.label
        self.notes.append((label, line, code, text[:500]))

    def may_be_cut(self, file: SourceFile, line: int) -> bool:
        """Whether the line is the last of a file that does not end in a line end."""
        return self.unfinished == (file.label, line)

    def bad_line(self, file: SourceFile, line: int, text: str) -> None:
        """Report a line that looks like ours but cannot be read.

        A last line without a line end is what a killed run or a running one leaves: it is noted
        as ``truncated`` and never fatal.

        Raises
        ------
        ParseError
            Unless bad lines are to be skipped.
        """
        if self.may_be_cut(file, line):
            self.note(file, line, "truncated", f"the log ends inside this line: {text.strip()}")
            return
        if not self.skip_bad_lines:
            raise ParseError(
                file.label, line, f"cannot read: {text.strip()[:120]}",
                "--on-bad-lines skip reads the rest and counts such lines",
            )  # fmt: skip
        self.note(file, line, "bad_line", text)

    def records(self, source_id: str) -> list[Diagnostic]:
        """The notes as rows of the table ``diagnostics``."""
        return [Diagnostic(source_id, *note) for note in self.notes]


@dataclass(frozen=True)
class Source:
    """What is ingested whole or not at all: one file, or the family of files of one run.

    Attributes
    ----------
    label
        Folder or file, relative to the argument that led to it.
    files
        Its files.
    metadata
        What ``run.toml`` and ``--set`` say: columns of ``runs``, and ``tz``.
    problems
        Where the parser reports what it finds odd.
    """

    label: str
    files: tuple[SourceFile, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    problems: ProblemLog = field(default_factory=ProblemLog)

    @cached_property
    def digests(self) -> tuple[tuple[str, str, int], ...]:
        """Sorted ``(name, SHA-256, bytes)`` of its files, decompressed."""
        return tuple(sorted((file.name, *file.digest()) for file in self.files))

    @cached_property
    def source_id(self) -> str:
        """SHA-256 over the sorted pairs of file name and content hash."""
        pairs = [(name, sha) for name, sha, _ in self.digests]
        return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()

    @property
    def run_id(self) -> str:
        """Identifier of its run, unless the log states one."""
        return self.source_id[:16]

    @property
    def tz(self) -> tzinfo | None:
        """Zone of the local time stamps in it, if the user said."""
        name = self.metadata.get("tz")
        return ZoneInfo(name) if name else None

    def utc(self, local: datetime | None) -> datetime | None:
        """A local time stamp of the log in UTC; None when nobody said which zone it is.

        Raises
        ------
        OverflowError
            On the first and the last day that there is.
        """
        if local is None or self.tz is None:
            return None
        return local.replace(tzinfo=self.tz).astimezone(UTC)

    def lines(self, file: SourceFile) -> Iterator[tuple[int, str]]:
        r"""Yield ``(line number, text)``, split at ``\n``, ``\r\n`` or a lone ``\r``.

        Bytes that are not UTF-8 become the replacement character, and a byte order mark is left
        out. A compressed file that is cut yields what is there and leaves a diagnostic
        ``truncated``.
        """
        number = 0
        parts: list[bytes] = []
        try:
            for block in file.blocks():
                for line in _ended_lines(parts, block):
                    number += 1
                    yield number, _decoded(line, number)
        except EOFError as error:
            self.problems.note(file, number + 1, "truncated", str(error))
        rest = b"".join(parts)
        if rest.endswith(b"\r"):
            yield number + 1, _decoded(rest[:-1], number + 1)
        elif rest:
            self.problems.unfinished = (file.label, number + 1)
            yield number + 1, _decoded(rest, number + 1)

    def read_json(self, file: SourceFile) -> Any:
        """Decode a JSON file; of a list that is cut, what is there up to its last whole entry.

        Raises
        ------
        ParseError
            If it is not JSON.
        """
        buffer = io.BytesIO()
        try:
            for block in file.blocks():
                buffer.write(block)
        except EOFError as error:
            self.problems.note(file, None, "truncated", str(error))
        text = _decoded(buffer.getvalue(), 1)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            whole = text[: text.rfind("}") + 1]
            if whole.lstrip().startswith("["):
                with suppress(ValueError, RecursionError):
                    entries = json.loads(whole + "]")
                    self.problems.note(file, None, "truncated", f"the list is cut: {error}")
                    return entries
            raise ParseError(file.label, 0, f"not valid JSON: {error}") from error

    def with_metadata(self, metadata: Mapping[str, Any]) -> Source:
        """The same files with other metadata; their hashes are not computed again."""
        source = replace(self, metadata=metadata)
        if "digests" in self.__dict__:
            source.__dict__["digests"] = self.digests
        return source

    def complete(self, run: Run) -> Run:
        """Let the user's metadata win over what the log says; a conflict is a diagnostic."""
        changes = {
            key: value for key, value in self.metadata.items() if hasattr(run, key) and key != "tz"
        }
        for key, value in changes.items():
            logged = getattr(run, key)
            if logged is not None and logged != value:
                self.problems.note(
                    self.label, None, "metadata_conflict",
                    f"{key}: the log says {logged!r}, run.toml or --set says {value!r}",
                )  # fmt: skip
        return replace(run, **changes)


class Parser(Protocol):
    """What a log format must offer; one class each, listed in ``PARSERS``."""

    name: str
    version: int

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins so (first MiB, decompressed) is of this format."""

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Split recognised files into the families that are one run each."""

    def parse(self, source: Source) -> Iterator[Record | pa.Table]:
        """Yield the records of one source; many of a table may come as an Arrow table of them.

        Raises
        ------
        ParseError
            If a file, or a line that looks like ours, cannot be read.
        """


def group_by_file(files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Families for formats where one file is one run, or holds several of its own."""
    return [(file,) for file in files]


def group_by_folder(files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Families for formats where one run is one folder."""
    folders: dict[Path, list[SourceFile]] = {}
    for file in files:
        folders.setdefault(file.path.parent, []).append(file)
    return [tuple(sorted(family, key=lambda f: f.name)) for family in folders.values()]
