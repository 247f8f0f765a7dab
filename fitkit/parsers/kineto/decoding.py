"""Events of a trace as they are decoded: a narrow type first, anything that is JSON after it.

A chunk of `traceEvents` is decoded into `Event`, which has the fields that are used and no others.
What does not fit its types, such as a number that is written as a text, makes the chunk go through
an untyped reading, which is slower and takes each field as far as it makes sense.
"""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException
from enum import Enum
from math import nan
from typing import Any, cast

import msgspec

from fitkit.parsers.kineto.events import NONE, Category

_ARGUMENTS = {
    "external_id": "External id",
    "old_external_id": "external id",  # of device events in 2021
    "record_id": "Record function id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "types": "Input type",
    "dims": "Input Dims",
    "n_bytes": "bytes",
    "collective": "Collective name",
    "n_elements_in": "In msg nelems",
    "n_elements_out": "Out msg nelems",
    "group_size": "Group size",
    "element_type": "dtype",
    "group": "Process Group Name",
    "group_id": "Process Group ID",  # until 2023
}
_NOT_A_NUMBER = Decimal("nan")
_WHOLE = re.compile(r"\s{0,8}[+-]?[0-9]{1,40}\s{0,8}")
_NUMBER = re.compile(r"\s{0,8}[+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?\s{0,8}")


class UnreadableError(ValueError):
    """A text is no list of events."""


class Phase(Enum):
    """Kinds of events of the Chrome trace format."""

    OTHER = ""
    COMPLETE = "X"
    METADATA = "M"
    INSTANT = "i"
    OLD_INSTANT = "I"
    FLOW_START = "s"
    FLOW_STEP = "t"
    FLOW_END = "f"

    @classmethod
    def _missing_(cls, value: object) -> Phase:
        return cls.OTHER


class Word(Enum):
    """Values of ``cat``, each with the `Category` that it means."""

    code: int

    def __new__(cls, word: str, category: Category) -> Word:
        """Make the member of a word."""
        member = object.__new__(cls)
        member._value_ = word
        member.code = int(category)
        return member

    @classmethod
    def _missing_(cls, value: object) -> Word:
        return cls.OTHER

    OTHER = "", Category.OTHER
    CPU_OP = "cpu_op", Category.OPERATOR
    OPERATOR = "Operator", Category.OPERATOR
    USER_ANNOTATION = "user_annotation", Category.ANNOTATION
    PYTHON_FUNCTION = "python_function", Category.PYTHON
    CUDA_RUNTIME = "cuda_runtime", Category.RUNTIME  # of AMD's runtime, too
    CUDA_DRIVER = "cuda_driver", Category.RUNTIME
    RUNTIME = "Runtime", Category.RUNTIME
    MTIA_RUNTIME = "mtia_runtime", Category.RUNTIME
    XPU_RUNTIME = "xpu_runtime", Category.RUNTIME
    XPU_DRIVER = "xpu_driver", Category.RUNTIME
    GLOW_RUNTIME = "glow_runtime", Category.RUNTIME
    PRIVATE_RUNTIME = "privateuse1_runtime", Category.RUNTIME
    PRIVATE_DRIVER = "privateuse1_driver", Category.RUNTIME
    HPU_OP = "hpu_op", Category.RUNTIME  # Kineto: the host's side of it
    GPU_KERNEL = "kernel", Category.KERNEL
    KERNEL = "Kernel", Category.KERNEL
    CONCURRENT_KERNEL = "concurrent_kernel", Category.KERNEL
    MTIA_EVENTS = "mtia_ccp_events", Category.KERNEL
    GPU_MEMCPY = "gpu_memcpy", Category.COPY
    GPU_MEMSET = "gpu_memset", Category.COPY
    MEMCPY = "Memcpy", Category.COPY
    MEMSET = "Memset", Category.COPY
    CUDA_SYNC = "cuda_sync", Category.SYNC
    CUDA_EVENT = "cuda_event", Category.SYNC
    GPU_USER_ANNOTATION = "gpu_user_annotation", Category.DEVICE_ANNOTATION
    OVERHEAD = "overhead", Category.OVERHEAD
    FLOW = "ac2g", Category.FLOW
    FORWARD_TO_BACKWARD = "fwdbwd", Category.FLOW
    ASYNC = "async", Category.FLOW
    ASYNC_CPU_TO_GPU = "async_cpu_to_gpu", Category.FLOW


