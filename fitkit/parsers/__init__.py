"""Log formats. To add one: a module with a parser, a line in ``PARSERS``, a sample in ``data/``."""

from __future__ import annotations

from fitkit.errors import AmbiguousFormatError, UnknownFormatError
from fitkit.parsers.alps import AlpsParser
from fitkit.parsers.cntk import CntkParser
from fitkit.parsers.darshan import DarshanParser
from fitkit.parsers.deeppool import DeeppoolParser
from fitkit.parsers.graph import GraphParser
from fitkit.parsers.jobout import JobOutputParser
from fitkit.parsers.kineto import KinetoParser
from fitkit.parsers.lightning import LightningParser
from fitkit.parsers.lsf import LsfParser
from fitkit.parsers.mlperf import MlperfParser
from fitkit.parsers.nccl_tests import NcclTestsParser
from fitkit.parsers.pingpong import PingpongParser
from fitkit.parsers.pipedream import PipedreamParser
from fitkit.parsers.piper import PiperParser
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.parsers.sacct import SacctParser, hint_for
from fitkit.parsers.source import Parser, ProblemLog, Source, SourceFile
from fitkit.parsers.swf import SwfParser
from fitkit.parsers.table import TableMapping, TableParser, read_mapping
from fitkit.parsers.torque import TorqueParser
from fitkit.parsers.trainer_state import TrainerStateParser
from fitkit.parsers.training_log import TrainingLogParser

# What a program writes: the output of a job can hold it.
_LOGS: tuple[Parser, ...] = (
    CntkParser(),
    TrainerStateParser(),
    KinetoParser(),
    LightningParser(),
    MlperfParser(),
    NcclTestsParser(),
    PingpongParser(),
    PyTorchParser(),
    TrainingLogParser(),
)
PARSERS: tuple[Parser, ...] = (
    *_LOGS,
    AlpsParser(),
    DarshanParser(),
    DeeppoolParser(),
    GraphParser(),
    LsfParser(),
    PipedreamParser(),
    PiperParser(),
    SacctParser(),
    SwfParser(),
    TorqueParser(),
    JobOutputParser(_LOGS),
)

__all__ = [
    "PARSERS",
    "Parser",
    "ProblemLog",
    "Source",
    "SourceFile",
    "TableMapping",
    "TableParser",
    "identify",
    "parser_named",
    "read_mapping",
]


def identify(file: SourceFile) -> Parser:
    """The one parser that recognises the content of a file.

    Raises
    ------
    UnknownFormatError
        If none does; the message names the known formats.
    AmbiguousFormatError
        If more than one does.
    """
    head = file.head()
    known = ", ".join(parser.name for parser in PARSERS)
    if not head.strip():
        raise UnknownFormatError(f"{file.label}: the file is empty", "nothing to ingest from it")
    matches = [parser for parser in PARSERS if parser.recognises(head)]
    # The output of a job has a log inside, which it gives to that log's parser.
    matches = [one for one in matches if isinstance(one, JobOutputParser)] or matches
    if not matches:
        kind = "binary file" if b"\0" in head else "unknown format"
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            kind = "UTF-16 text: convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8"
        hint = f"known formats: {known}; --format NAME reads it as one, --mapping FILE as a table"
        raise UnknownFormatError(f"{file.label}: {kind}", hint_for(head) or hint)
    if len(matches) > 1:
        names = ", ".join(parser.name for parser in matches)
        raise AmbiguousFormatError(
            f"{file.label}: looks like several formats: {names}", "choose one with --format NAME"
        )
    return matches[0]


def parser_named(name: str) -> Parser:
    """The parser of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    for parser in PARSERS:
        if parser.name == name:
            return parser
    raise ValueError(f"no format {name!r}; known: {', '.join(p.name for p in PARSERS)}")
