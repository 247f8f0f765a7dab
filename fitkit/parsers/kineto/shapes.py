"""Bytes of the tensors that an operator takes, from the shapes and types that a trace states."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "complexfloat": 8, "complex64": 8,
    "float": 4, "float32": 4, "int": 4, "int32": 4, "uint32": 4, "complexhalf": 4,
    "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2, "uint16": 2,
    "char": 1, "byte": 1, "bool": 1, "int8": 1, "uint8": 1, "complexdouble": 16, "uint64": 8,
}  # fmt: skip
_C_NAMES = {
    "long int": "long", "short int": "short", "signed char": "char", "unsigned char": "byte",
    "c10::half": "half", "c10::bfloat16": "bfloat16", "unsigned int": "uint32",
    "long long": "long", "unsigned long": "uint64", "unsigned short": "uint16",
    "c10::complex<float>": "complexfloat", "c10::complex<double>": "complexdouble",
}  # fmt: skip
_FLOAT8 = re.compile(r"(?:c10::)?float8_\w{1,20}$")
_LARGEST = 1 << 62  # a product of damaged dimensions must fit a table
# Operators whose other inputs are parameters or indices: which input is the activation.
_ACTIVATION = (
    (re.compile(r"aten::(?:\w{0,20}_)?embedding(?:_bag)?\b"), 1),
    (re.compile(r"aten::addmm\b"), 1),
    (re.compile(r"aten::\w{0,30}(?:conv|linear|norm|prelu|mkldnn|miopen)"), 0),
)


def element_bytes(element_type: str) -> int | None:
    """Bytes of an element, by the word of C++ or of PyTorch for its type; None if unknown."""
    word = element_type.strip().lower()
    word = _C_NAMES.get(word, word)
    if _FLOAT8.match(word):
        return 1
    return _BYTES.get(word)


def tensor_bytes(dimensions: Any, element_type: Any) -> int | None:
    """Bytes of a tensor or of a list of tensors; None if anything of it is unknown."""
    if not isinstance(dimensions, list):
        return None
    if dimensions and isinstance(dimensions[0], list):
        return _list_bytes(dimensions, element_type)
    size = element_bytes(element_type) if isinstance(element_type, str) else None
    if size is None or not all(type(one) is int and one >= 0 for one in dimensions):
        return None
    if sum(one.bit_length() for one in dimensions) > 80:
        return None
    total = math.prod(dimensions) * size
    return total if total < _LARGEST else None


def _list_bytes(tensors: list[Any], types: Any) -> int | None:
    each = types if isinstance(types, list) else [types] * len(tensors)
    if len(each) != len(tensors):
        return None
    sizes = [tensor_bytes(one, kind) for one, kind in zip(tensors, each, strict=True)]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _inputs(shapes: tuple[str, str]) -> list[int | None]:
    """Bytes of each input of an operator; None for what is no tensor, or unknown."""
    try:
        dimensions, types = json.loads(shapes[0]), json.loads(shapes[1])
    except (ValueError, RecursionError):
        return []
    if not isinstance(dimensions, list) or not isinstance(types, list):
        return []
    pairs = zip(dimensions, types, strict=False)
    return [tensor_bytes(one, kind) for one, kind in pairs]


def activation(operator: str) -> int | None:
    """Which input of an operator is its activation; None: all of them are."""
    return next((place for pattern, place in _ACTIVATION if pattern.match(operator)), None)


def input_bytes(operator: str, shapes: tuple[str, str]) -> int | None:
    """Bytes of the activations that enter an operator.

    Parameters
    ----------
    operator
        Its name: of some operators only one input is an activation.
    shapes
        As `Texts.shapes` holds them.
    """
    sizes = _inputs(shapes)
    place = activation(operator)
    if place is not None:
        return sizes[place] if place < len(sizes) else None
    known = [size for size in sizes if size is not None]
    return min(sum(known), _LARGEST) if known else None


def message_bytes(shapes: tuple[str, str]) -> int | None:
    """Bytes of the first input of a collective."""
    sizes = _inputs(shapes)
    return sizes[0] if sizes else None
