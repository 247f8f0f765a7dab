"""Data sheets: the shipped table, files, and what they make of a prior."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.calibration import calibrate, suggest_probes
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
        ("memory_bytes_per_s = true", "new.toml: memory_bytes_per_s = True"),
        ("memory_bytes_per_s = '3e12'", "new.toml: memory_bytes_per_s = '3e12'"),
        ("memory_bytes_per_s = 1e400", "new.toml: memory_bytes_per_s = inf"),
        ("peak_flop_per_s = 3e12", "new.toml: peak_flop_per_s = 3000000000000.0"),
        ("peak_flop_per_s = [1, 2]", r"new.toml: peak_flop_per_s = \[1, 2\]"),
        ("storage = 5", "new.toml: storage = 5"), ("is = 5", "new.toml: is = 5"),
        ("is = 'H100'", "new.toml: is = 'H100'"), ("name = 5", "new.toml: "),
        ("", "tells nothing"), ("name = 'x'", "tells nothing"),
        ("memory_bytes_per_s = 3350", "memory_bytes_per_s = 3350 bytes/s is less"),
        ("link_intra_bytes_per_s = 900", "link_intra_bytes_per_s = 900 bytes/s is less"),
        ("peak_flop_per_s = { bf16 = 989 }", "bf16 = 989 FLOP/s is less"),
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


def test_a_sheet_without_that_of_the_old_device_is_said_to_do_nothing(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    probes = cluster("new", 0.5, 1.0).iloc[::12]
    alone = calibrate(source, probes, spec="H100")
    (note,) = [text for text in alone.notes if "data sheet" in text]
    assert "old device old" in note
    assert "--source-spec" in note
    both = calibrate(source, probes, spec="H100", source_spec="T4")
    assert not any("data sheet" in text for text in both.notes)
    chosen = suggest_probes(source, probes.drop(columns="step_s"), 2, spec="H100")
    assert any("--source-spec" in text for text in chosen.attrs["notes"])
    told = suggest_probes(
        source, probes.drop(columns="step_s"), 2, spec="H100", source_spec="T4"
    )  # fmt: skip
    assert not told.attrs["notes"]
    assert told.expected_s.max() < chosen.expected_s.max()  # the sheets say that it is faster
