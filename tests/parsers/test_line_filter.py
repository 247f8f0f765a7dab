"""matching_lines(): the lines that a plain reading finds, whatever ends them."""

from __future__ import annotations

import gzip
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers import line_filter
from fitkit.parsers.line_filter import Wanted, matching_lines
from fitkit.parsers.source import Source, SourceFile

PIECES = st.lists(
    st.sampled_from(
        [b"hit", b" miss ", b"\n", b"\r\n", b"\r", b"\xff", b"\x00", "é".encode(), b"x"]
    )
)


def found(path, pattern="hit"):
    file = SourceFile(path, path.name)
    source = Source(path.name, (file,))
    return list(matching_lines(source, file, pattern)), source


class TestLines:
    @settings(max_examples=60)
    @given(pieces=PIECES)
    def test_they_are_those_that_a_plain_reading_finds(self, tmp_path_factory, pieces):
        path = tmp_path_factory.mktemp("log") / "x.log"
        path.write_bytes(b"".join(pieces))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("_READ", "_BLOCK"):
                patch.setattr(line_filter, name, 3)
            filtered, source = found(path)
        plain = Source(path.name, source.files)
        expected = [(n, text) for n, text in plain.lines(source.files[0]) if "hit" in text]
        assert filtered == expected
        assert source.problems.unfinished == plain.problems.unfinished

    def test_a_pattern_can_begin_where_a_line_begins(self, tmp_path):
        path = tmp_path / "x.log"
        path.write_bytes(b"a hit\nhit 1\r\n hit\nhit 2")
        lines, _ = found(path, "^hit")
        assert lines == [(2, "hit 1"), (4, "hit 2")]

    def test_a_byte_order_mark_is_no_text(self, tmp_path):
        path = tmp_path / "x.log"
        path.write_bytes(b"\xef\xbb\xbfhit\n")
        assert found(path)[0] == [(1, "hit")]

    @settings(max_examples=60)
    @given(pieces=PIECES, size=st.integers(1, 12))
    def test_the_reader_can_want_others_from_the_next_line_on(self, tmp_path_factory, pieces, size):
        path = tmp_path_factory.mktemp("log") / "x.log"
        path.write_bytes(b"".join(pieces))
        file = SourceFile(path, path.name)
        source = Source(path.name, (file,))
        patterns = {"hit": "x", "x": "", "": "hit"}  # what is wanted after a line that was
        wanted, filtered = Wanted("hit"), []
        with pytest.MonkeyPatch.context() as patch:
            for name in ("_READ", "_BLOCK"):
                patch.setattr(line_filter, name, size)
            for line in matching_lines(source, file, wanted):
                filtered.append(line)
                wanted.pattern = patterns[wanted.pattern]
        pattern, expected = "hit", []
        for number, text in Source(path.name, (file,)).lines(file):
            if pattern in text:
                expected.append((number, text))
                pattern = patterns[pattern]
        assert filtered == expected

    def test_an_empty_file_has_none(self, tmp_path):
        path = tmp_path / "x.log"
        path.touch()
        assert found(path)[0] == []


class TestDamage:
    def test_of_a_cut_file_what_is_there_is_read(self, tmp_path):
        path = tmp_path / "x.log.gz"
        text = "".join(f"hit {i} {re.escape(str(i * 7919))}\n" for i in range(3000))
        path.write_bytes(gzip.compress(text.encode())[:-2000])
        lines, source = found(path)
        assert lines[:-1] == list(enumerate(text.splitlines(), 1))[: len(lines) - 1]
        assert text.splitlines()[len(lines) - 1].startswith(lines[-1][1])
        assert 1000 < len(lines) < 3000
        assert [code for _, _, code, _ in source.problems.notes] == ["truncated"]

    def test_of_an_endless_line_the_beginning_counts(self, tmp_path, monkeypatch):
        for name in ("_READ", "_BLOCK"):
            monkeypatch.setattr(line_filter, name, 64)
        monkeypatch.setattr(line_filter, "_LONGEST", 100)
        path = tmp_path / "x.log"
        path.write_bytes(b"hit" + b"x" * 5000 + b"hit\nhit 2\n")
        first, second = found(path)[0]
        assert first[0] == 1
        assert first[1].startswith("hitxxx")
        assert len(first[1]) < 300
        assert second == (2, "hit 2")