class Arguments(msgspec.Struct, frozen=True, gc=False, rename=_ARGUMENTS):
    """Arguments of an event; ``NONE`` or None where it has no such argument."""

    external_id: int = 0
    record_id: int = NONE
    sequence: int = NONE
    forward_thread: int = NONE
    types: msgspec.Raw = msgspec.Raw()
    dims: msgspec.Raw = msgspec.Raw()
    device: int | str = NONE
    stream: int | str = NONE
    correlation: int = NONE
    old_external_id: int = 0
    n_bytes: int | str = NONE
    collective: str | None = None
    n_elements_in: int | None = None
    n_elements_out: int | None = None
    group_size: int | None = None
    element_type: str | None = None
    group: str | int | None = None
    group_id: int | None = None


class Event(msgspec.Struct, gc=False):
    """An event; stamps in the unit of the trace, microseconds."""

    ph: Phase = Phase.OTHER
    cat: Word = Word.OTHER
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: int | float = nan
    dur: int | float = nan
    args: Arguments = Arguments()


class _Stamp(msgspec.Struct, gc=False):
    """Start of an event with all its digits."""

    ph: Phase = Phase.OTHER
    ts: Decimal = _NOT_A_NUMBER


_EVENTS = msgspec.json.Decoder(list[Event])
_STAMPS = msgspec.json.Decoder(list[_Stamp])
_ANYTHING = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def decode(text: bytes) -> list[Event]:
    """Events of a text that is a list of them.

    Raises
    ------
    UnreadableError
        If it is not JSON, or not a list of objects.
    """
    try:
        return _EVENTS.decode(text)
    except msgspec.ValidationError:
        entries = decode_anything(text)
        if not isinstance(entries, list):
            raise UnreadableError("events must be a list") from None
        return [_lenient(entry) for entry in entries]
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableError(str(error)) from error


def decode_anything(text: bytes) -> Any:
    """Value of a JSON text; numbers with a point are decimals, exactly as written.

    Raises
    ------
    UnreadableError
        If it is not JSON.
    """
    try:
        return _ANYTHING.decode(text)
    except (msgspec.DecodeError, RecursionError, DecimalException) as error:
        raise UnreadableError(str(error)) from error


def is_beginning(text: bytes | memoryview) -> bool:
    """Whether a text is the beginning of a JSON value that goes on after it."""
    try:
        _ANYTHING.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except (RecursionError, DecimalException):
        return False
    return False


def exact_starts(text: bytes) -> list[Decimal]:
    """Stamps of the complete events of a text that `decode` read, with all their digits."""
    try:
        return [stamp.ts for stamp in _STAMPS.decode(text) if stamp.ph is Phase.COMPLETE]
    except msgspec.ValidationError:
        events = decode_anything(text)
        return [_number(event.get("ts")) for event in events if event.get("ph") == "X"]


def _lenient(entry: Any) -> Event:
    """An event from whatever its fields hold."""
    if not isinstance(entry, dict):
        raise UnreadableError("an event must be an object")
    args = entry.get("args")
    return Event(
        ph=Phase(entry.get("ph")),
        cat=cast("Any", Word)(entry.get("cat")),
        name=_text(entry.get("name")) or "",
        pid=_text(entry.get("pid")) or "",
        tid=_text(entry.get("tid")) or "",
        ts=_number(entry.get("ts")),
        dur=_number(entry.get("dur")),
        args=_lenient_arguments(args) if isinstance(args, dict) else Arguments(),
    )


def _lenient_arguments(args: dict[str, Any]) -> Arguments:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(Arguments):
        value = args.get(field.encode_name)
        if value is None:
            continue
        if field.name in ("types", "dims"):
            values[field.name] = msgspec.Raw(_ENCODER.encode(value))
        elif field.name in ("collective", "element_type", "group"):
            values[field.name] = _text(value)
        else:
            number = whole(value)
            values[field.name] = field.default if number is None else number
    return Arguments(**values)


def _text(value: Any) -> str | None:
    """A text or a number as text."""
    return str(value) if isinstance(value, str | int | Decimal) else None


def _number(value: Any) -> Any:
    """A stamp, also if it is written as a text; not a number if it is none."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value.strip())
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return value if is_number else _NOT_A_NUMBER


def whole(value: Any) -> int | None:
    """An integer, also if it is written as a text or with a zero fraction; None if it is none."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    if isinstance(value, Decimal):
        is_small = value.is_finite() and abs(value) < 1 << 64
        is_whole = is_small and value == value.to_integral_value()
        return int(value) if is_whole else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
