"""Networks of commands: who describes them, and when they are known."""

from __future__ import annotations

from fitkit.parsers.cntk.descriptions import NetworkReader

Z = "Validating --> z = Times (W, features) : [2 x 3], [3 x *] -> [2 x *]"
ERRORS = "Validating --> errors = ClassificationError (labels, z) : [2 x *], [2 x *] -> [1]"


def names(reader: NetworkReader, command: str | None) -> list[str]:
    network = reader.network_of(command)
    return [] if network is None else [node.name for node in network.layers()]


def test_the_first_rank_describes_the_network() -> None:
    reader = NetworkReader()
    reader.read("train", 1, Z)
    reader.read("train", 0, ERRORS)
    reader.read("other", 0, Z)
    assert (names(reader, "train"), names(reader, "other")) == (["z"], ["z"])


def test_what_is_described_before_commands_begin_is_the_network_of_all() -> None:
    reader = NetworkReader()
    assert reader.network_of("train") is None
    reader.read(None, None, Z)
    assert names(reader, "train") == ["z"]


def test_what_follows_the_end_of_a_command_is_another_action() -> None:
    reader = NetworkReader()
    reader.read("train", None, Z)
    reader.end("train", 3)  # another rank
    assert not reader.is_known("train")
    reader.end("train", None)
    assert reader.is_known("train")
    assert not reader.is_known("other")
    reader.read("train", None, ERRORS)
    assert names(reader, "train") == ["z"]


def test_without_names_a_network_is_known_when_it_ends_with_nothing_new() -> None:
    reader = NetworkReader()
    assert not reader.is_known(None)
    reader.read(None, None, Z)
    reader.end(None, None)
    assert not reader.is_known(None)  # the last evaluation may describe more
    reader.read(None, None, Z)
    reader.read(None, None, ERRORS)
    reader.end(None, None)
    assert not reader.is_known(None)
    reader.read(None, None, Z)
    reader.end(None, None)
    assert reader.is_known(None)
