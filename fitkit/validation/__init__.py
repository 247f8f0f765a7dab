"""validate(): prediction error on runs that the fit never saw, beside baselines and noise."""

from fitkit.validation.judging import validate
from fitkit.validation.split import Split

__all__ = ["Split", "validate"]
