"""fitkit doctor."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Any

import click

from fitkit.cli import BAD_INPUT
from fitkit.cli.demo import sample_data
from fitkit.cli.options import common, print_json, print_result
from fitkit.display import Summary, Table
from fitkit.errors import InputError

_EXTRAS = {"torch": "record and run plans", "duckdb": "SQL over datasets", "dask": "clusters"}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@click.command(epilog="Example: fitkit doctor --json")
@common
def command(as_json: bool, quiet: bool) -> int:
    """Show versions, optional extras and the machine facts that fits need."""
    facts = _facts()
    if as_json:
        print_json(facts)
    else:
        print_result(_summary(facts))
    return 0 if not facts["missing"] else BAD_INPUT


def _facts() -> dict[str, Any]:
    names = sorted({_name(text) for text in requires("fitkit") or [] if "extra ==" not in text})
    found = {name: _version(name) for name in names}
    return {
        "fitkit": version("fitkit"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "threads": {name: os.environ.get(name) for name in _THREADS},
        "sample_data": _samples(),
        "dependencies": found,
        "missing": [name for name, number in found.items() if number is None],
        "extras": {name: find_spec(name) is not None for name in _EXTRAS},
    }


def _samples() -> str | None:
    try:
        return str(sample_data())
    except InputError:
        return None


def _name(requirement: str) -> str:
    return next(
        (requirement[:i] for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")),
        requirement,
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _summary(facts: dict[str, Any]) -> Summary:
    threads = ", ".join(f"{k}={v}" for k, v in facts["threads"].items() if v) or "not limited"
    notes = [f"missing: {', '.join(facts['missing'])}: install fitkit again"]
    load, cores = facts["load"], facts["usable_cores"] or facts["cores"] or 1
    busy = load is not None and load > 0.5 * cores
    note = f"other work runs here (load {load:.1f}): wall-clock times measured now mislead"
    return Summary(
        f"fitkit {facts['fitkit']}",
        {
            "Python": facts["python"],
            "system": facts["system"],
            "cores": f"{facts['cores']} ({cores} usable), load {load:.1f}"
            if load is not None
            else str(facts["cores"]),
            "numeric threads": threads,
            "sample data": facts["sample_data"] or "not installed: fitkit demo will not run",
        },
        [
            Table(
                ("package", "version"),
                tuple((k, v or "missing") for k, v in facts["dependencies"].items()),
                "Dependencies",
            ),
            Table(
                ("extra", "for", "installed"),
                tuple((k, _EXTRAS[k], "yes" if v else "no") for k, v in facts["extras"].items()),
                "Optional",
                2,
            ),
        ],
        (notes if facts["missing"] else []) + ([note] if busy else []),
    )
