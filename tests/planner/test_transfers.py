from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import InputError
from fitkit.models.collectives import CollectiveModel
from fitkit.models.performance import PerformanceModel
from fitkit.planner.transfers import (
    ALL_REDUCE,
    SEND_RECV,
    FittedLinks,
    LinksByOperation,
    RingLink,
    comm_model,
    hidden_share,
    local_batches,
    moved_bytes,
    moved_bytes_apart,
)


def comms(
    op: str = ALL_REDUCE, ranks: tuple[int, ...] = (2, 4, 8), **columns: object
) -> pd.DataFrame:
    """Times of a ring of 10 us and 10 GB/s, 1 KiB to 1 GiB."""
    sizes = 2.0 ** np.arange(10, 31, 2)
    frame = pd.DataFrame([(n, s) for n in ranks for s in sizes], columns=["n_ranks", "n_bytes"])
    share = 2 * (frame.n_ranks - 1) / frame.n_ranks if op == ALL_REDUCE else 1.0
    seconds = 1e-5 + share * frame.n_bytes / 1e10
    return frame.assign(op=op, duration_s=seconds, **columns).astype({"n_ranks": float})


def ask(links: object, op: str, *calls: tuple[float, float]) -> tuple[list[float], list[bool]]:
    ranks, sizes = np.array(calls, dtype=float).T
    found = links.calls(op, ranks, sizes)  # type: ignore[attr-defined]
    return found.seconds.tolist(), found.is_extrapolated.tolist()


# -- bytes ---------------------------------------------------------------------------------------


