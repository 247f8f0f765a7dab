"""Which configurations are predicted from which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitkit.conditions import parse_condition
from fitkit.fitting import Measurements
from fitkit.splits import Fold, forward_chaining, hold_out, k_fold, leave_one_out


@dataclass(frozen=True)
class Split:
    """How training and held-out rows are told apart; exactly one field besides the last two.

    Attributes
    ----------
    hold_out
        Condition: the rows for which it holds are predicted.
    leave_out
        Column: each of its values is held out in turn.
    folds
        Number of random folds over configurations.
    scale_up
        Column: train on its small values, predict the next larger one.
    keep_smallest
        With ``leave_out``, never hold the smallest value out.
    seed
        Seed of the random folds.
    """

    hold_out: str | None = None
    leave_out: str | None = None
    folds: int | None = None
    scale_up: str | None = None
    keep_smallest: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        given = [self.hold_out, self.leave_out, self.folds, self.scale_up]
        if sum(choice is not None for choice in given) != 1:
            raise ValueError("choose one of hold_out, leave_out, folds and scale_up")

    def __str__(self) -> str:
        if self.hold_out is not None:
            return f"hold out {self.hold_out}"
        if self.leave_out is not None:
            kept = ", never the smallest" if self.keep_smallest else ""
            return f"leave one {self.leave_out} out{kept}"
        if self.folds is not None:
            return f"{self.folds} random folds of configurations, seed {self.seed}"
        return f"scale up over {self.scale_up}"

    def apply(self, found: Measurements) -> list[Fold]:
        """Folds of the configurations.

        A condition on what repetitions differ in, such as their date, holds a configuration out
        with all its repetitions as soon as it is true for one of them.

        Raises
        ------
        ValueError
            If a column is missing, or the split leaves nothing to train on or to predict.
        """
        frame = found.pooled
        if self.hold_out is not None:
            held = found.configuration[parse_condition(self.hold_out).mask(found.runs)]
            return hold_out(np.isin(np.arange(len(frame)), held), self.hold_out)
        if self.folds is not None:
            return k_fold(len(frame), self.folds, self.seed)
        name = self.leave_out or self.scale_up
        if name not in frame.columns:
            raise ValueError(f"no column {name!r}; there are {', '.join(frame.columns)}")
        if self.leave_out is not None:
            return leave_one_out(frame[name], keep_smallest=self.keep_smallest)
        return forward_chaining(frame[name])
