"""Feed damaged logs to every parser for a while: none may raise anything but ParseError.

  pip install atheris
  python benchmarks/fuzz.py [--seconds N] [--parser NAME] [--findings FOLDER]

Each input is read by one parser, whether or not it recognises it, and must be read or refused
within some seconds and in bounded memory; what is read must fit the tables. The first byte chooses
the parser and what becomes of bad lines, the others are the file. It begins with the sample logs.
An input that fails is kept in the folder of findings and ends the run with an error.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fitkit"]):
    from fitkit.errors import AmbiguousFormatError, ParseError, UnknownFormatError
    from fitkit.parsers import PARSERS, ProblemLog, Source, SourceFile, identify
    from fitkit.records import TABLE_OF, Record
    from fitkit.schema import each_record, to_arrow

DATA = Path(__file__).parents[1] / "data"
MAX_BYTES = 8_000
LIMIT_S = 20  # one input takes milliseconds; on a busy machine it must still not be a hang
LIMIT_MB = 2_000
SKIPPING = 0x80
TRACE = b"""{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2,
"ts": 1.5, "dur": 2, "args": {"External id": 1, "Sequence number": 3, "Fwd thread id": 0,
"Input Dims": [[2, 3]], "Input type": ["float"]}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "ts": 3,
"dur": 1, "args": {"stream": 7, "correlation": 4, "Collective name": "allreduce"}}],
"distributedInfo": {"rank": 0, "world_size": 2}, "baseTimeNanoseconds": 1700000000000000000}"""


class Target:
    """What is done with each input.

    Parameters
    ----------
    folder
        Where inputs become files.
    only
        Name of the one parser to test; all if None.
    """

    def __init__(self, folder: Path, only: str | None) -> None:
        self.parsers = [one for one in PARSERS if only in (None, one.name)]
        self._file = SourceFile(folder / "rank0.json", "rank0.json")

    def __call__(self, data: bytes) -> None:
        """Read one input."""
        first, content = data[:1] or b"\0", data[1:]
        self._file.path.write_bytes(content)
        parser = self.parsers[(first[0] & ~SKIPPING) % len(self.parsers)]
        problems = ProblemLog(skip_bad_lines=bool(first[0] & SKIPPING))
        source = Source("x", (self._file,), {}, problems)
        with suppress(UnknownFormatError, AmbiguousFormatError, ParseError):
            identify(self._file)
        with suppress(ParseError):
            families = parser.group([self._file])
            records = [one for _ in families for one in each_record(parser.parse(source))]
            check([*records, *problems.records(source.source_id)])


def check(records: Sequence[Record]) -> None:
    """What was read must fit the tables."""
    by_table: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_table[TABLE_OF[type(record)]].append(record)
    for table, rows in by_table.items():
        to_arrow(table, rows)


def seeds(target: Target) -> Iterator[bytes]:
    """Inputs to begin with: both ends of every sample, for the parser that recognises it."""
    contents = [TRACE]
    for path in sorted(path for path in DATA.rglob("*") if path.is_file()):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        contents.append(content[: MAX_BYTES // 2] + content[-MAX_BYTES // 4 :])
    for content in contents:
        for number, parser in enumerate(target.parsers):
            if parser.recognises(content):
                yield bytes([number]) + content
                yield bytes([number | SKIPPING]) + content


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seconds", type=int, default=600)
    options.add_argument("--parser", choices=[parser.name for parser in PARSERS])
    options.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    given = options.parse_args()
    given.findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        target = Target(Path(folder), given.parser)
        for number, seed in enumerate(seeds(target)):
            (corpus / f"seed{number}").write_bytes(seed)
        words = [
            sys.argv[0], str(corpus), f"-max_total_time={given.seconds}", f"-timeout={LIMIT_S}",
            f"-rss_limit_mb={LIMIT_MB}", f"-max_len={MAX_BYTES}",
            f"-artifact_prefix={given.findings}/",
        ]  # fmt: skip
        atheris.Setup(words, target)
        atheris.Fuzz()  # ends the process


if __name__ == "__main__":
    main()
