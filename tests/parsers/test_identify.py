"""Which parser reads a file: told from its content."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fitkit.errors import AmbiguousFormatError, UnknownFormatError
from fitkit.parsers import PARSERS, SourceFile, identify, parser_named

DATA = Path(__file__).parents[2] / "data"
CNTK = b"Finished Epoch[1 of 3]: loss = 2.3 * 4096 7.3s (558.4 samples/s);\n"
PYTORCH = b"2026-11-30 11:10:01,632 [rank0] INFO epoch 0 step 0/16 loss 7.7\n"
TORQUE = b"03/18/2017 00:01:15;E;6335144.bw;user=x\n"


def name_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return identify(SourceFile(path, "a/log")).name


@pytest.mark.parametrize(
    ("content", "name"), [(CNTK, "cntk"), (PYTORCH, "pytorch"), (TORQUE, "torque")]
)
def test_the_content_tells_the_format(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / "notes.md"
    assert name_of(path, content) == name
    assert name_of(path, gzip.compress(content, mtime=0)) == name
    assert name_of(path, gzip.compress(content * 200, mtime=0)[:-9]) == name
    assert parser_named(name).name == name


@pytest.mark.parametrize("name", ["cntk", "pytorch"])
def test_every_log_of_the_samples_has_one_format(name: str) -> None:
    logs = [p for p in (DATA / name).glob("*/*") if p.name != "run.toml"]
    assert len(logs) > 100
    assert {path: identify(SourceFile(path, path.name)).name for path in logs} == dict.fromkeys(
        logs, name
    )


def test_what_stands_beside_the_samples_is_no_log() -> None:
    for path in [*DATA.glob("scripts/*/*.py"), DATA / "README.md", DATA / "cntk" / "run.toml"]:
        with pytest.raises(UnknownFormatError):
            identify(SourceFile(path, path.name))


@pytest.mark.parametrize("content", [b"", b"\n", b" \t\r\n" * 1000, gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnknownFormatError, match=r"^a/log: the file is empty$"):
        name_of(tmp_path / "x", content)


@pytest.mark.parametrize(
    "content", [b"\x7fELF\0\0\0", bytes(range(256)), gzip.compress(b"\0" * 99, mtime=0)]
)
def test_a_binary_file_is_said_to_be_one(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnknownFormatError, match=r"^a/log: binary file$"):
        name_of(tmp_path / "x", content)


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match=r"^a/log: unknown format$") as caught:
        name_of(tmp_path / "x", b"a text\n")
    assert "cntk, hugging_face, kineto" in caught.value.hint
    assert "--format" in caught.value.hint


def test_a_file_of_two_formats_is_for_the_user_to_decide(tmp_path: Path) -> None:
    with pytest.raises(AmbiguousFormatError, match=r"several formats: cntk, torque$") as caught:
        name_of(tmp_path / "x", TORQUE + CNTK)
    assert "--format" in caught.value.hint
    with pytest.raises(AmbiguousFormatError, match=r"formats: cntk, pytorch, torque$"):
        name_of(tmp_path / "x", TORQUE + CNTK + PYTORCH)


def test_a_file_that_is_not_there_is_no_empty_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        identify(SourceFile(tmp_path / "x", "x"))


def test_names_of_parsers_are_their_own() -> None:
    assert len({parser.name for parser in PARSERS}) == len(PARSERS)
    with pytest.raises(ValueError, match="no format 'slurm'; known: cntk, hugging_face, kineto"):
        parser_named("slurm")
