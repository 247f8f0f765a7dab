"""The normal form: planted forms are found, chosen as an explicit search would choose."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from fitkit.models.baselines import NormalForm, normal_form
from fitkit.models.baselines.normal_form import EXPONENTS

X = np.array([1.0, 2, 4, 8, 16, 32])
P, B = (axis.ravel() for axis in np.meshgrid([1.0, 2, 4, 8, 16], [4.0, 8, 16, 32, 64]))
GRID = pd.DataFrame({"p": P, "b": B})


def fitted(frame, times, columns=None):
    return NormalForm(columns or list(frame.columns)).fit(frame, times)


def test_the_search_space_is_that_of_extra_p():
    assert len(EXPONENTS) == len(set(EXPONENTS)) == 42
    assert (Fraction(4, 5), 0) in EXPONENTS
    assert (Fraction(0), 2) in EXPONENTS
    assert (Fraction(0), 0) not in EXPONENTS
    assert (Fraction(5, 4), 2) not in EXPONENTS


class TestOneParameter:
    @pytest.mark.parametrize(("power", "logs"), EXPONENTS)
    def test_every_form_of_the_space_is_found(self, power, logs):
        times = 0.5 + 0.01 * X ** float(power) * np.log2(X) ** logs
        model = fitted(pd.DataFrame({"x": X}), times)
        assert model.terms_ == (((0, power, logs),),)
        assert model.coefficients_ == pytest.approx([0.5, 0.01])

    def test_the_formula_can_be_read(self):
        frame = pd.DataFrame({"x": X})
        assert fitted(frame, 0.25 + 0.003 * X * np.log2(X)).formula_ == "0.25 + 0.003 * x * log2(x)"
        assert fitted(frame, 9 - 0.5 * X**0.5).formula_ == "9 - 0.5 * x^(1/2)"
        assert fitted(frame, 1 + X**2 * np.log2(X) ** 2).formula_ == "1 + 1 * x^2 * log2(x)^2"
        assert fitted(frame, np.full(6, 2.0)).formula_ == "2"

    def test_the_choice_is_that_of_leaving_each_point_out(self):
        random = np.random.default_rng(5)
        for _ in range(20):
            y = random.uniform(0.5, 1.0, len(X)) + 0.02 * X
            assert normal_form._best_exponents(X, y) == slow_choice(X, y)

    def test_noise_around_a_constant_is_a_constant(self):
        times = [1.0, 1.01, 0.99, 1.01, 0.99, 1.0]
        model = fitted(pd.DataFrame({"x": X}), times)
        assert model.terms_ == ()
        assert model.predict(pd.DataFrame({"x": [1e6]})) == pytest.approx([1.0])

    def test_below_one_there_are_no_logarithms(self):
        x = np.array([0.25, 0.5, 1, 2, 4])
        model = fitted(pd.DataFrame({"x": x}), 1 + np.abs(np.log2(x)) + x)
        assert all(factor.logs == 0 for term in model.terms_ for factor in term)

    def test_repetitions_count_once(self):
        # The mean of the three at 32 lies on the line through the others.
        frame = pd.DataFrame({"x": np.append(X, [32.0] * 2)})
        times = 1 + 0.1 * frame.x + np.array([0, 0, 0, 0, 0, 1, -2, 1])
        assert fitted(frame, times).formula_ == "1 + 0.1 * x"


def slow_choice(x, y):
    """Every pair, every point left out in turn, as the papers describe it."""
    mean = y.mean()
    best, least = None, np.mean(2 * np.abs(mean - y) / (mean + y))
    for power, logs in EXPONENTS:
        term = x ** float(power) * np.log2(x) ** logs
        errors = []
        for k in range(len(x)):
            rest = np.arange(len(x)) != k
            design = np.column_stack([np.ones(len(x)), term])
            solution = np.linalg.lstsq(design[rest], y[rest])[0]
            predicted = design[k] @ solution
            errors.append(2 * abs(predicted - y[k]) / (abs(predicted) + y[k]))
        if np.mean(errors) < least:
            best, least = (power, logs), np.mean(errors)
    return best


class TestSeveralParameters:
    @pytest.mark.parametrize(
        ("times", "formula"),
        [
            (1 + 0.5 * np.log2(P) + 0.25 * B, "1 + 0.5 * log2(p) + 0.25 * b"),
            (2 + 0.01 * P**0.5 * B, "2 + 0.01 * p^(1/2) * b"),
            (2 + 0.1 * B + 0.01 * P * B, "2 + 0.1 * b + 0.01 * p * b"),
            (3 + 0.1 * B, "3 + 0.1 * b"),
            (np.full(25, 4.0), "4"),
        ],
        ids=["sum", "product", "both", "one counts", "none counts"],
    )
    def test_a_planted_form_is_found(self, times, formula):
        assert fitted(GRID, times).formula_ == formula

    def test_three_parameters(self):
        axes = np.meshgrid([1.0, 2, 4, 8], [1.0, 3, 9, 27], [2.0, 4, 6, 8])
        frame = pd.DataFrame(dict(zip("xyz", (axis.ravel() for axis in axes), strict=True)))
        model = fitted(frame, 1 + 2 * frame.x * frame.y + 3 * np.log2(frame.z))
        assert model.formula_ == "1 + 3 * log2(z) + 2 * x * y"

    def test_four_are_added_or_multiplied(self):
        axes = np.meshgrid(*[[1.0, 2, 4, 8]] * 4)
        frame = pd.DataFrame(dict(zip("wxyz", (axis.ravel() for axis in axes), strict=True)))
        added = fitted(frame, 1 + frame.w + 2 * frame.x + 3 * frame.y + 4 * frame.z)
        assert added.formula_ == "1 + 1 * w + 2 * x + 3 * y + 4 * z"
        multiplied = fitted(frame, 1 + frame.w * frame.x * frame.y * frame.z)
        assert multiplied.formula_ == "1 + 1 * w * x * y * z"

    def test_a_product_of_the_others_is_no_parameter(self):
        frame = GRID.assign(all=P * B)
        model = fitted(frame, 1 + 0.5 * np.log2(P) + 0.25 * B)
        assert model.formula_ == "1 + 0.5 * log2(p) + 0.25 * b"

    def test_lines_that_differ_in_one_parameter_decide_its_form(self):
        # The longest line of each runs through the corner; elsewhere the times say otherwise.
        line = pd.DataFrame({"p": [*X, *[1.0] * 5], "b": [*[4.0] * 6, 8, 16, 32, 64, 128]})
        model = fitted(line, 1 + 0.1 * line.p + 0.01 * line.b)
        assert model.formula_ == "1 + 0.1 * p + 0.01 * b"

    def test_off_any_grid_values_are_averaged_over_all_rows(self):
        frame = pd.DataFrame({"p": [1.0, 2, 4, 8, 16], "b": [3.0, 5, 3, 5, 4]})
        model = fitted(frame, 1 + frame.p)
        assert model.predict(frame) == pytest.approx((1 + frame.p).tolist())


class TestWhatTheDataCannotDetermine:
    @pytest.mark.parametrize("value", [np.nan, 7.0, -1.0, 0.0])
    def test_a_column_that_says_nothing_is_left_out(self, value):
        frame = pd.DataFrame({"x": X, "other": value})
        model = fitted(frame, 1 + 0.1 * X)
        assert model.formula_ == "1 + 0.1 * x"
        assert model.predict(frame) == pytest.approx((1 + 0.1 * X).tolist())

    @pytest.mark.parametrize("rows", [1, 2])
    def test_below_three_values_the_mean_is_predicted(self, rows):
        frame = pd.DataFrame({"x": X})
        model = fitted(frame[:rows], [1.0, 3.0][:rows])
        assert model.predict(frame) == pytest.approx([rows] * 6)

    def test_identical_rows_are_their_mean(self):
        frame = pd.DataFrame({"x": [2.0] * 4, "y": [3.0] * 4})
        assert fitted(frame, [1.0, 2, 3, 6]).predict(frame) == pytest.approx([3.0] * 4)

    def test_without_columns_the_mean_is_predicted(self):
        model = NormalForm([]).fit(GRID, np.arange(1.0, 26))
        assert model.formula_ == "13"
        assert model.predict(GRID).tolist() == [13.0] * 25

    def test_where_a_parameter_is_unknown_so_is_the_time(self):
        model = fitted(pd.DataFrame({"x": X}), 1 + 0.1 * X)
        assert np.isnan(model.predict(pd.DataFrame({"x": [np.nan]}))).all()

    def test_zero_and_huge_values_do_no_harm(self):
        frame = pd.DataFrame({"x": np.array([0.0, 1, 2, 4, 8]) * 1e9})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = fitted(frame, 1 + 1e-9 * frame.x)
            assert model.predict(frame) == pytest.approx([1, 2, 3, 5, 9])
