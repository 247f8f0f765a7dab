"""Dataset: folders that are none, marks and files that are damaged or of another version."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fitkit.dataset import Dataset
from fitkit.errors import InputError, SchemaError
from fitkit.records import SourceRow, Step


@pytest.fixture
def ds(tmp_path: Path) -> Dataset:
    """A dataset of one source."""
    dataset = Dataset(tmp_path / "ds")
    row = SourceRow("aaa", "log", "cntk", 1, 100, 0, "[]", "{}")
    with dataset.writing():
        dataset.write(row, [Step("aaa", 0, 1, 0.5, first_step=i) for i in range(2)])
    return dataset


def test_a_newer_format_is_refused(ds: Dataset) -> None:
    (ds.path / "_fitkit.json").write_text('{"format": 2}')
    with pytest.raises(SchemaError, match="dataset format 2, this fitkit reads up to 1") as caught:
        Dataset(ds.path)
    assert caught.value.hint.startswith("update fitkit")


@pytest.mark.parametrize("mark", ["", "{", "[1]", "{}", '{"format": "new"}', '{"format": null}'])
def test_a_damaged_mark_is_refused(ds: Dataset, mark: str) -> None:
    (ds.path / "_fitkit.json").write_text(mark)
    with pytest.raises(SchemaError, match="not readable as a dataset mark"):
        Dataset(ds.path)


def test_a_folder_that_is_no_dataset_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(InputError, match="a folder that is not a fitkit dataset"):
        Dataset(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(InputError, match="is a file, not a dataset"):
        Dataset(path)


def test_an_empty_folder_becomes_a_dataset(tmp_path: Path) -> None:
    (tmp_path / ".gitkeep").touch()
    dataset = Dataset(tmp_path)
    assert not dataset.exists
    with dataset.writing():
        pass
    assert json.loads((tmp_path / "_fitkit.json").read_text()) == {"format": 1}


def test_a_file_of_other_columns_is_refused(ds: Dataset) -> None:
    path = ds.path / "steps" / "aaa.parquet"
    pq.write_table(pa.table({"run_id": ["aaa"], "speed": [1.0]}), path)
    with pytest.raises(SchemaError, match=r"steps/aaa\.parquet: columns of another fitkit version"):
        ds.read("steps")


def test_columns_of_another_type_are_refused(ds: Dataset) -> None:
    path = ds.path / "steps" / "aaa.parquet"
    table = pq.read_table(path)
    words = pa.array(["many"] * len(table))
    pq.write_table(table.set_column(table.schema.names.index("n_steps"), "n_steps", words), path)
    with pytest.raises(SchemaError, match=r"steps/aaa\.parquet: not readable"):
        ds.read("steps")


@pytest.mark.parametrize("cut", [0, 3, 200, -1])
def test_a_damaged_file_is_refused_by_name(ds: Dataset, cut: int) -> None:
    path = ds.path / "steps" / "aaa.parquet"
    path.write_bytes(path.read_bytes()[:cut])
    for read in (lambda: ds.read("steps"), ds.counts):
        with pytest.raises(SchemaError, match=r"steps/aaa\.parquet: not readable"):
            read()
