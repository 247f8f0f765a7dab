"""Input tables: delimiters, headers, quotes, JSON lines, Parquet, and rows that cannot be read."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fitkit.errors import ParseError

Reader = Callable[..., Any]
TABLE = "net,gpus,t\nbert,1,10\nbert,2,6\n"


def times(found: Any) -> list[tuple[str, float]]:
    return [(step.run_id, step.duration_s) for step in found.of("steps")]


EXPECTED = [("bert-1", 0.010), ("bert-2", 0.006)]


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        TABLE.replace("\n", "\r\n"),
        TABLE.replace("\n", "\r"),
        TABLE.rstrip("\n"),
        "\ufeff" + TABLE,
        TABLE.replace(",", ";"),
        TABLE.replace(",", "\t"),
        TABLE.replace(",", "|"),
        TABLE.replace(",", " , "),
        TABLE.replace(",", "   "),
        TABLE.replace("\n", "\n\n"),
        '"net","gpus","t"\n"bert","1","10"\n"bert","2","6"\n',
        "t,other,net,gpus\n10,x,bert,1\n6,y,bert,2\n",
        '{"net": "bert", "gpus": 1, "t": 10}\n\n{"t": 6.0, "net": "bert", "gpus": 2, "x": []}\n',
        '\ufeff{"net": "bert", "gpus": "1", "t": "10"}\n{"net": "bert", "gpus": 2.0, "t": 6}',
    ],
)
def test_the_layout_is_told_from_the_content(read: Reader, runs_and_steps: str, table: str) -> None:
    found = read(table, runs_and_steps)
    assert times(found) == EXPECTED
    assert [run.n_workers for run in found.of("runs")] == [1, 2]
    assert found.notes == []


def test_parquet_and_packed_files(read: Reader, runs_and_steps: str) -> None:
    columns = {"net": ["bert", "bert"], "gpus": [1, 2], "t": [10.0, 6.0], "list": [[1], []]}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    for content in (
        buffer.getvalue(),
        gzip.compress(buffer.getvalue()),
        gzip.compress(TABLE.encode()),
    ):
        assert times(read(content, runs_and_steps)) == EXPECTED
    floats = {"net": ["bert", None], "gpus": [1.0, 2.0], "t": [10.0, float("nan")]}
    buffer = io.BytesIO()
    pq.write_table(pa.table(floats), buffer)
    assert times(read(buffer.getvalue(), runs_and_steps)) == [("bert-1", 0.01), ("-2", None)]


def test_input_section(read: Reader, runs_and_steps: str) -> None:
    layout = """[input]
