"""Which fitted group a request belongs to."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.models.matching import match, request_keys

NAMES = ("network", "phase")
FITTED = [("bert", "forward"), ("bert", "backward"), ("gpt", "forward")]


@pytest.mark.parametrize(
    ("asked", "group", "reason"),
    [
        (("bert", "forward"), ("bert", "forward"), ""),
        (("?", "backward"), ("bert", "backward"), ""),
        (("gpt", "?"), ("gpt", "forward"), ""),
        (("bert", "?"), None, "say which phase: backward, forward"),
        (("?", "forward"), None, "say which network: bert, gpt"),
        (("?", "?"), None, "say which network: bert, gpt"),
        (("t5", "forward"), None, "network t5 was not measured; measured: bert, gpt"),
        (("gpt", "backward"), None, "phase backward was not measured; measured: forward"),
    ],
)
def test_a_request_means_one_group_or_says_why_not(asked, group, reason):
    assert match(FITTED, NAMES, asked) == (group, reason)


def test_a_request_that_says_nothing_means_the_only_group():
    assert match([("bert", "forward")], NAMES, ("?", "?")) == (("bert", "forward"), "")


def test_a_group_without_a_name_is_found_exactly():
    fitted = [("?", "forward"), ("bert", "forward")]
    assert match(fitted, NAMES, ("?", "forward")) == (("?", "forward"), "")


def test_a_request_that_does_not_say_is_not_of_the_group_without_a_name():
    fitted = [("?", "forward"), ("bert", "forward"), ("bert", "backward")]
    assert match(fitted, NAMES, ("", "forward")) == (None, "say which network: ?, bert")
    assert match(fitted, NAMES, ("?", "")) == (("?", "forward"), "")
    assert match(fitted, NAMES, ("", "backward")) == (("bert", "backward"), "")
    assert match(fitted, NAMES, ("?", "backward")) == (("bert", "backward"), "")
    assert match(fitted[1:], NAMES, ("?", "backward")) == (("bert", "backward"), "")


def test_keys_repeat_what_is_single_and_mark_what_is_not_said():
    columns = {"network": np.array("bert"), "local_batch": np.array([1, 2])}
    assert request_keys(columns, NAMES, FITTED, 2) == [("bert", ""), ("bert", "")]
    columns["phase"] = np.array([None, "forward"])
    assert request_keys(columns, NAMES, FITTED, 2) == [("bert", "?"), ("bert", "forward")]


def test_a_layer_is_known_by_its_name_where_it_was_fitted_alone_and_else_by_its_type():
    columns = {
        "network": np.array(["bert", "bert", "gpt"]),
        "layer": np.array(["fc1", "fc2", "fc1"]),
        "layer_type": np.array(["Linear", "Linear", "Linear"]),
    }
    fitted = [("bert/fc1",), ("Linear",)]
    assert request_keys(columns, ("layer_group",), fitted, 3) == [
        ("bert/fc1",), ("Linear",), ("Linear",)
    ]  # fmt: skip
    assert set(columns) == {"network", "layer", "layer_type"}  # the caller's stay as they were


def test_a_layer_whose_size_is_given_is_known_by_its_type():
    columns = {
        "network": np.array("bert"),
        "layer": np.array("fc1"),
        "layer_type": np.array(["Linear", "Linear", "Conv"]),
        "input_bytes": np.array([64.0, np.nan, 64.0]),
    }
    fitted = [("bert/fc1",), ("Linear",)]
    assert request_keys(columns, ("layer_group",), fitted, 3) == [
        ("Linear",), ("bert/fc1",), ("bert/fc1",)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "group"),
    [
        ({"network": "bert", "layer": "fc1"}, "bert/fc1"),
        ({"layer": "fc1"}, "bert/fc1"),
        ({"layer": "fc1", "layer_type": "Linear"}, "bert/fc1"),
        ({}, "?"),
        ({"network": "bert"}, "?"),
        # Another layer is not the only one that was measured.
        ({"layer": "fc2"}, "?/fc2"),
        ({"network": "bert", "layer": "fc2"}, "bert/fc2"),
        ({"network": "gpt", "layer": "fc1"}, "gpt/fc1"),
        ({"layer_type": "Conv"}, "Conv"),
        ({"network": "bert", "layer": "fc2", "layer_type": "Linear"}, "Linear"),
    ],
    ids=str,
)
def test_a_layer_that_was_not_measured_is_no_other(asked, group):
    columns = {name: np.array(value) for name, value in asked.items()}
    (key,) = request_keys(columns, ("layer_group",), [("bert/fc1",)], 1)
    assert key == (group,)
    found, reason = match([("bert/fc1",)], ("layer_group",), key)
    assert (found is None) == (group not in ("bert/fc1", "?"))
    assert (reason == f"layer_group {group} was not measured; measured: bert/fc1") == (not found)


def test_a_layer_of_the_name_of_two_must_say_its_network():
    fitted = [("bert/fc1",), ("gpt/fc1",)]
    (key,) = request_keys({"layer": np.array("fc1")}, ("layer_group",), fitted, 1)
    assert match(fitted, ("layer_group",), key) == (
        None,
        "say which layer_group: bert/fc1, gpt/fc1",
    )


@pytest.mark.parametrize(
    ("asked", "group", "is_measured"),
    [
        ({"network": "bert", "layer": "fc1"}, "bert/fc1 (Linear)", True),
        ({"layer": "fc1"}, "bert/fc1 (Linear)", True),
        ({"layer": "fc1", "layer_type": "Linear"}, "bert/fc1 (Linear)", True),
        ({"network": "bert", "layer": "fc1", "layer_type": "Linear"}, "bert/fc1 (Linear)", True),
        ({"network": "bert", "layer": "fc1", "layer_type": "Conv"}, "bert/fc1 (Conv)", False),
        ({"layer": "fc1", "layer_type": "Conv"}, "?/fc1 (Conv)", False),
        ({"network": "bert", "layer": "fc2"}, "bert/fc2", False),
        # Of what type this one was nobody knows, nor of which network the next.
        ({"network": "bert", "layer": "act", "layer_type": "ReLU"}, "bert/act", True),
        ({"layer": "norm", "layer_type": "LayerNorm"}, "?/norm (LayerNorm)", True),
        ({"layer": "norm", "layer_type": "ReLU"}, "?/norm (ReLU)", False),
    ],
    ids=str,
)
def test_a_layer_is_never_of_another_type_than_the_measured_one(asked, group, is_measured):
    columns = {name: np.array(value) for name, value in asked.items()}
    fitted = [("bert/fc1 (Linear)",), ("bert/act",), ("?/norm (LayerNorm)",)]
    (key,) = request_keys(columns, ("layer_group",), fitted, 1)
    assert key == (group,)
    found, reason = match(fitted, ("layer_group",), key)
    assert found == (key if is_measured else None)
    if not is_measured:
        assert reason.startswith(f"layer_group {group} was not measured; measured: ?/norm")


def test_a_message_names_the_nearest_of_many_values():
    fitted = [(f"net{i:04}", "forward") for i in range(3000)] + [("bert", "forward")]
    _, reason = match(fitted, NAMES, ("bert2", "?"))
    assert reason.startswith("network bert2 was not measured; measured: bert, ")
    assert reason.endswith(" and 2989 more")
    assert len(reason) < 300
    _, reason = match(fitted, NAMES, ("?", "?"))
    assert reason.startswith("say which network: bert, net0000, net0001, ")
    assert reason.endswith(" and 2989 more")
