"""Text logs read by the patterns of a mapping: rows, carried values, ranks, and damage."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.table import TableParser, read_mapping
from fitkit.records import Phase, Record, Run, Step

Reader = Callable[..., Any]

# Our own training scripts' logs, which a built-in parser reads, too.
SCRIPT = r"""
run_id = { text = "{job}" }

[path]
pattern = '(?P<job>[^/]+)/train_(?P<window>[a-z]+)_rank\d+\.log$'

[input]
format = "lines"
prefix = '^\d+-\d+-\d+ [\d:,]+ \[rank(?P<rank>\d+)\] [A-Z]+ '
must_match = '^epoch \d+ step'

[[input.patterns]]
name = "args"
pattern = "^args \\{'model': '(?P<model>[^']*)', 'batch': (?P<batch>\\d+),"
carry = true

[[input.patterns]]
name = "torch"
pattern = '^torch (?P<version>\S+) world_size (?P<world>\d+) threads (?P<threads>\d+)'
carry = true

[[input.patterns]]
name = "init"
pattern = '^init INIT params (?P<params>\d+)$'
carry = true

[[input.patterns]]
name = "step"
pattern = '^epoch (?P<epoch>\d+) step (?P<step>\d+)/.* \| step_time (?P<all>\S+) ms TIMES .*/s$'

[[records]]
table = "runs"
from = "step"
[records.columns]
framework = { constant = "pytorch" }
framework_version = "version"
network = "model"
local_batch = "batch"
global_batch = "batch * world"
n_workers = "world"
n_effective_workers = "world"
n_params = "params"
n_threads = "threads"
instrument = { value = "window", map = { plain = "none" } }

[[records]]
table = "phases"
from = "init"
[records.columns]
phase = { constant = "init" }
duration_s = { value = "import_s + process_group_s + model_s + ddp_s + dataloader_s", unit = "s" }

