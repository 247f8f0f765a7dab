"""What holds for every verb: help, errors, exit statuses, colour, pipes and interrupts."""

from __future__ import annotations

import importlib
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fitkit.cli
from fitkit.cli import VERBS, run
from fitkit.cli.options import key_value, one_line, typed
from fitkit.errors import ExtrapolationWarning

Run = Callable[..., Any]


# --- help -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_one_worked_example(fitkit_run: Run, verb: str) -> None:
    found = fitkit_run(verb, "--help")
    assert (found.status, found.err) == (0, "")
    assert found.out == fitkit_run(verb, "-h").out
    text = " ".join(found.out.split())
    assert text.count("Example: ") == 1
    assert f"Example: fitkit {verb}" in text
    for option in ("--json", "-q, --quiet", "-v, --verbose"):
        assert option in found.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_is_a_command_line_that_can_be_read(verb: str) -> None:
    command = importlib.import_module(f"fitkit.cli.{verb.replace('-', '_')}").command
    _, words = command.epilog.split("Example: fitkit ")
    import shlex

    name, *arguments = shlex.split(words)
    assert name == verb
    assert command.make_context(name, arguments).params


def test_the_verbs_are_listed_in_the_order_of_a_journey(fitkit_run: Run) -> None:
    found = fitkit_run("--help")
    _, verbs = found.out.split("Verbs:\n")
    assert re.findall(r"^  ([a-z-]+)  ", verbs, re.MULTILINE) == list(VERBS)
    assert found.out == fitkit_run().out == fitkit_run("-h").out
    assert found.out.count("Example: ") == 1


def test_the_version_is_that_of_the_package(fitkit_run: Run) -> None:
    from importlib.metadata import version

    assert fitkit_run("--version").out == f"fitkit {version('fitkit')}\n"


def test_the_module_runs_as_the_command_does(fitkit_process: Run) -> None:
    found = fitkit_process("--version")
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith("fitkit ")


# --- errors ---------------------------------------------------------------------------------

WRONG = [
    (["bogus"], "No such command 'bogus'."),
    (["--bogus"], "No such option"),
    (["ingest"], "Missing argument 'PATH...'."),
    (["ingest", "x"], "Missing option '-d' / '--dataset'."),
    (["ingest", "x", "-d", "ds", "--set", "device"], "'device': write KEY=VALUE"),
    (["ingest", "x", "-d", "ds", "--set", "=1"], "'=1': write KEY=VALUE"),
    (["ingest", "x", "-d", "ds", "--set", "colour=red"], "no metadata 'colour'"),
    (["ingest", "x", "-d", "ds", "--set", "n_nodes=two"], "n_nodes = 'two': expected int"),
    (["ingest", "x", "-d", "ds", "--tz", "Mars"], "tz = 'Mars': not a time zone"),
    (["ingest", "x", "-d", "ds", "--on-bad-lines", "hide"], "'--on-bad-lines'"),
    (["ingest", "{log}", "-d", "ds", "--format", "tf"], "no format 'tf'; known: cntk"),
    (["ingest", "{log}", "-d", "ds", "--jobs", "0"], "n_jobs must not be 0"),
    (["ingest", "{log}", "-d", "ds", "--jobs", "two"], "'--jobs'"),
    (["show"], "Missing argument 'DATASET'."),
    (["show", "{ds}", "bogus"], "Invalid value for '[TABLE]': 'bogus' is not one of 'jobs'"),
    (["show", "{ds}", "steps", "--where", "rank = 0"], "cannot read the condition"),
    (["show", "{ds}", "steps", "--where", "rang == 0"], "no column 'rang'; there are run_id"),
    (["show", "{ds}", "--where", "rank == 0"], "--where and --csv need a TABLE"),
    (["show", "{ds}", "steps", "--limit", "-1"], "'--limit'"),
    (["fit", "{ds}"], "Missing option '-o' / '--output'."),
    (["fit", "{ds}", "-o", "m.json", "--recipe", "cake"], "'--recipe'"),
    (["fit", "{ds}", "-o", "m.json", "--target", "speed"], "no column 'speed' to fit"),
    (["fit", "{ds}", "-o", "m.json", "--set", "device"], "write KEY=VALUE"),
    (["predict", "{model}"], "say what to predict"),
    (["predict", "{model}", "--at", "n=1", "--from", "x.csv"], "say what to predict"),
    (["predict", "{model}", "--at", "n"], "--at n: write KEY=VALUE or KEY=V1,V2,..."),
    (["predict", "{model}", "--at", "n=1,,2"], "--at n=1,,2: write KEY=VALUE"),
    (["predict", "{model}", "--at", "n=1", "--level", "1.5"], "'--level'"),
    (["validate", "{ds}"], "choose one of hold_out, leave_out, folds and scale_up"),
    (["validate", "{ds}", "--folds", "2", "--leave-out", "network"], "choose one of"),
    (["validate", "{ds}", "--folds", "99999"], "cannot make 99999 folds"),
    (["validate", "{ds}", "--leave-out", "colour"], "no column 'colour'"),
    (["validate", "{ds}", "--folds", "3", "-o", "report.pdf"], "report as .html, .json or .csv"),
    (["doctor", "now"], "Got unexpected extra argument"),
]
# Verbs whose documents have tests of their own.
OTHERS = {"demo", "record", "calibrate", "plan", "run-plan", "share"}
BAD = [
    (["ingest", "none", "-d", "ds"], "none: no such file or folder"),
    (["ingest", "*.txt", "-d", "ds"], "*.txt: nothing matches it"),
    (["ingest", "{log}", "-d", "{folder}"], "a folder that is not a fitkit dataset"),
    (["ingest", "{log}", "-d", "{log}"], "is a file, not a dataset"),
    (["ingest", "{log}", "-d", "{log}/ds"], "Not a directory"),
    (["show", "none"], "none: no dataset here"),
    (["show", "{folder}"], "a folder that is not a fitkit dataset"),
    (["fit", "none", "-o", "m.json"], "none: no dataset here"),
    (["fit", "{ds}", "-o", "m.json", "--where", "n_workers > 99"], "no rows for recipe step"),
    (["fit", "{ds}", "-o", "{log}/m.json"], "train.log: "),
    (["predict", "none", "--at", "n=1"], "none: No such file or directory"),
    (["predict", "{log}", "--at", "n=1"], "not a fitkit model"),
    (["predict", "{model}", "--from", "none.csv"], "none.csv: no such file"),
    (["predict", "{model}", "--from", "{folder}"], "Is a directory"),
    (["predict", "{model}", "--from", "{log}.parquet"], "train.log.parquet: no such file"),
    (["validate", "none", "--folds", "2"], "none: no dataset here"),
    (["validate", "{ds}", "--model", "none"], "none: No such file or directory"),
]


