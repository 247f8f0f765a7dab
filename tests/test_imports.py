"""Nothing heavy is imported before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "joblib", "matplotlib", "pandas", "plotly", "pyarrow", "scipy", "sklearn", "statsmodels",
}  # fmt: skip
PROGRAM = """
import json, sys
from fitkit.cli import run
status = run(sys.argv[1:])
packages = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps([status, packages]), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """Packages that a command imports, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, check=True, text=True
    )
    status, packages = json.loads(done.stderr.splitlines()[-1])
    assert status == 0, done.stderr
    return set(packages)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_next_to_nothing(option: str) -> None:
    packages = imported(option)
    assert packages & (HEAVY | {"numpy", "rich", "jinja2"}) == set()
    assert "fitkit" in packages


def test_predict_needs_numpy_alone(step_model: Path) -> None:
    at = ["--at", "local_batch=4", "--at", "n_workers=1"]
    for words in ([], ["--json"]):
        packages = imported("predict", str(step_model), *at, *words)
        assert packages & HEAVY == set()
        assert "numpy" in packages


def test_ingest_needs_no_statistics(tmp_path: Path, data: Path) -> None:
    log = data / "torque" / "synthetic_20260301"
    for _ in range(2):
        packages = imported("ingest", str(log), "-d", str(tmp_path / "ds"))
        assert packages & HEAVY <= {"pyarrow", "pandas"}  # pyarrow imports pandas


def test_the_package_imports_nothing_before_a_name_is_used() -> None:
    program = "import sys, fitkit; print({m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not [name for name in HEAVY | {"numpy"} if f"'{name}'" in done.stdout.decode()]
