"""A report as JUnit XML, which continuous integration shows test by test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from fitkit.display import format_share
from fitkit.error_report.gates import Gate

if TYPE_CHECKING:
    from fitkit.error_report.report import ErrorReport

_SUITE = "fitkit validate"
_MAX_TEXT = 1000
# What XML 1.0 cannot hold, not even as an entity.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: ErrorReport) -> str:
    """One test for each limit that was asked for; leaks and narrow intervals are tests as well.

    An interval that is too narrow is skipped with a message, not failed, unless ``min_coverage``
    was asked for: whoever sets no limit is told, not stopped.
    """
    cases = list(_cases(report))
    n_failed = sum("<failure" in case for case in cases)
    n_skipped = sum("<skipped" in case for case in cases)
    counts = f'tests="{len(cases)}" failures="{n_failed}" errors="0" skipped="{n_skipped}"'
    properties = "".join(
        f"    <property name={_quoted(name)} value={_quoted(value)}/>\n"
        for name, value in _properties(report)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<testsuites {counts}>\n"
        f"  <testsuite name={_quoted(_SUITE)} {counts}>\n"
        f"  <properties>\n{properties}  </properties>\n"
        f"{''.join(cases)}"
        "  </testsuite>\n</testsuites>\n"
    )


def _properties(report: ErrorReport) -> Iterator[tuple[str, str]]:
    yield "recipe", report.recipe
    yield "split", report.split
    yield "verdict", report.verdict
    for name, value in report.overall.items():
        yield name, str(value)


def _cases(report: ErrorReport) -> Iterator[str]:
    for gate in report.gates:
        yield _case(_name(gate), "" if gate.passed else _element("failure", gate.text))
    if not report.gates:
        leaked = report.n_leaks
        said = f"{leaked} held-out runs equal training runs" if leaked else ""
        yield _case("no leak", _element("failure", said) if said else "")
    test = report.coverage_test
    narrow = ""
    if test.is_under:
        found = f"{format_share(test.share)} of the measurements lie in {format_share(test.level)}"
        narrow = _element("skipped", f"under-covering: {found} intervals")
    yield _case("intervals hold their level", narrow)


def _name(gate: Gate) -> str:
    group = f" [{gate.by} = {gate.value}]" if gate.by else ""
    return f"{gate.gate}{group}"


def _case(name: str, inner: str) -> str:
    head = f"    <testcase classname={_quoted(_SUITE)} name={_quoted(name)}"
    return f"{head}>{inner}</testcase>\n" if inner else f"{head}/>\n"


def _element(tag: str, message: str) -> str:
    return f"<{tag} message={_quoted(message)}/>"


def _quoted(text: Sequence[str] | str) -> str:
    """Text as an attribute, without what XML cannot hold."""
    plain = _FORBIDDEN.sub("�", str(text))[:_MAX_TEXT]
    return quoteattr(plain, {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})
