"""Lines at which commands begin and end, and training is started again."""

from __future__ import annotations

import re
from typing import NamedTuple

# Lines that this module reads hold one of these, as RE2 sees them.
SIGNS = (
    "Restoring training session", "CNTKCommandTrain", r"# Action \"", r" command \(\w+ action\)",
    r"Action \"train\" complete", "COMPLETED", "=== Running ", "==== Re-running",
    "rolling back to", "revoke back to", r"before change\)\]: \d+ nodes pinging",
)  # fmt: skip
# One of these is in every line that `read_turn` reads.
_WORDS = (
    "CNTKCommandTrainBegin", "# ", "=== R", "rolling back", "revoke back", "Restoring train",
    "before change",
)  # fmt: skip
_NAME = r"[^\s:#]{1,200}"
_TURN = re.compile(
    rf".*?(?:CNTKCommandTrainBegin: (?P<begin>{_NAME})"
    rf"|# (?P<train>{_NAME}) command \(train action\) +#"
    r'|(?P<other># Action "(?!train)\w+" +#|# \S+ command \((?!train )\w+ action\) +#))'
    r"|(?P<again>==== Re-running|=== Running |.*rolling back to\) previous model"
    r"|SGD: revoke back to)"
    r"|ping \[requestnodes \(before change\)\]: (?P<mpi>\d{1,6}) nodes pinging"
    r"|.*?Restoring training session from the checkpoint '(?P<restored>.{1,300}?)'"
)
_END = re.compile(r'CNTKCommandTrainEnd: |Action "train" complete|(?:__)?COMPLETED(?:__|\.)?$')


class Turn(NamedTuple):
    """What a line begins.

    Attributes
    ----------
    what
        ``begin`` of the training of a command, ``other`` action, training ``again``, training
        ``restored`` from a checkpoint, or a rank that joins the others (``mpi``).
    name
        Of the command, or of the checkpoint; the number of ranks.
    """

    what: str
    name: str


def read_turn(text: str) -> Turn | None:
    """What begins with a line without its prefixes; None if nothing does."""
    if not any(map(text.__contains__, _WORDS)) or (found := _TURN.match(text)) is None:
        return None
    what = str(found.lastgroup)
    return Turn("begin" if what == "train" else what, found[what])


def is_end(text: str) -> bool:
    """Whether a command ends with a line without its prefixes."""
    return _END.match(text) is not None
