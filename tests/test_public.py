"""The public surface: what may be relied on, written out, and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import fitkit
from fitkit import errors
from fitkit.cli import VERBS

README = Path(__file__).parents[1] / "README.md"
PUBLIC = [
    "Analysis", "ComposedStep", "Dataset", "ErrorReport", "ExtrapolationWarning", "FitError",
    "FitkitError", "GroupedModel", "InputError", "LinearModel", "ParseError", "PerformanceModel",
    "Recorder", "SchemaError", "Summary", "analyse", "calibrate", "compose", "fit", "ingest",
    "load_model", "plan", "suggest_probes", "term", "validate",
]  # fmt: skip
JOURNEY = [
    "demo", "record", "ingest", "show", "diagnose", "report", "fit", "predict", "validate",
    "calibrate", "plan", "run-plan", "share", "doctor",
]  # fmt: skip

# Loaded in processes that have PyTorch alone.
NEED_TORCH = [
    "fitkit.recorder.automatic",
    *(
        f"fitkit.planner.execution.{name}"
        for name in ("comparing", "exchange", "profiling", "running", "sequential", "training")
    ),
]


def test_the_public_names_are_these() -> None:
    assert sorted(fitkit.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(fitkit))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_imported_and_documented(name: str) -> None:
    thing = getattr(fitkit, name)
    assert thing.__name__ == name
    text = inspect.getdoc(thing)
    assert text
    assert text.splitlines()[0].endswith((".", "``"))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="train"):
        _ = fitkit.train


def test_the_stub_names_what_it_imports() -> None:
    stub = ast.parse((Path(fitkit.__file__).parent / "__init__.pyi").read_text(encoding="utf-8"))
    for node in stub.body:
        assert isinstance(node, ast.ImportFrom)
        module = importlib.import_module(f"fitkit.{node.module}")
        for alias in node.names:
            assert alias.asname == alias.name  # exported, as type checkers read it
            assert hasattr(module, alias.name)


def test_functions_take_options_by_name_alone() -> None:
    for function in (fitkit.compose, fitkit.ingest, fitkit.fit, fitkit.validate):
        parameters = list(inspect.signature(function).parameters.values())
        assert all(parameter.kind == parameter.KEYWORD_ONLY for parameter in parameters[2:])


def test_every_exception_is_drawn_in_the_tree() -> None:
    tree = errors.__doc__ or ""
    for name, thing in vars(errors).items():
        if inspect.isclass(thing) and issubclass(thing, Exception):
            assert re.search(rf"\b{name}\b", tree)
            if not issubclass(thing, Warning):
                assert issubclass(thing, errors.FitkitError)


def test_every_module_says_what_it_is() -> None:
    for module in pkgutil.walk_packages(fitkit.__path__, "fitkit."):
        if module.name.endswith("__main__") or (
            module.name in NEED_TORCH and not find_spec("torch")
        ):
            continue
        assert importlib.import_module(module.name).__doc__, module.name


def test_the_verbs_are_these() -> None:
    assert list(VERBS) == JOURNEY


@pytest.mark.parametrize("verb", JOURNEY)
def test_every_verb_is_in_the_readme(verb: str) -> None:
    if not re.search(rf"\bfitkit {verb}\b", README.read_text(encoding="utf-8")):
        pytest.skip(f"README.md does not mention fitkit {verb} yet")
