"""The test for drift and for an order that hides it: by hand, by statsmodels, in small sweeps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.drift import drift_test

SIZES = 2.0 ** np.arange(7)


def sweep(sizes, drift=0.3, noise=0.02, seed=0):
    """Starts, times and sizes of runs one after another on a machine that drifts."""
    draw = np.random.default_rng(seed)
    place = np.linspace(0, 1, len(sizes))
    noises = np.exp(noise * draw.standard_normal(len(sizes)))
    return place, (2 / sizes + 0.1) * (1 + drift) ** place * noises, sizes


def found(sizes, **options):
    place, times, sizes = sweep(np.asarray(sizes, dtype=float), **options)
    return drift_test(place, times, sizes, {"n_workers": sizes})


class TestDrift:
    def test_two_passes_without_noise_give_the_drift_by_hand(self):
        # The second pass starts half of the period later and takes 1.21 times as long.
        starts = [0.0, 1.0, 4.0, 5.0, 8.0]
        one = drift_test(starts, [1.0, 2.0, 1.21, 2.42, 3.0], ["a", "b", "a", "b", "c"])
        assert one.drift == pytest.approx(1.21**2 - 1, abs=1e-6)
        assert (one.n_runs, one.n_repeated, one.period_s, one.reach) == (5, 4, 8.0, 0.5)

    @pytest.mark.parametrize("seed", range(5))
    def test_slope_and_interval_are_those_of_least_squares_where_nothing_is_far_off(self, seed):
        import pandas as pd
        import statsmodels.formula.api as smf

        draw = np.random.default_rng(seed)
        frame = pd.DataFrame({"group": np.tile(list("abcdef"), 2), "place": np.linspace(0, 1, 12)})
        # Repetitions that differ by nearly the same, up or down: none is beyond 2 scaled MAD.
        noise = draw.permutation([-1, -1, -1, 1, 1, 1]) * draw.uniform(0.9, 1.1, 6) / 100
        frame["log"] = 0.2 * frame.place + np.concatenate([np.zeros(6), noise])
        fit = smf.ols("log ~ place + C(group)", frame).fit()
        low, high = fit.conf_int(0.1).loc["place"]
        ours = drift_test(frame.place, np.exp(frame.log), frame.group)
        expected = np.expm1([fit.params["place"], low, high])
        assert [ours.drift, ours.low, ours.high] == pytest.approx(expected, abs=1e-6)
        assert ours.p_value == pytest.approx(fit.pvalues["place"], rel=1e-6)

    @pytest.mark.parametrize("where", [0, 7, 20])
    def test_one_straggler_does_not_pass_for_drift_nor_hide_it(self, where):
        for drift in (0.0, 0.3):
            place, times, sizes = sweep(np.tile(SIZES, 3), drift=drift, noise=0.01)
            times[where] *= 4
            one = drift_test(place, times, sizes, {"n_workers": sizes})
            assert one.drift == pytest.approx(drift, abs=0.03)
            assert one.low < drift < one.high
            assert (one.verdict == "confounded") == (drift > 0)

    def test_the_interval_holds_the_drift_as_often_as_it_says(self):
        held = 0
        for seed in range(100):
            draw = np.random.default_rng(seed)
            one = found(draw.permutation(np.tile(SIZES, 2)), noise=0.05, seed=seed)
            held += one.low <= 0.3 <= one.high
        assert 82 <= held <= 97

    def test_all_repetitions_alike_is_no_drift(self):
        one = drift_test([0, 1, 2, 3], [2.0, 5.0, 2.0, 5.0], [1, 2, 1, 2])
        assert one.verdict == "no drift"
        assert [one.drift, one.low, one.high] == pytest.approx([0, 0, 0], abs=1e-6)
        assert str(one) == "no drift: 0 % over the measurements (90 % 0 to 0 %)"

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 1000), st.floats(1e-3, 1e3), st.floats(-1e5, 1e5), st.floats(1e-2, 1e4))
    def test_units_and_the_order_of_the_rows_do_not_matter(self, seed, unit, shift, stretch):
        draw = np.random.default_rng(seed)
        place, times, sizes = sweep(draw.permutation(np.tile(SIZES, 2)), noise=0.05, seed=seed)
        one = drift_test(place, times, sizes, {"n_workers": sizes})
        rows = draw.permutation(len(sizes))
        again = drift_test(place[rows], times[rows], sizes[rows], {"n_workers": sizes[rows]})
        assert one == again
        other = drift_test(shift + stretch * place, unit * times, sizes, {"n_workers": sizes})
        figures = [one.drift, one.low, one.high, one.reach]
        assert [other.drift, other.low, other.high, other.reach] == pytest.approx(figures, rel=1e-3)


class TestVerdict:
    def test_sweeps_in_increasing_order_with_drift_are_flagged(self):
        for seed in range(10):
            for noise in (0.02, 0.05, 0.1):
                sentinel = [8, 1, 2, 4, 8, 8, 16, 32, 64, 8]
                for sizes in (np.repeat(SIZES, 3), sentinel, np.tile(SIZES, 3), SIZES):
                    assert found(sizes, noise=noise, seed=seed).is_flagged

    def test_shuffled_sweeps_without_drift_are_not(self):
        flagged = 0
        for seed in range(20):
            draw = np.random.default_rng(seed)
            for noise in (0.02, 0.1):
                for sizes in (np.repeat(SIZES, 3), SIZES):
                    shuffled = draw.permutation(sizes)
                    flagged += found(shuffled, drift=0, noise=noise, seed=seed).is_flagged
        assert flagged <= 3  # of 80

    def test_repeated_passes_say_confounded_with_the_size_of_the_drift(self):
        one = found(np.tile(SIZES, 3), noise=0.001)
        assert (one.verdict, one.column) == ("confounded", "n_workers")
        assert one.correlations["n_workers"] == pytest.approx(1)
        assert str(one) == (
            "confounded: n_workers grew with the measuring order (rank correlation 1) and the "
            "machine drifted by 30 % (90 % 30 to 30 %): what the time does with n_workers cannot "
            "be trusted; measure again in random order, every configuration more than once"
        )

    def test_falling_sizes_are_told_as_falling(self):
        one = found(np.tile(SIZES[::-1], 3), noise=0.001)
        assert one.correlations["n_workers"] == pytest.approx(-1)
        assert "n_workers fell with the measuring order" in str(one)

    def test_an_order_without_repetitions_is_possibly_confounded(self):
        one = found(SIZES)
        assert one.verdict == "possibly confounded"
        assert "no configuration was measured more than once: drift is not excluded" in str(one)
        assert math.isnan(one.drift)

    def test_repetitions_in_a_row_prove_nothing_however_quiet(self):
        # As where the first of each three reads from a cold cache.
        place, times, sizes = sweep(np.repeat(SIZES, 3), drift=0, noise=1e-4)
        times[::3] *= 1.2
        one = drift_test(place, times, sizes, {"n_workers": sizes})
        assert one.verdict == "possibly confounded"
        assert "lie at most 10 % of the measuring time apart" in str(one)
        assert drift_test(place, times, sizes).verdict == "not determined"

    def test_passes_without_drift_are_no_drift_though_the_order_is_increasing(self):
        one = found(np.tile(SIZES, 3), drift=0, noise=0.01)
        assert one.verdict == "no drift"
        assert one.column == "n_workers"

    def test_drift_in_random_order_is_said_without_a_column(self):
        order = np.random.default_rng(1).permutation(np.tile(SIZES, 3))
        one = found(order, noise=0.02)
        assert (one.verdict, one.column) == ("drift", None)
        assert str(one).startswith(
            f"drift of {round(100 * one.drift)} % over the measurements (90 "
        )

    def test_a_drift_of_3_percent_is_none_however_certain(self):
        one = found(np.random.default_rng(1).permutation(np.tile(SIZES, 3)), drift=0.03, noise=1e-3)
        assert one.p_value < 1e-6
        assert one.verdict == "no drift"

    def test_the_column_that_follows_is_named_not_the_inner_one(self):
        workers, batch = (values.ravel() for values in np.meshgrid(SIZES, [8, 16, 32]))
        order = np.lexsort((batch, workers))
        columns = {"local_batch": batch[order], "n_workers": workers[order]}
        one = drift_test(range(21), np.ones(21), range(21), columns)
        assert (one.verdict, one.column) == ("possibly confounded", "n_workers")
        assert abs(one.correlations["local_batch"]) < 0.3

    def test_one_repetition_of_one_configuration_does_not_tell_scatter(self):
        one = drift_test([0, 1, 2], [1.0, 2.0, 1.3], [1, 2, 1])
        assert one.verdict == "not determined"
        assert "does not tell drift from scatter" in str(one)


class TestOrder:
    def test_the_correlation_is_that_of_scipy(self):
        from scipy.stats import spearmanr

        draw = np.random.default_rng(3)
        for n in (5, 7, 12):
            x, place = draw.integers(0, 6, n), draw.random(n)
            one = drift_test(place, np.ones(n), range(n), {"x": x})
            assert one.correlations["x"] == pytest.approx(spearmanr(x, place).statistic)

    @pytest.mark.parametrize(("n", "verdict"), [(4, "not determined"), (5, "possibly confounded")])
    def test_of_four_runs_one_in_twelve_orders_is_sorted_of_five_one_in_sixty(self, n, verdict):
        assert found(SIZES[:n]).verdict == verdict

    def test_a_column_that_never_varied_follows_nothing(self):
        one = drift_test(range(6), np.ones(6), range(6), {"n_nodes": np.ones(6)})
        assert math.isnan(one.correlations["n_nodes"])
        assert one.verdict == "not determined"

    def test_columns_that_say_the_same_count_once_and_unknown_values_do_not_count(self):
        one = drift_test(
            range(6), np.ones(6), range(6),
            {"a": np.arange(6), "b": -2.0 * np.arange(6), "c": np.full(6, np.nan)},
        )  # fmt: skip
        assert one.verdict == "possibly confounded"  # 2 of 720 orders, under one in fifty


class TestDegenerate:
    @pytest.mark.parametrize(
        ("starts", "times", "why"),
        [
            ([], [], "0 of 0 runs have a start and a time"),
            ([1.0], [1.0], "1 of 1 runs have a start and a time"),
            ([np.nan] * 4, [1.0] * 4, "0 of 4 runs have a start and a time"),
            ([0.0, 1, 2, 3], [np.nan, -1.0, 0.0, np.inf], "0 of 4 runs have a start and a time"),
            ([5.0] * 4, [1.0] * 4, "all runs start at the same time"),
            ([0.0, np.inf], [1.0, 1.0], "1 of 2 runs have a start and a time"),
        ],
    )
    def test_without_two_starts_nothing_is_said(self, starts, times, why):
        one = drift_test(starts, times, list(range(len(starts))), {"x": list(range(len(starts)))})
        assert (one.verdict, str(one)) == ("not determined", f"not determined: {why}")
        assert not one.is_flagged
        assert math.isnan(one.drift)

    def test_two_runs_say_nothing(self):
        assert drift_test([0, 1], [1.0, 2.0], [1, 2], {"x": [1, 2]}).verdict == "not determined"
        assert drift_test([0, 1], [1.0, 2.0], [1, 1]).verdict == "not determined"

    def test_instants_are_seconds_and_one_that_is_missing_does_not_count(self):
        seconds, times, sizes = sweep(np.tile(SIZES, 2))
        seconds = np.round(1e4 * seconds)
        instants = np.datetime64("2026-11-30T12:00:00", "s") + seconds.astype("timedelta64[s]")
        one = drift_test(instants, times, sizes, {"n_workers": sizes})
        assert one == drift_test(
            instants.astype("datetime64[ns]"), times, sizes, {"n_workers": sizes}
        )
        assert one.drift == pytest.approx(drift_test(seconds, times, sizes).drift)
        assert one.period_s == 1e4
        instants[0] = "NaT"
        assert drift_test(instants, times, sizes).n_runs == 13

    def test_instants_with_time_zones_are_those_in_utc(self):
        import datetime as dt

        import pandas as pd

        seconds, times, sizes = sweep(np.tile(SIZES, 2))
        seconds = np.round(1e4 * seconds)
        plain = pd.Series(pd.Timestamp("2026-11-30T12:00:00") + pd.to_timedelta(seconds, "s"))
        expected = drift_test(plain.to_numpy(), times, sizes, {"n_workers": sizes})
        zoned = plain.dt.tz_localize("UTC")
        tokyo, delhi = zoned.dt.tz_convert("Asia/Tokyo"), zoned.dt.tz_convert("Asia/Kolkata")
        mixed = pd.Series([*tokyo[:7], *delhi[7:]], dtype=object)
        stdlib = [
            at.to_pydatetime().astimezone(dt.timezone(dt.timedelta(hours=-5))) for at in zoned
        ]
        for starts in (plain, zoned, zoned.array, pd.DatetimeIndex(zoned), tokyo, mixed, stdlib):
            assert drift_test(starts, times, sizes, {"n_workers": sizes}) == expected
        for missing in (None, pd.NaT, np.nan, pd.NA):
            zones = zoned.astype(object)
            zones[0] = missing
            assert drift_test(zones, times, sizes).n_runs == 13

    def test_starts_that_cannot_be_compared_are_refused_in_words(self):
        import pandas as pd

        instant = pd.Timestamp("2026-11-30T12:00:00")
        for starts, words in (
            ([instant, instant.tz_localize("UTC")], "some starts have a time zone and others"),
            ([instant, 5.0], "all must be instants, or all numbers"),
            (["noon", "late"], "starts: not all are numbers"),
        ):
            with pytest.raises(ValueError, match=words):
                drift_test(np.array(starts, dtype=object), [1.0, 2.0], [1, 2])
        with pytest.raises(ValueError, match="column x: not all are numbers"):
            drift_test([0, 1], [1.0, 2.0], [1, 2], {"x": ["a", "b"]})
        assert drift_test([0, 1], [1.0, pd.NA], [1, 2]).n_runs == 1

    def test_a_configuration_may_have_any_name_and_one_without_is_like_no_other(self):
        place, times, sizes = sweep(np.tile(SIZES, 2))
        expected = drift_test(place, times, sizes)
        for names in (
            [1, 2.5, "a", ("b", 1), "2.5", b"c", True + 6] * 2,  # 7 differ by value or kind
            [1.0, 2.5, "a", ("b", 1), "2.5", b"c", 7, 1, 2.5, "a", ("b", 1), "2.5", b"c", 7.0],
        ):
            given = np.empty(14, dtype=object)
            given[:] = names
            assert drift_test(place, times, given).drift == pytest.approx(expected.drift)
        for null in (None, np.nan):
            named = np.array([null, null, *sizes[2:7], null, null, *sizes[9:]], dtype=object)
            one = drift_test(place, times, named, {"n_workers": sizes})
            assert (one.n_runs, one.n_repeated) == (14, 10)
            rows = np.random.default_rng(0).permutation(14)
            again = drift_test(place[rows], times[rows], named[rows], {"n_workers": sizes[rows]})
            assert again == one

    def test_a_single_configuration_tells_the_drift(self):
        one = drift_test(range(6), 1.3 ** np.linspace(0, 1, 6), np.zeros(6), {"x": np.ones(6)})
        assert one.verdict == "drift"
        assert one.drift == pytest.approx(0.3, abs=1e-6)

    def test_runs_that_start_together_share_their_rank(self):
        one = drift_test([0, 0, 1, 1, 2, 2], np.ones(6), range(6), {"x": [1, 1, 2, 2, 3, 3]})
        assert one.correlations["x"] == pytest.approx(1)

    def test_shapes_that_differ_are_refused(self):
        with pytest.raises(ValueError, match="one value for each run"):
            drift_test([0, 1], [1.0, 2.0, 3.0], [1, 2, 3])
        with pytest.raises(ValueError, match="one value for each run"):
            drift_test([0, 1], [1.0, 2.0], [1, 2], {"x": [1.0]})