[[records]]
table = "steps"
from = "step"
[records.columns]
n_steps = 1
epoch = "epoch + 1"
first_step = "step"
n_samples = "batch * world"
duration_s = { value = "all", unit = "ms" }
"""
INIT = ("import", "process_group", "model", "ddp", "dataloader")
SCRIPT = SCRIPT.replace("INIT", " ".join(rf"{name} (?P<{name}_s>\S+) s" for name in INIT))
TIMES = ("data", "forward", "backward", "optimizer")
SCRIPT = SCRIPT.replace("TIMES", " ".join(rf"{name} (?P<{name}>\S+) ms" for name in TIMES))
PARTS = {
    "io": "data", "forward": "forward", "backward": "backward", "optimizer": "optimizer",
    "other": "all - data - forward - backward - optimizer",
}  # fmt: skip
PHASE = """
[[records]]
table = "phases"
from = "step"
[records.columns]
phase = {{ constant = "{phase}" }}
parent = {{ constant = "step" }}
epoch = "epoch + 1"
step = "step"
duration_s = {{ value = "{value}", unit = "ms" }}
"""
WHOLE = PHASE.replace('parent = {{ constant = "step" }}\n', "").format(phase="step", value="all")
SCRIPT += WHOLE + "".join(PHASE.format(phase=name, value=text) for name, text in PARTS.items())

STEPS = r"""
[input]
format = "lines"
[[input.patterns]]
name = "step"
pattern = 'step (?P<step>\d+) took (?P<t>\S+) ms'
[[records]]
table = "steps"
[records.columns]
n_steps = 1
first_step = "step"
duration_s = { value = "t", unit = "ms" }
"""
EPOCHS = r"""
[input]
format = "lines"
prefix = '^\[(?:rank)?(?P<rank>\d+)\]:? *'
must_match = '^step \d'
[[input.patterns]]
name = "epoch"
pattern = '^=+ epoch (?P<epoch>\d+)'
carry = true
[[input.patterns]]
name = "world"
pattern = '^world size (?P<world>\d+)'
carry = true
[[input.patterns]]
name = "step"
pattern = '^step (?P<step>\d+) took (?P<t>\S+) ms$'
[[records]]
table = "steps"
from = "step"
[records.columns]
n_steps = 1
first_step = "step"
epoch = "epoch"
n_samples = "world"
duration_s = { value = "t", unit = "ms" }
"""


def steps(found: Any) -> list[tuple[int, int | None, int | None, int | None]]:
    """Rank, step, epoch and world size of every step."""
    return [(s.rank, s.first_step, s.epoch, s.n_samples) for s in found.of("steps")]


def records(parser: Any, path: Path) -> list[Record]:
    return list(parser.parse(Source(path.name, (SourceFile(path, path.name),))))


@pytest.fixture(scope="module")
def script_mapping(tmp_path_factory: pytest.TempPathFactory) -> TableParser:
    path = tmp_path_factory.mktemp("mapping") / "script.toml"
    path.write_text(SCRIPT, encoding="utf-8")
    return TableParser(read_mapping(path))


def test_a_mapping_reads_our_own_logs_as_the_built_in_parser_does(
    data: Path, script_mapping: TableParser
) -> None:
    logs = sorted((data / "pytorch").glob("*_rep1/train_plain_rank?.log.gz"))
    assert len(logs) > 20
    for path in logs:
        mapped, built_in = records(script_mapping, path), records(PyTorchParser(), path)
        for table, keys, figure in (
            (Step, ("rank", "n_steps", "epoch", "first_step", "n_samples"), "duration_s"),
            (Phase, ("rank", "phase", "epoch", "step", "parent", "n"), "duration_s"),
        ):
            ours, theirs = (
                {
                    tuple(getattr(record, key) for key in keys): getattr(record, figure)
                    for record in found
                    if isinstance(record, table)
                }
                for found in (mapped, built_in)
            )
            assert ours == pytest.approx(theirs, abs=1e-12), path
            assert len(ours) > 10
        (run,), (known,) = (
            [r for r in found if isinstance(r, Run)] for found in (mapped, built_in)
        )
        for name in (
            "network", "n_workers", "local_batch", "global_batch", "n_params", "n_threads",
            "framework_version", "n_effective_workers",
        ):  # fmt: skip
            assert getattr(run, name) == getattr(known, name)
        assert (run.run_id, run.instrument) == (path.parent.name, "none")


def test_lines_that_match_are_rows_and_the_others_are_counted(read: Reader) -> None:
    log = "hello\n\nstep 0 took 10 ms\nsaving ...\n> step 1 took 12.5 ms, loss 3\nbye\n"
    found = read(log, STEPS, name="run.log")
    assert [(s.first_step, s.duration_s) for s in found.of("steps")] == [(0, 0.01), (1, 0.0125)]
    ((path, line, code, text),) = found.notes
    assert (path, line, code) == ("run.log", 1, "unmatched_lines")
    assert text == "3 lines match no pattern, the first: hello"
    assert read("step 0 took 10 ms\n", STEPS).notes == []


def test_the_number_of_the_line_is_a_column(read: Reader) -> None:
    mapping = STEPS.replace('first_step = "step"', 'first_step = "line"')
    log = "# note\nstep 7 took 10 ms\n\nstep 8 took 11 ms\n"
    assert [s.first_step for s in read(log, mapping).of("steps")] == [2, 4]
    told = mapping.replace('format = "lines"', 'format = "lines"\ncomment = "#"\nskip_lines = 2')
    found = read("step 1 took 9 ms\n" + log, told)
    assert ([s.first_step for s in found.of("steps")], found.notes) == ([3, 5], [])


def test_the_first_pattern_that_a_line_matches_takes_it(read: Reader) -> None:
    slow = "[[input.patterns]]\nname = \"slow\"\npattern = '(?P<t>\\S+) ms SLOW'\n"
    mapping = STEPS.replace("[[input.patterns]]", slow + "[[input.patterns]]", 1)
    mapping = mapping.replace('table = "steps"', 'table = "steps"\nfrom = "step"')
    log = "step 0 took 10 ms\nstep 1 took 99 ms SLOW\n"
    assert [s.first_step for s in read(log, mapping).of("steps")] == [0]
    assert read(log, mapping).notes == []


def test_values_of_earlier_lines_are_carried(read: Reader) -> None:
    log = "== epoch 1\nstep 0 took 9 ms\nworld size 4\nstep 1 took 9 ms\n"
    log += "== epoch 2\nstep 2 took 9 ms\n"
    assert read(log, EPOCHS).notes[0][2] == "missing_value"  # the lines have no rank
    log = "".join(f"[rank0]: {line}\n" for line in log.splitlines())
    assert steps(read(log, EPOCHS)) == [(0, 0, 1, None), (0, 1, 1, 4), (0, 2, 2, 4)]


def test_each_rank_carries_its_own_values(read: Reader) -> None:
    log = """[0] world size 2
