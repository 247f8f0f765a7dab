"""What the tables ``layers`` and ``edges`` say of one run: its layers, and their calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitkit.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from fitkit.dataset import Dataset

_SIZES = ("flop", "input_bytes", "output_bytes")
_COLUMNS = [
    "run_id", "rank", "layer", "layer_type", "phase", "n", "layer_index", "local_batch",
    "duration_s", "n_params", "input_grad_bytes", *_SIZES,
]  # fmt: skip
_MOST_NAMED = 8
Row = Mapping[Any, Any]


@dataclass(frozen=True)
class LayerRows:
    """A layer as one rank saw it; sizes and work are those of a forward call."""

    name: str
    layer_type: str
    local_batch: float | None
    n_params: int | None
    flop: float | None
    input_bytes: float | None
    output_bytes: float | None
    n: int
    """Forward calls that were measured; 0 if none was."""
    seconds: float
    """Time of all its calls, forward and backward."""

    @property
    def is_timed(self) -> bool:
        """Whether any call of it was timed."""
        return self.n > 0 or self.seconds > 0

    @property
    def has_sizes(self) -> bool:
        """Whether any of the sizes is known that grow with the samples."""
        return any(getattr(self, name) is not None for name in _SIZES)


@dataclass(frozen=True)
class RunRows:
    """The layers of a run in the order in which it has them, and the bytes of each edge a call."""

    run_id: str
    network: str
    local_batch: float | None
    layers: dict[str, LayerRows]
    edges: dict[tuple[str, str], float | None]
    usual_n: int
    """Calls of most layers: one in each step, or pass of one."""

    def calls(self, layer: LayerRows) -> float:
        """Calls of a layer in a step: as often as most layers once."""
        return layer.n / self.usual_n if layer.n else 1.0

    def samples(self, layer: LayerRows) -> float:
        """Samples of a call.

        Raises
        ------
        InputError
            If neither the layer nor the run says, or it is no number of samples.
        """
        found = layer.local_batch if layer.local_batch is not None else self.local_batch
        if found is None:
            raise InputError(
                f"{self.network}: layer {layer.name}: the samples of a call are not known, so "
                "sizes of one are not",
                "ingest it again with --set local_batch=N",
            )
        if not found > 0:
            raise InputError(f"{self.network}: layer {layer.name}: {found:g} samples in a call")
        return found


def read_run(dataset: Dataset, run_id: str | None) -> RunRows:
    """The rows of a run, or of the only network that there is.

    Raises
    ------
    InputError
        If there is no such run or no run with layers, or which network is meant is not said.
    """
    layers = dataset.read("layers", _COLUMNS)
    edges = dataset.read("edges")
    runs = dataset.read("runs", ["run_id", "network", "local_batch"])
    runs = runs[runs.run_id.isin(layers.run_id)].drop_duplicates("run_id").set_index("run_id")
    chosen = _chosen(str(dataset.path), runs, edges, run_id)
    own = layers[layers.run_id == chosen]
    own = own[own["rank"] == own["rank"].min()].sort_values("layer_index", kind="stable")
    # Plain rows: a network has some hundred layers, and pandas takes a millisecond for each step.
    rows: dict[str, list[Row]] = {}
    for row in own.to_dict("records"):
        rows.setdefault(str(row["layer"]), []).append(row)
    found = {name: _layer_rows(name, some) for name, some in rows.items()}
    counts = Counter(one.n for one in found.values() if one.n)
    usual = max(counts, key=lambda n: (counts[n], n), default=1)
    network, batch = runs.network[chosen], runs.local_batch[chosen]
    return RunRows(
        chosen,
        network if isinstance(network, str) else chosen,
        _known(batch),
        found,
        {
            (str(row.src), str(row.dst)): _known(row.n_bytes)
            for row in edges[edges.run_id == chosen].itertuples()
        },
        usual,
    )


def _chosen(where: str, runs: pd.DataFrame, edges: pd.DataFrame, asked: str | None) -> str:
    """The run that is asked for, else the one with most edges of the only network."""
    if runs.empty:
        raise InputError(f"{where}: no run has layers", "record one, or ingest a graph")
    if asked is not None:
        if asked in runs.index:
            return asked
        runs = runs[runs.network == asked]
        if runs.empty:
            raise InputError(f"{where}: no run {asked} with layers", "fitkit show lists the runs")
    names = runs.network.where(runs.network.notna(), runs.index.to_series())
    shown = [str(name) for name in names.drop_duplicates()]
    if len(shown) > 1:
        some = ", ".join(shown[:_MOST_NAMED]) + (", ..." if len(shown) > _MOST_NAMED else "")
        raise InputError(f"{where}: layers of several networks: {some}", "say which: --run NAME")
    n_edges = edges.run_id.value_counts()
    return str(max(sorted(runs.index), key=lambda one: int(n_edges.get(one, 0))))


def _layer_rows(name: str, rows: Sequence[Row]) -> LayerRows:
    """One layer of its rows: a row for each phase, and for each shape that it was called with."""
    main = [row for row in rows if row["phase"] in ("forward", "compute")] or rows
    sizes = {column: _mean(main, column) for column in _SIZES}
    phases = {row["phase"] for row in main}
    if phases == {"compute"} and sizes["flop"] is not None:
        # Forward is one of three products, or of two where the input needs no gradient.
        sizes["flop"] /= 2 if all(row["input_grad_bytes"] == 0 for row in main) else 3
    elif "forward" not in phases:
        sizes["flop"] = None
    n_params = [_known(row["n_params"]) for row in rows]
    return LayerRows(
        name,
        str(main[0]["layer_type"]),
        _mean(main, "local_batch"),
        max((int(value) for value in n_params if value is not None), default=None),
        n=sum(int(row["n"]) for row in main),
        seconds=sum(row["n"] * (_known(row["duration_s"]) or 0.0) for row in rows),
        **sizes,
    )


def _mean(rows: Sequence[Row], column: str) -> float | None:
    """Mean over the calls; over the rows if none was measured."""
    known = [(value, row["n"]) for row in rows if (value := _known(row[column])) is not None]
    if not known:
        return None
    n = sum(calls for _, calls in known)
    if n > 0:
        return float(sum(value * calls for value, calls in known) / n)
    return sum(value for value, _ in known) / len(known)


def _known(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
