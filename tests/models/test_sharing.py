"""Sharing: effects by analysis of variance, real pairs against the additive model."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import FitError
from fitkit.models.estimator import NotFittedError
from fitkit.models.sharing import SharingModel, family_and_size

JOBS = ("vision", "speech", "language", "games", "search")
NEIGHBOURS = ("ads", "maps", "mail", "chess")


def table(logs, jobs=JOBS, neighbours=NEIGHBOURS):
    """All pairs, with shares that have these logarithms."""
    pairs = list(itertools.product(jobs, neighbours))
    frame = pd.DataFrame(pairs, columns=["job", "neighbour"])
    return frame, np.exp(np.asarray(logs).ravel())


@pytest.fixture(scope="module")
def drawn():
    """Unrelated jobs: base 0.5, effects of 15 and 25 %, 3 % that belong to one pair."""
    random = np.random.default_rng(1)
    job, neighbour = random.normal(0, 0.15, (5, 1)), random.normal(0, 0.25, 4)
    logs = np.log(0.5) + job + neighbour + random.normal(0, 0.03, (5, 4))
    return (*table(logs), logs)


@pytest.fixture(scope="module")
def sized():
    """Three families of four sizes: pairs of families have an effect of their own."""
    random = np.random.default_rng(2)
    jobs = [f"{name} (batch size {2**k})" for name in "xyz" for k in range(3, 7)]
    family = np.repeat(np.arange(3), 4)
    between = random.normal(0, 0.2, (3, 3))
    size = np.tile(np.arange(4), 3)
    logs = -0.6 + 0.05 * size[:, None] - 0.1 * size + between[np.ix_(family, family)]
    frame, shares = table(logs, jobs, jobs)
    frame["share"] = shares
    return frame


class TestEffects:
    def test_those_of_a_full_table_are_the_ones_that_analysis_of_variance_gives(self, drawn):
        # In a balanced layout restricted likelihood and analysis of variance agree, and the best
        # predictor shrinks the deviation of a mean by n s_a^2 / (n s_a^2 + s^2).
        X, y, logs = drawn
        model = SharingModel().fit(X, y)
        mean, rows, columns = logs.mean(), logs.mean(axis=1), logs.mean(axis=0)
        rest = logs - rows[:, None] - columns + mean
        squares = (rest**2).sum() / (4 * 3)
        between_jobs = 4 * ((rows - mean) ** 2).sum() / 4
        between_neighbours = 5 * ((columns - mean) ** 2).sum() / 3
        jobs = (1 - squares / between_jobs) * (rows - mean)
        neighbours = (1 - squares / between_neighbours) * (columns - mean)
        by_name = dict(zip(JOBS, jobs, strict=True))
        of_neighbour = dict(zip(NEIGHBOURS, neighbours, strict=True))
        assert model.base_ == pytest.approx(mean, abs=1e-9)
        for found, expected in (
            (model.job_effects_, [by_name[job] for job in model.jobs_]),
            (model.neighbour_effects_, [of_neighbour[name] for name in model.neighbours_]),
        ):
            np.testing.assert_allclose(found, expected, atol=2e-4)

    def test_parameters_are_factors_with_bounds(self, drawn):
        X, y, _ = drawn
        model = SharingModel(level=0.8).fit(X, y)
        found = model.params_.set_index("term")
        assert list(found.index[:2]) == ["base", "job games"]
        assert found.index[-1] == "neighbour maps"
        assert found.loc["base", "unit"] == "share"
        assert (found.unit[1:] == "factor").all()
        assert found.loc["job games", "estimate"] == pytest.approx(np.exp(model.job_effects_[0]))
        z = NormalDist().inv_cdf(0.9)
        spread = np.exp(2 * z * found.std_err / found.estimate)
        np.testing.assert_allclose(found.ci_high / found.ci_low, spread)
        np.testing.assert_allclose(np.sqrt(found.ci_high * found.ci_low), found.estimate)

    def test_a_pair_measured_twice_counts_once_with_its_geometric_mean(self, drawn):
        X, y, _ = drawn
        twice = pd.concat([X, X[:1]], ignore_index=True)
        shares = np.append(y, y[0] * 1.21)
        mean = y.copy()
        mean[0] *= 1.1
        found = SharingModel().fit(twice, shares).predict(X)
        np.testing.assert_allclose(found, SharingModel().fit(X, mean).predict(X), rtol=1e-6)

    def test_without_any_spread_the_base_is_the_share(self):
        X, y = table(np.full((5, 4), np.log(0.5)))
        np.testing.assert_allclose(SharingModel().fit(X, y).predict(X), 0.5, rtol=1e-9)

    @settings(max_examples=15, deadline=None)
    @given(order=st.permutations(range(20)))
    def test_the_order_of_the_rows_is_no_matter(self, drawn, order):
        X, y, _ = drawn
        found = SharingModel().fit(X.iloc[order], y[order]).to_dict()
        assert found == SharingModel().fit(X, y).to_dict()


class TestFamilies:
    @pytest.mark.parametrize(
        ("job", "expected"),
        [
            ("ResNet-18 (batch size 16)", ("ResNet-18 (batch size ", 16.0)),
            ("bert 2.5", ("bert ", 2.5)),
            ("bert batch=32", ("bert batch=", 32.0)),
            ("bert [64]", ("bert [", 64.0)),
            ("ResNet-18", ("ResNet-18", 1.0)),
            ("A3C", ("A3C", 1.0)),
            ("mt5", ("mt5", 1.0)),
            ("16", ("16", 1.0)),
            ("idle 0", ("idle 0", 1.0)),
            ("", ("", 1.0)),
        ],
    )
    def test_a_number_at_the_end_is_a_size(self, job, expected):
        assert family_and_size(job) == expected

    def test_pairs_never_measured_follow_their_families(self, sized):
        held_out = np.random.default_rng(3).random(len(sized)) < 0.4
        train, test = sized[~held_out], sized[held_out]
        found = SharingModel().fit(train, train.share).predict(test)
        assert np.abs(found / test.share - 1).mean() < 0.02
        # Under names without a family only the additive part is left to predict with.
        plain = sized.replace({job: f"job-{k}" for k, job in enumerate(sized.job.unique())})
        additive = SharingModel().fit(plain[~held_out], train.share).predict(plain[held_out])
        assert np.abs(additive / test.share - 1).mean() > 0.05


class TestPredicting:
    def test_what_was_never_measured_is_nan(self, drawn):
        X, y, _ = drawn
        model = SharingModel().fit(X, y)
        asked = pd.DataFrame(
            {"job": ["vision", "other", "ads", None, "vision"],
             "neighbour": ["ads", "ads", "ads", "ads", "speech"]}
        )  # fmt: skip
        for found in (model.predict(asked), *model.predict_interval(asked)):
            assert np.isfinite(found).tolist() == [True, False, False, False, False]

    def test_intervals_hold_as_often_as_they_say(self):
        random = np.random.default_rng(5)
        hits = []
        for _ in range(20):
            job, neighbour = random.normal(0, 0.2, (8, 1)), random.normal(0, 0.2, 8)
            logs = -0.7 + job + neighbour + random.normal(0, 0.05, (8, 8))
            X, y = table(logs, "abcdefgh", "abcdefgh")
            out = random.random(64) < 0.3
            low, high = SharingModel().fit(X[~out], y[~out]).predict_interval(X[out], 0.8)
            hits += ((low <= y[out]) & (y[out] <= high)).tolist()
        assert np.mean(hits) == pytest.approx(0.8, abs=0.06)

    @pytest.mark.parametrize("level", [0, 1, -0.1, 90])
    def test_a_level_is_a_probability(self, drawn, level):
        X, y, _ = drawn
        with pytest.raises(ValueError, match="between 0 and 1"):
            SharingModel().fit(X, y).predict_interval(X, level)

    def test_fitting_comes_first(self):
        with pytest.raises(NotFittedError):
            SharingModel().predict(pd.DataFrame({"job": ["a"], "neighbour": ["b"]}))


class TestRefusals:
    @pytest.mark.parametrize("share", [0.0, -0.5, np.nan, np.inf])
    def test_a_share_is_a_positive_number(self, share):
        X = pd.DataFrame({"job": ["a", "b"], "neighbour": ["b", "a"]})
        with pytest.raises(ValueError, match="shares must be positive"):
            SharingModel().fit(X, [0.5, share])

    def test_a_job_has_a_name(self):
        X = pd.DataFrame({"job": ["a", None], "neighbour": ["b", "a"]})
        with pytest.raises(ValueError, match="a job or a neighbour is null"):
            SharingModel().fit(X, [0.5, 0.5])

    def test_a_length_is_positive(self, drawn):
        X, y, _ = drawn
        with pytest.raises(ValueError, match="doublings: it must be positive"):
            SharingModel(doublings=0).fit(X, y)

    def test_nothing_to_fit_is_an_error(self):
        with pytest.raises(FitError, match="no rows"):
            SharingModel().fit(pd.DataFrame({"job": [], "neighbour": []}), [])


class TestSaving:
    def test_the_model_comes_back_from_json(self, drawn):
        X, y, _ = drawn
        model = SharingModel(doublings=1.5, level=0.8).fit(X, y)
        loaded = SharingModel.from_dict(json.loads(json.dumps(model.to_dict())))
        assert loaded.get_params() == model.get_params()
        assert loaded.parameters_ == model.parameters_
        assert loaded.predict(X).tolist() == model.predict(X).tolist()
        assert loaded.to_dict() == model.to_dict()

    @pytest.mark.parametrize("name", ["interactions", "errors", "job_effects", "base", "noise"])
    @pytest.mark.parametrize("change", [lambda v: [v], lambda v: None, lambda v: [[1.0]]])
    def test_a_damaged_table_is_refused(self, drawn, name, change):
        X, y, _ = drawn
        state = SharingModel().fit(X, y).to_dict()
        state[name] = change(state[name])
        with pytest.raises(ValueError, match="a table of the model is damaged"):
            SharingModel.from_dict(state)

    def test_predicting_needs_numpy_alone(self, drawn, tmp_path):
        X, y, _ = drawn
        file = tmp_path / "model.json"
        file.write_text(json.dumps(SharingModel().fit(X, y).to_dict()))
        program = (
            "import json, sys; from types import SimpleNamespace;"
            "from fitkit.models.sharing import SharingModel;"
            f"model = SharingModel.from_dict(json.load(open({str(file)!r})));"
            "print(model.predict(SimpleNamespace(job='vision', neighbour='ads'))[0]);"
            "print([m for m in ('scipy', 'pandas', 'sklearn', 'statsmodels') if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        share, loaded = done.stdout.split("\n")[:2]
        asked = SimpleNamespace(job="vision", neighbour="ads")
        assert float(share) == SharingModel().fit(X, y).predict(asked)[0]
        assert loaded == "[]"


def directions(pairs):
    """Both directions of each pair as rows of their own."""
    first = pairs.set_axis(["job", "neighbour", "share", "other"], axis=1)
    second = pairs.set_axis(["neighbour", "job", "other", "share"], axis=1)
    return pd.concat([first, second], ignore_index=True)[["job", "neighbour", "share"]]


def additive(train, test):
    """Job and neighbour effects on the logarithm by least squares."""
    names = sorted({*train.job, *train.neighbour})
    design = [
        np.column_stack([frame.job.to_numpy()[:, None] == names,
                         frame.neighbour.to_numpy()[:, None] == names])
        for frame in (train, test)
    ]  # fmt: skip
    effects = np.linalg.lstsq(design[0].astype(float), np.log(train.share))[0]
    return np.exp(design[1] @ effects)


@pytest.mark.parametrize("gpu", ["k80", "p100"])
def test_held_out_pairs_of_a_real_cluster_are_within_five_percent(shared, gpu):
    pairs = pd.read_csv(shared / "public_tables/gavel/colocated_pairs.csv")
    pairs = pairs.loc[pairs.gpu == gpu, ["job_a", "job_b", "norm_a", "norm_b"]]
    errors = []
    for seed in range(5):
        held_out = np.random.RandomState(seed).rand(len(pairs)) < 0.3
        train, test = directions(pairs[~held_out]), directions(pairs[held_out])
        found = SharingModel().fit(train, train.share).predict(test)
        assert np.isfinite(found).all()
        guesses = (found, additive(train, test))
        errors.append([np.abs(guess / test.share - 1).mean() for guess in guesses])
    mape, of_additive = np.mean(errors, axis=0)
    assert max(error for error, _ in errors) < 0.05
    assert mape < 0.04 < 0.07 < of_additive
