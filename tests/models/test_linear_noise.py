"""LinearModel under noise that is not normal, or not in proportion to the time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

from fitkit.models.linear import LinearModel
from fitkit.models.terms import TERMS

TRUTH = {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3}
STEP = list(TRUTH)


def grid(workers=(1, 2, 4, 8), batches=(8, 16, 32, 64, 128)):
    """All combinations of workers and batches."""
    n_workers, local_batch = np.meshgrid(workers, batches)
    columns = {"n_workers": n_workers, "local_batch": local_batch}
    return pd.DataFrame({name: values.ravel().astype(float) for name, values in columns.items()})


def design(frame):
    return np.column_stack([TERMS[name].amount(frame, len(frame)) for name in STEP])


def exact(frame):
    return design(frame) @ np.array(list(TRUTH.values()))


def noisy(frame, seed, noise=0.05, exponent=1.0):
    """Normal noise that grows as the time to a power, the same for the middle time."""
    times = exact(frame)
    middle = np.exp(np.log(times).mean())
    size = noise * middle * (times / middle) ** exponent
    return np.maximum(
        times + size * np.random.default_rng(seed).standard_normal(len(times)), 0.05 * times
    )


def with_stragglers(times, seed, share=0.1):
    draw = np.random.default_rng(1000 + seed)
    hit = draw.random(len(times)) < share
    return np.where(hit, times * draw.uniform(1.5, 4, len(times)), times)


def error(model, frame):
    return float(np.mean(np.abs(model.predict(frame) / exact(frame) - 1)))


class TestRobustLoss:
    @pytest.mark.parametrize("exponent", [0.0, 1.0])
    def test_it_is_the_optimum_of_soft_l1_at_its_own_scale(self, exponent):
        frame = grid()
        times = with_stragglers(noisy(frame, 2), 2)
        model = LinearModel(STEP, exponent).fit(frame, times)
        fitted = model.predict(frame)
        residuals = (times - fitted) / fitted**exponent
        scale = 1.4826 * np.sort(np.abs(residuals))[len(times) // 2]

        def weighted(parameters):
            return (times - design(frame) @ (parameters * model.params_.estimate)) / (
                fitted**exponent
            )

        best = least_squares(weighted, np.full(3, 1.1), loss="soft_l1", f_scale=2 * scale)
        np.testing.assert_allclose(best.x, 1, rtol=2e-3)

    def test_its_errors_are_those_of_hubers_covariance(self):
        frame = grid()
        times = with_stragglers(noisy(frame, 4), 4)
        model = LinearModel(STEP, 0.0).fit(frame, times)
        residuals = times - model.predict(frame)
        scale = 1.4826 * np.sort(np.abs(residuals))[len(times) // 2]
        u = residuals / (2 * scale)
        influence, slope = residuals * (1 + u**2) ** -0.5, (1 + u**2) ** -1.5
        variance = (influence**2).sum() / model.dof_ / slope.mean() ** 2
        X = design(frame)
        expected = np.sqrt(np.diag(np.linalg.inv(X.T @ X)) * variance)
        np.testing.assert_allclose(model.params_.std_err, expected, rtol=0.01)
        assert model.noise_ == pytest.approx(np.sqrt(variance), rel=0.01)

    def test_normal_noise_costs_it_little(self):
        frame = grid()
        errors = {
            loss: np.mean(
                [
                    error(LinearModel(STEP, loss=loss).fit(frame, noisy(frame, seed)), frame)
                    for seed in range(100)
                ]
            )
            for loss in ("squares", "soft_l1")
        }
        # The asymptotic variance is 1/0.979 times that of squares.
        assert errors["soft_l1"] <= 1.06 * errors["squares"]

    def test_stragglers_cost_it_a_fraction(self):
        frame = grid()
        errors = {
            loss: np.mean(
                [
                    error(
                        LinearModel(STEP, loss=loss).fit(
                            frame, with_stragglers(noisy(frame, seed), seed)
                        ),
                        frame,
                    )
                    for seed in range(50)
                ]
            )
            for loss in ("squares", "soft_l1")
        }
        assert errors["soft_l1"] < 0.4 * errors["squares"]

    def test_stragglers_widen_no_prediction_interval_much(self):
        frame = grid()
        times = noisy(frame, 0)
        clean = LinearModel(STEP).fit(frame, times)
        disturbed = LinearModel(STEP).fit(frame, with_stragglers(times, 0))
        assert disturbed.noise_ < 3 * clean.noise_

    @pytest.mark.parametrize("rows", [5, 7])
    def test_few_rows_are_fitted_by_squares(self, rows):
        frame = grid()[:rows]
        times = noisy(frame, 0)
        found = [
            LinearModel(STEP[:2], loss=loss).fit(frame, times).to_dict()["parameters"]
            for loss in ("squares", "soft_l1")
        ]
        assert found[0] == found[1]

    def test_data_that_are_met_exactly_but_for_one_row_return_the_parameters(self):
        frame = grid()
        times = exact(frame)
        times[7] *= 3
        model = LinearModel(STEP).fit(frame, times)
        np.testing.assert_allclose(model.params_.estimate, list(TRUTH.values()), rtol=1e-4)

    def test_the_order_of_the_rows_does_not_matter(self):
        frame = grid()
        times = with_stragglers(noisy(frame, 1), 1)
        order = np.random.default_rng(0).permutation(len(frame))
        one = LinearModel(STEP).fit(frame, times).params_
        other = LinearModel(STEP).fit(frame.iloc[order], times[order]).params_
        np.testing.assert_allclose(one.estimate, other.estimate, rtol=1e-9)

    def test_an_unknown_loss_is_named(self):
        with pytest.raises(ValueError, match="no loss 'huber'; known: squares, soft_l1"):
            LinearModel(STEP, loss="huber").fit(grid(), noisy(grid(), 0))
        state = LinearModel(STEP).fit(grid(), noisy(grid(), 0)).to_dict()
        with pytest.raises(ValueError, match="no loss 'x'"):
            LinearModel.from_dict({**state, "loss": "x"})


class TestNoiseExponent:
    @pytest.mark.parametrize("loss", ["squares", "soft_l1"])
    @pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
    def test_the_exponent_of_the_noise_is_found(self, exponent, loss):
        frame = grid(workers=(1, 2, 4, 8, 16, 32), batches=(1, 4, 16, 64, 256))
        found = [
            LinearModel(STEP, "select", loss=loss)
            .fit(frame, noisy(frame, seed, 0.03, exponent))
            .noise_exponent_
            for seed in range(40)
        ]
        assert np.mean(np.array(found) == exponent) >= 0.7, found

    def test_relative_errors_are_preferred_where_the_data_do_not_tell(self):
        frame = grid(workers=(1, 2), batches=(30, 31, 32, 33, 34))
        found = [
            LinearModel(STEP, "select").fit(frame, noisy(frame, seed, exponent=0.5)).noise_exponent_
            for seed in range(40)
        ]
        assert np.mean(np.array(found) == 1) >= 0.9

    @pytest.mark.parametrize("rows", [2, 7])
    def test_few_rows_have_relative_errors(self, rows):
        frame = grid()[:rows]
        model = LinearModel(["per_sample"], "select").fit(frame, noisy(frame, 0, exponent=0))
        assert model.noise_exponent_ == 1

    def test_rows_without_residual_freedom_have_relative_errors(self):
        frame = grid()[:10]
        frame["flop"] = np.arange(10.0) ** 2
        terms = ["fixed", "per_sample", "server_fan_in", "flops"]
        model = LinearModel(terms, "select", undetermined="drop")
        assert model.fit(frame, exact(frame)).noise_exponent_ == 1  # and exact data, too

    def test_it_is_that_of_the_fit_with_this_exponent(self):
        frame = grid()
        times = noisy(frame, 3, exponent=0.0)
        chosen = LinearModel(STEP, "select").fit(frame, times)
        alone = LinearModel(STEP, chosen.noise_exponent_).fit(frame, times)
        assert chosen.to_dict() == alone.to_dict()
        assert chosen.noise_exponent == "select"

    def test_a_saved_model_knows_it(self):
        frame = grid(workers=(1, 2, 4, 8, 16, 32), batches=(1, 4, 16, 64, 256))
        model = LinearModel(STEP, "select", loss="squares")
        model.fit(frame, noisy(frame, 1, 0.02, exponent=0.0))
        assert model.noise_exponent_ == 0
        again = LinearModel.from_dict(model.to_dict())
        assert (again.noise_exponent_, again.loss) == (0, "squares")
        for one, other in zip(
            again.predict_interval(frame), model.predict_interval(frame), strict=True
        ):
            assert one.tolist() == other.tolist()


class TestAbsurdTimes:
    @pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, "select"])
    @pytest.mark.parametrize("factor", [1e-12, 1e-4, 1e4, 1e12])
    def test_a_row_that_is_absurd_might_as_well_not_be_there(self, factor, exponent):
        frame = grid()
        times = noisy(frame, 3)
        for row in (0, 7, 19):
            spoilt = times.copy()
            spoilt[row] *= factor
            model = LinearModel(STEP, exponent, undetermined="drop").fit(frame, spoilt)
            without = LinearModel(STEP, exponent).fit(frame.drop(index=row), np.delete(times, row))
            assert np.flatnonzero(model.outliers_).tolist() == [row]
            assert model.to_dict() == without.to_dict()

    def test_stragglers_and_noise_are_not_absurd(self):
        frame = grid()
        times = with_stragglers(noisy(frame, 1, noise=0.3), 1)
        assert not LinearModel(STEP).fit(frame, times).outliers_.any()

    def test_who_asks_for_squares_gets_them(self):
        frame = grid()
        times = noisy(frame, 3)
        times[7] *= 1e6
        assert not LinearModel(STEP, loss="squares").fit(frame, times).outliers_.any()