[0] == epoch 1
[1] step 0 took 9 ms
[1] == epoch 7
[0] step 0 took 9 ms
[1] step 1 took 9 ms
[0] == epoch 2
[1] step 2 took 9 ms
[0] step 1 took 9 ms
== epoch 3
[0] step 2 took 9 ms
[1] step 3 took 9 ms
[1] == epoch 8
[1] step 4 took 9 ms
[0] step 3 took 9 ms
"""
    assert steps(read(log, EPOCHS)) == [
        (1, 0, 1, 2),  # rank 1 has said nothing yet
        (0, 0, 1, 2), (1, 1, 7, 2), (1, 2, 7, 2), (0, 1, 2, 2),
        (0, 2, 3, 2), (1, 3, 3, 2),  # a line without a rank speaks for all
        (1, 4, 8, 2), (0, 3, 3, 2),
    ]  # fmt: skip


def test_a_rank_that_a_log_states_once_holds_for_all_its_lines(read: Reader) -> None:
    mapping = EPOCHS.replace("world size", "rank (?P<rank>\\d+) of")
    mapping = mapping.replace("prefix = '^\\[(?:rank)?(?P<rank>\\d+)\\]:? *'\n", "")
    found = read("rank 3 of 8\n== epoch 1\nstep 0 took 9 ms\n", mapping)
    assert steps(found) == [(3, 0, 1, 8)]


def test_batches_join(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "[0] == epoch 4\n" + "".join(f"[0] step {i} took 9 ms\nx\n" for i in range(10))
    whole = read(log, EPOCHS)
    monkeypatch.setattr("fitkit.parsers.table.lines.BATCH_LINES", 3)
    parts = read(log, EPOCHS)
    assert steps(parts) == steps(whole) == [(0, i, 4, None) for i in range(10)]
    assert parts.notes == whole.notes


def test_a_line_that_must_match_and_does_not_is_a_bad_line(read: Reader) -> None:
    log = "[0] step 0 took 9 ms\n[0] step 1 took\n[0] steps are fun\n[0] step 2 took 9 ms\n"
    with pytest.raises(ParseError, match=r"^t.csv:2: cannot read: step 1 took$") as caught:
        read(log, EPOCHS)
    assert "--on-bad-lines skip" in caught.value.hint
    found = read(log, EPOCHS, skip=True)
    assert [step for _, step, _, _ in steps(found)] == [0, 2]
    assert found.codes == [(2, "bad_line"), (3, "unmatched_lines")]


@pytest.mark.parametrize("word", ["fast", "1e999", "12:03"])
def test_a_figure_that_is_none_is_a_bad_line(read: Reader, word: str) -> None:
    log = f"step 0 took 10 ms\nstep 1 took {word} ms\n"
    with pytest.raises(ParseError, match=r"^t.csv:2: cannot read: t is"):
        read(log, STEPS)
    assert read(log, STEPS, skip=True).codes == [(2, "bad_line")]


@pytest.mark.parametrize(
    ("last", "n_rows", "notes"),
    [
        ("[0] step 1 took 10 ms", 2, []),
        ("[0] step 1 took 10 m", 1, [(2, "truncated")]),
        ("[0] step 1 took 10", 1, [(2, "truncated")]),
        ("[0] step", 1, [(2, "unmatched_lines")]),
        ("[0] == epoch 1", 1, [(2, "truncated")]),  # perhaps epoch 12
    ],
)
def test_a_last_line_that_was_cut_gives_no_wrong_figure(
    read: Reader, last: str, n_rows: int, notes: list[tuple[int, str]]
) -> None:
    found = read("[0] step 0 took 10 ms\n" + last, EPOCHS)
    assert len(found.of("steps")) == n_rows
    assert found.codes == notes


def test_a_number_at_the_very_end_is_left_out_if_the_line_does_not_end(read: Reader) -> None:
    mapping = STEPS.replace(r"(?P<t>\S+) ms", r"(?P<t>[\d.]+)")
    log = "step 0 took 12.5\nstep 1 took 12.5"
    assert len(read(log + "\n", mapping).of("steps")) == 2
    found = read(log, mapping)
    assert ([s.first_step for s in found.of("steps")], found.codes) == ([0], [(2, "truncated")])
    found = read(gzip.compress(log.encode())[:-4], mapping)
    assert ([s.first_step for s in found.of("steps")], found.codes) == ([0], [(2, "truncated")] * 2)


def test_rows_of_phases_and_runs_from_one_log(read: Reader) -> None:
    mapping = (
        EPOCHS
        + r"""
