from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.errors import InputError
from fitkit.planner.layer_curves import LayerTimes, MeasuredLayers
from fitkit.planner.network import Network, NetworkLayer


def rows(times: dict[float, float], layer: str = "fc", **columns: object) -> pd.DataFrame:
    """Measured seconds by batch."""
    table = {"layer": layer, "local_batch": [*times], "duration_s": [*times.values()]}
    return pd.DataFrame(table).assign(**columns)


def network(*layers: str, **sizes: float) -> Network:
    return Network("net", tuple(NetworkLayer(name, "Linear", 0, **sizes) for name in layers), ())


def asked(curves: MeasuredLayers, batches: list[float], layer: str = "fc") -> LayerTimes:
    return curves.times(network(layer), np.array(batches, dtype=float))[0][0]


def sd(times: LayerTimes) -> np.ndarray:
    return np.linalg.norm(times.loadings, axis=0)


class TestCurve:
    def test_is_exact_on_a_line(self) -> None:
        line = rows({b: 3e-4 + 1e-4 * b for b in (1, 2, 8, 16)})
        found = asked(MeasuredLayers.fit(line), [1, 3, 5, 12, 16, 40])
        assert found.seconds == pytest.approx([4e-4, 6e-4, 8e-4, 15e-4, 19e-4, 43e-4])
        assert found.is_extrapolated.tolist() == [False] * 5 + [True]

    def test_meets_every_measured_batch(self) -> None:
        times = {1: 1e-4, 2: 1.9e-4, 4: 2.2e-4, 8: 6e-4}
        assert asked(MeasuredLayers.fit(rows(times)), [*times]).seconds == pytest.approx(
            [*times.values()]
        )

    def test_has_an_affine_tail(self) -> None:
        times = {1: 1e-4, 2: 1.9e-4, 4: 2.2e-4, 8: 6e-4}
        seconds = asked(MeasuredLayers.fit(rows(times)), [8, 16, 24, 32, 1000]).seconds
        steps = np.diff(seconds[:4])
        assert steps == pytest.approx([steps[0]] * 3)
        assert seconds[4] == pytest.approx(seconds[0] + steps[0] * (1000 - 8) / 8)
        assert 0 < steps[0] <= seconds[0]  # neither flat nor steeper than its batch

    @given(st.lists(st.floats(1e-5, 1.0), min_size=2, max_size=8))
    def test_never_falls(self, times: list[float]) -> None:
        curves = MeasuredLayers.fit(rows({2.0**k: t for k, t in enumerate(times)}))
        seconds = asked(curves, [*np.linspace(1, 2.0 ** (len(times) + 1), 60)]).seconds
        assert np.all(np.diff(seconds) >= -1e-9 * seconds[:-1])
        assert np.all(seconds > 0)

    def test_names_a_batch_that_is_out_of_line(self) -> None:
        times = {b: 1e-4 * b for b in (1, 2, 4, 8, 16, 32)}
        curves = MeasuredLayers.fit(rows(times | {8: 1.0}))
        assert curves.warnings == ("layer fc: its time at batch 8 is out of line, not used",)
        assert asked(curves, [8]).seconds == pytest.approx([8e-4])


class TestPhases:
    def test_are_added_up(self) -> None:
        forward, backward = {1: 1e-4, 4: 4e-4}, {1: 3e-4, 4: 8e-4}
        both = pd.concat([rows(forward, phase="forward"), rows(backward, phase="backward")])
        found = asked(MeasuredLayers.fit(both), [1, 4])
        assert found.seconds == pytest.approx([4e-4, 12e-4])
        assert found.forward_s == pytest.approx([1e-4, 4e-4])

    def test_count_only_where_all_of_a_layer_are_there(self) -> None:
        forward, backward = {1: 1e-4, 2: 9e-4, 4: 4e-4}, {1: 3e-4, 4: 8e-4}
        both = pd.concat([rows(forward, phase="forward"), rows(backward, phase="backward")])
        curve = MeasuredLayers.fit(both).curves["fc"].curve
        assert curve.sizes.tolist() == [1, 4]

    def test_names_a_layer_without_backward(self) -> None:
        parts = [
            rows({1: 1e-4, 4: 4e-4}, phase="forward"),
            rows({1: 1e-4, 4: 4e-4}, phase="backward"),
            rows({1: 1e-4, 4: 4e-4}, "pool", phase="forward"),
        ]
        curves = MeasuredLayers.fit(pd.concat(parts))
        assert curves.warnings == ("pool: no backward time, counted as none",)
        assert asked(curves, [4], "pool").seconds == pytest.approx([4e-4])

    def test_without_a_batch_in_common(self) -> None:
        both = pd.concat([rows({1: 1e-4}, phase="forward"), rows({2: 1e-4}, phase="backward")])
        with pytest.raises(InputError, match="layer fc: no batch has a time of every phase"):
            MeasuredLayers.fit(both)

    def test_calls_of_a_step(self) -> None:
        curves = MeasuredLayers.fit(rows({1: 1e-4, 4: 4e-4}))
        twice = Network("net", (NetworkLayer("fc", "Linear", n_calls=2.0),), ())
        assert curves.times(twice, np.array([4.0]))[0][0].seconds == pytest.approx([8e-4])


