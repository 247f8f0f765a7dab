"""Which files the paths lead to, and what is said of those that nobody reads."""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.dataset import Dataset
from fitkit.errors import FitkitError, InputError
from fitkit.ingestion import Options, SourceResult
from fitkit.ingestion.discovery import discover, form_sources
from fitkit.ingestion.walking import find_files

LogText = Callable[..., str]
ODD_NAMES = (
    "with space", "naïve-日本語", "line\nbreak", "tab\there", "[1-2]", "star*", "question?",
    "-dash", "quo'te\"", "100%", "a=b",
)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path, log_text: LogText) -> Path:
    """A folder with a log at its top and two below."""
    folder = tmp_path / "logs"
    for name in ("top.log", "run1/a.log", "run2/deep/b.log"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log_text(2, model=path.stem))
    return folder


def labels(*arguments: Any, dataset: Path = Path("nowhere")) -> list[str]:
    files, problems = find_files(arguments, dataset)
    assert problems == []
    return [file.label for file in files]


def look(paths: Any, **options: Any) -> dict[str, SourceResult | str]:
    """Each file's format, or what is said of it."""
    files, results = discover(paths, Path("nowhere"), Options(**options))
    return {file.label: parser.name for file, parser in files} | {r.path: r for r in results}


# --- files, folders and patterns ------------------------------------------------------------


def test_labels_are_relative_to_the_argument(log: Path) -> None:
    assert labels(log) == ["run1/a.log", "run2/deep/b.log", "top.log"]
    assert labels(log / "run2") == ["deep/b.log"]
    assert labels(log / "top.log") == ["top.log"]


def test_paths_may_be_relative_text_and_end_in_a_slash(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log / "run1")
    assert labels("a.log") == labels("./a.log") == labels("../run1/a.log") == ["a.log"]
    assert labels(".") == labels("../run1/") == ["a.log"]
    assert labels("..") == ["run1/a.log", "run2/deep/b.log", "top.log"]


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["run1/a.log", "run2/deep/b.log", "top.log"]),
        ("*.log", ["top.log"]),
        ("run?", ["run1/a.log", "run2/deep/b.log"]),
        ("run[2-9]", ["run2/deep/b.log"]),
        ("run*/*.log", ["run1/a.log"]),
        ("run2/*", ["deep/b.log"]),
        ("**/*.log", ["run1/a.log", "run2/deep/b.log", "top.log"]),
        ("**", ["run1/a.log", "run2/deep/b.log", "top.log"]),
    ],
)
def test_labels_keep_what_a_pattern_stands_for(
    log: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, expected: list[str], absolute: bool
) -> None:
    monkeypatch.chdir(log)
    assert labels(log / pattern if absolute else pattern) == expected


def test_a_pattern_without_a_match_and_a_missing_path_are_errors(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"\*\.txt: nothing matches it"):
        labels(log / "*.txt")
    with pytest.raises(InputError, match=r"logs/none: no such file or folder"):
        labels(log, log / "none")
    monkeypatch.chdir(log)
    with pytest.raises(InputError, match=r"^none/run\*: nothing matches it"):
        labels("none/run*")


def test_a_pipe_is_neither_a_file_nor_a_folder(log: Path) -> None:
    os.mkfifo(log / "pipe")
    assert labels(log) == ["run1/a.log", "run2/deep/b.log", "top.log"]
    with pytest.raises(InputError, match="pipe: neither a file nor a folder"):
        labels(log / "pipe")


def test_a_folder_without_files_is_an_error_only_when_it_is_alone(log: Path) -> None:
    (log / "empty" / "hollow").mkdir(parents=True)
    with pytest.raises(InputError, match="empty: a folder without files"):
        labels(log / "empty")
    found = look([log / "empty", log / "run1"])
    assert found["a.log"] == "pytorch"
    assert found[str(log / "empty")].status == "unrecognised"  # type: ignore[union-attr]
    assert labels(log / "*") == labels(log)


