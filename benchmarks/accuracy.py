"""Print docs/accuracy.md: prediction error on what the fit never saw, beside known models.

  python benchmarks/accuracy.py [--shared FOLDER] [--only SECTION] > docs/accuracy.md

FOLDER holds the measurements and the published tables; default ../shared. Exits with 1 if a figure
misses its bar.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import deepbench
import gavel
import gemini
import layers
import mlperf
import own_logs
import pollux
import rivals
import run_recipe
import speed
import stragglers
import vtrain
from lines import Sections, run
from threadpoolctl import threadpool_limits

INTRODUCTION = """# Measured accuracy

Printed by `make accuracy`; nothing here is typed by hand. Every figure is for configurations that
the fit did not see: all repetitions of a configuration are held out together, and held-out rows
take part in no choice. Unless it says otherwise, a figure is the mean absolute error as a share of
the measured time, and less is better. Published tables are read with the mappings in
`benchmarks/mappings/`, fitted with `fitkit.fit` and predicted with `model.predict`; baselines are
fitted to the same rows in the same run. The bar of a line is what fitkit promises there; lines
without one are there to be compared.

Extra-P and AdaptDL, the published tools, have a column where they are installed, each in an
environment of its own; `benchmarks/rivals.py` says how, and
`FITKIT_EXTRAP_PYTHON=... FITKIT_ADAPTDL_PYTHON=... make accuracy` asks them.
"""
OWN_LOGS = """## Our own runs

APE is the absolute error as a share of the measured time. The floor is the difference of two
repetitions of a configuration: no model can be expected to err much less.
"""


def sections(pythons: pollux.Pythons) -> Sections:
    """What there is to print, by name."""
    return {
        "pollux": lambda shared, folder: pollux.section(shared, folder, pythons),
        "mlperf": mlperf.section,
        "runs": run_recipe.mlperf,
        "own_runs": run_recipe.own,
        "megatron": vtrain.megatron,
        "vtrain": vtrain.all_reduce,
        "deepbench": deepbench.section,
        "gemini": gemini.section,
        "pipedream": layers.image_networks,
        "neusight": layers.dense_layers,
        "gavel": gavel.section,
        "stragglers": stragglers.section,
        "speed": speed.section,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["own", *sections({})]
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--only", choices=names, action="append", metavar="SECTION")
    parser.add_argument("--extrap-python")
    parser.add_argument("--adaptdl-python")
    given = parser.parse_args()
    only = given.only or names
    options = {"extrap": given.extrap_python, "adaptdl": given.adaptdl_python}
    pythons = {tool: rivals.interpreter(tool, option) for tool, option in options.items()}
    chosen = {name: make for name, make in sections(pythons).items() if name in only}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        print(INTRODUCTION)
        missed = list(run(chosen, given.shared, Path(folder)))
        if "own" in only:
            print(OWN_LOGS)
            own_logs.show(given.shared, Path(folder))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