class TestScatter:
    def test_is_that_of_repetitions(self) -> None:
        # Two times at each batch, a factor of e^0.02 apart: a variance of 0.02^2 / 2 each, of
        # which the curve through the middle of two keeps half.
        pair = {b: 1e-4 * b * np.exp(0.01) for b in (1, 2, 4)}
        other = {b: 1e-4 * b * np.exp(-0.01) for b in (1, 2, 4)}
        found = asked(MeasuredLayers.fit(pd.concat([rows(pair), rows(other)])), [1, 2, 4])
        assert sd(found) == pytest.approx([0.02 / np.sqrt(2) / np.sqrt(2)] * 3)

    def test_without_repetitions_is_that_of_neighbours(self) -> None:
        random = np.random.default_rng(0)
        parts = [
            rows({b: (1 + b) * 1e-4 * np.exp(0.03 * random.standard_normal()) for b in
                  (1, 2, 4, 8, 16, 32, 64)}, f"layer{i}")
            for i in range(80)
        ]  # fmt: skip
        curves = MeasuredLayers.fit(pd.concat(parts))
        noise = np.mean([curve.noise.mean() for curve in curves.curves.values()])
        assert noise == pytest.approx(0.03, rel=0.25)

    def test_grows_beyond_the_measured_batches(self) -> None:
        curves = MeasuredLayers.fit(rows({1: 1e-4, 2: 2.1e-4, 4: 3.8e-4, 8: 8.3e-4}))
        inside, near, far = sd(asked(curves, [8, 16, 64])).tolist()
        drift = curves.curves["fc"].drift
        assert near == pytest.approx(np.hypot(inside, drift))
        assert far == pytest.approx(np.hypot(inside, np.sqrt(3) * drift))

    def test_of_two_batches_is_that_of_other_layers(self) -> None:
        noisy = rows({1: 1e-4, 2: 2.2e-4, 4: 3.5e-4, 8: 8.8e-4}, "noisy")
        curves = MeasuredLayers.fit(pd.concat([noisy, rows({1: 1e-4, 4: 4e-4})]))
        assert 0 < sd(asked(curves, [1]))[0] == pytest.approx(curves.curves["noisy"].noise[0])


