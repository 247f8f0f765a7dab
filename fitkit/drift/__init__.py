"""Whether the machine drifted while runs were measured, and what that drift passes for."""

from fitkit.drift.verdict import FOLLOWS, TOLERATED, Drift, Verdict, drift_test

__all__ = ["FOLLOWS", "TOLERATED", "Drift", "Verdict", "drift_test"]
