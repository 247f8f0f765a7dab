"""Carrying models to new hardware: priors from other hardware, few probes, and which to make."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