def test_no_argument_at_all_is_an_error() -> None:
    with pytest.raises(InputError, match="nothing to ingest"):
        find_files([], Path("nowhere"))


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_names(log: Path, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "odd" / name
    folder.parent.mkdir()
    (log / "run1").rename(folder)
    assert labels(folder.parent) == [f"{name}/a.log"]
    assert labels(folder) == labels(folder / "a.log") == ["a.log"]
    file = folder / name
    (folder / "a.log").rename(file)
    assert labels(file) == [name]


def test_a_name_that_is_not_unicode_is_readable(log: Path) -> None:
    path = os.fsencode(log) + b"/\xe9t\xe9.log"
    os.rename(log / "top.log", path)  # noqa: PTH104 - the name is bytes
    assert "\ufffdt\ufffd.log" in labels(log)


def test_hidden_files_are_passed_over_unless_they_are_named(log: Path) -> None:
    (log / ".cache").mkdir()
    (log / "run1" / "a.log").rename(log / ".cache" / "a.log")
    (log / "top.log").rename(log / ".top.log")
    (log / "run1").rmdir()
    assert labels(log) == labels(log / "*") == labels(log / "**/*") == ["run2/deep/b.log"]
    assert labels(log / ".top.log") == [".top.log"]
    assert labels(log / ".cache") == ["a.log"]
    assert labels(log / ".*") == [".cache/a.log", ".top.log"]


def test_side_files_are_no_logs(log: Path) -> None:
    (log / "run1" / "run.toml").write_text("device = 'x'")
    assert labels(log / "run1") == labels(log / "run1" / "*") == ["a.log"]
    assert labels(log / "run1" / "a.log", log / "run1" / "run.toml") == ["a.log"]
    with pytest.raises(InputError, match=r"run\.toml: nothing to ingest"):
        labels(log / "run1" / "run.toml")


def test_datasets_are_passed_over(log: Path, tmp_path: Path) -> None:
    for name in ("old", "new"):
        with Dataset(log / name).writing():
            (log / name / "steps").mkdir()
            (log / name / "steps" / "aaa.parquet").touch()
    expected = ["run1/a.log", "run2/deep/b.log", "top.log"]
    assert labels(log, dataset=log / "new") == expected
    assert labels(log / "*", dataset=log / "new") == expected
    assert labels(*sorted(log.iterdir()), dataset=log / "new") == ["a.log", "deep/b.log", "top.log"]
    link = tmp_path / "link"
    link.symlink_to(log / "new")
    assert labels(log, dataset=link) == expected
    with pytest.raises(InputError, match="new: nothing to ingest"):
        labels(log / "new", dataset=log / "new")


def test_a_dataset_that_is_not_made_yet_is_passed_over(log: Path) -> None:
    (log / "ds").mkdir()
    (log / "ds" / "_fitkit.lock").touch()
    assert labels(log, dataset=log / "ds") == ["run1/a.log", "run2/deep/b.log", "top.log"]


# --- one file reached in several ways -------------------------------------------------------


def test_a_file_reached_in_several_ways_counts_once_with_its_longest_label(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log)
    ways = [log, "run1", "run1/a.log", log / "run1", "../logs/run1/a.log", "*/*.log", "./run2/deep"]
    for seed in range(6):
        random.Random(seed).shuffle(ways)  # noqa: S311
        assert labels(*ways) == ["run1/a.log", "run2/deep/b.log", "top.log"]


def test_files_of_one_folder_reached_in_several_ways_are_one_family(
    log: Path, log_text: LogText, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log / "run1" / "a_rank1.log").write_text(log_text(2, rank=1))
    (log.parent / "link").symlink_to(log / "run1")
    monkeypatch.chdir(log)
    ways = ["run1/a.log", log / "run1", "../link/a_rank1.log", "../logs/run?/a*"]
    for seed in range(6):
        random.Random(seed).shuffle(ways)  # noqa: S311
        files, _ = discover(ways, Path("nowhere"), Options())
        ((source, _),), _ = form_sources(files, Options())
        assert [file.name for file in source.files] == ["a.log", "a_rank1.log"]
        assert source.label == "run1"


def test_links_that_lead_in_circles_are_followed_once(log: Path) -> None:
    (log / "run1" / "up").symlink_to(log)
    (log / "run2" / "across").symlink_to(log / "run1")
    (log / "run2" / "deep" / "self").symlink_to(log / "run2" / "deep")
    (log / "round").symlink_to(log / "round")
    assert labels(log) == ["run1/a.log", "run2/deep/b.log", "top.log"]
    with pytest.raises(InputError, match="round: neither a file nor a folder"):
        labels(log / "round")


def test_many_links_between_folders_end_soon(tmp_path: Path, log_text: LogText) -> None:
    folders = [tmp_path / "web" / str(i) for i in range(30)]
    for folder in folders:
        folder.mkdir(parents=True)
    for folder in folders:
        for other in folders:
            (folder / f"to-{other.name}").symlink_to(other)
    (folders[7] / "t.log").write_text(log_text(1))
    assert labels(tmp_path / "web") == ["7/t.log"]


def test_a_file_comes_before_links_to_it(log: Path) -> None:
    (log / "a-very-long-name-for-a-link.log").symlink_to(log / "top.log")
    (log / "latest").symlink_to(log / "run2")
    assert labels(log) == ["run1/a.log", "run2/deep/b.log", "top.log"]


def test_links_to_what_lies_elsewhere_are_followed(log: Path, tmp_path: Path) -> None:
    (log / "run1").rename(tmp_path / "elsewhere")
    (log / "run1").symlink_to(tmp_path / "elsewhere")
    (log / "top.log").rename(tmp_path / "afar.log")
    (log / "top.log").symlink_to(tmp_path / "afar.log")
    (log / "dangling").symlink_to(tmp_path / "gone")
    assert labels(log) == ["run1/a.log", "run2/deep/b.log", "top.log"]
    assert labels(log / "run1") == ["a.log"]


# --- what cannot be read --------------------------------------------------------------------


def test_a_folder_that_may_not_be_read_does_not_take_others_along(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if "run1" in (Path(path).name, Path(path).parent.name):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return function(path, *args, **kwargs)

        return call

    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(Path, "is_file", refusing(Path.is_file))
    found = look(log)
    assert found["top.log"] == found["run2/deep/b.log"] == "pytorch"
    result = found[str(log / "run1")]
    assert isinstance(result, SourceResult)
    assert result.error == f"{log / 'run1'}: Permission denied"
    assert (result.status, result.hint) == ("failed", "check that the file can be read")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_does_not_take_others_along(log: Path) -> None:
    (log / "top.log").chmod(0)
    (log / "run1").chmod(0)
    found = look(log)
    assert found["run2/deep/b.log"] == "pytorch"
    assert found["top.log"].error == "top.log: Permission denied"  # type: ignore[union-attr]
    assert found[str(log / "run1")].status == "failed"  # type: ignore[union-attr]


def test_a_file_that_cannot_be_opened_is_not_called_empty(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name == "top.log":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    result = look(log)["top.log"]
    assert isinstance(result, SourceResult)
    assert (result.status, result.error) == ("failed", "top.log: Permission denied")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (gzip.compress(b""), "the file is empty"),
        (b"roses are red\n", "unknown format"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary file"),
        (bz2.compress(b"compressed in another way" * 99), "binary file"),
        (bytes(range(256)) * 4096, "binary file"),
        (b"\xff\xfe", "UTF-16 text: convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_what_nobody_recognises_is_named(log: Path, content: bytes, message: str) -> None:
    (log / "odd").write_bytes(content)
    found = look(log)
    result = found["odd"]
    assert isinstance(result, SourceResult)
    assert (result.status, result.error) == ("unrecognised", f"odd: {message}")
    if message != "the file is empty":
        assert "known formats: cntk, hugging_face, kineto" in result.hint
    assert found["top.log"] == "pytorch"


def test_an_archive_of_several_files_is_refused_and_takes_none_with_it(log: Path) -> None:
    with zipfile.ZipFile(log / "two.zip", "w") as archive:
        archive.writestr("one.json", "{}")
        archive.writestr("other.json", "{}")
    found = look(log)
    result = found["two.zip"]
    assert isinstance(result, SourceResult)
    assert result.error == "two.zip: a zip file of 2 files; one alone can be read"
    assert result.hint == "unpack it and name what is inside"
    assert found["top.log"] == "pytorch"


def test_a_format_that_is_named_is_not_recognised_but_taken(log: Path) -> None:
    (log / "odd").write_bytes(b"roses are red\n")
    assert set(look(log, format="torque").values()) == {"torque"}
    with pytest.raises(ValueError, match="no format 'tf'; known: cntk, hugging_face, kineto"):
        look(log, format="tf")


def test_a_log_and_its_compressed_copy_are_one_file(log: Path, log_text: LogText) -> None:
    content = (log / "top.log").read_bytes()
    (log / "top.log.gz").write_bytes(gzip.compress(content))
    assert [label for label in look(log) if "top" in label] == ["top.log"]
    (log / "top.log.gz").write_bytes(gzip.compress(log_text(3).encode()))
    assert [label for label in look(log) if "top" in label] == ["top.log", "top.log.gz"]


def test_errors_are_of_fitkit(log: Path) -> None:
    with pytest.raises(FitkitError):
        labels(log / "none")
