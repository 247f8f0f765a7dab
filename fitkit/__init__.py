"""fitkit: trace-driven empirical fitting of distributed deep-learning performance.

Logs become tables, tables become frames, frames determine parameters, and parameters are judged
on runs that the fit never saw. The public names below are imported on first use.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
