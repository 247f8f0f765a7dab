"""The networks that a log describes, by command: ranks say the same of it, again and again."""

from __future__ import annotations

from fitkit.parsers.cntk.network import Network
from fitkit.parsers.cntk.validation_dump import MARK

_MOST_SEEN = 100_000


class NetworkReader:
    """Reads the network of each command as the first rank that speaks of it describes it.

    A stream is the rank that a line or its file names, or None.
    """

    def __init__(self) -> None:
        self._said: dict[str | None, _Description] = {}

    def is_known(self, command: str | None) -> bool:
        """Whether nothing new is to be expected of a command."""
        return command in self._said and self._said[command].is_known

    def read(self, command: str | None, stream: int | None, text: str) -> None:
        """Take in a line without its prefixes."""
        said = self._said.get(command) or _Description(stream)
        if stream != said.stream or said.is_known or text in said.lines:
            return
        if not said.network.take(text):
            return
        self._said[command] = said
        if MARK in text and len(said.lines) < _MOST_SEEN:
            said.lines.add(text)
            said.has_news = True

    def end(self, command: str | None, stream: int | None) -> None:
        """Take in that a command has ended: what follows are networks of other actions.

        Where commands have no names, later parts of a log can add to a network, and it is known
        when nothing new was told since it ended before.
        """
        if (said := self._said.get(command)) is not None and said.stream == stream:
            said.is_known = said.is_known or command is not None or not said.has_news
            said.has_news = False

    def network_of(self, command: str | None) -> Network | None:
        """The network of a command, or what is described before any command begins."""
        said = self._said.get(command) or self._said.get(None)
        return None if said is None else said.network


class _Description:
    def __init__(self, stream: int | None) -> None:
        self.stream = stream
        self.network = Network()
        self.lines: set[str] = set()
        self.has_news = True
        self.is_known = False
