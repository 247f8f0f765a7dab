"""What parsers are given, whole or damaged: files, their lines, their problems."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS, ProblemLog, Source, SourceFile
from fitkit.parsers import source as source_module
from fitkit.parsers.source import Parser
from fitkit.records import TABLE_OF, Record, Run
from fitkit.schema import each_record, to_arrow

DATA = Path(__file__).parents[2] / "data"


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def zipped(content: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("train.log",):
            archive.writestr(name, content)
    return buffer.getvalue()


PACK = {"plain": bytes, "gz": gzip.compress, "zst": zstd, "zip": zipped}


def source_of(path: Path, content: bytes, *, skip_bad_lines: bool = False) -> Source:
    path.write_bytes(content)
    problems = ProblemLog(skip_bad_lines)
    return Source(path.name, (SourceFile(path, path.name),), {}, problems)


def lines_of(source: Source) -> list[str]:
    found = list(source.lines(source.files[0]))
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return [text for _, text in found]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A file that one example of a property after the other overwrites."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "log"


# --- content --------------------------------------------------------------------------------

TEXT = "".join(f"line {i} {hashlib.md5(b'%d' % i).hexdigest()}\n" for i in range(9_000)).encode()  # noqa: S324


@pytest.mark.parametrize("kind", PACK)
def test_packing_changes_nothing_that_is_read(tmp_path: Path, kind: str) -> None:
    suffix = "" if kind == "plain" else f".{kind}"
    source = source_of(tmp_path / f"train.log{suffix}", PACK[kind](TEXT))
    plain_sha = hashlib.sha256(TEXT).hexdigest()
    assert source.files[0].name == "train.log"
    assert source.digests == (("train.log", plain_sha, len(TEXT)),)
    pairs = json.dumps([["train.log", plain_sha]])
    assert source.source_id == hashlib.sha256(pairs.encode()).hexdigest()
    assert source.run_id == source.source_id[:16]
    assert lines_of(source) == TEXT.decode().splitlines()
    assert source.files[0].head() == TEXT[: source_module.HEAD_BYTES]
    assert source.files[0].digest(1000) == (hashlib.sha256(TEXT[:1000]).hexdigest(), 1000)
    assert source.problems.notes == []


def test_packing_is_told_from_the_content(tmp_path: Path) -> None:
    assert lines_of(source_of(tmp_path / "a.gz", b"plain\n")) == ["plain"]
    assert lines_of(source_of(tmp_path / "a.log", gzip.compress(b"packed\n"))) == ["packed"]
    assert lines_of(
        source_of(tmp_path / "b.gz", gzip.compress(b"1\n") + gzip.compress(b"2\n"))
    ) == [
        "1",
        "2",
    ]


def test_folders_and_what_macos_adds_are_no_members_of_a_zip_file(tmp_path: Path) -> None:
    packed = zipped(b"one\ntwo\n", "logs/", "logs/train.log", "__MACOSX/logs/._train.log")
    source = source_of(tmp_path / "train.zip", packed)
    assert lines_of(source) == ["one", "two"]
    assert source.files[0].name == "train"


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (zipped(b"x", "a.log", "b.log"), "a zip file of 2 files; one alone can be read"),
        (zipped(b"", "a/"), "a zip file of 0 files; one alone can be read"),
        (b"PK\x05\x06" + bytes(18), "a zip file of 0 files; one alone can be read"),
        (zipped(b"x" * 1_000)[:60], "cannot unpack it: File is not a zip file"),
        (b"PK\x03\x04" + bytes(100), "cannot unpack it: File is not a zip file"),
        # Its only member is said to be encrypted.
        (zipped(b"x").replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"),
         "cannot unpack it: File 'train.log' is encrypted"),
        (zipped(b"x").replace(b"\x08\x00", b"\x63\x00"), "cannot unpack it: That compression"),
    ],
)  # fmt: skip
def test_a_zip_file_without_one_member_is_refused(tmp_path: Path, packed: bytes, said: str) -> None:
    source = source_of(tmp_path / "x.zip", packed)
    for read in (source.files[0].head, source.files[0].digest, lambda: lines_of(source)):
        with pytest.raises(ParseError, match=rf"^x\.zip: {said}") as caught:
            read()
        assert caught.value.hint == "unpack it and name what is inside"


def test_the_name_is_part_of_the_identity(tmp_path: Path) -> None:
    first, second = source_of(tmp_path / "a", b"x\n"), source_of(tmp_path / "b", b"x\n")
    assert first.source_id != second.source_id
    both = [*first.files, *second.files]
    assert Source("ab", tuple(both)).source_id == Source("ab", tuple(both[::-1])).source_id


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_cut_file_gives_what_can_be_read(tmp_path: Path, kind: str, share: float) -> None:
    packed = PACK[kind](TEXT)
    source = source_of(tmp_path / "log", packed[: int(len(packed) * share)])
    found = lines_of(source)
    readable = "\n".join(found).encode()
    # zstd gives out whole blocks of 128 KiB; of the last of them nothing.
    assert len(readable) >= len(TEXT) * share - (5_000 if kind == "gz" else 256 << 10)
    assert TEXT.startswith(readable)
    ((_, number, code, text),) = source.problems.notes
    assert code == "truncated"
    assert re.fullmatch("the (gzip|zstd) file ends early or is damaged", text)
    assert number in (len(found), len(found) + 1)
    sha, length = source.files[0].digest()
    assert length - len(readable) in (0, 1)  # a line end
    assert sha == hashlib.sha256(TEXT[:length]).hexdigest()
    assert source.files[0].head() == TEXT[:length]


def test_a_small_cut_file_gives_what_can_be_read(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT[:5_000])
    source = source_of(tmp_path / "log", packed[: len(packed) // 2])
    assert len(lines_of(source)) > 30
    assert len(source.files[0].head()) > 1_500


def test_a_damaged_file_gives_what_precedes_the_damage(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[len(packed) * 3 // 4 : len(packed) * 3 // 4 + 40] = b"\xff" * 40
    source = source_of(tmp_path / "log", bytes(packed))
    assert lines_of(source)[:6_000] == TEXT.decode().splitlines()[:6_000]
    assert [code for _, _, code, _ in source.problems.notes] == ["truncated"]


def test_a_member_of_a_zip_file_that_is_damaged_gives_what_precedes_it(tmp_path: Path) -> None:
    packed = bytearray(zipped(TEXT))
    packed[len(packed) * 3 // 4 : len(packed) * 3 // 4 + 40] = b"\xff" * 40
    source = source_of(tmp_path / "log", bytes(packed))
    assert lines_of(source)[:5_000] == TEXT.decode().splitlines()[:5_000]
    assert [code for _, _, code, _ in source.problems.notes] == ["truncated"]
    assert TEXT.startswith(source.files[0].head(1_000))


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
def test_a_byte_order_mark_is_left_out(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    source = source_of(tmp_path / "log", pack(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo"))
    assert lines_of(source) == ["one", "\ufefftwo"]
    assert source.files[0].head() == b"one\n\xef\xbb\xbftwo"
    assert source.files[0].head(3) == b"one"
    marked = hashlib.sha256(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo").hexdigest()
    assert source.files[0].digest() == (marked, 13)  # the hash is that of all bytes
    assert lines_of(source_of(tmp_path / "log", pack(b"\xef\xbb\xbf{}"))) == ["{}"]
    source = source_of(tmp_path / "x.json", pack(b"\xef\xbb\xbf[1, 2]"))
    assert source.read_json(source.files[0]) == [1, 2]


def test_a_reading_error_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SourceFile(tmp_path / "x", "x").head()
    with pytest.raises(IsADirectoryError):
        SourceFile(tmp_path, "x").digest()


# --- lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\nb\r\nc\rd\n", ["a", "b", "c", "d"]),
        (b"a\n\nb\r\r\nc\n\r", ["a", "", "b", "", "c", ""]),
        (b"\r", [""]),
        (b"a\r", ["a"]),
        (b"a\r\n", ["a"]),
        ("é\u2028ü\x0b\x0c\x1c\x85ä\n".encode(), ["é\u2028ü\x0b\x0c\x1c\x85ä"]),
        (b"\xff\xfe ok\n\xc3", ["\ufffd\ufffd ok", "\ufffd"]),
    ],
)
def test_lines_end_at_line_feeds_and_returns(
    tmp_path: Path, content: bytes, lines: list[str]
) -> None:
    assert lines_of(source_of(tmp_path / "log", content)) == lines


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a", b"bc", "é".encode(), b"\xff"])),
    st.integers(1, 9),
    st.sampled_from([bytes, gzip.compress]),
)
@example([b"a", b"\r\n", b"\r", b"\n"], 2, bytes)
def test_blocks_do_not_show(
    scratch: Path, parts: list[bytes], size: int, pack: type[bytes]
) -> None:
    content = b"".join(parts)
    expected = re.split(r"\r\n|\n|\r", content.decode("utf-8", "replace"))
    expected = expected if expected[-1] else expected[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "_BLOCK", size)
        source = source_of(scratch, pack(content))
        assert lines_of(source) == expected
        assert source.files[0].digest()[0] == hashlib.sha256(content).hexdigest()
    is_open = content != b"" and not content.endswith((b"\r", b"\n"))
    assert source.problems.unfinished == (("log", len(expected)) if is_open else None)


def test_a_long_line_takes_time_in_proportion(tmp_path: Path) -> None:
    # 16 MiB in blocks of 64 KiB: 2 GiB to copy and to search if each block began anew.
    content = b"x" * (16 << 20) + b"\ry\n"
    source = source_of(tmp_path / "log", content)
    searched = []
    pattern = source_module._LINE_END

    class Counting:
        def split(self, text: bytes) -> list[bytes]:
            searched.append(len(text))
            return pattern.split(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "_LINE_END", Counting())
        assert [len(line) for line in lines_of(source)] == [16 << 20, 1]
    assert sum(searched) <= len(content) + len(searched)


def test_a_cut_last_line_is_noted_any_other_is_fatal(tmp_path: Path) -> None:
    source = source_of(tmp_path / "log", b"one\ntwo")
    file = source.files[0]
    for number, text in source.lines(file):
        if number == 1:
            assert not source.problems.may_be_cut(file, number)
            with pytest.raises(ParseError, match=r"^log:1: cannot read: one$"):
                source.problems.bad_line(file, number, text)
        else:
            assert source.problems.may_be_cut(file, number)
            source.problems.bad_line(file, number, text)
    assert source.problems.notes == [("log", 2, "truncated", "the log ends inside this line: two")]
    skipping = ProblemLog(skip_bad_lines=True)
    skipping.bad_line(file, 1, "x" * 9_999)
    (row,) = skipping.records("id")
    assert (row.source_id, row.path, row.line, row.code) == ("id", "log", 1, "bad_line")
    assert row.text == "x" * 500


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"9" * 5_000, b"\xff{}"])
def test_a_file_that_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    source = source_of(tmp_path / "x.json", content)
    with pytest.raises(ParseError, match=r"^x\.json: not valid JSON"):
        source.read_json(source.files[0])


def test_metadata_wins_and_a_conflict_is_noted() -> None:
    source = Source("a", (), {"network": "lenet", "n_workers": 2, "tz": "UTC"})
    run = source.complete(Run("r", "s", network="alexnet", n_workers=2))
    assert (run.network, run.n_workers) == ("lenet", 2)
    ((label, line, code, text),) = source.problems.notes
    assert (label, line, code) == ("a", None, "metadata_conflict")
    assert "'alexnet'" in text
    assert "'lenet'" in text


# --- robustness of every parser -------------------------------------------------------------

FOLDERS = [
    "cntk/shape_mlpw_128_mb16_rep1",
    "cntk/mlpbig_dp_n2_mb256_rep1",
    "pytorch/vggsmall_w2_b4_rep1",
    "torque",
]
TOKENS = [
    b"nan", b"inf", b"1e999", b"-1", b"0", b"9" * 20, b"9" * 400, b"1" * 5_000, b"null", b"[]",
    b"{}", b'""', b"true", b"1.5", b"1.2.3", b"\xff", b"\0", b"[", b'"', b"\r",
    b"1.#QNAN", "²".encode(),
]  # fmt: skip


def parse(parser: Parser, source: Source) -> list[Record]:
    """Records of a source; what the tables could not hold would fail here."""
    records = list(each_record(parser.parse(source)))
    by_table: dict[str, list[Record]] = {}
    for record in [*records, *source.problems.records(source.source_id)]:
        by_table.setdefault(TABLE_OF[type(record)], []).append(record)
    for table, rows in by_table.items():
        to_arrow(table, rows)
    return records


def shortened(content: bytes) -> bytes:
    """Without the middle of a long log: its ends have lines of every form, and are read sooner."""
    begin = content.rfind(b"\n", 0, 12_000) + 1
    end = content.rfind(b"\n", 0, -6_000) + 1
    return content[:begin] + content[max(begin, end) :]


@cache
def sample(folder: str) -> tuple[Parser, dict[str, bytes]]:
    """The parser of a sample, and its files, unpacked."""
    files = {}
    for path in sorted((DATA / folder).iterdir()):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        files[path.name] = shortened(content)
    logs = {name: x for name, x in files.items() if not name.endswith((".toml", ".md", ".py"))}
    (parser,) = (parser for parser in PARSERS if parser.name == folder.partition("/")[0])
    return parser, logs


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    head=st.sampled_from(
        [
            b"", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\xef\xbb\xbf",
            b'[{"cat":"PERF",', b'{"kind": "meta", "clock"',
            b"Minibatch[1-", b"Finished Epoch[1]: loss = ", b"Validating --> a = Times (",
            b"CNTK Performance Profiler Summary\n__Get Minibatch: ", b"[1,0]<stdout>:",
            b"2026-11-30 11:10:01,632 [rank0] INFO ", b"03/18/2017 00:01:15;E;",
        ]
    ),
    junk=st.binary(max_size=200) | st.text(max_size=60).map(lambda text: text.encode()),
)  # fmt: skip
def test_any_bytes_are_read_or_refused(
    scratch: Path, parser: Parser, head: bytes, junk: bytes
) -> None:
    parser.recognises(head + junk)
    for skip in (False, True):
        with suppress(ParseError):
            parse(parser, source_of(scratch, head + junk, skip_bad_lines=skip))


def damaged(data: st.DataObject, content: bytes) -> bytes:
    """The content after one accident."""
    kind = data.draw(st.sampled_from(["cut", "drop", "flip", "replace", "swap", "repeat"]))
    start = data.draw(st.integers(0, max(len(content) - 1, 0)))
    if kind == "cut":
        return content[:start]
    if kind == "drop":
        return content[:start] + content[start + data.draw(st.integers(1, 5_000)) :]
    if kind == "flip":
        mask = data.draw(st.integers(1, 255))
        return b"%b%c%b" % (content[:start], content[start] ^ mask, content[start + 1 :])
    if kind == "replace":  # the number at or after that place
        token = data.draw(st.sampled_from(TOKENS))
        return content[:start] + re.sub(rb"[0-9.]+", lambda _: token, content[start:], count=1)
    lines = content.splitlines(keepends=True)
    i, j = (data.draw(st.integers(0, len(lines) - 1)) for _ in "ij")
    if kind == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines.insert(i, lines[j])
    return b"".join(lines)


@pytest.mark.parametrize("folder", FOLDERS)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_damaged_log_is_read_or_refused(folder: str, data: st.DataObject) -> None:
    parser, logs = sample(folder)
    victim = data.draw(st.sampled_from(sorted(name for name, content in logs.items() if content)))
    content = logs[victim]
    for _ in range(data.draw(st.integers(1, 3))):
        content = damaged(data, content) or b"\n"
    skip = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as where:
        files = []
        for name, whole in logs.items():
            path = Path(where) / name
            path.write_bytes(content if name == victim else whole)
            files.append(SourceFile(path, name))
        with suppress(ParseError):
            parse(parser, Source("x", tuple(files), {}, ProblemLog(skip)))


def test_an_archive_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "20170317").write_text("03/18/2017 00:01:15;Q;7.bw;queue=normal\n" * 20)
    for mode, name in (("w", "2017.tar"), ("w:gz", "2017.tar.gz")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(tmp_path / "20170317", "20170317")
        file = SourceFile(tmp_path / name, name)
        with pytest.raises(ParseError, match="a tar archive") as caught:
            file.head()
        assert "unpack it" in caught.value.hint
        with pytest.raises(ParseError):
            list(Source(name, (file,)).lines(file))
