"""Output of ``sacct`` that is no table with delimiters, told from other texts to say what helps."""

from __future__ import annotations

import re

from fitkit.parsers.sacct.rows import KNOWN

_HINT = (
    "it looks like output of sacct: run sacct with --parsable2, without --json or commas; "
    "--mapping FILE reads a table"
)
_RULER = re.compile(r"-+(?: +-+)+ *")
_JSON = re.compile(rb'\s{0,80}\{\s{0,80}"(?:meta|jobs|errors|warnings)"')
_OF_SLURM = (b'"Slurm"', b'"slurm"', b'"derived_exit_code"')


def hint_for(head: bytes) -> str | None:
    """What helps if a file begins like other output of sacct; None if it does not."""
    if _JSON.match(head):
        return _HINT if b'"jobs"' in head and any(word in head for word in _OF_SLURM) else None
    lines = head[: 1 << 14].decode("utf-8", "replace").splitlines()
    first, second = (*lines, "", "")[:2]
    names = first.split() if _RULER.fullmatch(second.strip()) else first.split(",")
    known = KNOWN.intersection(name.strip().lower() for name in names)
    return _HINT if len(known) > 2 and not known.isdisjoint(("jobid", "jobidraw")) else None
