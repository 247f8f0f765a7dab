"""What users say about runs: keys, types, zones, and which of several sayings counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fitkit.dataset import Dataset
from fitkit.errors import ParseError
from fitkit.ingestion import Options, ingest_each
from fitkit.ingestion.metadata import check_metadata, in_utc, read_setting, read_side_files
from fitkit.parsers import SourceFile

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def side_files(tmp_path: Path, label: str, **contents: str) -> dict[str, Any]:
    """Metadata of a file below ``tmp_path``, with run.toml of the given contents by folder."""
    path = tmp_path / label
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder, content in contents.items():
        (tmp_path / folder.replace("_", "/") / "run.toml").write_text(content, encoding="utf-8")
    return read_side_files(SourceFile(path, label))


# --- run.toml -------------------------------------------------------------------------------


def test_side_files_up_to_the_argument_are_read_and_the_nearest_wins(tmp_path: Path) -> None:
    (tmp_path.parent / "run.toml").write_text('system = "above the argument"')
    found = side_files(
        tmp_path,
        "a/b/x.log",
        a='device = "far"\nprecision = "float16"',
        a_b='device = "near"\nn_nodes = 2',
    )
    (tmp_path.parent / "run.toml").unlink()
    assert found == {"device": "near", "precision": "float16", "n_nodes": 2}


def test_a_file_without_side_files_has_no_metadata(tmp_path: Path) -> None:
    assert side_files(tmp_path, "a/x.log") == {}


def test_a_byte_order_mark_is_no_part_of_a_side_file(tmp_path: Path) -> None:
    assert side_files(tmp_path, "a/x.log", a='\ufeffdevice = "A100"') == {"device": "A100"}


def test_instants_become_utc(tmp_path: Path) -> None:
    found = side_files(tmp_path, "a/x.log", a="started_at = 2026-03-01T13:00:00+01:00")
    assert found == {"started_at": NOON}
    assert found["started_at"].utcoffset() == timedelta(0)
    assert side_files(tmp_path, "b/x.log", b="started_at = 2026-03-01T12:00:00") == found


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ("n_nodes = 1\ndevice = A100", ":2", "Invalid value"),
        ("n_nodes = 1\nn_nodes = 2\n\n", ":2", "Cannot overwrite a value"),
        ('colour = "red"', "", "no metadata 'colour'; known: "),
        ('run_id = "x"', "", "no metadata 'run_id'"),
        ('n_workers = "eight"', "", "n_workers = 'eight': expected int"),
        ("n_workers = 8.0", "", "n_workers = 8.0: expected int"),
        ("n_workers = 0", "", "n_workers = 0: less than 1"),
        ("n_workers = true", "", "n_workers = True: expected int"),
        ("local_batch = nan", "", "local_batch = nan: expected float"),
        ("started_at = 2026-03-01", "", "expected datetime"),
        ('tz = "Middle-earth"', "", "tz = 'Middle-earth': not a time zone"),
        ("[run]\ndevice = 'x'", "", "no metadata 'run'"),
    ],
)  # fmt: skip
def test_a_bad_side_file_is_an_error_with_its_place(
    tmp_path: Path, content: str, place: str, message: str
) -> None:
    with pytest.raises(ParseError) as caught:
        side_files(tmp_path, "a/x.log", a=content)
    assert str(caught.value).startswith(f"{tmp_path / 'a' / 'run.toml'}{place}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_side_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.toml").touch()
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ParseError, match=r"run\.toml: Permission denied"):
        side_files(tmp_path, "a/x.log")


# --- --set ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("device", "A100", "A100"),
        ("network", "152", "152"),
        ("framework_version", "2.10", "2.10"),
        ("state", "true", "true"),
        ("n_workers", "8", 8),
        ("local_batch", "8", 8.0),
        ("local_batch", "1e3", 1000.0),
        ("started_at", "2026-03-01", datetime(2026, 3, 1)),
        ("started_at", "2026-03-01T12:00:00Z", NOON),
        ("tz", "Europe/Oslo", "Europe/Oslo"),
    ],
)
def test_a_setting_is_read_by_the_type_of_its_column(key: str, text: str, value: Any) -> None:
    found = read_setting(key, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("colour", "red", "no metadata 'colour'; known: "),
        ("source_id", "x", "no metadata 'source_id'"),
        ("n_workers", "eight", "n_workers = 'eight': expected int"),
        ("n_workers", "8.5", "expected int"),
        ("n_params", str(2**63), "expected int"),
        ("local_batch", "many", "local_batch = 'many': expected float"),
        ("local_batch", "inf", "expected float"),
        ("started_at", "noon", "expected datetime"),
        ("tz", "CEST-ish", "not a time zone such as UTC or Europe/Oslo"),
        ("tz", "../etc/passwd", "not a time zone"),
    ],
)
def test_a_wrong_setting_says_what_is_expected(key: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_setting(key, text)


# --- from Python ----------------------------------------------------------------------------


def test_metadata_of_the_right_types_pass() -> None:
    check_metadata({"device": "A100", "n_workers": 8, "local_batch": 4, "started_at": NOON})
    check_metadata({"tz": "UTC", "local_batch": 2.5})
    check_metadata({})


@pytest.mark.parametrize("value", [None, 8, True, b"A100", ["A100"]])
def test_a_text_is_a_text(value: Any) -> None:
    with pytest.raises(ValueError, match=r"device = .*: expected str"):
        check_metadata({"device": value})


def test_instants_in_any_zone_are_the_same_instant() -> None:
    oslo = NOON.astimezone(timezone(timedelta(hours=1)))
    naive = NOON.replace(tzinfo=None)
    for value in (NOON, oslo, naive):
        assert in_utc({"started_at": value, "device": "x"}) == {"started_at": NOON, "device": "x"}


def test_what_was_said_stays_said_until_it_is_said_otherwise(data: Path, tmp_path: Path) -> None:
    run, store = data / "cntk" / "shape_mlpw_128_mb16_rep1", Dataset(tmp_path / "runs")

    def device(**metadata: str) -> tuple[str, str]:
        (result,) = ingest_each([run], store, options=Options(metadata=metadata))
        return result.status, store.read("runs").device[0]

    assert device(device="A100") == ("ingested", "A100")
    assert device() == ("unchanged", "A100")
    assert device(system="s") == ("ingested", "A100")
    assert device(device="B200") == ("ingested", "B200")


def test_a_grown_source_keeps_what_was_said_of_it(data: Path, tmp_path: Path) -> None:
    folder, store = tmp_path / "run", Dataset(tmp_path / "runs")
    folder.mkdir()
    whole = (data / "cntk" / "shape_mlpw_128_mb16_rep1" / "train.logrank0").read_bytes()
    (folder / "train.logrank0").write_bytes(whole[:-200])
    said = Options(metadata={"device": "A100", "started_at": NOON})
    assert [r.status for r in ingest_each([folder], store, options=said)] == ["ingested"]
    (folder / "train.logrank0").write_bytes(whole)
    assert [r.status for r in ingest_each([folder], store)] == ["ingested"]
    runs = store.read("runs")
    assert (len(runs), runs.device[0]) == (1, "A100")
    assert runs.started_at[0] == NOON
