"""When background work may begin: the rules of DeepPool's runtime and their constants."""

from __future__ import annotations

from dataclasses import dataclass

_HELD = 0.9  # of what the target allows: a step is slow before it is known to be
_SAVED = 5  # steps


@dataclass(frozen=True)
class Rules:
    """When a piece of background work is launched on a GPU.

    The numbers are those of DeepPool's runtime (``seojinpark/DeepPool``, artifact line), which
    has neither ``looks_ahead`` nor ``hold_target``: see `DEEPPOOL`. At most two foreground
    tasklets are launched ahead there; launching takes no time here, so that this is no matter.

    Raises
    ------
    ValueError
        If a number is not in its range.
    """

    target: float = 1.1
    """A piece begins only where the tasklet's time is at most so much of its undisturbed time."""
    react_at: float = 1.1
    """From here on a tasklet's latest time counts alone; below it enters the mean by `weight`."""
    weight: float = 0.1
    in_flight: int = 1
    """Pieces launched and not yet done, on a GPU that has a foreground job."""
    receive_s: float = 500e-6
    """While a GPU waits longer than this by the plan, pieces are always launched."""
    merge_s: float = 250e-6
    """Foreground layers on the same GPUs are one tasklet until it takes so long."""
    looks_ahead: bool = True
    """In such a wait, a piece is launched only if by the plan it ends before the wait does."""
    hold_target: bool = True
    """Once the job has used up what the target allows, pieces are launched in waits alone."""

    def __post_init__(self) -> None:
        if not (self.target >= 0 and self.react_at >= 1 and 0 < self.weight <= 1):
            raise ValueError(f"target, react_at or weight out of range: {self}")
        if self.in_flight < 1:
            raise ValueError(f"{self.in_flight} pieces in flight: at least 1")
        if self.receive_s < 0 or self.merge_s < 0:
            raise ValueError(f"times must not be negative: {self}")

    def credit(self, before: float, slowdown: float) -> float:
        """What a job has left of what the target allows after a step; 0 if it is not held.

        Steps that are slowed less save for later ones, at most `_SAVED` of them; below 0, steps
        that nothing disturbs pay back.
        """
        allowed = _HELD * (self.target - 1)
        left = min(before + 1 + allowed - slowdown, _SAVED * allowed)
        return left if self.hold_target else 0.0

    def recent(self, before: float, last: float) -> float:
        """A tasklet's recent time after the latest one, both as shares of the undisturbed."""
        weight = 1.0 if last > self.react_at else self.weight
        return (1 - weight) * before + weight * last


DEEPPOOL = Rules(looks_ahead=False, hold_target=False)
"""What DeepPool's runtime does; the foreground may be slowed by more than the target."""
