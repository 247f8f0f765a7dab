"""What all baselines share: names, protocol, groups, poor data."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fitkit.errors import FitError
from fitkit.models.baselines import BASELINES, baseline_predictions
from fitkit.models.estimator import NotFittedError

COLUMNS = ["n_workers", "n_nodes", "local_batch", "global_batch"]
EVERY = pytest.mark.parametrize("name", BASELINES)


def steps(n=60, seed=0):
    """Random configurations with some noise."""
    random = np.random.default_rng(seed)
    workers = random.choice([1.0, 2, 4, 8, 16], n)
    batch = random.choice([8.0, 16, 32, 64], n)
    frame = pd.DataFrame(
        {"n_workers": workers, "n_nodes": np.ceil(workers / 4), "local_batch": batch,
         "global_batch": workers * batch, "work": batch}
    )  # fmt: skip
    noise = 1 + 0.05 * random.standard_normal(n)
    return frame.assign(step_s=(0.1 + 0.01 * batch + 0.02 * np.log2(workers)) * noise)


def made(name):
    return BASELINES[name].over(COLUMNS)


def test_they_have_names_that_reports_print():
    assert list(BASELINES) == [
        "constant", "nearest_configuration", "perfect_scaling", "ernest", "pollux",
        "gradient_boosting", "normal_form",
    ]  # fmt: skip


class TestProtocol:
    @EVERY
    def test_it_is_an_estimator(self, name):
        frame = steps()
        model = clone(made(name))
        assert model.fit(frame, frame.step_s) is model
        found = model.predict(frame)
        assert found.shape == (60,)
        assert (found > 0).all()
        assert type(model).__name__ in repr(model)

    @EVERY
    def test_a_record_of_arrays_serves_as_a_frame_does(self, name):
        frame = steps()
        record = SimpleNamespace(**{column: frame[column].to_numpy() for column in frame})
        whole = made(name).fit(frame, frame.step_s).predict(frame)
        assert made(name).fit(record, record.step_s).predict(record).tolist() == whole.tolist()

    @EVERY
    def test_the_order_of_the_rows_does_not_matter(self, name):
        frame = steps()
        asked = steps(seed=1)
        shuffled = frame.sample(frac=1, random_state=2)
        one = made(name).fit(frame, frame.step_s).predict(asked)
        assert made(name).fit(shuffled, shuffled.step_s).predict(asked).tolist() == one.tolist()

    @EVERY
    def test_before_fitting_there_is_nothing_to_say(self, name):
        with pytest.raises(NotFittedError):
            made(name).predict(steps())

    @EVERY
    @pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
    def test_times_must_be_positive(self, name, bad):
        with pytest.raises(ValueError, match="positive"):
            made(name).fit(steps(), np.full(60, bad))

    @EVERY
    def test_no_row_is_refused(self, name):
        with pytest.raises(FitError, match="no rows"):
            made(name).fit(steps()[:0], [])

    @pytest.mark.parametrize("name", [name for name in BASELINES if name != "constant"])
    def test_words_are_refused(self, name):
        with pytest.raises(ValueError, match="column local_batch holds words"):
            made(name).fit(steps().assign(local_batch="large"), np.ones(60))

    def test_without_a_column_that_it_needs_it_does_not_apply(self):
        having = {name for name, kind in BASELINES.items() if kind.over(["local_batch"])}
        assert set(BASELINES) - having == {"ernest", "pollux"}


class TestPoorData:
    @EVERY
    def test_one_row_is_predicted_as_it_was(self, name):
        frame = steps()[:1]
        found = made(name).fit(frame, [0.5]).predict(frame)
        assert found.tolist() == [pytest.approx(0.5, rel=1e-4)]

    @EVERY
    def test_identical_rows_are_predicted_between_their_times(self, name):
        frame = pd.concat([steps()[:1]] * 8)
        (found,) = set(made(name).fit(frame, np.linspace(1, 2, 8)).predict(frame))
        assert 1 <= found <= 2

    @EVERY
    def test_a_constant_column_does_no_harm(self, name):
        frame = steps().assign(n_workers=1.0, n_nodes=1.0, global_batch=lambda f: f.local_batch)
        found = made(name).fit(frame, frame.step_s).predict(frame)
        assert np.isfinite(found).all()

    @EVERY
    def test_a_column_without_values_does_no_harm(self, name):
        frame = steps().assign(n_nodes=np.nan, global_batch=None)
        found = made(name).fit(frame, frame.step_s).predict(frame)
        assert np.isfinite(found).all()

    @EVERY
    def test_zeros_do_no_harm(self, name):
        frame = steps()
        frame.loc[::7, ["n_workers", "local_batch", "global_batch", "work"]] = 0.0
        found = made(name).fit(frame, frame.step_s).predict(frame)
        assert np.isfinite(found[frame.n_workers > 0]).all()


class TestGroups:
    def test_a_baseline_knows_only_the_training_rows_of_its_group(self):
        columns = SimpleNamespace(
            n_workers=np.ones(5), local_batch=np.array([1.0, 2, 1, 2, 1]),
            work=np.array([1.0, 2, 1, 2, 1]),
        )  # fmt: skip
        times, groups = np.array([1.0, 2, 10, 20, 5]), ["a", "a", "b", "b", "c"]
        train = np.array([True, False, True, False, False])
        found = baseline_predictions(columns, times, groups, train, ~train)
        assert list(found) == list(BASELINES)
        assert np.isnan(found.pop("gradient_boosting")).all()  # too few rows
        for name, seconds in found.items():
            assert np.isnan(seconds[[0, 2]]).all()  # not asked
            assert np.isnan(seconds[4])  # no training row
            # Twice the batch: in proportion; of Pollux' form half of the time is fixed.
            scale = {"perfect_scaling": 2.0, "pollux": 1.5}.get(name, 1.0)
            assert seconds[[1, 3]] == pytest.approx([scale, 10 * scale], rel=1e-4)

    def test_groups_are_fitted_as_each_would_be_alone(self):
        frame = pd.concat([steps(seed=0), steps(seed=1)], ignore_index=True)
        columns = SimpleNamespace(**{c: frame[c].to_numpy() for c in [*COLUMNS, "work"]})
        times, test = frame.step_s.to_numpy(), np.arange(120) % 4 == 0
        found = baseline_predictions(columns, times, [0] * 60 + [1] * 60, ~test, test)
        for name, seconds in found.items():
            assert np.isnan(seconds[~test]).all()
            for first in (0, 60):
                part = frame[first : first + 60]
                held = test[first : first + 60]
                alone = made(name).fit(part[~held], part.step_s[~held]).predict(part[held])
                assert seconds[first : first + 60][held].tolist() == alone.tolist()

    def test_baselines_that_lack_a_column_are_left_out(self):
        columns = SimpleNamespace(flop=np.array([1.0, 2.0]), work=np.array([1.0, 2.0]))
        train = np.array([True, False])
        found = baseline_predictions(columns, np.ones(2), [0, 0], train, ~train)
        assert list(found) == [
            "constant", "nearest_configuration", "perfect_scaling", "gradient_boosting",
            "normal_form",
        ]  # fmt: skip

    @pytest.mark.parametrize(("rows", "is_fitted"), [(19, False), (20, True)])
    def test_trees_are_grown_from_twenty_rows_on(self, rows, is_fitted):
        frame = steps(rows + 1)
        columns = SimpleNamespace(**{c: frame[c].to_numpy() for c in [*COLUMNS, "work"]})
        test = np.arange(rows + 1) == 0
        found = baseline_predictions(
            columns, frame.step_s.to_numpy(), [0] * (rows + 1), ~test, test
        )
        assert np.isfinite(found["gradient_boosting"][0]) == is_fitted
