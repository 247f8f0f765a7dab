"""Folds: which rows are held out, by hand and in general."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.splits import Fold, forward_chaining, hold_out, k_fold, leave_one_out, scale_chain


def told(folds: list[Fold]) -> list[tuple[str, list[int], list[int]]]:
    """Label, training rows and held-out rows of every fold."""
    return [
        (fold.label, np.flatnonzero(fold.train).tolist(), np.flatnonzero(fold.test).tolist())
        for fold in folds
    ]


def column(*values: object, name: str = "n_nodes", dtype: object = None) -> pd.Series:
    return pd.Series(values, name=name, dtype=dtype)  # type: ignore[call-overload, no-any-return]


# --- leave one out --------------------------------------------------------------------------


def test_each_value_is_left_out_in_turn_with_all_its_rows() -> None:
    assert told(leave_one_out(column(4, 1, 2, 1))) == [
        ("n_nodes = 1", [0, 2], [1, 3]),
        ("n_nodes = 2", [0, 1, 3], [2]),
        ("n_nodes = 4", [1, 2, 3], [0]),
    ]


def test_the_smallest_value_can_be_kept_in_training() -> None:
    folds = told(leave_one_out(column(10, 9, 2, 2), keep_smallest=True))
    assert folds == [("n_nodes = 9", [0, 2, 3], [1]), ("n_nodes = 10", [1, 2, 3], [0])]


def test_words_are_left_out_in_their_order() -> None:
    folds = leave_one_out(column("gpt", "bert", "gpt", name="network"))
    assert told(folds) == [
        ("network = bert", [0, 2], [1]),
        ("network = gpt", [1], [0, 2]),
    ]


@pytest.mark.parametrize("dtype", [float, "Int64", "float64[pyarrow]"])
def test_rows_without_a_value_are_always_in_training(dtype: str | type) -> None:
    folds = told(leave_one_out(column(1, None, 2, dtype=dtype)))
    assert [(train, test) for _, train, test in folds] == [([1, 2], [0]), ([0, 1], [2])]


def test_words_without_a_value_are_always_in_training() -> None:
    folds = told(leave_one_out(column("a", None, "b", dtype="str")))
    assert [(train, test) for _, train, test in folds] == [([1, 2], [0]), ([0, 1], [2])]


def test_whole_numbers_are_labelled_as_such() -> None:
    labels = [fold.label for fold in leave_one_out(column(1.0, 2.5, 64.0))]
    assert labels == ["n_nodes = 1", "n_nodes = 2.5", "n_nodes = 64"]


@pytest.mark.parametrize(("values", "n"), [((), 0), ((3, 3), 1), ((None, None), 0), ((1, None), 1)])
def test_one_value_cannot_be_left_out(values: tuple[int | None, ...], n: int) -> None:
    with pytest.raises(ValueError, match=rf"cannot leave one n_nodes out: it has {n} value\(s\)"):
        leave_one_out(column(*values, dtype=float))


# --- a condition ----------------------------------------------------------------------------


def test_the_rows_of_a_condition_are_held_out_at_once() -> None:
    folds = hold_out(np.array([False, True, True]), "n_nodes > 8")
    assert told(folds) == [("n_nodes > 8", [0], [1, 2])]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([False, False], "no row has n_nodes > 8: nothing to predict"),
        ([True, True], "every row has n_nodes > 8: nothing to train on"),
        ([], "nothing to predict"),
    ],
)
def test_a_condition_must_split_the_rows(mask: list[bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hold_out(np.array(mask, dtype=bool), "n_nodes > 8")


# --- random folds ---------------------------------------------------------------------------


@given(
    st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, n))), st.integers(0)
)
def test_every_row_is_held_out_once_in_folds_of_nearly_one_size(
    sizes: tuple[int, int], seed: int
) -> None:
    n_rows, k = sizes
    folds = k_fold(n_rows, k, seed)
    tests = np.array([fold.test for fold in folds])
    assert tests.shape == (k, n_rows)
    assert (tests.sum(axis=0) == 1).all()
    assert np.ptp(tests.sum(axis=1)) <= 1
    assert all((fold.train == ~fold.test).all() for fold in folds)


def test_random_folds_repeat_with_their_seed() -> None:
    first, again, other = (told(k_fold(20, 4, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert [label for label, *_ in first] == [f"fold {i} of 4" for i in (1, 2, 3, 4)]


@pytest.mark.parametrize(("n_rows", "k"), [(5, 1), (5, 0), (5, -2), (5, 6), (1, 2), (0, 2)])
def test_there_are_two_to_as_many_folds_as_rows(n_rows: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"cannot make {k} folds of {n_rows} configurations"):
        k_fold(n_rows, k)


# --- scaling up -----------------------------------------------------------------------------


def test_the_next_larger_value_is_predicted_from_all_smaller_ones() -> None:
    assert told(forward_chaining(column(4, 1, 2, 8, 2))) == [
        ("n_nodes <= 2 → 4", [1, 2, 4], [0]),
        ("n_nodes <= 4 → 8", [0, 1, 2, 4], [3]),
    ]


def test_cuts_say_what_to_train_on() -> None:
    assert told(forward_chaining(column(1, 2, 4, 8), cuts=[1, 3])) == [
        ("n_nodes <= 1 → 2", [0], [1]),
        ("n_nodes <= 3 → 4", [0, 1], [2]),
    ]


def test_cuts_with_nothing_on_one_side_are_passed_over() -> None:
    folds = forward_chaining(column(1, 2, 4), cuts=[0.5, 2, 4])
    assert [fold.label for fold in folds] == ["n_nodes <= 2 → 4"]
    with pytest.raises(ValueError, match="no value on either side"):
        forward_chaining(column(1, 2, 4), cuts=[0, 4, 9])


@pytest.mark.parametrize("dtype", [float, "Int64"])
def test_rows_without_a_value_are_in_no_fold(dtype: str | type) -> None:
    (fold,) = told(forward_chaining(column(1, None, 2, 4, dtype=dtype)))
    assert fold == ("n_nodes <= 2 → 4", [0, 2], [3])


def test_two_values_are_too_few_to_scale_up() -> None:
    with pytest.raises(ValueError, match="cannot scale up over n_nodes: fewer than three values"):
        forward_chaining(column(1, 2, 2, 1))


def test_words_cannot_be_scaled_up() -> None:
    with pytest.raises(ValueError, match="cannot scale up over network: not a number"):
        forward_chaining(column("bert", "gpt", "vgg", name="network"))


@given(st.lists(st.integers(1, 6) | st.none(), min_size=1, max_size=20))
def test_training_rows_are_smaller_than_what_is_predicted(values: list[int | None]) -> None:
    series = column(*values, dtype="Int64")
    if series.nunique() < 3:
        return
    for fold in forward_chaining(series):
        assert fold.train.any()
        assert series[fold.train].max() < series[fold.test].min()
        assert len(set(series[fold.test])) == 1


# --- larger scales --------------------------------------------------------------------------


def test_a_quarter_and_a_half_of_the_largest_predict_all_above() -> None:
    assert told(scale_chain(np.array([16.0, 1, 2, 4, 8, 4]))) == [
        ("above 4", [1, 2, 3, 5], [0, 4]),
        ("above 8", [1, 2, 3, 4, 5], [0]),
    ]


@pytest.mark.parametrize(
    "scales",
    [(), (1,), (1, 2, 4), (1, 2, 8, 4), (1, 1, 2, 2, 16), (3, 3, 3), (np.nan,) * 5, (0, 0, 0),
     (-64, -32, -16, -8, -4, -2, -1), (np.inf, 1, 2), (0, 1, 2, 8)],
)  # fmt: skip
def test_fewer_than_three_scales_up_to_the_quarter_give_no_fold(scales: tuple[float, ...]) -> None:
    assert scale_chain(np.array(scales, dtype=float)) == []


def test_rows_without_a_scale_are_in_no_fold() -> None:
    folds = told(scale_chain(np.array([np.nan, 1, 2, 4, 16, np.inf, 0, -8])))
    assert folds == [("above 4", [1, 2, 3], [4]), ("above 8", [1, 2, 3], [4])]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=30))
def test_larger_scales_are_never_trained_on(scales: list[float]) -> None:
    numbers = np.array(scales, dtype=float)
    for fold in scale_chain(numbers):
        assert fold.train.any()
        assert fold.test.any()
        assert numbers[fold.train].max() < numbers[fold.test].min()
        assert len(np.unique(numbers[fold.train])) >= 3
