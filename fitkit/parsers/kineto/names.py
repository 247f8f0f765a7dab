"""What the name of an event says that it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from fitkit.parsers.kineto.columns import MODULE


class Role(IntEnum):
    """Part that an event plays in a step; NONE for plain operators, calls and kernels."""

    NONE = 0
    STEP = 1
    IO = 2
    FORWARD = 3
    BACKWARD = 4  # annotation of the whole backward pass
    OPTIMIZER = 5  # annotation around the update, or zero_grad
    OPTIMIZER_STEP = 6  # what every optimizer of torch.optim records by itself
    MODULE = 7
    NODE = 8  # a node of the backward graph is evaluated
    ACCUMULATE = 9  # a gradient is added to that of its parameter
    HOST_COLLECTIVE = 10  # runs on the host: its duration is that of the collective
    DEVICE_COLLECTIVE = 11  # only puts a kernel into a queue
    COLLECTIVE_ARGUMENTS = 12
    COLLECTIVE_KERNEL = 13
    GRAPH_LAUNCH = 14
    COMPILED = 15
    MODEL_FORWARD = 16  # forward of a data-parallel wrapper
    BUCKET_COPY = 17  # reduced gradients are copied from their bucket


ENGINE = "autograd::engine::evaluate_function: "
STEP = "ProfilerStep#"
_LONG = 300  # what matters stands at the beginning
_ROLES: tuple[tuple[Role, re.Pattern[str]], ...] = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        (Role.STEP, r"ProfilerStep#\d{1,12}$"),
        (Role.MODULE, re.escape(MODULE)),
        (Role.ACCUMULATE, ENGINE + r"(?:torch::autograd::)?AccumulateGrad"),
        (Role.BUCKET_COPY, r"[\w.:]{0,80}reducer::copy_bucket_to_grad"),
        (Role.NODE, ENGINE),
        (Role.OPTIMIZER_STEP, r"Optimizer\.step#"),
        (Role.OPTIMIZER, r"Optimizer\.zero_grad#"),
        (Role.IO, r"enumerate\(DataLoader\)#"),
        (Role.MODEL_FORWARD, r"(?:Distributed)?DataParallel\.forward$"),
        (Role.HOST_COLLECTIVE, r"(?:gloo|mpi|ucc):"),
        (Role.DEVICE_COLLECTIVE, r"(?:nccl|rccl|xccl|hccl):"),
        (Role.COLLECTIVE_ARGUMENTS, r"record_param_comms$"),
        (Role.COLLECTIVE_KERNEL, r"(?i:(?:void )?(?:nccl|rccl|msccl)\w{0,40}kernel)"),
        # Of symmetric memory and of inference servers; before them stand their namespaces.
        (
            Role.COLLECTIVE_KERNEL,
            (
                r"[\w():<> ]{0,120}(?<![a-z])(?:cross_device_reduce_"
                r"|(?:multimem|one_shot|two_shot)_all_(?:reduce|gather)\w{0,12}_kernel"
                r"|nvshmem_\w{0,20}all_?(?:to_?all|reduce|gather))"
            ),
        ),
        (Role.GRAPH_LAUNCH, r"(?:cuda|cu|hip)GraphLaunch"),
        (Role.COMPILED, r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction"),
    )
)
# What programs write into record_function, as such or between number signs.
_WORDS = {
    "forward": Role.FORWARD,
    "backward": Role.BACKWARD,
    "optimizer": Role.OPTIMIZER,
    "zero_grad": Role.OPTIMIZER,
    "data": Role.IO,
    "dataloader": Role.IO,
    "data_load": Role.IO,
    "load_batch": Role.IO,
}
_WORD = re.compile(r"#{0,9} {0,9}([a-z_]{4,12})\b")
# Before the engine recorded its nodes, only what they call was.
_OLD_NODE = re.compile(r"[\w:]{0,200}Backward\d{0,3}$")
_OLD_ACCUMULATE = re.compile(r"(?:torch::autograd::)?AccumulateGrad$")


def role_of(name: str) -> Role:
    """The role that a name gives an event of a fitting category."""
    name = name[:_LONG]
    for role, pattern in _ROLES:
        if pattern.match(name):
            return role
    word = _WORD.match(name)
    return _WORDS.get(word[1], Role.NONE) if word else Role.NONE


class Roles:
    """Roles of the names of a trace, by their number; grows with them."""

    def __init__(self) -> None:
        self._roles = np.zeros(0, dtype=np.uint8)
        self.has_engine = False

    def update(self, names: Sequence[str]) -> None:
        """Take in the names that were added since the last time."""
        known = len(self._roles)
        if len(names) > known:
            new = names[known:]
            self.has_engine |= any(name.startswith(ENGINE) for name in new)
            added = np.array([role_of(name) for name in new], dtype=np.uint8)
            self._roles = np.concatenate([self._roles, added])

    def finish(self, names: Sequence[str]) -> None:
        """Take in all names; without nodes of the engine, what these call stands for them."""
        self.update(names)
        if self.has_engine:
            return
        for number, name in enumerate(names):
            if _OLD_ACCUMULATE.match(name[:_LONG]):
                self._roles[number] = Role.ACCUMULATE
            elif _OLD_NODE.match(name[:_LONG]):
                self._roles[number] = Role.NODE

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """Roles of names by number, of the same shape."""
        return self._roles[numbers]