class TestMissing:
    def test_is_an_error_that_names_it(self) -> None:
        curves = MeasuredLayers.fit(rows({1: 1e-4, 4: 4e-4}))
        with pytest.raises(
            InputError, match=r"net: layer new \(Linear\) has no measured time"
        ) as e:
            curves.times(network("fc", "new"), np.array([1.0]))
        assert "--estimate-missing" in e.value.hint
        with pytest.raises(InputError, match="2 of 3 layers lack one"):
            curves.times(network("fc", "new", "newer"), np.array([1.0]))

    def test_can_be_estimated_by_the_operations(self) -> None:
        curves = MeasuredLayers.fit(rows({1: 1e-4, 4: 4e-4}))
        layers = (
            NetworkLayer("fc", "Linear", 0, flop=100.0),
            NetworkLayer("new", "Linear", 0, flop=300.0),
            NetworkLayer("tiny", "Linear", 0, flop=1.0),
        )
        found, warnings = curves.times(
            Network("net", layers, ()), np.array([1.0, 4.0]), estimate_missing=True
        )
        assert found[1].seconds == pytest.approx([3e-4, 12e-4])
        assert found[2].seconds == pytest.approx([1e-4, 4e-4])  # no kernel is shorter
        assert found[1].is_extrapolated.all()
        assert (sd(found[1]) > 0.5).all()
        how = "estimated from the time of an operation in the other Linear layers"
        assert warnings == (f"not measured, {how}: new, tiny",)

    def test_takes_other_types_by_the_byte(self) -> None:
        curves = MeasuredLayers.fit(rows({1: 1e-4, 4: 4e-4}))
        layers = (
            NetworkLayer("fc", "Linear", 0, None, 60.0, 40.0),
            NetworkLayer("cat", "Concat", 0, None, 100.0, 100.0),
        )
        found, warnings = curves.times(
            Network("net", layers, ()), np.array([4.0]), estimate_missing=True
        )
        assert found[1].seconds == pytest.approx([8e-4])
        assert "a byte in all layers: cat" in warnings[0]

    def test_without_any_size_stays_an_error(self) -> None:
        curves = MeasuredLayers.fit(rows({1: 1e-4, 4: 4e-4}))
        with pytest.raises(InputError, match="layer new"):
            curves.times(network("fc", "new"), np.array([1.0]), estimate_missing=True)

    def test_one_batch_is_not_enough(self) -> None:
        curves = MeasuredLayers.fit(pd.concat([rows({1: 1e-4, 4: 4e-4}), rows({8: 1e-3}, "one")]))
        with pytest.raises(InputError, match=r"layer one .* was measured at batch 8 only"):
            curves.times(network("one"), np.array([4.0]))
        found, _ = curves.times(network("one"), np.array([4.0]), estimate_missing=True)
        assert found[0].seconds == pytest.approx([5e-4])
        assert found[0].is_extrapolated.all()


class TestBadRows:
    @pytest.mark.parametrize("time", [-1e-4, np.nan])
    def test_a_time_that_cannot_be(self, time: float) -> None:
        with pytest.raises(InputError, match="layer fc, batch 2: a time of"):
            MeasuredLayers.fit(rows({1: 1e-4, 2: time}))

    def test_zero(self) -> None:
        with pytest.raises(InputError, match="layer fc, batch 2: its time is zero"):
            MeasuredLayers.fit(rows({1: 1e-4, 2: 0.0}))

    def test_several_devices(self) -> None:
        both = pd.concat([rows({1: 1e-4}, device="A"), rows({1: 2e-4, 2: 3e-4}, device="B")])
        with pytest.raises(ValueError, match="say which device, A, B"):
            MeasuredLayers.fit(both)
        assert asked(MeasuredLayers.fit(both, device="B"), [1]).seconds == pytest.approx([2e-4])
        with pytest.raises(InputError, match="no layer was measured on device C"):
            MeasuredLayers.fit(both, device="C")

    def test_columns(self) -> None:
        with pytest.raises(ValueError, match="no column 'layer'"):
            MeasuredLayers.fit(pd.DataFrame({"duration_s": [1.0]}))
        with pytest.raises(ValueError, match="no column 'device'"):
            MeasuredLayers.fit(rows({1: 1e-4}), device="A")
        with pytest.raises(ValueError, match="phase 'sideways'"):
            MeasuredLayers.fit(rows({1: 1e-4}, phase="sideways"))


def test_inception_at_other_batches(shared: Path) -> None:
    """The bars of issue 8; `benchmarks/deeppool.py` prints the figures."""
    table = pd.read_csv(shared / "deeppool/profiles/layers.csv")
    table = table.query("source == 'A100_inception.prof'")
    table = table.assign(layer=table.layer_type + table.params + table.input_dim)
    weights = table[table.block == table.block.iloc[0]].groupby("layer").size()
    measured = table.pivot_table("avg_ms", "layer", "batch_per_gpu", "first") * 1e-3
    fitted = [2**k for k in range(7)]
    others = [batch for batch in measured if batch not in fitted]
    long = measured[fitted].melt(
        ignore_index=False, var_name="local_batch", value_name="duration_s"
    )
    curves = MeasuredLayers.fit(long.reset_index())
    found, warnings = curves.times(network(*measured.index), np.array(others, dtype=float))
    assert len(others) == 16
    assert len(measured) == 53
    assert not warnings
    seconds, known = np.array([one.seconds for one in found]), measured[others].to_numpy()
    each = np.abs(seconds / known - 1)
    of_all = weights.loc[measured.index].to_numpy()
    whole = np.abs((of_all @ seconds) / (of_all @ known) - 1)
    assert each.mean() <= 0.026
    assert whole.mean() <= 0.014
