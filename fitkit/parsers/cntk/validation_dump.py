"""The lines in which CNTK describes a network: prototypes, geometries, trained parameters.

Every function takes one line without its prefixes (rank, time stamp) and returns nothing for a
line that it cannot read: a damaged line is not a description.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

MARK = "Validating --> "
# What a line that describes a network contains; RE2 and `re` understand them alike.
SIGNS = (
    MARK,
    "convolution engine for geometry: ",
    r"Training (?:\d+|so far unknown number of) parameters in ",
    r"\(LearnableParameter operation\) : \[",
    r"\t\((?:\d+,|\))",
)
LEAVES = frozenset({"LearnableParameter", "InputValue", "SparseInputValue", "DynamicAxis"})

_LARGEST = 1 << 53  # elements; a larger tensor is a damaged line
_MOST_AXES = 32
_AXIS_END = re.compile(r" x |,")
_DIGITS = re.compile(r"[0-9]+")
_AXES = r"\d{1,12}(?: x \d{1,12})*"
_GEOMETRY = re.compile(
    rf"sing \w{{1,20}} convolution engine for geometry: Input: (?P<input>{_AXES}), "
    rf"Output: (?P<output>{_AXES}), Kernel: (?P<kernel>{_AXES}), Map: (?P<maps>{_AXES}), "
)
_HEADER = re.compile(
    r"Training (?P<total>\d{1,15}|so far unknown number of) parameters in (?P<tensors>\d{1,9}) "
    r"(?:out of \d+ )?parameter tensors"
)
_NAMED = re.compile(r"Node '(?P<name>[^']+)' \(LearnableParameter operation\) : \[(.*)\]\s*$")
_BARE = re.compile(r"\s*\((?P<axes>(?:\d{1,12}, )*\d{0,12},?)\)\s*")
_remember = lru_cache(maxsize=4096)  # every pass and every rank prints the same lines again


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a tensor for one sample, and whether there is one such tensor a sample."""

    dimensions: tuple[int, ...]
    is_batched: bool = False

    @property
    def size(self) -> int:
        """Elements for one sample; a scalar has one."""
        return math.prod(self.dimensions)


@dataclass(frozen=True, slots=True)
class Prototype:
    """A node as it is printed: the older dialects leave out shapes, or print those of inputs."""

    name: str
    op: str
    operands: tuple[tuple[str, Shape | None], ...]
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a filter passes over its input."""

    name: str | None
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    is_convolution: bool

    @property
    def flop(self) -> float:
        """A multiplication and an addition for each element of the kernel and of the output."""
        return 2.0 * math.prod(self.kernel) * math.prod(self.output)


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """How many parameters are trained, in how many tensors."""

    n_params: int | None
    n_tensors: int


def read_shape(text: str) -> Shape | None:
    """What stands between the brackets of a shape.

    ``28 x 28 x 1 x *``, ``512, MBSize 3``, ``784 {W=28, H=28, C=1}, MBSize 1``,
    ``200 [200 {1}], 784``: an axis without a number at its begin is the dynamic one.
    """
    if "{" in text or "[" in text:
        text = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\{[^{}]*\}", "", text))
    axes = [axis.strip() for axis in _AXIS_END.split(text, _MOST_AXES) if axis.strip()]
    numbers = [axis for axis in axes if _DIGITS.fullmatch(axis)]
    if len(axes) > _MOST_AXES or any(len(number) > 12 for number in numbers):
        return None
    shape = Shape(tuple(map(int, numbers)), len(numbers) < len(axes))
    return shape if shape.size <= _LARGEST else None


@_remember
def prototypes(text: str) -> tuple[Prototype, ...]:
    """Nodes that a line describes: two prototypes can share one."""
    found = [_prototype(part) for part in text.split(MARK)[1:]]
    return tuple(prototype for prototype in found if prototype is not None)


def _prototype(text: str) -> Prototype | None:
    name, _, rest = text.partition(" = ")
    op = re.match(r"\w+", rest)
    if not name or op is None:
        return None
    rest = rest[op.end() :].strip()
    operands: list[tuple[str, Shape | None]] = []
    if rest.startswith("("):
        listed, closed, rest = rest[1:].partition(")")
        if not closed:
            return None
        if rest.startswith(" :"):
            operands = [(operand, None) for operand in listed.split(", ") if operand]
        else:
            operands = _operands(listed)
    if not (rest or operands or op[0] in LEAVES):
        return None
    shape = None
    if rest:
        result = _bracketed(rest.partition("->")[2])
        shape = None if result is None else read_shape(result)
        if shape is None:
            return None
    return Prototype(name, op[0], tuple(operands), shape)


def _operands(text: str) -> list[tuple[str, Shape | None]]:
    """Names and shapes of ``W[512, 363], x[0][363, MBSize 3]``: the last brackets are the shape."""
    found: list[tuple[str, Shape | None]] = []
    depth = start = opened = 0
    for at, char in enumerate(text + ","):
        if char in "[{":
            opened = opened if depth else at
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == "," and not depth:
            if opened > start:
                found.append((text[start:opened].strip(), read_shape(text[opened + 1 : at - 1])))
            start = at + 1
    return found


def _bracketed(text: str) -> str | None:
    """The inside of the first brackets, which can hold others."""
    depth = 0
    first = text.find("[")
    for at, char in enumerate(text[first:], first):
        depth += (char == "[") - (char == "]")
        if not depth:
            return text[first + 1 : at] if char == "]" else None
    return None


@_remember
def geometry(text: str) -> Geometry | None:
    """The geometry of a convolution or pooling node; versions before 2.0 do not name the node.

    A convolution reads all channels of its input at once; pooling leaves them apart.
    """
    found = _GEOMETRY.search(text)
    if found is None:
        return None
    shapes = [read_shape(found[key]) for key in ("input", "output", "kernel", "maps")]
    source, output, kernel, maps = (shape.dimensions if shape else () for shape in shapes)
    if not (source and output and kernel and maps):
        return None
    name, is_named, _ = text[: found.start()].rpartition(": u")
    reduces = kernel[-1] == source[-1] > 1
    return Geometry(
        name.split()[-1] if is_named and name.strip() else None,
        output, kernel, reduces or math.prod(maps) > 1,
    )  # fmt: skip


@_remember
def parameter_count(text: str) -> ParameterCount | None:
    """The line above the list of the parameters that are trained."""
    found = _HEADER.search(text)
    if found is None:
        return None
    total = int(found["total"]) if found["total"].isdecimal() else None
    return ParameterCount(total, int(found["tensors"]))


@_remember
def named_parameter(text: str) -> tuple[str, Shape] | None:
    """A line of the list as BrainScript prints it, since version 1.7."""
    found = _NAMED.search(text)
    shape = read_shape(found[2]) if found else None
    return (found["name"], shape) if found and shape else None


@_remember
def unnamed_parameter(text: str) -> Shape | None:
    """A line of the list as Python prints it: no name, and the axes in reverse order."""
    found = _BARE.fullmatch(text)
    shape = read_shape(found["axes"]) if found else None
    return Shape(shape.dimensions[::-1]) if shape else None
