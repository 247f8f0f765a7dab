"""Lines in which CNTK describes a network, one by one; the lines are made up."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk.validation_dump import (
    SIGNS,
    Geometry,
    ParameterCount,
    Prototype,
    Shape,
    geometry,
    named_parameter,
    parameter_count,
    prototypes,
    read_shape,
    unnamed_parameter,
)

ENGINE = (
    "sing GEMM convolution engine for geometry: Input: 9 x 8 x 3, Output: 9 x 8 x 5, Kernel: 2 x 2 "
    "x 3, Map: {}, Stride: 1 x 1 x 3, Sharing: (1), AutoPad: (1), LowerPad: 0, UpperPad: 0."
)
POOL = (
    "p: using cuDNN convolution engine for geometry: Input: 9 x 8 x 5, Output: 4 x 4 x 5, Kernel: "
    "2 x 2 x 1, Map: 1, Stride: 2 x 2 x 1, Sharing: (1), AutoPad: (0), LowerPad: 0, UpperPad: 0."
)
LISTED = "\tNode 'z.W[0]' (LearnableParameter operation) : [3 x 4]"
COUNT = "Training 15 parameters in 2 out of 3 parameter tensors and 9 nodes with gradient:"


@pytest.mark.parametrize(
    ("text", "dimensions", "is_batched"),
    [
        ("", (), False),
        ("1", (1,), False),
        ("50 x 2", (50, 2), False),
        ("5 x 5 x 0 x 16", (5, 5, 0, 16), False),
        ("28 x 28 x 1 x *", (28, 28, 1), True),
        ("10 x 1 x *1", (10, 1), True),
        ("784 x __noSequenceAxis1", (784,), True),
        ("512, 363", (512, 363), False),
        ("512, MBSize 3", (512,), True),
        ("784 {W=28, H=28, C=1}, MBSize 0", (784,), True),
        ("200 [200 {1}], 784", (200, 784), False),
        ("28 x 28 {1,28} x *", (28, 28), True),
    ],
)
def test_shapes(text: str, dimensions: tuple[int, ...], is_batched: bool) -> None:
    assert read_shape(text) == Shape(dimensions, is_batched)


@pytest.mark.parametrize(
    "text",
    ["9999999999999", " x ".join(["999999999999"] * 2), " x ".join(["1"] * 33)],
    ids=["number", "product", "axes"],
)
def test_sizes_beyond_bounds(text: str) -> None:
    assert read_shape(text) is None


S, B = Shape, True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 2015: no shape of its own.
        ("b = LearnableParameter", Prototype("b", "LearnableParameter", (), None)),
        (
            "W*x = Times(W[5, 3], x[3, 64])",
            Prototype("W*x", "Times", (("W", S((5, 3))), ("x", S((3, 64)))), None),
        ),
        # 2015 to 1.1
        ("W = LearnableParameter -> [5, 3]", Prototype("W", "LearnableParameter", (), S((5, 3)))),
        (
            "w*x = Convolution(c.W[16, 25], a[0][784 {W=28, C=1}, MBSize 1]) -> [9216, MBSize 1]",
            Prototype(
                "w*x", "Convolution", (("c.W", S((16, 25))), ("a[0]", S((784,), B))),
                S((9216,), B),
            ),
        ),
        # 1.1, mixed
        (
            "W = LearnableParameter -> [5 [5 {1}], 3]",
            Prototype("W", "LearnableParameter", (), S((5, 3))),
        ),
        (
            "z = Times(W[5 [5 {1}], 3], x[3 [3 {1}], MBSize 2]) -> [5 [5 {1}], MBSize 2]",
            Prototype("z", "Times", (("W", S((5, 3))), ("x", S((3,), B))), S((5,), B)),
        ),
        # 1.5 to 2.7
        ("x = InputValue() :  -> [3 x *]", Prototype("x", "InputValue", (), S((3,), B))),
        (
            "z.P[1] = Times (z.W, y.Args[0].r) : [5 x 3], [3 x 1 x *1] -> [5 x 1 x *1]",
            Prototype("z.P[1]", "Times", (("z.W", None), ("y.Args[0].r", None)), S((5, 1), B)),
        ),
        ("c = LearnableParameter() :  -> []", Prototype("c", "LearnableParameter", (), S(()))),
    ],
)  # fmt: skip
def test_dialects(text: str, expected: Prototype) -> None:
    assert prototypes(f"Validating --> {text}") == (expected,)


def test_lines_that_run_on() -> None:
    first, second = prototypes(
        ")Validating --> x/y = InputValue() :  -> [3 x *]Validating --> b = Log (x/y) : [3 x *] -> "
        "[3 x *]ValidateSubNetwork: b operation changed, from [3 x 1] to [3]."
    )
    assert (first.name, first.shape) == ("x/y", Shape((3,), is_batched=True))
    assert (second.op, second.operands, second.shape) == ("Log", (("x/y", None),), first.shape)
    # Two ranks at once: the first line is cut short by the second.
    (whole,) = prototypes("Validating --> A = Times (W, xValidating --> b = Mean (x) : [3] -> [3]")
    assert whole.name == "b"


@pytest.mark.parametrize(
    "line",
    [
        "Validating --> z = Times (W, x.y) : [50 x 2], [2 x *] -> [50 x *]",
        "Validating --> z = Times(W[512, 363], x[363, MBSize 3]) -> [512, MBSize 3]",
        "Validating --> W = LearnableParameter() :  -> [50 x 2]",
        "Validating network. 35 nodes to process in pass 1.",
    ],
)
def test_a_line_that_breaks_off_has_no_shape_of_its_own(line: str) -> None:
    for end in range(len(line)):
        for found in prototypes(line[:end]):
            assert found.shape is None
            # It can look like the dialect without shapes, where operands have theirs.
            assert found.op == "LearnableParameter" or line[:end].rstrip().endswith(")")
            assert all(shape is not None for _, shape in found.operands)


def test_geometry() -> None:
    convolution = Geometry("c.x", (9, 8, 5), (2, 2, 3), is_convolution=True)
    assert geometry("c.x: u" + ENGINE.format("1 x 1 x 5")) == convolution
    assert geometry("c.x: u" + ENGINE.format("5")) == convolution
    unnamed = geometry("U" + ENGINE.format("5"))
    assert unnamed is not None
    assert unnamed.name is None
    # 2 operations, 2·2·3 weights a filter, 5 filters, 9·8 positions
    assert unnamed.flop == 2 * 12 * 5 * 72
    assert geometry(POOL) == Geometry("p", (4, 4, 5), (2, 2, 1), is_convolution=False)
    # One filter over three channels is a convolution, too.
    assert geometry("c: u" + ENGINE.format("1")) == Geometry("c", (9, 8, 5), (2, 2, 3), B)
    assert geometry(ENGINE[:90]) is None
    assert geometry("c: u" + ENGINE.format("9" * 12).replace("9 x 8 x 5", "9" * 40)) is None


def test_the_list_of_parameters() -> None:
    assert parameter_count(COUNT) == ParameterCount(15, 2)
    assert parameter_count("Training 15 parameters in 2 parameter tensors.") == (
        ParameterCount(15, 2)
    )
    text = "Training so far unknown number of parameters in 2 parameter tensors."
    assert parameter_count(text) == ParameterCount(None, 2)
    assert parameter_count("Training 15 parameters in") is None
    assert named_parameter(LISTED) == ("z.W[0]", Shape((3, 4)))
    assert named_parameter(LISTED[:-1]) is None
    assert named_parameter("Node 'W' (LearnableParameter operation): Initializing [3]") is None
    assert unnamed_parameter("\t(16, 1, 5, 4)") == Shape((4, 5, 1, 16))
    assert unnamed_parameter("\t(10,)") == Shape((10,))
    assert unnamed_parameter("\t()") == Shape(())
    assert unnamed_parameter("\t(16, -1)") is None
    assert unnamed_parameter("\t(9999999999999,)") is None


def test_every_line_has_a_sign_that_both_engines_find() -> None:
    lines = [
        ")Validating --> b = LearnableParameter", "U" + ENGINE, POOL, LISTED, COUNT,
        "Training so far unknown number of parameters in 2 parameter tensors.",
        "\t(16, 1, 5, 4)", "\t(10,)", "\t()",
    ]  # fmt: skip
    others = [
        "Validating network. 35 nodes to process in pass 1.",
        "Node 'W' (LearnableParameter operation): Initializing Parameter[5 x 3] <- 0.000000.",
        "\t\t(model aggregation stats): 2-th sync point was hit",
    ]
    pattern = "|".join(SIGNS)
    expected = [True] * len(lines) + [False] * len(others)
    assert [re.search(pattern, line) is not None for line in lines + others] == expected
    assert pc.match_substring_regex(pa.array(lines + others), pattern).to_pylist() == expected


@given(
    st.lists(
        st.sampled_from([
            "Validating --> ", "Training 3 parameters in 9 parameter tensors", "Node '",
            " (LearnableParameter operation) : [", "x: using X", "U" + ENGINE, "(", ")", "[", "]",
            "{", "}", " = ", "Times ", " : ", " -> ", ", ", " x ", "*", "7", "MBSize 3", "W", "\t",
        ]) | st.text(max_size=3)
    ).map("".join)
)  # fmt: skip
@settings(max_examples=100, deadline=None)
@example("Validating --> a = b(]]]],[,)")
def test_no_line_raises(line: str) -> None:
    for read in (prototypes, geometry, parameter_count, named_parameter, unnamed_parameter):
        read(line)
