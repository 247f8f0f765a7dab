"""Figures that cannot be: a wrong unit fails the file and is named, odd rows are noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fitkit.errors import ParseError
from fitkit.parsers.table.plausibility import BOUNDS, bound_columns
from fitkit.records import TABLES

Reader = Callable[..., Any]


def steps(unit: str, *, plausible: str = "") -> str:
    return f"""[[records]]
table = "steps"
{plausible}
[records.columns]
n_steps = 1
duration_s = {{ value = "step_time", unit = "{unit}" }}
"""


def comms(size: str, time: str) -> str:
    return f"""[[records]]
table = "comms"
[records.columns]
op = {{ constant = "all_reduce" }}
n_bytes = {{ value = "size", unit = "{size}" }}
duration_s = {{ value = "time", unit = "{time}" }}
"""


def column(*figures: float) -> str:
    return "step_time\n" + "".join(f"{figure}\n" for figure in figures)


def test_milliseconds_read_as_seconds(read: Reader) -> None:
    with pytest.raises(ParseError) as caught:
        read(column(372.16, 219.7, 410.5), steps("s"))
    text = str(caught.value)
    assert text.startswith("t.csv: step_time read as s: median 372 s; an optimiser step lies ")
    assert "between 100 µs and 120 s" in text
    assert text.endswith("m.toml: records[1] (steps).duration_s)")
    assert caught.value.hint == (
        'did you mean unit = "ms" for duration_s? '
        "plausible = false in that block takes the figures as they are"
    )
    assert len(read(column(372.16, 219.7, 410.5), steps("ms")).of("steps")) == 3
    found = read(column(372.16, 219.7), steps("s", plausible="plausible = false"))
    assert [step.duration_s for step in found.of("steps")] == [372.16, 219.7]


def test_a_unit_without_words_is_that_of_the_column(read: Reader) -> None:
    mapping = steps("s").replace('{ value = "step_time", unit = "s" }', '"step_time"')
    with pytest.raises(ParseError, match="step_time read as s: median 372 s"):
        read(column(372), mapping)


@pytest.mark.parametrize(
    ("figure", "unit", "meant"),
    [(0.2, "us", "ms"), (30, "us", "ms"), (0.05, "ms", "s"),
     (250_000, "ms", "us"), (90_000, "s", "ms"), (250_000, "s", "us"),
     (3e8, "ms", "ns"), (0.01, "us", "s"), (1e9, "h", "ns"), (-1, "s", None)],
)  # fmt: skip
def test_the_nearest_possible_unit_is_named(
    read: Reader, figure: float, unit: str, meant: str | None
) -> None:
    with pytest.raises(ParseError, match="median") as caught:
        read(column(figure), steps(unit))
    if meant:
        assert f'did you mean unit = "{meant}"' in caught.value.hint
    else:
        assert caught.value.hint.startswith("plausible = false")


def test_units_of_columns_are_named_where_they_are_said(read: Reader) -> None:
    layers = """[units]
ms = "s"
size = "GB"
[[records]]
table = "layers"
[records.columns]
layer = "ms"
layer_type = "ms"
phase = { constant = "forward" }
n = 1
"""
    with pytest.raises(ParseError, match="ms read as s: median 20 s; a call of a layer") as caught:
        read("ms,size\n20,1\n", layers + 'duration_s = "ms"\n')
    assert caught.value.hint.startswith('did you mean units."ms" = "ms" for duration_s? ')
    with pytest.raises(ParseError, match=r"2 \* ms \(ms read as s\): median 40 s") as caught:
        read("ms,size\n20,1\n", layers + 'duration_s = "2 * ms"\n')
    assert caught.value.hint.startswith("plausible = false")


@pytest.mark.parametrize(
    ("size", "time", "meant"),
    [
        ("B", "ns", None),
        ("KB", "ns", 'unit = "B" for n_bytes or unit = "us" for duration_s?'),  # 23.7 GB/s too fast
        ("B", "ms", 'unit = "KB" for n_bytes or unit = "us" for duration_s?'),  # 23.7 kB/s
        ("B", "s", 'unit = "ms" for duration_s?'),  # 12 hours
    ],
)
def test_rates_of_collectives(read: Reader, size: str, time: str, meant: str | None) -> None:
    # An all-reduce of 1 MiB between two A100 in 44 us.
    table = "size,time\n1048576,44210\n"
    if meant is None:
        assert read(table, comms(size, time)).notes == []
        return
    with pytest.raises(ParseError, match="collective") as caught:
        read(table, comms(size, time))
    assert meant in caught.value.hint


def test_small_messages_may_be_slow(read: Reader) -> None:
    assert read("size,time\n8,1000000\n", comms("B", "ns")).notes == []


def test_single_odd_rows_are_noted_and_kept(read: Reader) -> None:
    found = read(column(0.1, 0.2, 500, 0.1, 0.3, 900, 0), steps("s"))
    assert len(found.of("steps")) == 7
    ((_, line, code, text),) = found.notes
    assert (line, code) == (4, "implausible")
    assert text == "records[1] (steps): 2 rows, an optimiser step of 500 s first"


def test_what_is_empty_or_zero_says_nothing(read: Reader) -> None:
    assert read("step_time\nNA\n0\n", steps("s")).notes == []
    assert read(column(*[0.0] * 9, 0.5), steps("s")).notes == []


def test_a_phase_of_a_step_is_no_longer_than_a_step(read: Reader) -> None:
    mapping = """[[records]]
table = "phases"
[records.columns]
phase = { constant = "comm" }
duration_s = "t"
"""
    assert read("t\n700\n", mapping).notes == []
    with pytest.raises(ParseError, match="a phase of a step lies between"):
        read("t\n700\n", mapping + 'parent = { constant = "step" }\n')


def test_batches_are_above_zero(read: Reader) -> None:
    mapping = '[[records]]\ntable = "runs"\n[records.columns]\nlocal_batch = "b"\nrun_id = "b"\n'
    with pytest.raises(ParseError, match="a local batch lies between"):
        read("b\n-1\n", mapping)


def test_bounds_are_of_columns_that_exist() -> None:
    for bound in BOUNDS:
        assert bound.low < bound.high
        columns = TABLES[bound.table].__annotations__
        assert {bound.column} <= set(columns)
        assert bound.over is None or bound.over in columns
        assert bound.column in bound_columns(bound.table)


def test_the_median_does_not_depend_on_batches(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = np.random.default_rng(1).uniform(100, 150, 20).round(3).tolist()
    texts = []
    for rows in (3, 50):
        monkeypatch.setattr("fitkit.parsers.table.reading.BATCH_ROWS", rows)
        with pytest.raises(ParseError) as caught:
            read(column(*figures), steps("s"))
        texts.append(str(caught.value).split(" (")[0])
    assert texts[0] == texts[1]


def test_no_count_that_begins_at_one_is_zero(read: Reader) -> None:
    mapping = steps("ms").replace("n_steps = 1", "n_steps = 0")
    with pytest.raises(ParseError, match="n_steps: median 0; a number of steps lies between 1 "):
        read(column(200, 300), mapping)
    mapping = steps("ms").replace("n_steps = 1", 'n_steps = "n"')
    found = read("step_time,n\n200,1\n300,1\n400,0\n", mapping)
    assert found.codes == [(4, "implausible")]
    assert "1 rows, a number of steps of 0 first" in found.notes[0][3]
