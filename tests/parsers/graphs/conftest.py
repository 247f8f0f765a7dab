"""Reads graphs of networks, for the tests of their formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers import ProblemLog, Source, SourceFile, identify, parser_named
from fitkit.records import Edge, Layer, Phase, Record, Run


@dataclass(frozen=True)
class Found:
    """Records of a file, and what was noted."""

    records: list[Record]
    problems: ProblemLog

    @property
    def runs(self) -> list[Run]:
        """Its runs."""
        return [record for record in self.records if isinstance(record, Run)]

    @property
    def layers(self) -> list[Layer]:
        """Rows of its layers."""
        return [record for record in self.records if isinstance(record, Layer)]

    @property
    def edges(self) -> list[Edge]:
        """Its edges."""
        return [record for record in self.records if isinstance(record, Edge)]

    @property
    def phases(self) -> list[Phase]:
        """Its phases."""
        return [record for record in self.records if isinstance(record, Phase)]

    @property
    def codes(self) -> list[str]:
        """Kinds of its diagnostics."""
        return [code for _, _, code, _ in self.problems.notes]

    def text(self, code: str) -> str:
        """The first diagnostic of a kind."""
        return next(text for _, _, one, text in self.problems.notes if one == code)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Found]:
    """Parses a file, or content, by the parser that recognises it unless one is named."""

    def parse(
        what: Path | str | bytes, name: str = "net.txt", *, parser: str | None = None,
        skip: bool = False, **known: Any,
    ) -> Found:  # fmt: skip
        path = what if isinstance(what, Path) else tmp_path / Path(name).name
        label = path.name if isinstance(what, Path) else name
        if not isinstance(what, Path):
            path.write_bytes(what.encode() if isinstance(what, str) else what)
        file = SourceFile(path, label)
        source = Source(label, (file,), known, ProblemLog(skip))
        chosen = parser_named(parser) if parser else identify(file)
        return Found(list(chosen.parse(source)), source.problems)

    return parse