def busiest(batch: int, n_src: int, n_dst: int, *, apart: bool) -> int:
    """Samples that the busiest GPU sends or receives, by handing them out one at a time."""
    holds = dict.fromkeys(range(n_src), batch // n_src)
    first = n_src if apart else 0
    wants = {gpu + first: batch // n_dst for gpu in range(n_dst)}
    sent, received = dict.fromkeys(holds, 0), dict.fromkeys(wants, 0)
    for gpu in set(holds) & set(wants):  # what is there already stays
        stays = min(holds[gpu], wants[gpu])
        holds[gpu] -= stays
        wants[gpu] -= stays
    for gpu in holds:
        sent[gpu] += holds[gpu]
    for gpu in wants:
        received[gpu] += wants[gpu]
    assert sum(sent.values()) == sum(received.values())
    return max(*sent.values(), *received.values())


@pytest.mark.parametrize("apart", [False, True])
def test_moved_bytes_are_those_of_handing_out_samples(apart: bool) -> None:
    counts = np.array([1, 2, 3, 4, 6, 12, 24])
    moved = (moved_bytes_apart if apart else moved_bytes)(100.0, 24, counts, counts)
    for (i, src), (j, dst) in product(enumerate(counts.tolist()), repeat=2):
        assert moved[i, j] == 100 * busiest(24, src, dst, apart=apart), (src, dst)


def test_vgg_transfer_has_all_channels() -> None:
    # 64 x 224 x 224 float32 of VGG's first ReLU; from 1 to 2 GPUs half the batch of 32 moves.
    sample = 4.0 * 64 * 224 * 224
    moved = moved_bytes(sample, 32, np.array([1]), np.array([2]))
    assert moved.item() == 16 * 4 * 3_211_264


def test_uneven_batches_are_those_of_the_fullest_gpu() -> None:
    assert local_batches(10, np.array([1, 3, 4, 10])).tolist() == [10, 4, 3, 1]


# -- overlap -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sync", "backward", "share"),
    [
        ([1.0, 1.0], [3.0, 3.0], 0.5),  # the first layer's comes when nothing is left to compute
        ([0.0, 2.0], [3.0, 3.0], 1.0),
        ([0.0, 5.0], [3.0, 3.0], 0.6),
        ([2.0, 5.0], [3.0, 3.0], 3 / 7),
        ([0.0, 0.0], [3.0, 3.0], 0.0),
    ],
)
def test_hidden_share(sync: list[float], backward: list[float], share: float) -> None:
    assert hidden_share(np.array(sync), np.array(backward)) == pytest.approx(share)


# -- constants -----------------------------------------------------------------------------------


class TestRingLink:
    def test_is_the_ring(self) -> None:
        link = RingLink(1e-5, 1e9)
        seconds, outside = ask(link, ALL_REDUCE, (1, 1e6), (2, 1e6), (8, 1e6), (8, 0))
        assert seconds == pytest.approx([0, 1e-5 + 1e-3, 1e-5 + 1.75e-3, 0])
        assert not any(outside)
        assert ask(link, SEND_RECV, (2, 1e6))[0] == pytest.approx([1e-5 + 1e-3])

    @pytest.mark.parametrize("wrong", [(-1.0, 1e9), (0.0, 0.0), (0.0, 1e9, -0.1)])
    def test_constants(self, wrong: tuple[float, ...]) -> None:
        with pytest.raises(ValueError, match="must be 0 or more"):
            RingLink(*wrong)

    def test_by_operation(self) -> None:
        both = LinksByOperation({ALL_REDUCE: RingLink(0.0, 1e9)})
        assert ask(both, ALL_REDUCE, (2, 1e6))[0] == pytest.approx([1e-3])
        with pytest.raises(InputError, match="no model of send_recv; there are all_reduce"):
            ask(both, SEND_RECV, (2, 1e6))


# -- curves --------------------------------------------------------------------------------------


class TestFittedLinks:
    def test_is_the_curve(self) -> None:
        links = comm_model(comms())
        seconds, outside = ask(links, ALL_REDUCE, (1, 1e6), (2, 1e6), (8, 1e6), (8, 1e10), (4, 0))
        expected = [0, 1e-5 + 1e-4, 1e-5 + 1.75e-4, 1e-5 + 1.75, 0]
        assert seconds == pytest.approx(expected, rel=1e-3)
        assert outside == [False, False, False, True, False]

    def test_of_ranks_that_were_not_measured(self) -> None:
        seconds, outside = ask(comm_model(comms(ranks=(2, 4))), ALL_REDUCE, (3, 1e9), (16, 1e9))
        # Between the ring's time of two ranks and that of four; and not beyond the tree's growth.
        assert 0.1 < seconds[0] < 0.15
        assert 0.15 < seconds[1] < 0.301
        assert outside == [False, True]

    def test_nodes(self) -> None:
        frame = pd.concat([comms(n_nodes=1.0), comms(n_nodes=2.0).assign(duration_s=1.0)])
        one, two = comm_model(frame, gpus_per_node=8), comm_model(frame, gpus_per_node=4)
        assert ask(one, ALL_REDUCE, (8, 1e6))[0] == pytest.approx([1.85e-4], rel=1e-3)
        assert ask(two, ALL_REDUCE, (4, 1e6))[0] == pytest.approx([1.6e-4], rel=1e-3)
        assert ask(two, ALL_REDUCE, (8, 1e6))[0] == pytest.approx([1.0])

    def test_across_nodes_without_a_measurement(self) -> None:
        links = comm_model(comms(topology="intra"), gpus_per_node=4)
        with pytest.raises(InputError, match="no time of all_reduce of 1000 bytes on 8 ranks"):
            ask(links, ALL_REDUCE, (2, 1e3), (8, 1e3))

    def test_an_operation_that_was_not_measured(self) -> None:
        with pytest.raises(InputError, match="no time of send_recv"):
            ask(comm_model(comms()), SEND_RECV, (2, 1e3))

    def test_other_words(self) -> None:
        links = FittedLinks(
            CollectiveModel().fit(frame := comms("sendrecv"), frame.duration_s),
            ops={SEND_RECV: "sendrecv"},
        )
        assert ask(links, SEND_RECV, (2, 1e6))[0] == pytest.approx([1.1e-4], rel=1e-3)

    def test_a_device(self) -> None:
        frame = pd.concat([comms(device="A"), comms(device="B").assign(duration_s=1.0)])
        assert ask(comm_model(frame, "B"), ALL_REDUCE, (8, 1e6))[0] == pytest.approx([1.0])

    def test_doubt_has_the_size_of_the_interval(self) -> None:
        random = np.random.default_rng(0)
        frame = comms()
        times = frame.duration_s * np.exp(0.05 * random.standard_normal(len(frame)))
        model = CollectiveModel().fit(frame, times)
        found = FittedLinks(model).calls(ALL_REDUCE, np.full(3, 8.0), np.array([3e3, 5e5, 1e9]))
        scatter = np.linalg.norm(found.loadings, axis=0)
        assert np.ptp(scatter) < 1e-9
        assert 0.03 < scatter[0] < 0.15

    def test_a_recipe(self, recipe_model: Callable[[str], PerformanceModel]) -> None:
        links = comm_model(recipe_model("comms"))
        asked = pd.DataFrame(
            {
                "op": ALL_REDUCE,
                "topology": "intra",
                "n_nodes": 1.0,
                "n_ranks": [4.0],
                "n_bytes": 1e6,
            }
        )
        expected = recipe_model("comms").predict(asked).predicted_s.tolist()
        assert ask(links, ALL_REDUCE, (4, 1e6)) == (pytest.approx(expected), [False])
        assert ask(links, ALL_REDUCE, (4, 1e12))[1] == [True]
        with pytest.raises(ValueError, match="recipe 'layers': collectives need recipe 'comms'"):
            comm_model(recipe_model("layers"))


def test_vgg_all_reduce_on_measured_tables(shared: Path) -> None:
    """553 MB on 8 A100 at the bandwidth that vTrain's table states next to the time."""
    path = shared / "public_tables/vtrain/a100_AR_GPU8_1M_1024M_LUT"
    table = pd.read_csv(path).iloc[:, [0, 3, 4]].set_axis(["n_bytes", "ns", "busbw"], axis=1)
    frame = table.assign(op=ALL_REDUCE, n_ranks=8.0, duration_s=table.ns * 1e-9)
    n_bytes = 4.0 * 138_357_544
    near = table.iloc[(table.n_bytes - n_bytes).abs().argmin()]
    seconds, outside = ask(comm_model(frame), ALL_REDUCE, (8, n_bytes))
    assert seconds == pytest.approx([2 * 7 / 8 * n_bytes / (near.busbw * 1e9)], rel=0.01)
    assert outside == [False]
