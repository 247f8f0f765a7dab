"""The README's code runs as it stands; its first two lines, which install, run in CI."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from fitkit.cli import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


# Of the runs that the commands name, one of each configuration; all of them take long.
RUNS = ("cntk/mlpbig_*_rep1", "cntk/run.toml", "pytorch/tinygpt_*_rep1", "pytorch/run.toml")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    for path in (path for pattern in RUNS for path in (ROOT / "data").glob(pattern)):
        copy = tmp_path / "data" / path.relative_to(ROOT / "data")
        copy.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_first_blocks_are_single_lines_that_ci_can_copy():
    demo, tests = blocks("sh")[:2]
    assert demo.strip().endswith("fitkit demo")
    assert tests.strip().endswith("python -m pytest")
    assert demo.count("\n") == tests.count("\n") == 1


@pytest.mark.slow
def test_commands_of_the_readme_run(clone, capsys):
    for line in "".join(blocks("sh")[2:]).splitlines():
        program, *arguments = shlex.split(line)
        assert program == "fitkit"
        assert run(arguments) == 0, capsys.readouterr().err
    assert (clone / "report.html").stat().st_size > 1_000_000


@pytest.mark.slow
def test_python_of_the_readme_runs(clone):
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own documentation
    assert (clone / "report.html").is_file()


def test_links_of_the_readme_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []
