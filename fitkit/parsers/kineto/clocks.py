"""Collectives of all ranks side by side: offsets of their clocks, and how long each rank waited.

The k-th collective of a group in a step is the same one on all of its ranks; groups of one name
and different ranks, as far as the traces list them, are different ones. All leave it
together, which tells by how much the clocks of two hosts differ. It communicates from when the
last rank arrives until the last one leaves; before that a rank waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from fitkit.parsers.kineto.collectives import UNKNOWN, Collective

# Their message has the same size on all ranks; that of an all_to_all may differ.
_SAME_SIZE = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")

_STAMP_NS = 1000  # stamps of many traces are whole microseconds


@dataclass
class RankComms:
    """Collectives of one rank.

    Attributes
    ----------
    clock
        What tells the clock: the host; the rank itself where the trace names no host.
    base_ns
        Unix time of the zero of each collective's stamps, or any other common one.
    """

    rank: int
    clock: str
    collectives: list[Collective] = field(default_factory=list)
    base_ns: list[int] = field(default_factory=list)

    def end(self, k: int) -> int:
        """When the k-th collective ended, on the clock of the rank."""
        return self.base_ns[k] + self.collectives[k].end

    def start(self, k: int) -> int:
        """When the k-th collective started, on the clock of the rank."""
        return self.base_ns[k] + self.collectives[k].start


@dataclass
class Comparison:
    """What the ranks together tell.

    Attributes
    ----------
    offset_ns
        By clock, what its stamps are ahead of those of the first rank.
    wait_ns
        By rank and number of the collective, the part of its time that was waiting.
    n_unmatched
        Collectives of which not all ranks are there, or which differ between the ranks.
    """

    offset_ns: dict[str, int] = field(default_factory=dict)
    wait_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    n_unmatched: int = 0


_Call = dict[int, int]  # number of the collective in the list of each rank


def compare(ranks: Sequence[RankComms], world_size: int | None) -> Comparison:
    """Match the collectives of the ranks of a run, align their clocks, and part waiting off."""
    found = Comparison()
    by_rank = {one.rank: one for one in ranks}
    calls, found.n_unmatched = _match(ranks)
    sizes = [_size(by_rank, call) or world_size for call in calls]
    # More ranks than the group has are several groups of one name.
    is_one = [size is None or len(call) <= size for call, size in zip(calls, sizes, strict=True)]
    found.offset_ns = _offsets(by_rank, [c for c, one in zip(calls, is_one, strict=True) if one])
    for call, size in zip(calls, sizes, strict=True):
        if size is None or len(call) != size:
            found.n_unmatched += len(call)
            continue
        _part(found, by_rank, call)
    return found


def _match(ranks: Sequence[RankComms]) -> tuple[list[_Call], int]:
    """Collectives that are one, and how many find no others."""
    places: dict[tuple[int, str, tuple[int, ...]], dict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for one in ranks:
        for k, call in enumerate(one.collectives):
            places[call.step, call.group, call.members][one.rank].append(k)
    by_rank = {one.rank: one.collectives for one in ranks}
    calls: list[_Call] = []
    unmatched = 0
    for of_rank in places.values():
        if _agree([[by_rank[rank][k] for k in own] for rank, own in of_rank.items()]):
            columns = zip(*of_rank.values(), strict=True)
            calls += [dict(zip(of_rank, column, strict=True)) for column in columns]
        else:
            unmatched += sum(map(len, of_rank.values()))
    return calls, unmatched


def _agree(lists: Sequence[Sequence[Collective]]) -> bool:
    """Whether all ranks made the same operations in the same order."""
    if len({len(one) for one in lists}) > 1:
        return False
    return all(_are_one(same) for same in zip(*lists, strict=True))


def _are_one(same: Sequence[Collective]) -> bool:
    """Whether what the ranks recorded can be one collective."""
    operations = {one.op for one in same} - {UNKNOWN}
    sizes = {one.n_bytes for one in same if one.op in _SAME_SIZE and one.n_bytes is not None}
    return len(operations) <= 1 and len(sizes) <= 1


def _size(by_rank: dict[int, RankComms], call: _Call) -> int | None:
    sizes = [by_rank[rank].collectives[k].n_ranks for rank, k in call.items()]
    return max((size for size in sizes if size is not None), default=None)


def _offsets(by_rank: dict[int, RankComms], calls: Sequence[_Call]) -> dict[str, int]:
    """What each clock is ahead of the first, if any is; those of one host are one clock.

    The difference of two clocks is the median over the ends of the collectives that they share.
    Clocks that share none with the first are compared with others that do.
    """
    clocks = list(dict.fromkeys(by_rank[rank].clock for rank in sorted(by_rank)))
    known = dict.fromkeys(clocks[:1], 0)
    ahead = False
    for _ in clocks[1:]:
        differences = _differences(by_rank, calls, known)
        for clock, some in differences.items():
            ends = [end for end, _ in some]
            known[clock] = round(median(ends))
            ahead |= _is_offset(ends) or not any(overlap for _, overlap in some)
    return known if ahead else {}


def _differences(
    by_rank: dict[int, RankComms], calls: Sequence[_Call], known: dict[str, int]
) -> dict[str, list[tuple[int, bool]]]:
    """By new clock, of each collective: end there minus end on known clocks, and overlap of both.

    A collective cannot end on one rank before it starts on another one.
    """
    found: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for call in calls:
        told = [(by_rank[r], k) for r, k in call.items() if by_rank[r].clock in known]
        if not told:
            continue
        end = round(median(one.end(k) - known[one.clock] for one, k in told))
        start = max(one.start(k) - known[one.clock] for one, k in told)
        for rank, k in call.items():
            one = by_rank[rank]
            if one.clock not in known:
                found[one.clock].append(
                    (one.end(k) - end, one.start(k) <= end and start <= one.end(k))
                )
    return found


def _is_offset(differences: Sequence[int]) -> bool:
    """Whether differences of ends are more than their scatter: beyond the middle half of them."""
    if len(differences) < 3:
        return False
    low, middle, high = quantiles(differences, n=4)
    return abs(middle) > max(high - low, _STAMP_NS)


def _part(found: Comparison, by_rank: dict[int, RankComms], call: _Call) -> None:
    """Part the time of one collective on each rank into waiting and communication."""
    starts, ends = [], []
    for rank, k in call.items():
        ahead = found.offset_ns.get(by_rank[rank].clock, 0)
        starts.append(by_rank[rank].start(k) - ahead)
        ends.append(by_rank[rank].end(k) - ahead)
    moving = max(0, max(ends) - max(starts))
    for rank, k in call.items():
        one = by_rank[rank].collectives[k]
        found.wait_ns[rank, k] = max(0, one.end - one.start - moving)
