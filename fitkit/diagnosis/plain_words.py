"""What is said of where scaling stops, in words that need no statistics."""

from __future__ import annotations

import re

_PLAIN = (
    (r"no turning point up to (.+?): still falling", r"it still gets faster up to \1"),
    (r"no turning point up to (.+?): rising from (.+?) on", r"it gets slower from \2 on"),
    (r"no scale is told apart", "none is clearly faster than the others"),
    (r"\((\d+ %) of draws", r"(probability \1"),
    (r"would not show in (\d+) scales at (\S+ %) noise",
     r"would not show: times at the \1 scales scatter by \2"),
)  # fmt: skip


def plain_words(text: str) -> str:
    """The words of a turning point or a knee for who reads a page or a terminal.

    Examples
    --------
    >>> plain_words("no turning point up to 128 nodes: still falling")
    'it still gets faster up to 128 nodes'
    """
    for pattern, words in _PLAIN:
        text = re.sub(pattern, words, text)
    return text
