"""Print what docs/accuracy.md says of intervals, refusals, knees, drift and parameters.

  python benchmarks/coverage.py [--shared FOLDER] [--only SECTION] >> docs/accuracy.md

FOLDER holds the measurements and the published tables; default ../shared. Exits with 1 if a figure
misses its bar.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import drift
import intervals
import knees
import parameters
import refusals
import run_recipe
import speed
from lines import Sections, run
from threadpoolctl import threadpool_limits

INTRODUCTION = """# How sure fitkit is

Printed by `benchmarks/coverage.py`. Intervals are of 90 %; held-out rows take part in no choice,
splits and seeds are frozen. Planted truths are drawn with `numpy.random.default_rng(s)`.
"""
SECTIONS: Sections = {
    "steps": intervals.step_times,
    "targets": intervals.targets,
    "guard": refusals.section,
    "knees": knees.section,
    "runs": run_recipe.planted,
    "drift": drift.section,
    "parameters": parameters.section,
    "cost": speed.added,
    "recipes": intervals.other_recipes,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--only", choices=[*SECTIONS], action="append", metavar="SECTION")
    given = parser.parse_args()
    chosen = {name: make for name, make in SECTIONS.items() if name in (given.only or SECTIONS)}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        print(INTRODUCTION)
        missed = list(run(chosen, given.shared, Path(folder)))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
