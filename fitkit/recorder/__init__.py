"""A recorder for PyTorch training: where the time of each step goes, layer by layer.

Importing this package does not import torch; making a `Recorder` does.
"""

from fitkit.recorder.recorder import Recorder

__all__ = ["Recorder"]