[[records]]
table = "runs"
from = "world"
[records.columns]
n_workers = "world"
"""
    )
    found = read("[0] world size 2\n[1] world size 2\n[0] step 0 took 5 ms\n", mapping)
    assert [run.n_workers for run in found.of("runs")] == [2]
    log = "[0] world size 2\n[1] world size 4\n"
    with pytest.raises(ParseError, match=r"t.csv:2: run .* is another one in line 1: n_workers"):
        read(log, mapping)


def test_where_holds_for_rows_of_lines_too(read: Reader) -> None:
    mapping = 'where = "step > 0"\n' + STEPS
    log = "step 0 took 10 ms\nstep 1 took 11 ms\n"
    assert [s.first_step for s in read(log, mapping).of("steps")] == [1]
    found = read(log, STEPS.replace('table = "steps"', 'table = "steps"\nunless = "step == 1"'))
    assert [s.first_step for s in found.of("steps")] == [0]


def test_a_log_without_a_row_says_so(read: Reader) -> None:
    found = read("nothing here\n", STEPS)
    assert found.codes == [(1, "unmatched_lines"), (None, "no_rows")]


def test_carriage_returns_of_a_progress_bar_end_lines(read: Reader) -> None:
    found = read("step 0 took 10 ms\rstep 1 took 11 ms\r\nstep 2 took 12 ms\n", STEPS)
    assert [s.first_step for s in found.of("steps")] == [0, 1, 2]


LOG = "".join(f"[{rank}] == epoch {e}\n[{rank}] step {e} took 1{rank}.5 ms\n" for e in range(4)
              for rank in range(2))  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=40), st.integers(0, len(LOG)), st.integers(0, 8))
def test_damage_is_a_parse_error_or_noted(
    read: Reader, junk: bytes, place: int, n_lost: int
) -> None:
    log = LOG.encode()
    try:
        found = read(log[:place] + junk + log[place + n_lost :], EPOCHS, skip=True)
    except ParseError:
        return
    assert {type(step.duration_s) for step in found.of("steps")} <= {float}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, len(LOG)))
def test_a_log_that_is_cut_anywhere_keeps_whole_lines_only(read: Reader, place: int) -> None:
    whole = steps(read(LOG, EPOCHS))
    found = read(LOG[:place], EPOCHS)
    n_ended = sum("took" in line for line in LOG[:place].splitlines() if line.endswith("ms"))
    assert steps(found) == whole[:n_ended]
    assert {s.duration_s for s in found.of("steps")} <= {0.0105, 0.0115}
