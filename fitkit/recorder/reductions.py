"""All-reduces of gradient buckets, stamped by a communication hook of DistributedDataParallel."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fitkit.recorder.stamps import LAUNCH, LAUNCH_END, REDUCED, code_of

_LOGGER = logging.getLogger(__name__)


class Reductions:
    """Replaces the wrapper's reduction by one of its own, of the same result, that is stamped.

    Parameters
    ----------
    stamp
        Stamps an event of the thread that computes gradients.
    stamp_done
        Stamps the end of a reduction, which another thread sees.

    Attributes
    ----------
    recording
        Whether reductions are stamped.
    launched
        Bucket and bytes of each reduction that this step launched.
    """

    def __init__(self, stamp: Callable[[int], None], stamp_done: Callable[[int], None]) -> None:
        self._stamp, self._stamp_done = stamp, stamp_done
        self.recording = False
        self.launched: list[tuple[int, int]] = []

    def register(self, model: Any) -> dict[str, Any]:
        """Register with the model, if it is wrapped; returns what the log is to say of it."""
        if not hasattr(model, "register_comm_hook") or not hasattr(model, "process_group"):
            return {}
        import torch.distributed as dist

        facts: dict[str, Any] = {"backend": dist.get_backend(model.process_group)}
        if getattr(model, "_comm_hooks", None):
            reason = "the model has a communication hook of its own, which is kept"
        else:
            try:
                # A function without annotations: torch compares them with its own classes.
                model.register_comm_hook(
                    model.process_group, lambda group, bucket: self._reduce(group, bucket)
                )
            except RuntimeError as error:  # a built-in hook leaves no trace in Python
                reason = f"the communication hook is refused: {error}"
            else:
                return facts
        _LOGGER.warning("all-reduces are not recorded: %s", reason)
        return {**facts, "reductions_missing": reason}

    def _reduce(self, group: Any, bucket: Any) -> Any:
        import torch.distributed as dist

        index, tensor = bucket.index(), bucket.buffer()
        recording = self.recording
        if recording:
            self.launched.append((index, tensor.numel() * tensor.element_size()))
            self._stamp(code_of(LAUNCH, index))
        # As the wrapper does without a hook: divide first, then sum.
        tensor.div_(group.size())
        future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
        if recording:
            self._stamp(code_of(LAUNCH_END, index))

        def done(reduced: Any) -> Any:
            if recording and self.recording:
                self._stamp_done(code_of(REDUCED, index))
            return reduced.value()[0]

        return future.then(done)
