"""The same measurements give the same bytes: in any order, in any process, under any hash seed."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.models.recipes import RECIPES

EVERY_RECIPE = pytest.mark.parametrize("name", RECIPES)
PROGRAM = """
import sys
import fitkit, pandas as pd
for name, path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    fitkit.fit(pd.read_parquet(path), name).save(path + ".json")
"""


def saved(model):
    return json.dumps(model.to_dict(), indent=1, allow_nan=False)


def text(frame, name, **options):
    """The fitted model as it is saved."""
    return saved(fitkit.fit(frame, name, **options))


def measured(recipe_frame, name):
    """A frame of runs with names and repetitions, enough of a network's steps for trees."""
    frame = recipe_frame(name)
    random = np.random.default_rng(1)
    target = RECIPES[name].target
    if name == "step":
        other = frame[frame.index < 12].assign(local_batch=lambda f: 3 * f.local_batch)
        frame = pd.concat([frame, other.assign(step_s=2.5 * other.step_s)])
    if name == "pipeline":  # a form that takes long
        frame = frame[::5]
    frame = pd.concat([frame] * 3, ignore_index=True)
    frame[target] *= 1 + 0.05 * random.standard_normal(len(frame))
    return frame.assign(run_id=[f"r{i:03}" for i in frame.index])


@pytest.fixture(scope="module")
def fitted(recipe_frame):
    """The model of a recipe, fitted once."""
    return functools.cache(lambda name: fitkit.fit(measured(recipe_frame, name), name))


@pytest.fixture(scope="module")
def expected(fitted):
    """That model as it is saved."""
    return lambda name: saved(fitted(name))


@EVERY_RECIPE
def test_the_order_of_the_rows_is_no_matter(recipe_frame, expected, name):
    shuffled = measured(recipe_frame, name).sample(frac=1, random_state=0)
    assert text(shuffled, name) == expected(name)


@EVERY_RECIPE
def test_neither_the_order_of_the_columns_nor_others_matter(recipe_frame, expected, name):
    frame = measured(recipe_frame, name)[::-1]
    others = np.random.default_rng(0).standard_normal(len(frame))
    more = frame[frame.columns[::-1]].assign(loss=others, host="a", placement=others)
    assert text(more, name) == expected(name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("phases", {"statistic": "mean"}),
        ("phases", {"statistic": "min"}),
        ("comms", {"statistic": "mean"}),
        ("layers", {"statistic": "min"}),
        ("step", {"question": "scale-up"}),
    ],
    ids=str,
)
def test_the_order_of_the_rows_is_no_matter_to_options(recipe_frame, name, options):
    frame = measured(recipe_frame, name)
    expected = text(frame, name, **options)
    for seed in range(1 if name == "step" else 3):
        assert text(frame.sample(frac=1, random_state=seed), name, **options) == expected


@EVERY_RECIPE
def test_a_saved_model_is_written_again_with_the_same_bytes(recipe_frame, fitted, name, tmp_path):
    frame = measured(recipe_frame, name)
    model = fitted(name)
    model.save(tmp_path / "m.json")
    before = (tmp_path / "m.json").read_bytes()
    again = fitkit.load_model(tmp_path / "m.json")
    again.save(tmp_path / "m.json")
    assert (tmp_path / "m.json").read_bytes() == before
    pd.testing.assert_frame_equal(again.predict(frame), model.predict(frame), check_exact=True)
    assert str(again.summary()) == str(model.summary())
    assert again.choices() == model.choices()


def test_another_process_with_another_hash_seed_gives_the_same_bytes(
    recipe_frame, expected, tmp_path
):
    arguments = []
    for name in RECIPES:
        path = tmp_path / f"{name}.parquet"
        measured(recipe_frame, name).to_parquet(path)
        arguments += [name, str(path)]
    # Another seed than that of this process, which is random or stated.
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
        check=True, env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    for name in RECIPES:
        assert (tmp_path / f"{name}.parquet.json").read_text() == expected(name) + "\n"
