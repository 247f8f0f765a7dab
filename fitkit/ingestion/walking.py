"""The files below paths: folders, patterns and links, each file once, whatever the order."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from fitkit.dataset import is_dataset
from fitkit.errors import InputError
from fitkit.ingestion.metadata import SIDE_FILE
from fitkit.parsers import SourceFile

Problem = tuple[str, InputError | OSError]
_MAGIC = set("*?[")
_MISSING = "no such file or folder"


def find_files(
    arguments: Sequence[Path | str], dataset: Path, mapping: Path | str | None = None
) -> tuple[list[SourceFile], list[Problem]]:
    """Files that the arguments lead to, in the order of their labels, and what is in the way.

    Datasets, hidden files, side files and the mapping are passed over.

    Raises
    ------
    InputError
        If an argument leads nowhere, or all of them lead to nothing.
    """
    walk = _Walk(dataset, mapping)
    for argument in arguments:
        walk.follow(argument)
    files = walk.files()
    if not files and not walk.problems:
        names = ", ".join(map(str, arguments))
        raise InputError(f"{names}: nothing to ingest", "name logs, or a folder that holds some")
    if not files and len(walk.problems) == 1 and isinstance(walk.problems[0][1], InputError):
        raise walk.problems[0][1]
    return files, walk.problems


class _Walk:
    """Collects the files of several arguments."""

    def __init__(self, dataset: Path, mapping: Path | str | None) -> None:
        self.dataset = os.path.realpath(dataset)
        self.mapping = os.path.realpath(mapping) if mapping is not None else ""
        self.problems: list[Problem] = []
        # Real folder → how to show it, and the way to it, along which side files lie.
        self._routes: dict[str, tuple[int, str, str]] = {}
        self._entries: set[tuple[str, str]] = set()

    def files(self) -> list[SourceFile]:
        """What was found. A file reached in several ways counts once, links after the file."""
        found: dict[str, tuple[bool, int, SourceFile]] = {}
        for folder, name in sorted(self._entries):
            _, shown, way = self._routes[folder]
            path, label = Path(way, name), Path(shown, name).as_posix()
            file = SourceFile(path, os.fsencode(label).decode("utf-8", "replace"))
            rank = (not path.is_symlink(), len(label), file)
            real = os.path.realpath(path)
            if real not in found or rank[:2] > found[real][:2]:
                found[real] = rank
        return sorted((file for *_, file in found.values()), key=lambda f: (f.label, f.path))

    def follow(self, argument: Path | str) -> None:
        """Find the files of one argument."""
        path = Path(argument)
        if path.is_dir():
            if not self._add_folder(path, path) and not self._is_passed_over(path):
                error = InputError(f"{path}: a folder without files", "name one that holds logs")
                self.problems.append((str(path), error))
        elif path.is_file():
            self._add([path], path.parent)
        else:
            self._add_matches(path)

    def _add_matches(self, pattern: Path) -> None:
        """Below a pattern, labels keep what follows its part without wildcards."""
        plain = list(takewhile(lambda part: not _MAGIC & set(part), pattern.parts))
        rest = pattern.parts[len(plain) :]
        if not rest:
            what = "neither a file nor a folder" if os.path.lexists(pattern) else _MISSING
            raise InputError(f"{pattern}: {what}", "check the path")
        root = Path(*plain)
        wants_hidden = any(part.startswith(".") for part in rest)
        matches = [
            match
            for match in sorted(root.glob(str(Path(*rest))))
            if wants_hidden or not _is_hidden(match.relative_to(root))
        ]
        if not matches:
            raise InputError(f"{pattern}: nothing matches it", "check the path")
        for match in matches:
            if match.is_dir():
                self._add_folder(match, root)
            elif match.is_file():
                self._add([match], root)

    def _add(self, paths: Iterable[Path], root: Path) -> bool:
        """Add files with labels relative to ``root``; whether there were any."""
        found = False
        for path in paths:
            if path.name == SIDE_FILE or self._is_mapping(path):
                continue
            found = True
            folder, shown = os.path.realpath(path.parent), path.parent.relative_to(root)
            route = (len(shown.parts), shown.as_posix(), str(path.parent.absolute()))
            self._routes[folder] = max(route, self._routes.get(folder, route))
            self._entries.add((folder, path.name))
        return found

    def _is_mapping(self, path: Path) -> bool:
        return bool(self.mapping) and os.path.realpath(path) == self.mapping

    def _add_folder(self, folder: Path, root: Path) -> bool:
        return self._add(self._below(folder), root)

    def _is_passed_over(self, folder: Path) -> bool:
        return os.path.realpath(folder) == self.dataset or is_dataset(folder)

    def _below(self, top: Path) -> Iterator[Path]:
        """Files below a folder: each folder once, and those behind links last."""
        seen: set[str] = set()
        folders, links = [top], list[Path]()
        while folders or links:
            folder = folders.pop() if folders else links.pop(0)
            real = os.path.realpath(folder)
            if real in seen or self._is_passed_over(folder):
                continue
            seen.add(real)
            for entry, is_folder in self._entries_of(folder):
                if is_folder:
                    (links if entry.is_symlink() else folders).append(folder / entry.name)
                else:
                    yield folder / entry.name

    def _entries_of(self, folder: Path) -> Iterator[tuple[os.DirEntry[str], bool]]:
        """Files and folders in a folder; True for a folder."""
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append((str(folder), error))
            return
        for entry in entries:
            try:
                is_folder = entry.is_dir()
                is_wanted = is_folder or entry.is_file()
            except OSError as error:  # a link that leads to itself, or where we may not look
                if error.errno != errno.ELOOP:
                    self.problems.append((str(folder / entry.name), error))
                continue
            if is_wanted and not entry.name.startswith("."):
                yield entry, is_folder


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
