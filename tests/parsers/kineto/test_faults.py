"""Faults are counted by kind, and each kind is noted once."""

from __future__ import annotations

from fitkit.parsers.kineto.faults import Fault, Faults


def test_each_kind_has_one_note_that_shows_the_first() -> None:
    faults = Faults()
    faults.count(Fault.QUOTES, 1, 'a\n"b"', 120)
    faults.count(Fault.QUOTES, 1_233, "c", 500)
    faults.count(Fault.LOST, 1, "x" * 300, 7)
    faults.count(Fault.NO_STAMP, 0, "never")
    faults.count(Fault.NO_STAMP, 1, "d")
    assert (faults[Fault.QUOTES], faults[Fault.LOST], faults[Fault.WORDS]) == (1_234, 1, 0)
    quotes, lost, stamp = faults.notes()
    assert quotes == (
        120, "repaired_event",
        "1,234 events with quotes in a text that are not escaped; the first is 'a \"b\"'",
    )  # fmt: skip
    assert lost[:2] == (7, "lost_event")
    assert lost.text == f"1 event that cannot be read, left out; the first is {'x' * 160!r}"
    assert stamp[:2] == (None, "bad_stamp")


def test_every_fault_has_a_code_and_words() -> None:
    assert len({fault.value for fault in Fault}) == len(Fault)
    assert all(fault.code.isidentifier() for fault in Fault)
