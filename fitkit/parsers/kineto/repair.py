"""Repair of one JSON object that its writer did not escape properly.

Kineto writes texts as they are: with quotes, single backslashes, line ends and control characters
(pytorch#146900, #113001, #60187, #136180), and figures as `inf`, `nan` or `N/A` (kineto#105,
PR 131). A text ends at the first quote that is followed by what can follow a value of an object.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fitkit.parsers.kineto.faults import Fault

_BLANK = re.compile(r"[ \t\r\n]*")
_KEY = re.compile(r'"([^"\\\x00-\x1f]{0,200})"[ \t\r\n]{0,64}:')
_WORD = re.compile(r"[^\s,\]}\[{\"]{1,400}")
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?|true|false|null")
_S = r"[ \t\r\n]{0,64}"
_CLOSED = rf"{_S}[}}\]]{_S}(?:[,}}\]]|$)"
# What follows the name of an event, a value in any object, and an entry of a list.
_AFTER_NAME = re.compile(
    rf'"(?={_S},{_S}"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s|tts|tdur)"{_S}:|{_CLOSED})'
)
_AFTER_VALUE = re.compile(rf'"(?={_S},{_S}"[^"\n]{{1,200}}"{_S}:|{_CLOSED})')
_AFTER_ENTRY = re.compile(rf'"(?={_S},{_S}["\[{{0-9tfn-]|{_S}\])')
_BAD_ESCAPE = re.compile(r'(?<!\\)(?:\\\\)*+\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_TO_ESCAPE = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|(?P<escape>\\.)|(?P<quote>\")|(?P<control>[\x00-\x1f])|(?P<byte>[\udc80-\udcff])"
)


class Repaired(NamedTuple):
    """An object that is JSON now."""

    text: bytes
    end: int  # how much of the damaged text it took
    faults: frozenset[Fault]


def repair(damaged: bytes, limit: int | None = None) -> Repaired | None:
    """Repair the object that a text begins with; None if it does not end in it.

    Parameters
    ----------
    limit
        Look at so many bytes at most.
    """
    damaged = damaged if limit is None else damaged[:limit]
    text = damaged.decode("utf-8", "surrogateescape")
    reader = _Reader(text)
    end = reader.read()
    if end is None:
        return None
    n_taken = len(text[:end].encode("utf-8", "surrogateescape"))
    return Repaired("".join(reader.parts).encode(), n_taken, frozenset(reader.faults))


class _Reader:
    """Walks over a text token by token and writes them down as they should be."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: list[str] = []
        self.faults: set[Fault] = set()
        self._open: list[str] = []
        self._last = ""  # the last token that is not blank
        self._key = ""

    def read(self) -> int | None:
        """Read one object; its end, or None if there is none."""
        at = 0
        while at < len(self.text):
            blank = _BLANK.match(self.text, at)
            at = blank.end() if blank else at
            token, end = self._token(at)
            if not token:
                return None
            self.parts.append(token)
            self._last = token
            at = end
            if not self._open:
                return at
        return None

    def _token(self, at: int) -> tuple[str, int]:
        """The token at a place as it should be, and its end; an empty one if there is none."""
        char = self.text[at : at + 1]
        if char in ("{", "["):
            self._open.append(char)
            return char, at + 1
        if char in ("}", "]"):
            return self._close(char), at + 1
        if char in (",", ":"):
            return char, at + 1
        if char == '"':
            return self._quoted(at)
        word = _WORD.match(self.text, at)
        if word is None:
            return "", at
        if _LITERAL.fullmatch(word.group()):
            return word.group(), word.end()
        self.faults.add(Fault.WORDS)
        return "null", word.end()

    def _close(self, char: str) -> str:
        if not self._open or self._open.pop() != {"}": "{", "]": "["}[char]:
            return ""
        if self._last == ",":
            self.parts.pop()
            self.faults.add(Fault.COMMAS)
        return char

    def _quoted(self, at: int) -> tuple[str, int]:
        """A key or a text."""
        is_entry = bool(self._open) and self._open[-1] == "["
        if not is_entry and self._last in ("{", ","):
            key = _KEY.match(self.text, at)
            if key is not None:
                self._key = key.group(1)
                return f'"{self._escaped(self._key)}":', key.end()
        is_name = self._key == "name" and len(self._open) == 1
        closing = _AFTER_ENTRY if is_entry else _AFTER_NAME if is_name else _AFTER_VALUE
        quote = closing.search(self.text, at + 1)
        if quote is None:
            return "", at
        return f'"{self._escaped(self.text[at + 1 : quote.start()])}"', quote.end()

    def _escaped(self, text: str) -> str:
        """A text with its escapes as they should be."""
        if _BAD_ESCAPE.search(text):  # so its writer escapes nothing
            self.faults.add(Fault.BACKSLASHES)
            text = text.replace("\\", "\\\\")
        return _TO_ESCAPE.sub(self._one_escaped, text)

    def _one_escaped(self, match: re.Match[str]) -> str:
        found, kind = match.group(), match.lastgroup
        if kind in ("pair", "escape"):
            return found
        if kind == "control":
            self.faults.add(Fault.CONTROL)
            return f"\\u{ord(found):04x}"
        if kind == "quote":
            self.faults.add(Fault.QUOTES)
            return '\\"'
        self.faults.add(Fault.SURROGATES if kind == "half" else Fault.ENCODING)
        return "\ufffd"
