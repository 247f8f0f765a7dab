"""What each GPU does in a step of a plan: spans of time, GPUs that do the same joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fitkit.planner.plan import Plan, PlannedLayer

TRANSFER, COMPUTE, SYNC, STEP, IDLE, BACKGROUND = (
    "transfer", "compute", "synchronisation", "step", "idle", "background",
)  # fmt: skip
_LEAST = 1e-9  # of a step: what is shorter is rounding
_REST = "launch, optimizer and loss"


@dataclass(frozen=True)
class Span:
    """A time in which a GPU does one thing.

    Attributes
    ----------
    kind
        ``transfer``, ``compute``, ``synchronisation``, ``step`` (what a step costs whatever the
        plan), ``idle`` or ``background``.
    name
        The layer, or the background job.
    layer
        The layer's number; None if it is none's, as what a lane sends into its join.
    """

    start_s: float
    end_s: float
    kind: str
    name: str
    layer: int | None = None

    @property
    def duration_s(self) -> float:
        """How long it is."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class BackgroundSpan:
    """A time in which another job runs on a GPU of the plan."""

    gpu: int
    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Track:
    """GPUs, one after another, that do the same all step long."""

    first: int
    last: int
    spans: tuple[Span, ...]

    @property
    def label(self) -> str:
        """``GPU 3``, or ``GPUs 4 to 7``."""
        return (
            f"GPU {self.first}" if self.first == self.last else f"GPUs {self.first} to {self.last}"
        )

    @property
    def n_gpus(self) -> int:
        """How many GPUs it stands for."""
        return self.last - self.first + 1

    def share(self, kind: str, iter_s: float) -> float:
        """Share of the step that its GPUs spend so."""
        return sum(span.duration_s for span in self.spans if span.kind == kind) / iter_s


def timeline(
    plan: Plan, background: Sequence[BackgroundSpan] = (), *, join: bool = True
) -> list[Track]:
    """The spans of every GPU in a step, without a gap: where nothing runs it is idle.

    Parameters
    ----------
    background
        Other jobs on the GPUs of the plan, in the idle times.
    join
        Join neighbours that do the same.

    Raises
    ------
    ValueError
        If a background job is on no GPU of the plan, or outside the idle times.
    """
    runs: list[list[PlannedLayer]] = [[] for _ in range(plan.n_gpus)]
    for layer in sorted(plan.layers, key=lambda one: (one.start_s, one.id)):
        for gpu in layer.gpus:
            runs[gpu].append(layer)
    beside: list[list[BackgroundSpan]] = [[] for _ in range(plan.n_gpus)]
    for span in sorted(background, key=lambda one: one.start_s):
        if not 0 <= span.gpu < plan.n_gpus:
            raise ValueError(f"{span.name} is on GPU {span.gpu}, of {plan.n_gpus}")
        beside[span.gpu].append(span)
    whole = max((layer.end_s for layer in plan.layers), default=0.0)
    tracks: list[Track] = []
    key: object = None
    for gpu, (layers, others) in enumerate(zip(runs, beside, strict=True)):
        does = [layer.id for layer in layers], [(o.name, o.start_s, o.end_s) for o in others]
        if join and tracks and does == key:
            tracks[-1] = replace(tracks[-1], last=gpu)
            continue
        key = does
        busy = [span for layer in layers for span in (*parts_of(layer), *_sent_by(layer))]
        if layers and plan.iter_s - whole > _LEAST * plan.iter_s:
            busy.append(Span(whole, plan.iter_s, STEP, _REST))
        tracks.append(Track(gpu, gpu, tuple(_filled(busy, others, plan.iter_s))))
    return tracks


def parts_of(layer: PlannedLayer) -> Iterator[Span]:
    """What moves in, the computation, and the synchronisation of a layer, as far as they last."""
    at_s = layer.start_s
    for kind, seconds in (
        (TRANSFER, layer.transfer_s), (COMPUTE, layer.compute_s), (SYNC, layer.sync_s),
    ):  # fmt: skip
        if seconds > 0:
            yield Span(at_s, at_s + seconds, kind, layer.name, layer.id)
            at_s += seconds


def _sent_by(layer: PlannedLayer) -> Iterator[Span]:
    """What moves on from a layer, to the join of its lane, while its GPUs wait."""
    if layer.sent_s > 0:
        end_s = layer.sent_at_s + layer.sent_s
        yield Span(layer.sent_at_s, end_s, TRANSFER, f"{layer.name} into the join")


def _filled(
    busy: Sequence[Span], others: Sequence[BackgroundSpan], iter_s: float
) -> Iterator[Span]:
    """The spans of a GPU with its idle times, and other jobs in these."""
    spans = [*busy, *(Span(o.start_s, o.end_s, BACKGROUND, o.name) for o in others)]
    at_s = 0.0
    for span in sorted(spans, key=lambda one: (one.start_s, one.end_s)):
        if span.start_s < at_s - _LEAST * iter_s or span.end_s > iter_s * (1 + _LEAST):
            text = f"{span.name} runs from {span.start_s:g} to {span.end_s:g} s"
            raise ValueError(f"{text}, where its GPU is not idle")
        if span.start_s - at_s > _LEAST * iter_s:
            yield Span(at_s, span.start_s, IDLE, "")
        yield span
        at_s = max(at_s, span.end_s)
    if iter_s - at_s > _LEAST * iter_s:
        yield Span(at_s, iter_s, IDLE, "")
