"""Columns of frames and records: numbers, nulls, group keys."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.models.columns import (
    Columns,
    MissingColumnError,
    canonical_order,
    column,
    common_label,
    group_labels,
    is_null,
    key_text,
    keys,
    known_numbers,
    n_rows,
    number_columns,
    numbers,
    record,
    rows_by_key,
    sorted_rows,
    take,
)

NULLS = [None, float("nan"), np.nan, np.float64("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "ns")]


@pytest.mark.parametrize("value", NULLS, ids=repr)
def test_every_null_is_known_and_written_alike(value):
    assert is_null(value)
    assert key_text(value) == "?"


@pytest.mark.parametrize("value", [0, 0.0, "", "nan", False, np.inf], ids=repr)
def test_empty_values_are_no_nulls(value):
    assert not is_null(value)
    assert key_text(value) != "?"


@pytest.mark.parametrize(
    ("value", "text"),
    [(8, "8"), (8.0, "8"), (np.float64(8), "8"), (np.int64(8), "8"), (2.5, "2.5"), ("8", "8"),
     ("bert", "bert"), (True, "True"), (1, "1"), (1.0, "1"), (np.float32(1e6), "1000000")],
)  # fmt: skip
def test_group_keys_write_numbers_plainly(value, text):
    assert key_text(value) == text


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, None],
        np.array([1, 2, None], dtype=object),
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Series([1, 2, None], dtype="Float64"),
        pd.Series([1, 2, None], dtype="double[pyarrow]"),
        pd.Series([1, 2, pd.NA], dtype=object),
        pd.Series(["1", "2", None]),
    ],
    ids=lambda values: str(getattr(values, "dtype", "list")),
)
def test_numbers_are_floats_and_null_is_nan_whatever_the_dtype(values):
    found = numbers(np.asarray(values))
    assert found.dtype == float
    np.testing.assert_array_equal(found, [1, 2, np.nan])


def test_words_stay_words():
    assert numbers(np.asarray(pd.Series(["ring", "tree"]))).tolist() == ["ring", "tree"]


def test_flags_count_as_zero_and_one():
    assert numbers(np.array([True, False])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"n_workers": [1, 2, 4], "size": [7, 8, 9]}, index=[5, 3, 5]),
        SimpleNamespace(n_workers=np.array([1, 2, 4]), size=np.array([7, 8, 9])),
    ],
    ids=["frame", "record"],
)
def test_frames_and_records_are_read_alike(X):
    assert n_rows(X) == 3
    assert column(X, "size").tolist() == [7, 8, 9]
    assert Columns(X).n_workers.tolist() == [1.0, 2.0, 4.0]
    assert keys(X, ["n_workers", "size"]) == [("1", "7"), ("2", "8"), ("4", "9")]
    assert take(record(X), np.array([2, 0])).n_workers.tolist() == [4, 1]


@pytest.mark.parametrize("name", ["size", "index", "T", "local_batch"])
def test_a_missing_column_is_not_taken_for_a_property_of_the_frame(name):
    with pytest.raises(MissingColumnError, match=f"no column '{name}'"):
        column(pd.DataFrame({"n_workers": [1]}), name)
    with pytest.raises(MissingColumnError, match=f"no column '{name}'"):
        column(SimpleNamespace(n_workers=np.array([1])), name)


def test_scalars_of_a_record_stand_for_every_row():
    columns = record(SimpleNamespace(device="A100", local_batch=np.array([1, 2, 4])))
    assert columns.device.tolist() == ["A100"] * 3
    assert keys(columns, []) == [()] * 3


def test_a_frame_may_have_columns_whose_names_are_no_words():
    assert vars(record(pd.DataFrame({0: [1], "n": [2]}))).keys() == {"0", "n"}


def test_rows_of_a_group_keep_their_order_and_the_undecided_belong_to_none():
    of_row = [("b",), ("a",), None, ("b",)]
    found = rows_by_key(of_row)
    assert list(found) == [("a",), ("b",)]
    assert found["b",].tolist() == [0, 3]
    assert found["a",].tolist() == [1]


def test_number_columns_fill_what_is_missing_and_repeat_what_is_single():
    found = number_columns(
        {"local_batch": [1, None], "n_workers": 4}, ["local_batch", "n_workers", "flop"], 2
    )
    np.testing.assert_array_equal(found.local_batch, [1, np.nan])
    np.testing.assert_array_equal(found.n_workers, [4, 4])
    np.testing.assert_array_equal(found.flop, [np.nan, np.nan])


def test_a_word_in_a_column_of_numbers_is_named():
    with pytest.raises(ValueError, match="column local_batch: 'many' is not a number"):
        number_columns({"local_batch": np.array([1, "many"], dtype=object)}, ["local_batch"], 2)


def test_known_numbers_are_those_of_the_columns_that_are_there():
    frame = pd.DataFrame({"n_workers": [1, None], "local_batch": [8, 16], "device": ["a", "b"]})
    found = vars(known_numbers(frame.astype(object), ["local_batch", "n_workers", "flop"]))
    assert list(found) == ["local_batch", "n_workers"]
    np.testing.assert_array_equal(found["n_workers"], [1.0, np.nan])
    assert known_numbers(SimpleNamespace(a=2, b=np.ones(3)), ["a"]).a.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="column device: 'a' is not a number"):
        known_numbers(frame, ["device"])


class TestCanonicalOrder:
    def test_the_first_columns_by_name_count_last_and_times_least(self):
        columns = SimpleNamespace(b=np.array([1, 1, 0, 1]), a=np.array([2.0, 1.0, 3.0, 1.0]))
        assert canonical_order(columns, np.array([1.0, 3.0, 1.0, 2.0])).tolist() == [2, 3, 1, 0]
        assert canonical_order(SimpleNamespace(), np.array([3.0, 1.0, 2.0])).tolist() == [1, 2, 0]

    def test_nulls_and_words_have_a_place(self):
        columns = SimpleNamespace(
            words=np.array(["ring", None, "tree", "ring"], dtype=object),
            sizes=np.array([np.nan, 1.0, 2.0, 1.0]),
        )
        # Null is written "?", before the letters; NaN comes behind the numbers.
        assert canonical_order(columns, np.ones(4)).tolist() == [1, 3, 0, 2]

    @given(st.data())
    def test_rows_come_out_the_same_whatever_their_order(self, data):
        value = st.none() | st.sampled_from([0, 1, 2.5, "x", True])
        row = st.tuples(value, st.sampled_from([1.0, 2.0, np.nan]), st.floats(0.1, 1))
        found = data.draw(st.lists(row, min_size=1, max_size=8))
        shuffled = data.draw(st.permutations(found))

        def sorted_texts(rows):
            any_, numbers_, times = (list(values) for values in zip(*rows, strict=True))
            X = SimpleNamespace(
                any=np.array([*any_, None], dtype=object)[:-1], numbers=np.array(numbers_)
            )
            columns, times = sorted_rows(X, np.array(times), ["any", "numbers"])
            return [
                (key_text(a), str(n), t)
                for a, n, t in zip(columns.any, columns.numbers, times, strict=True)
            ]

        assert sorted_texts(found) == sorted_texts(shuffled)

    def test_only_named_columns_count_but_all_come_along(self):
        frame = pd.DataFrame({"run": ["b", "a", "c"], "size": [2, 2, 1], "one": 7})
        columns, times = sorted_rows(frame, np.array([0.3, 0.4, 0.5]), ("size", "absent"))
        assert columns.run.tolist() == ["c", "b", "a"]
        assert columns.one.tolist() == [7, 7, 7]
        assert times.tolist() == [0.5, 0.3, 0.4]

    @pytest.mark.parametrize("n_times", [0, 1, 4])
    def test_rows_and_times_must_be_as_many(self, n_times):
        with pytest.raises(ValueError, match=f"3 rows but {n_times} times"):
            sorted_rows(pd.DataFrame({"size": [1, 2, 3]}), np.ones(n_times), ["size"])


class TestGroupLabels:
    NAMES = ("framework", "network", "n_params", "device", "phase")

    def test_groups_are_named_by_what_differs(self):
        groups = [("cntk", "mlp", "10", "?", "forward"), ("cntk", "mlp", "10", "?", "backward")]
        assert list(group_labels(groups, self.NAMES).values()) == ["forward", "backward"]
        assert common_label(groups, self.NAMES) == "cntk · mlp · n_params 10"

    def test_a_count_that_the_network_implies_is_left_out_and_another_is_named(self):
        implied = [("c", "a", "10", "x", "f"), ("c", "b", "20", "x", "f")]
        assert list(group_labels(implied, self.NAMES).values()) == ["a", "b"]
        told = [("c", "a", "10", "x", "f"), ("c", "a", "20", "x", "f"), ("c", "b", "5", "x", "f")]
        labels = list(group_labels(told, self.NAMES).values())
        assert labels == ["a · n_params 10", "a · n_params 20", "b · n_params 5"]

    def test_one_group_has_all_its_values_and_a_nameless_one_a_mark(self):
        assert group_labels([("c", "a", "?", "?", "f")], self.NAMES) == {
            ("c", "a", "?", "?", "f"): "c · a · f"
        }
        assert list(group_labels([("?",)], ("phase",)).values()) == ["?"]
