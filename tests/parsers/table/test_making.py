"""Records from rows: values by hand, runs made once, rows taken and left out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.records import Edge, Io, Job, Layer, Pair, Phase, Run, Step

Reader = Callable[..., Any]


def block(table: str, *columns: str, rows: str = "") -> str:
    return "\n".join(["[[records]]", f'table = "{table}"', rows, "[records.columns]", *columns, ""])


def test_one_row_makes_a_record_of_every_block(read: Reader) -> None:
    mapping = 'run_id = { text = "r{id}" }\n' + "".join(
        [
            block("runs", 'network = "net"', 'local_batch = "b / n"', 'global_batch = "b"'),
            block("steps", "n_steps = 2", 'duration_s = "2 * t"'),
            block(
                "phases",
                'phase = { constant = "comm" }',
                'parent = { constant = "step" }',
                'duration_s = { value = "sync", unit = "us" }',
            ),
        ]
    )
    found = read("id,net,b,n,t,sync\n1,bert,12,8,0.25,1500\n", mapping)
    source_id = found.of("runs")[0].source_id
    assert found.of("runs") == [
        Run("r1", source_id, network="bert", local_batch=1.5, global_batch=12)
    ]
    assert found.of("steps") == [Step("r1", 0, 2, 0.5)]
    assert found.of("phases") == [Phase("r1", "comm", 0.0015, parent="step")]
    assert found.notes == []


def test_without_words_on_runs_a_file_is_one_bare_run(read: Reader) -> None:
    mapping = block("edges", 'src = "a"', 'dst = "b"', 'n_bytes = { value = "kb", unit = "KB" }')
    found = read("a,b,kb\nx,y,2\ny,z,\n", mapping, device="A100")
    (run,) = found.of("runs")
    assert run == Run(run.source_id[:16], run.source_id, device="A100")
    assert found.of("edges") == [Edge(run.run_id, "x", "y", 2000), Edge(run.run_id, "y", "z")]


def test_jobs_and_pairs_have_no_runs(read: Reader) -> None:
    mapping = block("pairs", 'pair_id = "id"', 'device = "d"', 'job = "id"', 'neighbour = "d"')
    mapping += block(
        "jobs", 'job_id = "id"', "attempt = 1", 'scheduler = { constant = "slurm" }',
        'started_at = "start"', 'ended_at = { value = "end", unit = "s" }',
        'wall_limit_s = { value = "limit", unit = "min" }', 'exit_code = "code"',
    )  # fmt: skip
    table = "id,start,end,limit,code,d\n7,2026-03-01T12:00:00+01:00,1772366400,90,0,T4\n"
    found = read(table, mapping)
    pair, job = found.records
    noon = datetime(2026, 3, 1, 11, tzinfo=UTC)
    assert job == Job(
        job.source_id, "7", 1, "slurm", started_at=noon, wall_limit_s=5400.0, exit_code=0,
        ended_at=datetime.fromtimestamp(1772366400, UTC), run_s=3600.0, is_local_time=False, line=2,
    )  # fmt: skip
    assert pair == Pair(job.source_id, "7", "T4", "7", "T4")


def test_local_times_need_a_zone(read: Reader) -> None:
    mapping = block("runs", 'started_at = "start"')
    table = "start\n2026-07-01 12:00:00\n"
    found = read(table, mapping)
    assert found.of("runs")[0].started_at is None
    assert found.codes == [(2, "no_timezone")]
    found = read(table, mapping, tz="Europe/Oslo")
    assert found.of("runs")[0].started_at == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert found.notes == []
    with pytest.raises(ParseError, match="start is 'noon', no instant such as 2026-03-01T12"):
        read("start\nnoon\n", mapping)
    late = 'started_at = { value = "start", unit = "s" }'
    with pytest.raises(ParseError, match="s after 1970, no instant"):
        read("start\n1e15\n", block("runs", late))


def test_truth_values(read: Reader) -> None:
    columns = ('module = { constant = "POSIX" }', 'is_partial = "p"')
    found = read("p\ntrue\nNo\n1\n\nNA\n", block("io", *columns))
    assert [row.is_partial for row in found.of("io")] == [True, False, True, None]
    with pytest.raises(ParseError, match="p is 'maybe', neither true nor false"):
        read("p\nmaybe\n", block("io", *columns))
    (row,) = read('{"p": false}\n', block("io", *columns)).of("io")
    assert row == Io(row.run_id, None, None, "POSIX", is_partial=False)


def test_text_facts_stay_texts(read: Reader) -> None:
    mapping = block("runs", 'placement = "p"', 'run_id = { text = "{p}-{{x}}" }')
    found = read("p\n1123\n0012\n\n4e2\n", mapping)
    assert [run.placement for run in found.of("runs")] == ["1123", "0012", "4e2"]
    assert found.of("runs")[0].run_id == "1123-{x}"
    (run,) = read('{"p": 1123}\n', mapping).of("runs")
    assert run.placement == "1123"
    (run,) = read('{"p": 1123.0}\n{"p": 1123}', mapping).of("runs")
    assert run.placement == "1123"


# --- runs -----------------------------------------------------------------------------------


def test_equal_runs_are_made_once(read: Reader) -> None:
    mapping = block("runs", 'run_id = "r"', 'network = "n"') + block(
        "steps", 'run_id = "r"', "n_steps = 1", 'duration_s = "t"'
    )
    found = read("r,n,t\na,x,1\na,x,2\nb,y,3\na,x,4\n", mapping)
    assert [run.run_id for run in found.of("runs")] == ["a", "b"]
    assert [step.run_id for step in found.of("steps")] == ["a", "a", "b", "a"]


def test_two_runs_of_one_name_are_an_error_with_both_lines(read: Reader) -> None:
    mapping = block("runs", 'run_id = "r"', 'network = "n"', 'n_nodes = "k"')
    with pytest.raises(ParseError) as caught:
        read("r,n,k\na,x,1\nb,y,1\n\na,z,2\n", mapping)
    assert str(caught.value) == (
        "t.csv:5: run 'a' is another one in line 2: network, n_nodes differ"
    )
    assert "run_id = { text" in caught.value.hint
    assert len(read("r,n,k\na,x,1\na,z,1\n", mapping, network="w").of("runs")) == 1


def test_what_the_user_says_wins_and_is_noted_once(read: Reader) -> None:
    mapping = block("runs", 'run_id = "r"', 'device = "d"')
    found = read("r,d\na,T4\nb,T4\nc,V100\n", mapping, device="A100", n_nodes=2, tz="UTC")
    assert {(run.device, run.n_nodes) for run in found.of("runs")} == {("A100", 2)}
    assert sorted(text for *_, text in found.notes) == [
        "device: the log says 'T4', run.toml or --set says 'A100'",
        "device: the log says 'V100', run.toml or --set says 'A100'",
    ]


# --- rows -----------------------------------------------------------------------------------


STEPS = ("n_steps = 1", 'duration_s = "t"')


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ('where = "t > 1"', [2, 3]),
        ("where = 'k == \"a\"'", [1, 3]),
        ("where = 'k != \"a\"'", [2]),
        ("unless = 'k == \"a\"'", [2, 4]),
        ('where = "t > 1"\nunless = \'k in ["b"]\'', [3]),
        ('where = "n == 1"', [1]),
        ('where = "n in [1, 2]"', [1, 2]),
        ('where = "`a b` == True"', [1]),
        ("where = 'k == \"`a b`\"'", []),
        ('where = "t > 1 and t < 3"', [2]),
    ],
)
def test_rows_are_taken_and_left_out(read: Reader, rows: str, taken: list[int]) -> None:
    table = "k,n,t,a b\na,1,1,True\nb,2.0,2,false\na,word,3,\n,,0.5,x\n"
    steps = read(table, block("steps", *STEPS, rows=rows)).of("steps")
    lines = {1.0: 1, 2.0: 2, 3.0: 3, 0.5: 4}
    assert [lines[step.duration_s] for step in steps] == taken
    everywhere = read(table, rows + "\n" + block("steps", *STEPS)).of("steps")
    assert [step.duration_s for step in everywhere] == [step.duration_s for step in steps]


def test_a_bad_cell_matters_only_where_it_is_used(read: Reader) -> None:
    mapping = block("steps", *STEPS, rows="where = 'k == \"a\"'")
    found = read("k,t\na,1\nb,failed\n", mapping)
    assert [step.duration_s for step in found.of("steps")] == [1.0]
    assert found.notes == []


def test_a_row_without_a_required_column_makes_no_record_and_is_counted(read: Reader) -> None:
    mapping = (
        'run_id = "r"\n'
        + block("runs")
        + block("phases", 'phase = { constant = "init" }', 'duration_s = "t"')
    )
    found = read("r,t\na,1\nb,\nc,\n", mapping)
    assert [run.run_id for run in found.of("runs")] == ["a", "b", "c"]
    assert [phase.run_id for phase in found.of("phases")] == ["a"]
    ((_, line, code, text),) = found.notes
    assert (line, code) == (3, "missing_value")
    assert text == "records[2] (phases): 2 rows without duration_s make no record"


def test_words_of_phases_are_checked_row_by_row(read: Reader) -> None:
    mapping = block("phases", 'phase = "p"', 'duration_s = "t"')
    with pytest.raises(ParseError, match=r"t.csv:3: cannot read: phase is 'fwd', none of hold"):
        read("p,t\nforward,1\nfwd,1\n", mapping)


def test_words_are_renamed(read: Reader) -> None:
    columns = (
        'phase = { value = "p", map = { fwd = "forward", "all reduce" = "comm" } }',
        'duration_s = "t"',
    )
    found = read("p,t\nfwd,1\nall reduce,2\nio,3\n", block("phases", *columns))
    assert [phase.phase for phase in found.of("phases")] == ["forward", "comm", "io"]
    with pytest.raises(ParseError, match="phase is 'bwd', none of hold"):
        read("p,t\nbwd,1\n", block("phases", *columns))


@pytest.mark.parametrize("table", ["a,t\n", '{"t": 1, "a": 2}\n', "a,t\n1,2\n"])
def test_a_table_of_which_nothing_is_taken_is_noted(read: Reader, table: str) -> None:
    found = read(table, block("steps", *STEPS, rows="where = 'a > 5'"))
    assert found.records == []
    assert found.codes == [(None, "no_rows")]


# --- units and paths ------------------------------------------------------------------------


def test_units_of_columns_are_converted_in_formulas(read: Reader) -> None:
    mapping = (
        '[units]\nsize = "MB"\nbw = "GB/s"\nrate = "samples/s"\n'
        + block("comms", 'op = { constant = "x" }', 'n_bytes = "size"', 'duration_s = "size / bw"')
        + block("steps", "n_steps = 1", 'duration_s = "batch / rate"', rows='where = "rate > 0"')
    )
    found = read("size,bw,rate,batch\n100,10,64,16\n100,0,0,16\n", mapping)
    # 100 MB at 10 GB/s take 10 ms; 16 samples at 64 a second a quarter of a second.
    (comm,) = found.of("comms")
    assert (comm.n_bytes, comm.duration_s) == (100_000_000, 0.01)
    assert [step.duration_s for step in found.of("steps")] == [0.25]
    assert found.codes == [(3, "missing_value")]


def test_whole_numbers_are_rounded_as_tables_print_them(read: Reader) -> None:
    mapping = block(
        "layers", 'layer = "l"', 'layer_type = "l"', 'phase = { constant = "forward" }', "n = 1",
        'n_params = "p / 4"',
    )  # fmt: skip
    # 151,011,328 bytes printed with eight digits.
    found = read("l,p\na,1.5101133e+08\nb,8\n", mapping)
    assert [layer.n_params for layer in found.of("layers")] == [37_752_832, 2]
    assert isinstance(found.of("layers")[0], Layer)


def test_facts_in_the_path(read: Reader) -> None:
    mapping = "[path]\npattern = '(?P<chip>[av]100)/AR_GPU(?P<n>\\d+)(?P<rest>_x)?'\n" + block(
        "runs", 'device = "chip"', 'n_workers = "n"', 'system = "rest"'
    )
    (run,) = read("a\n1\n", mapping, name="a100/AR_GPU8.csv").of("runs")
    assert (run.device, run.n_workers, run.system) == ("a100", 8, None)
    with pytest.raises(ParseError, match=r"its path has nothing of the form") as caught:
        read("a\n1\n", mapping, name="h100/AR_GPU8.csv")
    assert "path.pattern" in caught.value.hint
    with pytest.raises(ParseError, match="has a column 'n' of its own"):
        read("n\n1\n", mapping, name="a100/AR_GPU8.csv")


def steps(formula: str, n: str = "1") -> str:
    time = f'duration_s = {{ value = "{formula}", unit = "ms" }}'
    return block("steps", f"n_steps = {n}", time)


@pytest.mark.parametrize("formula", ["t / 0", "t / n", "t / (n - n)", "1 / 0"])
def test_a_formula_that_divides_by_zero_in_every_row_is_noted(read: Reader, formula: str) -> None:
    found = read("t,n\n3,0\n4,0\n", steps(formula))
    assert [step.duration_s for step in found.of("steps")] == [None, None]
    ((_, line, code, text),) = found.notes
    assert (line, code) == (2, "undefined")
    assert text == "records[1] (steps): 2 rows have no duration_s: its formula divides by zero"


def test_rows_whose_cells_are_missing_have_no_value_and_need_no_note(read: Reader) -> None:
    found = read("t,n\n3,2\n,2\n4,\n4,0\n", steps("t / n"))
    assert [step.duration_s for step in found.of("steps")] == [0.0015, None, None, None]
    assert found.codes == [(5, "undefined")]


def test_a_negative_count_is_a_row_that_cannot_be_read(read: Reader) -> None:
    mapping = steps("t", n='"n"')
    with pytest.raises(ParseError, match="n_steps would be -2, a count is never negative"):
        read("t,n\n3,1\n4,-2\n", mapping)
    found = read("t,n\n3,1\n4,-2\n", mapping, skip=True)
    assert len(found.of("steps")) == 1
    with pytest.raises(ParseError, match="n_steps would be -1"):
        read("t,n\n3,1\n", steps("t", n="-1"))