columns = ["net", "gpus", "t"]
skip_lines = 1
comment = "#"
delimiter = ":"
null = ["?"]
"""
    table = "made by hand\n# a comment\nbert:1:10\n  # more\nbert:2:?\nbert:3:\n"
    found = times(read(table, runs_and_steps + layout))
    assert found == [("bert-1", 0.01), ("bert-2", None), ("bert-3", None)]
    words = runs_and_steps + '[input]\nformat = "whitespace"\ncomment = "#"\n'
    table = "# nccl\n  net  gpus t\n bert\t1   10\n bert 2 6  \n"
    assert times(read(table, words)) == EXPECTED


def test_a_header_may_begin_with_a_hash(read: Reader) -> None:
    mapping = '[[records]]\ntable = "runs"\n[records.columns]\nn_devices = "`# GPUs`"\n'
    (run,) = read("\ufeff# GPUs,t\n8,1\n8,2\n", mapping).of("runs")
    assert run.n_devices == 8


def test_a_second_column_of_a_name_is_numbered(read: Reader) -> None:
    mapping = '[[records]]\ntable = "runs"\n[records.columns]\nn_nodes = "n"\nn_workers = "`n.2`"\n'
    (run,) = read("n,n\n1,2\n", mapping).of("runs")
    assert (run.n_nodes, run.n_workers) == (1, 2)


@pytest.mark.parametrize("word", ["", "NA", "N/A", "nan", "NaN", "null", "None", "  "])
def test_words_for_missing_values(read: Reader, runs_and_steps: str, word: str) -> None:
    found = read(f"net,gpus,t\nbert,1,{word}\n", runs_and_steps)
    assert times(found) == [("bert-1", None)]


def test_quotes_may_hold_delimiters_and_lines(read: Reader, runs_and_steps: str) -> None:
    found = read('net,gpus,t\n"a,\nb",1,10\nc,2,x\n', runs_and_steps, skip=True)
    assert times(found) == [("a,\nb-1", 0.01)]
    assert found.codes == [(2, "multiline_cell"), (4, "bad_line")]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("bert,1", "2 fields, the table has 3 columns: bert 1"),
        ("bert,1,2,3", "4 fields"),
        ("bert,1,fast", "t is 'fast', not a number"),
        ("bert,1,1e400", "t is '1e400', too large"),
        ("bert,1,inf", "t is 'inf', too large"),
        ("bert,1.5,1", "n_workers would be 1.5, no whole number"),
        ("bert,1e30,1", "n_workers would be 1e+30, no whole number"),
        ("bert,1,2\0", r"t is '2\x00', not a number"),
        ('bert,"1,2', "a quote"),
        (f"bert,{'9' * 200_000},1", "field larger than field limit"),
    ],
)
def test_rows_that_cannot_be_read(read: Reader, runs_and_steps: str, row: str, what: str) -> None:
    table = TABLE + row + "\nbert,4,4\nbert,5,5\n"
    with pytest.raises(ParseError, match=r"^t.csv:4: cannot read: ") as caught:
        read(table, runs_and_steps)
    assert what in str(caught.value)
    assert caught.value.hint == "--on-bad-lines skip reads the rest and counts such lines"
    found = read(table, runs_and_steps, skip=True)
    assert found.codes[0] == (4, "bad_line")
    assert times(found)[:2] == EXPECTED
    assert len(found.of("steps")) == len(found.of("runs"))


def test_rows_of_json_that_cannot_be_read(read: Reader, runs_and_steps: str) -> None:
    good = json.dumps({"net": "bert", "gpus": 1, "t": 10})
    rows = ["[1]", "{", "[" * 100_000, '{"gpus": [1], "net": "a", "t": 1}', '{"t": 1e999}']
    for row in rows:
        table = f"{good}\n{row}\n"
        with pytest.raises(ParseError, match=r"^t.csv:2: cannot read: "):
            read(table, runs_and_steps)
        found = read(table, runs_and_steps, skip=True)
        assert times(found) == EXPECTED[:1]
        assert found.codes == [(2, "bad_line")]


def test_a_last_line_that_was_cut_is_never_fatal(read: Reader, runs_and_steps: str) -> None:
    found = read(TABLE + "bert,4,", runs_and_steps)
    assert times(found) == [*EXPECTED, ("bert-4", None)]
    found = read(TABLE + "bert,", runs_and_steps)
    assert times(found) == EXPECTED
    assert found.codes == [(4, "truncated")]
    found = read(gzip.compress(TABLE.encode())[:-4], runs_and_steps)
    assert times(found) == EXPECTED
    assert found.codes == [(4, "truncated")]


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (bytes(range(256)), "a binary file"),
        ("net,gpus,t\n".encode("utf-16"), "a binary file"),
        (b"PAR1" + b"x" * 100, "cannot be read as Parquet"),
        (b"x" * 300_000, "no line with column names"),
    ],
)
def test_files_that_are_no_tables(
    read: Reader, runs_and_steps: str, table: bytes, what: str
) -> None:
    with pytest.raises(ParseError, match=what) as caught:
        read(table, runs_and_steps)
    assert str(caught.value).startswith("t.csv: ")
    assert caught.value.hint


def test_a_missing_column_is_named_with_its_key(read: Reader, runs_and_steps: str) -> None:
    with pytest.raises(ParseError) as caught:
        read("net,gpu,t\nbert,1,10\n", runs_and_steps)
    assert str(caught.value).endswith("run_id: t.csv has no column 'gpus'")
    assert caught.value.hint == "did you mean 'gpu'?"
    with pytest.raises(ParseError) as caught:
        read("net,gpus," + ",".join(f"c{i}" for i in range(500)) + "\n", runs_and_steps)
    assert "records[2] (steps).duration_s: t.csv has no column 't'" in str(caught.value)
    assert caught.value.hint.endswith(" and 462 more")


def test_batches_join(read: Reader, runs_and_steps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fitkit.parsers.table.reading.BATCH_ROWS", 3)
    rows = [(f"n{i % 2}", i % 2 + 1, i + 1) for i in range(10)]
    table = "net,gpus,t\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)
    found = read(table + "x,1,word\n", runs_and_steps, skip=True)
    assert [step.duration_s for step in found.of("steps")] == [(i + 1) / 1000 for i in range(10)]
    assert len(found.of("runs")) == 2
    assert found.codes == [(12, "bad_line")]
    parquet = io.BytesIO()
    names = ("net", "gpus", "t")
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), parquet)
    assert times(read(parquet.getvalue(), runs_and_steps)) == times(found)


@pytest.mark.parametrize("last", ["500,8,6\n", '500,8,"6"\n', '500,8,"6\n', '"500",8,6\n'])
@pytest.mark.parametrize("opened", ['bert,4,"3\n', 'bert,"4,3\n', '"bert,4,3\n'])
def test_a_quote_that_is_never_closed_swallows_no_rows(
    read: Reader, runs_and_steps: str, opened: str, last: str
) -> None:
    table = TABLE + opened + "bert,6,4\n" + last
    with pytest.raises(ParseError, match=r"^t.csv:4: cannot read: a quote opened here is never"):
        read(table, runs_and_steps)
    found = read(table, runs_and_steps, skip=True)
    rest = [("bert-6", 0.004)]
    if last.count('"') != 1:
        rest.append(("500-8", 0.006))
    assert times(found) == EXPECTED + rest
    assert found.codes == [(line, "bad_line") for line in (4, 6)[: 3 - len(rest)]]


def test_a_quote_open_in_a_last_line_that_was_cut_is_never_fatal(
    read: Reader, runs_and_steps: str
) -> None:
    found = read(TABLE + 'bert,4,"3', runs_and_steps)
    assert times(found) == EXPECTED
    assert found.codes == [(4, "truncated")]


def test_a_very_long_quote_is_no_more_than_one_bad_line(read: Reader, runs_and_steps: str) -> None:
    rows = [f"n{i},1,{i + 1}\n" for i in range(20_000)]
    found = read(TABLE + 'bert,4,"3\n' + "".join(rows), runs_and_steps, skip=True)
    assert len(found.of("steps")) == 2 + len(rows)
    assert found.codes == [(4, "bad_line")]


@pytest.mark.parametrize("word", [True, False])
def test_a_truth_value_is_no_number(read: Reader, runs_and_steps: str, word: bool) -> None:
    rows = [{"net": "bert", "gpus": 1, "t": 10}, {"net": "bert", "gpus": 2, "t": word}]
    table = "".join(json.dumps(row) + "\n" for row in rows)
    with pytest.raises(ParseError, match=f"^t.csv:2: cannot read: t is '{word}', not a number"):
        read(table, runs_and_steps)
    buffer = io.BytesIO()
    pq.write_table(pa.table({"net": ["a"], "gpus": [1], "t": [word]}), buffer)
    with pytest.raises(ParseError, match="not a number"):
        read(buffer.getvalue(), runs_and_steps)
