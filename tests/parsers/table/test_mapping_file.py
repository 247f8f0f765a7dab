"""Mapping files: what they may say, and one line with file and key for everything else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fitkit.errors import InputError, ParseError
from fitkit.parsers.table import TableMapping, read_mapping
from fitkit.parsers.table.targets import Constant, Formula, Template

GOOD = """
run_id = { text = "{net}-{gpus}" }
where = "gpus > 0"
[units]
"size (MB)" = "MB"
bw = "GB/s"
[[records]]
table = "runs"
[records.columns]
network = "net"
n_workers = "gpus"
device = { constant = "T4" }
[[records]]
table = "steps"
where = 'net == "bert"'
[records.columns]
n_steps = 1
duration_s = { value = "t", unit = "ms" }
"""


def load(folder: Path, text: str) -> TableMapping:
    path = folder / "m.toml"
    path.write_text(text, encoding="utf-8")
    return read_mapping(path)


def test_blocks_columns_and_what_they_need(tmp_path: Path) -> None:
    mapping = load(tmp_path, GOOD)
    runs, steps = mapping.blocks
    assert (runs.label, steps.label) == ("records[1] (runs)", "records[2] (steps)")
    assert isinstance(runs.recipe("network"), Formula)
    assert runs.recipe("device") == Constant("T4")
    assert steps.recipe("n_steps") == Constant(1)
    assert steps.recipe("run_id") == Template("{}-{}", ("net", "gpus"))
    assert steps.recipe("epoch") is None
    assert mapping.names.keys() == {"net", "gpus", "t", "size (MB)", "bw"}
    assert mapping.names["t"] == "records[2] (steps).duration_s"
    assert len(mapping.sha256) == 64


def test_a_block_may_name_its_run_otherwise(tmp_path: Path) -> None:
    text = GOOD.replace("n_steps = 1", 'n_steps = 1\nrun_id = "net"')
    steps = load(tmp_path, text).blocks[1]
    assert isinstance(steps.recipe("run_id"), Formula)


def test_constants_have_the_type_of_their_column(tmp_path: Path) -> None:
    columns = """
