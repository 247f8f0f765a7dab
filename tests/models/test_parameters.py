"""Parameters as frames and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fitkit.models.parameters import (
    Parameter,
    number,
    parameter_frame,
    parameters_from_json,
    parameters_to_json,
    plain,
)

NAN = math.nan
KNOWN = Parameter("fixed", 0.5, 0.1, 0.3, 0.7, "s", "positive", "bootstrap")
UNKNOWN = Parameter("per_sample", NAN, NAN, NAN, NAN, "s/sample", "unknown")


def test_a_frame_has_a_row_for_each():
    frame = parameter_frame([KNOWN, UNKNOWN])
    assert list(frame) == [
        "term",
        "estimate",
        "std_err",
        "ci_low",
        "ci_high",
        "unit",
        "status",
        "method",
    ]
    assert frame.iloc[0].tolist() == ["fixed", 0.5, 0.1, 0.3, 0.7, "s", "positive", "bootstrap"]
    assert frame.status.tolist() == ["positive", "unknown"]
    assert frame.estimate.isna().tolist() == [False, True]
    assert list(parameter_frame([])) == list(frame)


def test_parameters_are_the_same_after_json():
    text = json.dumps(parameters_to_json([KNOWN, UNKNOWN]), allow_nan=False)
    known, unknown = parameters_from_json(json.loads(text))
    assert known == KNOWN
    assert (unknown.term, unknown.unit, unknown.status) == ("per_sample", "s/sample", "unknown")
    assert np.isnan([unknown.estimate, unknown.std_err, unknown.ci_low, unknown.ci_high]).all()


@pytest.mark.parametrize("key", ["estimate", "std_err", "ci_low", "ci_high"])
def test_an_infinite_figure_is_refused(key):
    (state,) = parameters_to_json([KNOWN])
    with pytest.raises(ValueError, match="a number is infinite"):
        parameters_from_json([{**state, key: 1e999}])


@pytest.mark.parametrize("status", ["certain", "", None, 3])
def test_an_unknown_status_is_named(status):
    (state,) = parameters_to_json([KNOWN])
    with pytest.raises(ValueError, match=f"status {status!r}"):
        parameters_from_json([{**state, "status": status}])


def test_an_older_file_does_not_tell_the_method_and_an_unknown_one_is_named():
    (state,) = parameters_to_json([KNOWN])
    (again,) = parameters_from_json([{k: v for k, v in state.items() if k != "method"}])
    assert again == replace(KNOWN, method="")
    with pytest.raises(ValueError, match="method 'guess'"):
        parameters_from_json([{**state, "method": "guess"}])


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf, np.float64("nan")], ids=repr)
def test_what_json_has_no_word_for_is_null(value):
    assert plain(value) is None


@pytest.mark.parametrize("value", [0.0, -1.5, 3, "s", True, None, np.float64(2.5)], ids=repr)
def test_what_json_knows_stays(value):
    assert plain(value) == value


@pytest.mark.parametrize(("value", "figure"), [(1, 1.0), (2.5, 2.5), (-1e-300, -1e-300)])
def test_numbers_are_read(value, figure):
    assert number(value) == figure


def test_null_is_nan_and_infinity_is_refused():
    assert math.isnan(number(None))
    for value in (math.inf, -math.inf, 1e999):
        with pytest.raises(ValueError, match="infinite"):
            number(value)
    with pytest.raises(ValueError, match="could not convert"):
        number("many")
