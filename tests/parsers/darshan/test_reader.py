"""The program that reads Darshan logs: what it checks, and what becomes of it when it crashes."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.darshan import reader

# Stands for a library that does to its process what the name of the log says.
CRASHING = """
import ctypes, sys, time, types
sys.modules.update({name: types.ModuleType(name) for name in (
    "darshan", "darshan.backend", "darshan.backend.cffi_backend")})
sys.path.insert(0, FOLDER)
import reader
deeds = {
    "crash": lambda: ctypes.string_at(0), "hang": lambda: time.sleep(60),
    "exit": lambda: sys.exit("done"), "raise": lambda: {}["counters"],
    "good": lambda: {"rows": []}, "nan": lambda: {"rows": float("nan")},
}
reader.read_log = lambda path: deeds[path]()
reader.main(1, list(deeds))
"""


def log(streams: list[bytes], n_modules: int = 16, maps_at: int = 24) -> bytes:
    """Header of a log whose job is empty and whose first module has those streams."""
    job = zlib.compress(b"job")
    packed = b"".join(map(zlib.compress, streams))
    job_at = maps_at + 16 * (1 + n_modules) + 4 * n_modules
    maps = struct.pack("=4Q", job_at + len(job), 0, job_at + len(job), len(packed))
    head = b"3.21\0\0\0\0" + (6567223).to_bytes(8, "little") + bytes(maps_at - 16)
    return (head + maps).ljust(job_at, b"\0") + job + packed


def test_what_the_library_does_to_its_process_ends_there() -> None:
    program = CRASHING.replace("FOLDER", repr(str(Path(reader.__file__).parent)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    crash, hang, end, wrong, good, nan = map(json.loads, done.stdout.splitlines())
    assert crash == {"error": "the library crashed on it (signal 11)"}
    assert hang == {"error": "the library was not done after 1 s"}
    assert end == {"error": "the Darshan library failed on it (SystemExit: done)"}
    assert wrong == {"error": "the Darshan library failed on it (KeyError: 'counters')"}
    assert good == {"rows": []}
    assert "JSON" in nan["error"]


def texts(content: bytes) -> list[bytes]:
    """What the streams hold that follow the header."""
    found, rest = [], content[360:]
    while rest:
        stream = zlib.decompressobj()
        found.append(stream.decompress(rest))
        rest = stream.unused_data
    return found


@given(
    streams=st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=4),
    flip=st.integers(min_value=0),
    bit=st.integers(0, 7),
)
@settings(max_examples=50, deadline=None)
def test_a_flipped_bit_is_found_unless_it_changes_nothing(
    streams: list[bytes], flip: int, bit: int
) -> None:
    content = log(streams)
    assert texts(content) == [b"job", *streams]
    reader.check_content(content)
    at = 361 + flip % (len(content) - 361)
    wrong = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    try:
        reader.check_content(wrong)
    except ValueError as error:
        assert "the log is damaged" in str(error)  # noqa: PT017 - either of the two
    else:
        assert texts(wrong) == texts(content)


def test_a_cut_log_and_one_of_another_layout() -> None:
    content = log([b"records" * 40])
    with pytest.raises(ValueError, match="the log is cut: it has 365 of"):
        reader.check_content(content[:365])
    reader.check_content(log([b"records"], n_modules=64, maps_at=32))
    # Not compressed, or of a header that is not known: left to the library.
    reader.check_content(content[:16] + b"\2" + content[17:400])
    reader.check_content(content[:24])


def test_the_sum_of_a_rank_is_none_where_a_value_is() -> None:
    counters = ("OPENS", "BYTES_READ", "BYTES_WRITTEN", "F_READ_TIME", "F_WRITE_TIME",
                "F_META_TIME", "F_OPEN_START_TIMESTAMP", "F_READ_END_TIMESTAMP")  # fmt: skip
    values = [(1, 2), (10, -1), (0, 0), (0.1, 0.2), (0.0, float("nan")), (0.5, 0.5), (0.0, 3.0),
              (0.0, 0.0)]  # fmt: skip
    columns = {f"POSIX_{name}": value for name, value in zip(counters, values, strict=True)}
    assert reader._figures(columns, "POSIX_", ("OPENS",)) == {
        "n_opens": 3, "read_bytes": None, "written_bytes": 0, "read_s": pytest.approx(0.3),
        "write_s": None, "meta_s": 1.0, "first_open_s": 3.0, "last_read_s": None,
    }  # fmt: skip
