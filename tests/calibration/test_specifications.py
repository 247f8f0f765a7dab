"""Data sheets: the shipped table, files, and what they make of a prior."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.calibration import calibrate
from fitkit.calibration.specifications import (
    Device,
    Specifications,
    device_named,
    devices,
    read_specification,
    time_ratios,
)

Times = Callable[..., pd.DataFrame]


def test_every_shipped_device_has_rates_and_a_source() -> None:
    names = [name.casefold() for device in devices() for name in (device.name, *device.names)]
    assert len(names) == len(set(names))
    for device in devices():
        assert device.source
        assert device.memory_bytes_per_s > 1e11
        assert all(1e12 < peak < 1e16 for peak in device.peak_flop_per_s.values())


def test_names_of_logs_are_known() -> None:
    found = device_named("nvidia a100 80gb pcie")
    assert found is not None
    assert found.name == "A100-PCIE-80GB"
    assert device_named("abacus") is None
    assert read_specification("H100").name == "H100-SXM5"


def test_ratios_of_times() -> None:
    old = Device("old", {"fp32": 10e12, "fp16": 100e12}, memory_bytes_per_s=1e12)
    new = Device("new", {"fp32": 20e12, "fp16": 800e12}, 4e12, link_inter_bytes_per_s=1e10)
    # Arithmetic: the mean of 1/2 and 1/8 is 1/4; memory 1/4; so the device as such 1/4.
    assert time_ratios(old, new) == pytest.approx({"device": 0.25, "memory": 0.25})
    found = time_ratios(old, new, "fp32")
    assert found["device"] == pytest.approx(np.sqrt(0.5 * 0.25))
    told = Specifications().ratios({"device": "V100"}, {"device": "abacus"})
    assert told == {}
    told = Specifications().ratios({"device": "A100"}, {"device": "H100"})
    assert told["link_intra"] == pytest.approx(600 / 900)
    assert "host" not in told


def test_a_file_is_read_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text(
        "memory_bytes_per_s = 2e12\npeak_flop_per_s = { bf16 = 400e12 }\n"
        "[storage]\nclient_bytes_per_s = 1e9\n"
    )
    found = read_specification(path)
    assert (found.name, found.memory_bytes_per_s) == ("new", 2e12)
    assert found.client_bytes_per_s == 1e9
    for text, what in (
        ("memory = 1", "no key 'memory'"), ("memory_bytes_per_s = -1", "memory_bytes_per_s = -1"),
        ("peak_flop_per_s = { bf16 = 'fast' }", "bf16 = 'fast'"), ("= 3", "new.toml"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(fitkit.InputError, match=what):
            read_specification(path)
    with pytest.raises(fitkit.InputError, match="No such file"):
        read_specification(tmp_path / "none.toml")


def test_a_data_sheet_moves_what_the_probes_do_not_tell(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    # One probe on one device: of the link, a hundred times as fast, only the sheet tells.
    target = cluster("new", 1.0, 0.01)
    probes = target[(target.n_workers == 1) & target.local_batch.isin([8, 128])]
    rates = {"peak_flop_per_s": {"fp32": 1e13}, "memory_bytes_per_s": 1e12}
    old = Device("old", **rates, link_intra_bytes_per_s=1e9, link_inter_bytes_per_s=1e9)
    new = Device("new", **rates, link_intra_bytes_per_s=1e11, link_inter_bytes_per_s=1e11)
    blind = calibrate(source, probes, allow_prior=True)
    told = calibrate(source, probes, spec=new, source_spec=old, allow_prior=True)
    far = target[target.n_workers == 16]

    def error(model: fitkit.PerformanceModel) -> float:
        (group,) = model.estimator.groups_.values()
        return float(np.abs(np.log(group.predict(far) / far.step_s)).mean())

    assert error(told) < 0.3 * error(blind)