local_batch = 32
global_batch = { constant = 64 }
started_at = 2026-03-01T12:00:00+01:00
"""
    (block,) = load(tmp_path, f'[[records]]\ntable = "runs"\n[records.columns]{columns}').blocks
    batch = block.recipe("local_batch")
    assert isinstance(batch, Constant)
    assert (batch.value, type(batch.value)) == (32.0, float)
    assert block.recipe("started_at") == Constant(datetime(2026, 3, 1, 11, tzinfo=UTC))
    text = '[[records]]\ntable = "edges"\n[records.columns]\nsrc = "a"\ndst = "b"\n'
    (block,) = load(tmp_path, text + 'n_bytes = { constant = 2, unit = "KiB" }').blocks
    assert block.recipe("n_bytes") == Constant(2048.0)


@pytest.mark.parametrize(
    ("old", "new", "what", "hint"),
    [
        ('table = "steps"', 'table = "step"', "records[2].table: no table 'step'", "'steps'"),
        ('table = "steps"', 'table = "sources"', "records[2].table: no table", "there are comms"),
        ('table = "steps"', "", "records[2].table: no table None", "there are"),
        ("duration_s", "duration", "records[2] (steps).duration: unknown key", "'duration_s'"),
        ("n_steps = 1", "", "records[2] (steps): column 'n_steps' is missing", "constant"),
        ("n_steps = 1", "n_steps = 1.5", "n_steps.constant: expected a whole number", ""),
        ("n_steps = 1", "n_steps = true", "n_steps.constant: expected a whole number", ""),
        ("n_steps = 1", 'n_steps = { text = "1" }', "n_steps: expected int, not a text", "value"),
        ("n_steps = 1", f"n_steps = {2**63}", "n_steps.constant: too large", ""),
        ("n_steps = 1", 'n_steps = 1\nsource_id = "net"', "source_id: unknown key", ""),
        ('unit = "ms"', 'unit = "MB"', "'MB' is bytes, duration_s holds seconds", ""),
        ('unit = "ms"', 'unit = "GB/s"', "'GB/s' is bytes per seconds, duration_s holds", ""),
        ('unit = "ms"', 'unit = "m"', "duration_s.unit: no unit 'm'", ""),
        ('unit = "ms"', "unit = 3", "duration_s.unit: expected a text, got 3", ""),
        ('"t", unit = "ms"', '"`size (MB)`"', "is bytes, duration_s holds seconds", ""),
        ('"t"', '"`size (MB)` / bw"', "is seconds, unit = 'ms' is said, too", ""),
        ('"t"', '"bw + `size (MB)`"', "adds bytes and bytes per seconds", ""),
        ('"t"', '"t +"', "duration_s: 't +', line 1, column 4: expected a number", ""),
        ('{ value = "t", unit = "ms" }', "{ }", "expected one of value, constant and text", ""),
        ('{ value = "t", unit = "ms" }', '{ value = "t", text = "t" }', "expected one of", ""),
        ('{ value = "t", unit = "ms" }', '{ val = "t" }', "duration_s.val: unknown key", "'value'"),
        ('network = "net"', 'network = "net + 1"', "network: 'net + 1' is no column", "text = "),
        ('network = "net"', "network = 3", "network.constant: expected a text, got 3", ""),
        ('network = "net"', 'network = { value = "net", unit = "s" }', "only figures have", ""),
        ('network = "net"', 'network = { text = "{}" }', "'{}' names no column", ""),
        ('network = "net"', 'network = { text = "a}" }', "'}' names no column", ""),
        ('network = "net"', 'network = { value = "net", map = 3 }', "map: expected a table", ""),
        ('network = "net"', 'network = { value = "net", map = { a = 1 } }', "map.a: expected", ""),
        ('{ constant = "T4" }', '{ constant = "T4", map = {} }', "map: only words of a col", ""),
        ('"t", unit = "ms"', '"t", map = { a = "1" }', "map: only words of texts", ""),
        ('{ constant = "T4" }', '{ constant = "T4", other = "x" }', "other: only words of", ""),
        ('network = "net"', 'network = { value = "net", other = 3 }', "other: expected a text", ""),
        ('"t", unit = "ms"', '"t", other = "1"', "map: only words of texts", ""),
        ("[units]", "[input]\nrows = 'a'\n[units]", "input.rows: only jsonl and json", ""),
        ('where = "gpus > 0"', 'where = "gpus >"', "where: cannot read the condition", ""),
        ('where = "gpus > 0"', 'when = "gpus > 0"', "when: unknown key", "'where'"),
        ('where = "gpus > 0"', "where = 3", "where: expected a text, got 3", ""),
        ('"GB/s"', '"GB/hour"', "units.bw: no unit 'GB/hour'", ""),
        ('table = "runs"', 'table = "runs"\nplausible = "no"', "plausible: expected bool", ""),
        ("[units]", "[input]\nformat = 'xlsx'\n[units]", "input.format: no format 'xlsx'", "csv"),
        ("[units]", "[input]\ndelimiter = '::'\n[units]", "input.delimiter: expected one", ""),
        ("[units]", "[input]\nskip_lines = -1\n[units]", "input.skip_lines: expected a count", ""),
        ("[units]", "[input]\ncolumns = [1]\n[units]", "input.columns: expected a text", ""),
        ("[units]", "[input]\nsep = ','\n[units]", "input.sep: unknown key", ""),
        ("[units]", "[path]\npattern = '('\n[units]", "path.pattern: no regular expression", ""),
        ("[units]", "[path]\npattern = 'x'\n[units]", "path.pattern: names no column", "(?P<"),
        ("[units]", "[path]\n[units]", None, ""),
    ],
)  # fmt: skip
def test_errors_name_file_and_key(
    tmp_path: Path, old: str, new: str, what: str | None, hint: str
) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    if what is None:
        assert load(tmp_path, text).pattern is None
        return
    with pytest.raises(ParseError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'm.toml'}: ")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value) + caught.value.hint
    assert caught.value.hint
    assert hint in caught.value.hint


LINES = """
run_id = { text = "{job}" }
[path]
pattern = '(?P<job>[^/]+)/log$'
[input]
format = "lines"
[[input.patterns]]
name = "epoch"
pattern = 'epoch (?P<epoch>[0-9]+)'
carry = true
[[input.patterns]]
name = "step"
pattern = 'rank (?P<rank>[0-9]+) step (?P<t>[0-9.]+)'
[[records]]
table = "steps"
from = "step"
[records.columns]
n_steps = 1
epoch = "epoch"
first_step = "line"
duration_s = "t"
"""


def test_patterns_of_lines(tmp_path: Path) -> None:
    mapping = load(tmp_path, LINES)
    (block,) = mapping.blocks
    assert [(one.name, one.carry) for one in mapping.layout.patterns] == [
        ("epoch", True), ("step", False),
    ]  # fmt: skip
    assert block.rows.origin == "step"
    assert mapping.names.keys() == {"job", "rank", "t", "epoch", "line"}
    alone = LINES.replace("carry = true", "").replace('epoch = "epoch"\n', "")
    first, second = alone.index("[[input.patterns]]"), alone.rindex("[[input.patterns]]")
    alone = alone[:first] + alone[second:].replace('from = "step"', "")
    assert load(tmp_path, alone).blocks[0].rows.origin == "step"  # there is no other one


@pytest.mark.parametrize(
    ("old", "new", "what", "hint"),
    [
        ('format = "lines"', "", "input.patterns: only format = ", ""),
        ('format = "lines"', 'format = "lines"\ndelimiter = ","', "delimiter: lines have no", ""),
        ('format = "lines"', 'format = "lines"\ncolumns = ["a"]', "input.columns: lines have", ""),
        ('format = "lines"', 'format = "lines"\nprefix = "("', "prefix: no regular", "RE2"),
        ('format = "lines"', 'format = "lines"\nprefix = 3', "input.prefix: expected a text", ""),
        ('format = "lines"', 'format = "lines"\nmust_match = "(a)"', "must_match: a group", "RE2"),
        ('name = "epoch"', 'name = "step"', "input.patterns: two of one name", ""),
        ('name = "epoch"', "", "input.patterns[1].name: expected a text, got None", ""),
        ("carry = true", "carry = 1", "input.patterns[1].carry: expected bool", ""),
        ("carry = true", "keep = true", "input.patterns[1].keep: unknown key", ""),
        ("epoch (?P<epoch>[0-9]+)", "epoch", "patterns[1].pattern: names no column", "(?P<"),
        ("epoch (?P<epoch>[0-9]+)", r"(?P<epoch>.)\1", "patterns[1].pattern: no regular", "RE2"),
        ("(?P<epoch>", "(?P<line>", "the column 'line' is the number of the line", "otherwise"),
        ("(?P<t>", "(?=a)(?P<t>", "input.patterns[2].pattern: no regular", "back-references"),
        ("(?P<job>[^/]+)", r"(?P<job>.)\1", "path.pattern: no regular", "back-references"),
        ("(?P<job>[^/]+)", r"(a)(?P<job>.)", "path.pattern: a group without a name", "(?:...)"),
        ('from = "step"', "", "records[1] (steps).from: no pattern is said", "epoch, step"),
        ('from = "step"', 'from = "stp"', "(steps).from: no pattern 'stp'", "mean 'step'"),
        ('from = "step"', "from = 3", "records[1] (steps).from: no pattern 3", "there are"),
        ("carry = true", "", "(steps).epoch: lines of pattern 'step' have no column", ""),
        ('"{job}"', '"{net}"', "records[1] (steps).run_id: lines of pattern 'step' have", "epoch"),
        ("[path]", "where = 'net == 1'\n[path]", "where: lines have no column 'net'", ""),
        ("[path]", "[units]\nnet = 's'\n[path]", "units: lines have no column 'net'", ""),
    ],
)  # fmt: skip
def test_errors_of_lines_name_file_and_key(
    tmp_path: Path, old: str, new: str, what: str, hint: str
) -> None:
    text = LINES.replace(old, new, 1)
    assert text != LINES
    with pytest.raises(ParseError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'm.toml'}: ")
    assert what in str(caught.value)
    assert hint in caught.value.hint


def test_lines_need_a_pattern_and_tables_have_none(tmp_path: Path) -> None:
    block = LINES[LINES.index("[[records]]") :].replace('from = "step"', "")
    with pytest.raises(ParseError, match=r"input.patterns: lines need a block"):
        load(tmp_path, '[input]\nformat = "lines"\n' + block)
    with pytest.raises(ParseError, match=r"input.patterns\[1\]: expected a table, got 'a'"):
        load(tmp_path, '[input]\nformat = "lines"\npatterns = ["a"]\n' + block)
    with pytest.raises(ParseError, match=r"records\[2\] \(steps\).from: only rows of format"):
        load(tmp_path, GOOD.replace('table = "steps"', 'table = "steps"\nfrom = "step"'))


@pytest.mark.parametrize(
    ("column", "value", "known"),
    [("phase", "communication", "there are backward"), ("parent", "steps", "'step'")],
)
def test_phases_have_words(tmp_path: Path, column: str, value: str, known: str) -> None:
    phase = "" if column == "phase" else 'phase = { constant = "comm" }\n'
    text = f'[[records]]\ntable = "phases"\n[records.columns]\n{phase}duration_s = "t"\n'
    with pytest.raises(ParseError, match=f"no word '{value}'") as caught:
        load(tmp_path, text + f'{column} = {{ constant = "{value}" }}')
    assert known in caught.value.hint


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "records: a mapping has at least one block"),
        ("records = 3", "records: a mapping has at least one block"),
        ("records = []", "records: a mapping has at least one block"),
        ("records = [3]", r"records\[1\]: expected a table, got 3"),
        ("a = ", r"m.toml: not a TOML file: Invalid value"),
        ("a = 1\na = 2\nb = 3", r"m.toml:2: not a TOML file: Cannot overwrite a value$"),
        ("a = " + "[" * 100_000, "not a TOML file: maximum recursion"),
        ("units = 3", "units: expected a table, got 3"),
        ("net,gpus\na,1\n", "m.toml:1: not a TOML file"),
    ],
)
def test_what_is_no_mapping(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ParseError, match=what) as caught:
        load(tmp_path, text)
    assert caught.value.hint


def test_a_folder_a_binary_file_and_nothing_at_all(tmp_path: Path) -> None:
    for path, what in (
        (tmp_path, "not a file"),
        (Path("/dev/zero"), "not a file"),
        (tmp_path / "no.toml", "No such file"),
    ):
        with pytest.raises(InputError, match=what):
            read_mapping(path)
    (tmp_path / "b.toml").write_bytes(bytes(range(256)))
    with pytest.raises(ParseError, match="not a TOML file"):
        read_mapping(tmp_path / "b.toml")
    with pytest.raises(InputError, match="null"):
        read_mapping("a\0b")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert len(read_mapping(tmp_path / "m.toml").blocks) == 2
