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


def test_keys_repeat_what_is_single_and_mark_what_is_not_said():
    columns = {"network": np.array("bert"), "local_batch": np.array([1, 2])}
    assert request_keys(columns, NAMES, FITTED, 2) == [("bert", "?"), ("bert", "?")]


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