def filled(arguments: list[str], **places: Path) -> list[str]:
    return [argument.format(**places) for argument in arguments]


@pytest.fixture
def places(
    tmp_path: Path, sample_dataset: Path, step_model: Path, log_text: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Path]:  # fmt: skip
    """Things that commands are given, and a folder to work in."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").touch()
    log = tmp_path / "train.log"
    log.write_text(log_text(2))
    return {"ds": sample_dataset, "model": step_model, "folder": folder, "log": log}


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_usage_is_one_line_and_a_hint(
    fitkit_run: Run, places: dict[str, Path], arguments: list[str], message: str
) -> None:
    found = fitkit_run(*filled(arguments, **places))
    what, hint = found.complaint
    assert (found.status, found.out) == (2, "")
    assert message in what
    verb = arguments[0] if arguments[0] in VERBS else ""
    assert hint == (f"fitkit {verb} --help shows how it is used" if verb else
                    "fitkit --help lists the verbs")  # fmt: skip
    assert not Path("ds").exists()


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_a_hint(
    fitkit_run: Run, places: dict[str, Path], arguments: list[str], message: str
) -> None:
    found = fitkit_run(*filled(arguments, **places))
    what, hint = found.complaint
    assert (found.status, found.out) == (3, "")
    assert message in what
    assert hint


@pytest.mark.parametrize("verb", VERBS)
def test_a_fault_of_ours_is_one_line_and_a_hint(
    fitkit_run: Run, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, verb: str,
) -> None:  # fmt: skip
    def fault(*_: Any, **__: Any) -> None:
        raise RuntimeError("two\nlines")

    arguments = {
        "demo": ["demo", "d"],
        "record": ["record", "true"],
        "ingest": ["ingest", "{log}", "-d", "ds"],
        "show": ["show", "{ds}"],
        "diagnose": ["diagnose", "{ds}"],
        "report": ["report", "{ds}"],
        "fit": ["fit", "{ds}", "-o", "m.json"],
        "predict": ["predict", "{model}", "--at", "n=1"],
        "validate": ["validate", "{ds}", "--folds", "2"],
        "calibrate": ["calibrate", "{model}", "{ds}", "-o", "new.json"],
        "plan": ["plan", "--instance", "{log}"],
        "run-plan": ["run-plan", "{log}", "--network", "vgg-small"],
        "share": ["share", "--plan", "{log}", "--shares", "1,1", "--background-step", "1"],
        "doctor": ["doctor"],
    }[verb]
    used = {
        "demo": "commands",
        "record": "first_free",
        "ingest": "ingest_each",
        "predict": "load_model",
        "calibrate": "load_model",
        "plan": "_of_instance",
        "run-plan": "_run",
        "doctor": "_facts",
    }
    module = importlib.import_module(f"fitkit.cli.{verb.replace('-', '_')}")
    if verb == "share":
        monkeypatch.setattr("fitkit.planner.sharing.read_plan", fault)
    else:
        monkeypatch.setattr(module, used.get(verb, "Dataset"), fault)
    found = fitkit_run(*filled(arguments, **places))
    assert (found.status, found.out) == (3, "")
    assert found.complaint == [
        f"fitkit {verb} failed: RuntimeError: two lines",
        "please report it; -vv after the verb shows where",
    ]
    assert "Traceback" not in caplog.text
    _, *others = filled(arguments, **places)
    fitkit_run(verb, "-vv", *others)
    assert "in fault" in caplog.text
    assert "RuntimeError: two" in caplog.text


def test_a_traceback_is_shown_to_those_who_ask_for_it(tmp_path: Path) -> None:
    program = (
        "import sys, fitkit.cli.predict as predict; predict.load_model = None\n"
        "from fitkit.cli import main; main(sys.argv[1:])"
    )
    for words, shown in (([], False), (["-v"], False), (["-vv"], True)):
        call = [sys.executable, "-c", program, "predict", str(tmp_path), *words]
        done = subprocess.run(call, capture_output=True, check=False, text=True)
        assert (done.returncode, done.stdout) == (3, "")
        assert ("Traceback" in done.stderr) == shown
        assert "'NoneType' object is not callable" in done.stderr


def test_what_a_message_quotes_cannot_break_its_line_or_steer_the_terminal(
    fitkit_run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "two\nlines \x1b[31mred\x07"
    what, _ = fitkit_run("show", path / "none").complaint
    assert "two lines \ufffd[31mred\ufffd/none: no dataset here" in what
    assert one_line("a\r\n\n  b\u202e\tc") == "a b\ufffd\ufffdc"
    assert one_line("plain – text") == "plain – text"


def test_the_traceback_is_not_logged_for_what_is_no_error(
    fitkit_run: Run, places: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    places["log"].write_text(places["log"].read_text().replace("50.0", "fifty"))
    assert fitkit_run("ingest", places["log"], "-d", "ds", "-vv").status == 3
    assert "NoneType" not in caplog.text


def test_warnings_for_users_are_one_line_and_others_are_silent(
    fitkit_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned() -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("beyond\nwhat was measured", ExtrapolationWarning, stacklevel=1)
            warnings.warn("some library's own", DeprecationWarning, stacklevel=1)
        return {"missing": []}

    monkeypatch.setattr("fitkit.cli.doctor._facts", warned)
    found = fitkit_run("doctor", "--json")
    assert found.document == {"missing": []}
    assert found.err == "warning: beyond what was measured\n"


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("-3", -3), ("0.5", 0.5), ("1e3", 1000.0), ("true", "true"), ("007", 7),
        ("A100", "A100"), ("", ""), ("2026-03", "2026-03"), ("Tall", "Tall"),
    ],
)  # fmt: skip
def test_a_typed_value_is_a_number_or_a_text_and_a_word_stays_as_it_is(
    text: str, value: Any
) -> None:
    found = typed(text, is_text=False)
    assert (found, type(found)) == (value, type(value))
    assert typed(text, is_text=True) == text


def test_a_key_ends_at_the_first_equals_sign() -> None:
    assert key_value(" network = a=b ") == ("network", "a=b")


def test_quiet_leaves_only_the_result(fitkit_run: Run, places: dict[str, Path]) -> None:
    (places["folder"] / "train.log").write_text(places["log"].read_text())
    arguments = ["ingest", places["folder"], "-d", "ds"]
    loud = fitkit_run(*arguments)
    assert "warning: cat.jpg: the file is empty" in loud.err
    quiet = fitkit_run(*arguments, "-q")
    assert (quiet.status, quiet.err) == (0, "")
    assert "Sources" in quiet.out


def test_verbose_tells_more_and_is_forgotten(fitkit_run: Run) -> None:
    assert fitkit_run("doctor", "-q", "-v").status == 0
    assert logging.getLogger("fitkit").level == logging.INFO
    assert fitkit_run("doctor", "-q").status == 0
    assert logging.getLogger("fitkit").level == logging.WARNING


def test_verbs_are_modules_and_modules_are_verbs() -> None:
    folder = Path(fitkit.cli.__file__).parent
    modules = {path.stem.replace("_", "-") for path in folder.glob("*.py")}
    assert modules - {"--init--", "options"} == set(VERBS)
    for verb, text in VERBS.items():
        command = importlib.import_module(f"fitkit.cli.{verb.replace('-', '_')}").command
        assert command.help
        assert text.endswith(".")


def test_json_is_one_document_for_every_verb(
    fitkit_run: Run, places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {
        "ingest": ["{log}", "-d", "ds"],
        "show": ["{ds}"],
        "diagnose": ["{ds}"],
        "report": ["{ds}"],
        "fit": ["{ds}", "-o", "m.json", "--where", 'framework == "pytorch"'],
        "predict": ["{model}", "--at", "local_batch=4"],
        "validate": ["{ds}", "--where", 'framework == "pytorch"', "--folds", "3"],
        "doctor": [],
    }
    for verb, arguments in commands.items():
        status = run([verb, *filled(arguments, **places), "--json"])
        assert status == 0
        assert isinstance(json.loads(capsys.readouterr().out), dict)
    assert set(commands) == set(VERBS) - OTHERS
