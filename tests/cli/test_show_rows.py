"""Rows with more columns than a line holds are shown whole, never squeezed."""

from pathlib import Path

import pandas as pd
import pytest

from fitkit.cli import run
from fitkit.cli.show import _row_tables

WIDE = pd.DataFrame(
    {f"column_{k:02}": [f"value-{k:02}-{row}" for row in range(9)] for k in range(30)}
)


def test_a_few_wide_rows_become_columns():
    (table,) = _row_tables(WIDE.head(2))
    assert table.columns == ("column", "row 1", "row 2")
    assert table.rows[29] == ("column_29", "value-29-0", "value-29-1")


def test_many_wide_rows_come_in_blocks_that_begin_with_the_first_column():
    tables = _row_tables(WIDE)
    assert len(tables) > 1
    assert {table.columns[0] for table in tables} == {"column_00"}
    shown = [name for table in tables for name in table.columns[1:]]
    assert shown == list(WIDE.columns[1:])
    assert all(len(table.rows) == 9 for table in tables)


def test_narrow_rows_stay_lines():
    (table,) = _row_tables(WIDE.iloc[:2, :3])
    assert table.rows == (
        ("value-00-0", "value-01-0", "value-02-0"), ("value-00-1", "value-01-1", "value-02-1"),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["bluewaters_torque_2017_E_record.log"])
def test_the_blue_waters_record_is_read_whole(shared: Path, tmp_path: Path, capsys, name: str):
    store = str(tmp_path / "jobs")
    assert run(["ingest", str(shared / "hpc" / name), "-d", store, "-q"]) == 0
    capsys.readouterr()
    assert run(["show", store, "jobs"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "hosts 26742-26743,26728-26729", "n_nodes 4", "queue_s 665 s", "run_s 14,157 s",
        "exit_code 2", "state FAILED",
    ):  # fmt: skip
        assert line in lines
