"""Regular expressions of mapping files, matched in a time that grows with the length of a text.

Python's own engine tries all ways to match, so that ``(a+)+$`` takes years over forty letters.
These are matched by RE2, which is part of Arrow: it reads a text once, and therefore knows neither
look-around nor back-references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

SYNTAX = (
    "patterns have the syntax of RE2: no look-around, no back-references, groups are "
    "(?P<column>...) or (?:...)"
)
REST = "rest_of_the_line"
"""Group of `compile_prefix`."""


@dataclass(frozen=True)
class Matches:
    """What a pattern finds in each of several texts.

    Attributes
    ----------
    found
        Whether it is in the text.
    groups
        Texts of each group; empty where the text or the group does not match.
    """

    found: list[bool]
    groups: dict[str, list[str]]


@dataclass(frozen=True)
class Pattern:
    """A regular expression that is searched for anywhere in a text.

    Attributes
    ----------
    text
        The expression.
    names
        Its groups, each of which is a column.
    """

    text: str
    names: tuple[str, ...] = ()

    def matches(self, texts: Sequence[str]) -> Matches:
        """Search in each of the texts."""
        array = _array(texts)
        if not self.names:
            return Matches(pc.match_substring_regex(array, self.text).to_pylist(), {})
        found = pc.extract_regex(array, self.text)
        groups = dict(zip(self.names, found.flatten(), strict=True))
        return Matches(
            found.is_valid().to_pylist(),
            {name: group.fill_null("").to_pylist() for name, group in groups.items()},
        )


@dataclass(frozen=True)
class LinePattern:
    """Lines that become rows.

    Attributes
    ----------
    name
        What blocks of the mapping call it.
    carry
        Whether its values hold for later lines, until another line says otherwise.
    """

    name: str
    pattern: Pattern
    carry: bool = False


def compile_pattern(text: str) -> Pattern:
    """Check a pattern.

    Raises
    ------
    ValueError
        If it is none, names a column twice, or has a group without a name.

    Examples
    --------
    >>> compile_pattern("rank(?P<rank>[0-9]+)").names
    ('rank',)
    """
    try:
        pc.match_substring_regex(_array([]), text)
        names = tuple(field.name for field in pc.extract_regex(_array([]), text).type)
    except (pa.ArrowInvalid, UnicodeError) as error:
        what = str(error).splitlines()[0].removeprefix("Invalid regular expression: ")
        if "unnamed groups" in what:
            raise ValueError("a group without a name: write (?P<column>...) or (?:...)") from error
        raise ValueError(f"no regular expression: {what}") from error
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"names the column {twice[0]!r} twice")
    return Pattern(text, names)


def compile_prefix(text: str) -> Pattern:
    """Check the pattern of what stands before every line; one more group is what follows it.

    Raises
    ------
    ValueError
        As `compile_pattern`.
    """
    compile_pattern(text)
    return compile_pattern(rf"^(?:{text})(?P<{REST}>(?s:.*))$")


def _array(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())
