"""fitkit doctor: versions, extras and the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

from fitkit.cli import doctor

Run = Callable[..., Any]


def test_the_document_has_versions_extras_and_machine_facts(
    fitkit_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    document = fitkit_run("doctor", "--json").document
    assert document["fitkit"] == version("fitkit")
    assert document["python"] == platform.python_version()
    assert document["dependencies"]["numpy"] == version("numpy")
    assert {"scikit-learn", "pyarrow", "click"} <= document["dependencies"].keys()
    assert "pytest" not in document["dependencies"]
    assert set(document["extras"]) == {"torch", "duckdb", "dask"}
    assert set(map(type, document["extras"].values())) == {bool}
    assert document["cores"] == os.cpu_count()
    assert document["threads"]["OMP_NUM_THREADS"] == "1"
    assert document["missing"] == []


def test_the_summary_can_be_read(fitkit_run: Run) -> None:
    found = fitkit_run("doctor")
    assert (found.status, found.err) == (0, "")
    for text in (f"fitkit {version('fitkit')}", "Python", "numpy", "torch", "numeric threads"):
        assert text in found.out


def test_a_missing_dependency_is_bad_input(
    fitkit_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "requires", lambda _: ["numpy>=2", "no-such-thing[all]>=1; x"])
    found = fitkit_run("doctor", "--json")
    assert (found.status, found.document["missing"]) == (3, ["no-such-thing"])
    assert "missing: no-such-thing: install fitkit again" in fitkit_run("doctor").out


@pytest.mark.parametrize(("load", "busy"), [(0.0, False), (99.0, True), (None, False)])
def test_a_busy_machine_is_said_to_be(
    fitkit_run: Run, monkeypatch: pytest.MonkeyPatch, load: float | None, busy: bool
) -> None:
    if load is None:
        monkeypatch.delattr(os, "getloadavg")
    else:
        monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    assert ("other work runs here" in fitkit_run("doctor").out) == busy
