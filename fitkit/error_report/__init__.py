"""How wrong a model is on runs it never saw, what that is worth, and how it looks."""

from fitkit.error_report.accounts import time_accounts
from fitkit.error_report.comparison import Comparison
from fitkit.error_report.context import Context
from fitkit.error_report.coverage import CoverageTest, coverage_test
from fitkit.error_report.evidence import Evidence
from fitkit.error_report.figures import error_figures, is_below, row_errors
from fitkit.error_report.gates import Gate, failure
from fitkit.error_report.grouping import error_groups, mark_rows, scale_steps
from fitkit.error_report.leaks import Copy, leak_notes, same_bytes, same_figures, split_leaks
from fitkit.error_report.old_report import OldReport, read_report
from fitkit.error_report.outliers import run_totals, worst_runs
from fitkit.error_report.plain import plain_json
from fitkit.error_report.report import ErrorReport
from fitkit.error_report.skill import skills

__all__ = [
    "Comparison", "Context", "Copy", "CoverageTest", "ErrorReport", "Evidence", "Gate", "OldReport",
    "coverage_test", "error_figures", "error_groups", "failure", "is_below", "leak_notes",
    "mark_rows", "plain_json", "read_report", "row_errors", "run_totals", "same_bytes",
    "same_figures", "scale_steps", "skills", "split_leaks", "time_accounts", "worst_runs",
]  # fmt: skip
