"""The notebooks run from top to bottom."""

import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, capsys):
    report = runpy.run_path(str(path))["report"]
    assert report.overall["median_ape"] < report.baselines["constant"]["median_ape"]
    assert report.verdict in capsys.readouterr().out
