"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pandas as pd
import pytest

import fitkit
from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel

MODULES = [
    found.name
    for found in pkgutil.walk_packages(fitkit.__path__, "fitkit.")
    if found.name != "fitkit.__main__"
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str):
    if name.startswith(("fitkit.recorder.automatic", "fitkit.planner.execution.")):
        pytest.importorskip("torch")
    names = {"pd": pd, "fitkit": fitkit, "LinearModel": LinearModel, "GroupedModel": GroupedModel}
    failed, _ = doctest.testmod(importlib.import_module(name), extraglobs=names)
    assert failed == 0
