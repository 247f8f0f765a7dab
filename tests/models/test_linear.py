"""LinearModel against planted truths, statsmodels and certified results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.regression.linear_model import WLS

from fitkit.models.linear import LinearModel
from fitkit.models.terms import TERMS, term

STEP = ["fixed", "per_sample", "server_fan_in"]


def grid(workers, batches, repeats=1):
    """All combinations of workers and batches."""
    n_workers, local_batch = np.meshgrid(workers, batches)
    columns = {"n_workers": n_workers, "local_batch": local_batch}
    return pd.DataFrame(
        {k: np.repeat(v.ravel(), repeats).astype(float) for k, v in columns.items()}
    )


def layers(shapes, batches):
    """Fully connected layers of several shapes at several batches."""
    return pd.DataFrame(
        [
            {
                "local_batch": batch, "n_params": n * m, "flop": 2 * batch * n * m,
                "input_bytes": 4 * batch * n, "output_bytes": 4 * batch * m,
            }
            for n, m in shapes
            for batch in batches
        ]
    ).astype(float)  # fmt: skip


def amounts(frame, names):
    return np.column_stack([TERMS[name].amount(frame, len(frame)) for name in names])


def exact(frame, truth):
    return amounts(frame, truth) @ np.array(list(truth.values()))


def noisy(frame, truth, seed, noise=0.05, exponent=1.0):
    """Normal noise that grows as the time to a power, the same for the middle time."""
    times = exact(frame, truth)
    size = noise * (times / np.exp(np.log(times).mean())) ** (exponent - 1)
    return times * (1 + size * np.random.default_rng(seed).standard_normal(len(frame)))


def by_term(model):
    return {parameter.term: parameter for parameter in model.parameters_}


SHAPES = [(784, 128), (784, 512), (512, 512), (1024, 784), (512, 10), (1024, 1024)]
SIX_BY_FIVE = layers(SHAPES, [16, 32, 64, 128, 256])
DESIGNS = {
    "a step over workers and batches": (
        grid([1, 2, 4, 8], [8, 16, 32, 64, 128]),
        {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3},
    ),
    "two ways to scale, one of them small": (
        grid([1, 2, 4, 8, 16], [8, 16, 32, 64, 128]),
        {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3, "log_workers": 5e-4},
    ),
    "a term that costs nothing": (
        grid([1, 2, 4, 8, 16], [8, 16, 32, 64, 128]),
        {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3, "log_workers": 0.0},
    ),
    "five rows": (grid([1], [1, 2, 4, 8, 16]), {"fixed": 0.01, "per_sample": 2e-3}),
    "layers, nearly dependent": (
        SIX_BY_FIVE,
        {
            "fixed": 1e-5, "flops": 1e-11, "weights": 2e-10, "input_activations": 1e-10,
            "output_activations": 1e-10, "per_sample": 1e-8,
        },
    ),
}  # fmt: skip
N_DRAWS = 300  # of 100, one parameter in 25 would miss the bar by chance alone


class TestPlantedTruth:
    @pytest.mark.parametrize("name", DESIGNS)
    def test_each_parameter_is_in_its_interval_in_85_of_100_draws(self, name):
        frame, truth = DESIGNS[name]
        hits = dict.fromkeys(truth, 0)
        for seed in range(N_DRAWS):
            model = LinearModel(list(truth)).fit(frame, noisy(frame, truth, seed))
            for found in model.parameters_:
                hits[found.term] += found.ci_low <= truth[found.term] <= found.ci_high
        share = {name: count / N_DRAWS for name, count in hits.items()}
        assert min(share.values()) >= 0.85, share
        assert max(share.values()) <= 0.97, share  # nor so wide that they say nothing

    @pytest.mark.parametrize("name", DESIGNS)
    def test_new_measurements_fall_into_the_prediction_interval(self, name):
        frame, truth = DESIGNS[name]
        inside = []
        for seed in range(100):
            model = LinearModel(list(truth)).fit(frame, noisy(frame, truth, seed))
            low, high = model.predict_interval(frame)
            new = noisy(frame, truth, 10_000 + seed)
            inside.append(np.mean((low <= new) & (new <= high)))
        assert 0.87 <= np.mean(inside) <= 0.95

    @settings(max_examples=60, deadline=None)
    @given(
        exponents=st.lists(st.floats(-6, 0), min_size=3, max_size=3),
        noise_exponent=st.sampled_from([0.0, 0.5, 1.0]),
    )
    def test_data_without_noise_return_the_parameters(self, exponents, noise_exponent):
        frame = grid([1, 2, 4, 8], [8, 16, 32, 64])
        truth = dict(zip(STEP, 10.0 ** np.array(exponents), strict=True))
        model = LinearModel(STEP, noise_exponent).fit(frame, exact(frame, truth))
        found = {name: p.estimate for name, p in by_term(model).items()}
        assert found == pytest.approx(truth, rel=1e-6)
        np.testing.assert_allclose(model.predict(frame), exact(frame, truth), rtol=1e-6)

    @settings(max_examples=30, deadline=None)
    @given(rates=st.lists(st.floats(-12, -8), min_size=4, max_size=4), fixed=st.floats(-7, -2))
    def test_layers_without_noise_return_the_parameters(self, rates, fixed):
        names = ["flops", "weights", "input_activations", "output_activations"]
        # FLOPs outnumber bytes a hundred times: keep every term above rounding.
        truth = {"fixed": 10.0**fixed, **dict(zip(names, 10.0 ** np.array(rates), strict=True))}
        truth["flops"] /= 100
        model = LinearModel(list(truth)).fit(SIX_BY_FIVE, exact(SIX_BY_FIVE, truth))
        found = {name: p.estimate for name, p in by_term(model).items()}
        assert found == pytest.approx(truth, rel=1e-6)

    @pytest.mark.parametrize("noise", [0.0, 0.002])
    def test_columns_of_1e15_flop_keep_a_fixed_cost_of_a_tenth_of_a_millisecond(self, noise):
        frame = pd.DataFrame({"flop": np.geomspace(1e9, 1e15, 25)})
        truth = {"fixed": 1e-4, "flops": 1e-13}
        model = LinearModel(list(truth)).fit(frame, noisy(frame, truth, 1, noise))
        found = by_term(model)
        assert found["fixed"].estimate == pytest.approx(1e-4, rel=0.01)
        assert found["flops"].estimate == pytest.approx(1e-13, rel=0.01)
        assert found["fixed"].ci_low <= 1e-4 <= found["fixed"].ci_high or noise == 0

    @settings(max_examples=40, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def test_nothing_costs_less_than_zero_whatever_the_times(self, seed):
        frame = grid([1, 2, 4], [8, 16, 32])
        times = np.random.default_rng(seed).lognormal(-4, 2, len(frame))
        model = LinearModel([*STEP, "log_workers"]).fit(frame, times)
        for found in model.parameters_:
            assert 0 <= found.ci_low <= found.estimate <= found.ci_high
            assert found.status == ("positive" if found.estimate > 0 else "zero")
        low, high = model.predict_interval(frame)
        assert np.all((low >= 0) & (low <= model.predict(frame)) & (model.predict(frame) <= high))


def reweighted(frame, names, times, k):
    """Weighted least squares of statsmodels, three times, with weights from the fit before."""
    design, fitted = amounts(frame, names), times
    for _ in range(3):
        result = WLS(times, design, weights=fitted ** (-2 * k)).fit()
        fitted = result.fittedvalues
    return result


class TestAgainstStatsmodels:
    @pytest.mark.parametrize("k", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("level", [0.5, 0.9])
    def test_where_normal_theory_holds_it_is_weighted_least_squares(self, k, level):
        frame, truth = DESIGNS["a step over workers and batches"]
        n_compared = 0
        for seed in range(10):
            times = noisy(frame, truth, seed, exponent=k)
            expected = reweighted(frame, STEP, times, k)
            model = LinearModel(STEP, k, level, loss="squares").fit(frame, times)
            found = model.params_.set_index("term")
            assert (found.status == "positive").all()
            np.testing.assert_allclose(found.estimate, expected.params, rtol=1e-9)
            np.testing.assert_allclose(found.std_err, expected.bse, rtol=1e-9)
            assert model.dof_ == expected.df_resid
            assert model.noise_ == pytest.approx(np.sqrt(expected.scale), rel=1e-9)
            if set(found.method) == {"normal theory"}:
                n_compared += 1
                low, high = expected.conf_int(1 - level).T
                np.testing.assert_allclose(found.ci_low, low, rtol=1e-8)
                np.testing.assert_allclose(found.ci_high, high, rtol=1e-8)
        assert n_compared >= 5  # the test of the noise model refuses one in four

    @pytest.mark.parametrize("k", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
    def test_predictions_have_its_observation_intervals(self, k, level):
        frame, truth = DESIGNS["a step over workers and batches"]
        times, new = noisy(frame, truth, 3), grid([1, 3, 16], [4, 48, 300])
        expected = reweighted(frame, STEP, times, k)
        mean = amounts(new, STEP) @ expected.params
        table = expected.get_prediction(amounts(new, STEP), weights=mean ** (-2 * k)).summary_frame(
            alpha=1 - level
        )
        model = LinearModel(STEP, k, loss="squares").fit(frame, times)
        low, high = model.predict_interval(new, level)
        np.testing.assert_allclose(model.predict(new), table["mean"], rtol=1e-9)
        np.testing.assert_allclose(low, np.maximum(table.obs_ci_lower, 0), rtol=1e-4)
        np.testing.assert_allclose(high, table.obs_ci_upper, rtol=1e-5)

    def test_at_the_bound_the_errors_are_its_and_the_bounds_are_of_the_bootstrap(self):
        frame, truth = DESIGNS["a term that costs nothing"]
        at_bound = 0
        for seed in range(10):
            times = noisy(frame, truth, seed)
            model = LinearModel(list(truth), loss="squares").fit(frame, times)
            if by_term(model)["log_workers"].estimate > 0:
                continue
            at_bound += 1
            # The weights are those of the fit without the term that costs nothing.
            weights = reweighted(frame, STEP, times, 1.0).model.weights
            expected = WLS(times, amounts(frame, truth), weights=weights).fit()
            found = model.params_
            np.testing.assert_allclose(found.std_err, expected.bse, rtol=0.02)
            assert (found.method == "bootstrap").all()
            assert by_term(model)["log_workers"].ci_low == 0
            assert model.dof_ == len(frame) - 3
        assert at_bound >= 3


@pytest.fixture
def powers():
    """Terms x, x², ... x⁵ for the length of a test."""
    before = dict(TERMS)

    def power(exponent):
        def function(frame):
            return frame.x**exponent

        function.__name__, function.__doc__ = f"x{exponent}", f"x to the power {exponent}."
        return term(unit="1", resource="host")(function)

    for exponent in range(1, 6):
        power(exponent)
    yield
    TERMS.clear()
    TERMS.update(before)


@pytest.mark.usefixtures("powers")
class TestCertifiedResults:
    """NIST Statistical Reference Datasets, https://www.itl.nist.gov/div898/strd/lls/lls.shtml."""

    @pytest.mark.parametrize(
        ("x", "y", "slope", "error", "residual"),
        [
            (  # NoInt1
                np.arange(60.0, 71), np.arange(130.0, 141),
                2.07438016528926, 0.165289256198347e-01, 3.56753034006338,
            ),
            (  # NoInt2
                [4.0, 5, 6], [3.0, 4, 4],
                0.727272727272727, 0.420827318078432e-01, 0.369274472937998,
            ),
        ],
        ids=["NoInt1", "NoInt2"],
    )  # fmt: skip
    def test_a_line_through_zero(self, x, y, slope, error, residual):
        model = LinearModel(["x1"], noise_exponent=0, loss="squares").fit(pd.DataFrame({"x": x}), y)
        (found,) = model.parameters_
        assert found.estimate == pytest.approx(slope, rel=1e-13)
        assert found.std_err == pytest.approx(error, rel=1e-12)
        assert model.noise_ == pytest.approx(residual, rel=1e-13)

    @pytest.mark.parametrize("base", [1.0, 0.1], ids=["Wampler1", "Wampler2"])
    def test_a_polynomial_of_degree_five(self, base):
        x = np.arange(21.0)
        truth = base ** np.arange(6)
        terms = ["fixed", "x1", "x2", "x3", "x4", "x5"]
        times = np.polynomial.polynomial.polyval(x, truth)
        model = LinearModel(terms, noise_exponent=0).fit(pd.DataFrame({"x": x}), times)
        np.testing.assert_allclose(model.params_.estimate, truth, rtol=1e-7)
