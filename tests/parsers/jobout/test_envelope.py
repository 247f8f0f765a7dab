"""Lines of Torque and aprun told apart from those of the program, and what they say."""

from __future__ import annotations

import pytest

from fitkit.parsers.jobout.envelope import Envelope
from fitkit.parsers.jobout.prologue import request_columns


def envelope_of(text: str) -> tuple[Envelope, list[str]]:
    """What was read, and what is left of each line."""
    envelope = Envelope()
    return envelope, [envelope.read(n, line) for n, line in enumerate(text.splitlines(), 1)]


def test_the_program_keeps_its_lines() -> None:
    text = (
        "begin\nBegin Torque Prologue on nid1\nat Mon Oct  8 11:09:50 CDT 2018\nJob Id:\t7.bw\n"
        "End Torque Prologue:  0.117 elapsed\nloss: 1\nApplication 5 exit codes: 1\nend\n"
    )
    envelope, left = envelope_of(text)
    assert left == ["begin", "", "", "", "", "loss: 1", "", "end"]
    (section,) = envelope.sections
    assert section.prologue is not None
    assert section.prologue.line == 2
    assert section.prologue.host == "nid1"
    assert section.prologue.fields == {"Job Id": "7.bw"}
    assert section.prologue.elapsed_s == 0.117


def test_a_block_without_its_end_is_over_where_the_program_speaks() -> None:
    envelope, left = envelope_of(
        "Begin Torque Prologue on nid1\nJob Id: 7.bw\n==> start: x\nJob Id: 8.bw\n"
    )
    assert left == ["", "", "==> start: x", "Job Id: 8.bw"]
    assert envelope.sections[0].prologue is not None
    assert envelope.sections[0].prologue.fields == {"Job Id": "7.bw"}


def test_an_epilogue_is_no_job() -> None:
    envelope, left = envelope_of(
        "Begin Torque Epilogue on nid1\nat Mon Oct  8 11:09:50 CDT 2018\nJob Id: 7.bw\n"
        "End Torque Epilogue:  0.3 elapsed\nbye\n"
    )
    assert left == ["", "", "", "", "bye"]
    assert envelope.sections[0].prologue is None


def test_a_second_prologue_begins_another_section() -> None:
    block = "Begin Torque Prologue on nid1\nJob Id: {}\nEnd Torque Prologue:  0.1 elapsed\n"
    envelope, _ = envelope_of(
        block.format("7.bw") + "Application 5 exit codes: 1\n" + block.format("8.bw")
        + "Application 6 exit codes: 2\n"
    )  # fmt: skip
    ids = [section.prologue and section.prologue.fields["Job Id"] for section in envelope.sections]
    assert ids == ["7.bw", "8.bw"]
    assert [list(section.applications) for section in envelope.sections] == [["5"], ["6"]]


def test_aprun_may_write_behind_what_the_program_printed() -> None:
    envelope, left = envelope_of("99 %Application 5 resources: utime ~26s, stime ~23s, Rss ~10\n")
    assert left == ["99 %"]
    app = envelope.sections[0].applications["5"]
    assert (app.user_s, app.system_s, app.memory_bytes) == (26.0, 23.0, 10240)
    assert (app.n_blocks_in, app.n_blocks_out) == (None, None)


@pytest.mark.parametrize(
    ("line", "code", "signal"),
    [
        ("Application 5 exit codes: 0", 0, None),
        ("Application 5 exit codes: 137", 137, None),
        ("Application 5 exit codes: 0, 139", 139, None),
        ("Application 5 exit signals: Killed", None, 9),
        ("Application 5 exit signals: Segmentation fault (core dumped), Killed", None, 11),
        ("Application 5 exit signals: Unheard of", None, None),
        ("aprun: Apid 5: Caught signal Terminated, sending to application", None, 15),
        ("Application 5 network quiesced: 2 nodes", None, None),
    ],
)
def test_how_a_program_ended(line: str, code: int | None, signal: int | None) -> None:
    envelope, left = envelope_of(line)
    assert left == [""]
    if "network" not in line:
        app = envelope.sections[0].applications["5"]
        assert (app.exit_code, app.exit_signal) == (code, signal)


def test_older_versions_write_resources_without_units() -> None:
    envelope, _ = envelope_of("Application 5 resources: utime 26, stime 23\n")
    app = envelope.sections[0].applications["5"]
    assert (app.user_s, app.system_s, app.memory_bytes) == (26.0, 23.0, None)


def test_what_the_launcher_writes_to_stderr_is_counted() -> None:
    envelope, left = envelope_of(
        "[NID 00012] 2016-10-19 22:21:27 Apid 5: initiated application termination\n"
        "_pmiu_daemon(SIGCHLD): [NID 00012] [c4-1c1s0n2] [Thu Apr 12 20:32:01 2018] "
        "PE RANK 96 exit signal Terminated\n"
        "_pmiu_daemon(SIGCHLD): [NID 00013] [c4-1c1s0n3] [Thu Apr 12 20:32:01 2018] "
        "PE RANK 97 exit signal Terminated\n"
        "OOM killer terminated this process.\nOOM killer of my own\nApid 5 is fine\n"
    )
    assert left == ["", "", "", "", "OOM killer of my own", "Apid 5 is fine"]
    assert envelope.sections[0].notes == {
        "terminated": (1, 1, "application 5: initiated application termination"),
        "rank_killed": (2, 2, "rank 96 on node 00012 (c4-1c1s0n2): Terminated"),
        "out_of_memory": (4, 1, "a process was killed for want of memory"),
    }


@pytest.mark.parametrize(
    ("request_", "n_nodes", "n_slots", "kind", "n_devices", "limit_s"),
    [
        ("nodes=1:ppn=16:xk,walltime=06:00:00,neednodes=1:ppn=16:xk", 1, 16, "xk", None, 21600.0),
        ("nodes=1024:ppn=32:xe+1024:ppn=16:xk", 2048, 49152, "mixed", None, None),
        ("nodes=4:ppn=32,walltime=90", 4, 128, None, None, 90.0),
        ("nodes=2:ppn=8:gpus=2:xk,walltime=100:00:01", 2, 16, "xk", 4, 360001.0),
        ("nodes=nid00012+nid00013", 2, 2, None, None, None),
        ("nodes=?,walltime=UNLIMITED", None, None, None, None, None),
        ("", None, None, None, None, None),
    ],
)
def test_a_request(
    request_: str, n_nodes: int | None, n_slots: int | None, kind: str | None,
    n_devices: int | None, limit_s: float | None,
) -> None:  # fmt: skip
    columns = {
        "n_nodes_reported": n_nodes, "n_slots_reported": n_slots, "node_kind": kind,
        "n_devices": n_devices, "wall_limit_s": limit_s,
    }  # fmt: skip
    found = dict.fromkeys(columns) | request_columns(request_)
    assert found == columns
