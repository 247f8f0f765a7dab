"""The same measurements give the same bytes: in any order, in any process, under any hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.cli.options import QUESTIONS
from fitkit.models.recipes import RECIPES

EVERY_RECIPE = pytest.mark.parametrize("name", RECIPES)
PROGRAM = """
import sys
import fitkit, pandas as pd
for name, path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    fitkit.fit(pd.read_parquet(path), name).save(path + ".json")
"""


def text(frame, name, **options):
    """The model as it is saved."""
    return json.dumps(fitkit.fit(frame, name, **options).to_dict(), indent=1, allow_nan=False)


def measured(recipe_frame, name):
    """A frame of runs with names and repetitions, enough for trees where a recipe grows them."""
    frame = recipe_frame(name)
    random = np.random.default_rng(1)
    target = RECIPES[name].target
    if name == "step":
        other = frame[frame.index < 30].assign(local_batch=lambda f: 3 * f.local_batch)
        frame = pd.concat([frame, other.assign(step_s=2.5 * other.step_s)])
    if name == "pipeline":
        frame = pd.concat([frame, frame.assign(micro_batch=4.0)])
    frame = pd.concat([frame] * 3, ignore_index=True)
    frame[target] *= 1 + 0.05 * random.standard_normal(len(frame))
    return frame.assign(run_id=[f"r{i:03}" for i in frame.index])


@EVERY_RECIPE
@pytest.mark.parametrize("statistic", [None, "mean", "min"])
def test_the_order_of_the_rows_is_no_matter(recipe_frame, name, statistic):
    frame = measured(recipe_frame, name)
    expected = text(frame, name, statistic=statistic)
    for seed in range(3 if statistic is None else 1):
        shuffled = frame.sample(frac=1, random_state=seed)
        assert text(shuffled, name, statistic=statistic) == expected
    assert text(frame[::-1], name, statistic=statistic) == expected


@EVERY_RECIPE
def test_neither_the_order_of_the_columns_nor_others_matter(recipe_frame, name):
    frame = measured(recipe_frame, name)
    expected = text(frame, name)
    assert text(frame[frame.columns[::-1]], name) == expected
    others = np.random.default_rng(0).standard_normal(len(frame))
    assert text(frame.assign(loss=others, host="a", placement=others), name) == expected


@EVERY_RECIPE
@pytest.mark.parametrize("question", QUESTIONS)
def test_fitting_again_gives_the_same_model(recipe_frame, name, question):
    frame = measured(recipe_frame, name)
    assert text(frame, name, question=question) == text(frame, name, question=question)


@EVERY_RECIPE
def test_a_saved_model_is_written_again_with_the_same_bytes(recipe_frame, name, tmp_path):
    frame = measured(recipe_frame, name)
    model = fitkit.fit(frame, name)
    model.save(tmp_path / "m.json")
    before = (tmp_path / "m.json").read_bytes()
    again = fitkit.load_model(tmp_path / "m.json")
    again.save(tmp_path / "m.json")
    assert (tmp_path / "m.json").read_bytes() == before
    pd.testing.assert_frame_equal(again.predict(frame), model.predict(frame), check_exact=True)
    assert str(again.summary()) == str(model.summary())
    assert again.choices() == model.choices()


def test_other_processes_and_hash_seeds_give_the_same_bytes(recipe_frame, tmp_path):
    arguments = []
    for name in RECIPES:
        path = tmp_path / f"{name}.parquet"
        measured(recipe_frame, name).to_parquet(path)
        arguments += [name, str(path)]
    written = []
    for seed in ("0", "1", "random"):
        subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
            check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        written.append({name: (tmp_path / f"{name}.parquet.json").read_bytes() for name in RECIPES})
    assert written[0] == written[1] == written[2]
    for name in RECIPES:
        here = text(pd.read_parquet(tmp_path / f"{name}.parquet"), name) + "\n"
        assert written[0][name].decode() == here
