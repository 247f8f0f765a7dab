"""Python imports this at the start of every process that ``fitkit record`` leads to.

It waits for the program to import torch, then switches the recorder on. A process that never
imports torch pays for this file alone. The user's own ``sitecustomize`` runs as it would have.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time

TYPE_CHECKING = False  # typing would slow every start down
if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_STARTED = time.perf_counter()


class _TorchFinder:
    """Finds torch as the others would, and acts when it has been imported."""

    def __init__(self) -> None:
        self.is_looking = False
        self.is_done = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The specification of torch with our step added to its execution; else None."""
        if name != "torch" or self.is_looking:
            return None
        self.is_looking = True  # the search below comes here, too
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_looking = False
        if spec is not None and spec.loader is not None:
            self._add_to(spec.loader)
        return spec

    def _add_to(self, loader: Loader) -> None:
        """Programs may also ask for the specification and import nothing: only this acts."""
        execute = loader.exec_module

        def execute_and_record(module: ModuleType) -> None:
            execute(module)
            if not self.is_done:
                self.is_done = True
                with contextlib.suppress(ValueError):
                    sys.meta_path.remove(self)
                _record()

        with contextlib.suppress(AttributeError):  # not every loader lets itself be changed
            setattr(loader, "exec_module", execute_and_record)  # noqa: B010 - not a method any more


def _record() -> None:
    try:
        from fitkit.recorder.automatic import start

        start(_STARTED)
    except Exception as error:  # noqa: BLE001 - the user's program goes on whatever happens
        sys.stderr.write(
            f"fitkit: not recording, {type(error).__name__}: {error} (Python: {sys.executable})\n"
        )


def _run_the_other_one() -> None:
    """Import what Python would have found without this folder; take the folder from the path."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - pathlib would slow every start down
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


sys.meta_path.insert(0, _TorchFinder())
_run_the_other_one()
