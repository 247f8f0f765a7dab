"""Where the measurements of a report come from, and what computed it."""

from __future__ import annotations

import platform
from collections.abc import Collection
from importlib.metadata import version

import pandas as pd

from fitkit.dataset import Dataset

_SOURCE = ["path", "format", "parser_version", "source_id", "n_bytes", "n_diagnostics"]
_DIAGNOSTIC = ["path", "line", "code", "text"]
_LIBRARIES = ("fitkit", "numpy", "pandas", "scipy", "pyarrow")


def provenance(dataset: Dataset | None, run_ids: Collection[str]) -> dict[str, pd.DataFrame]:
    """``Sources`` of the runs with their hashes, their ``Diagnostics``, and ``Versions``.

    Parameters
    ----------
    dataset
        Where the runs come from; without one there are versions alone.
    """
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    found = {"Versions": pd.DataFrame(versions.items(), columns=["name", "version"])}
    if dataset is None:
        return found
    runs = dataset.read("runs", ["run_id", "source_id"])
    used = set(runs.source_id[runs.run_id.isin(list(run_ids))])
    sources = dataset.read("sources", _SOURCE)
    sources = sources[sources.source_id.isin(used)].sort_values("path", ignore_index=True)
    diagnostics = dataset.read("diagnostics", ["source_id", *_DIAGNOSTIC])
    diagnostics = diagnostics[diagnostics.source_id.isin(used)][_DIAGNOSTIC]
    frames = {"Sources": sources, **found, "Diagnostics": diagnostics.reset_index(drop=True)}
    return {caption: frame for caption, frame in frames.items() if len(frame)}
