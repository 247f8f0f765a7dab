"""The recorder without a change to the program: what ``fitkit record`` switches on.

``start`` is called when torch has been imported. It puts itself between the program and some
functions of torch: the call of a module, the backward pass, the fetch of a batch, the step of an
optimizer, that of a gradient scaler, and saving. Each of them still does what it did. The first
optimizer step tells which network is trained; from then on a recorder writes its log.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fitkit.recorder import Recorder
from fitkit.recorder.module_calls import hide_from_compiler
from fitkit.recorder.setting import Setting
from fitkit.recorder.training_loop import TrainingLoop

_PARALLEL = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
_CALL = "__call__"
_P = ParamSpec("_P")
_R = TypeVar("_R")


def start(started: float) -> None:
    """Watch this process as the environment says; nothing if it says nothing.

    Parameters
    ----------
    started
        When the process began, on the clock of ``time.perf_counter``.
    """
    if setting := Setting.read():
        Watch(started, setting).install()


class Search:
    """Which modules the program calls with gradients, before its first update."""

    def __init__(self) -> None:
        # When each was first called; a program that never trains must not keep them for this.
        self.called: WeakKeyDictionary[torch.nn.Module, float] = WeakKeyDictionary()
        self.loaders: set[int] = set()
        self._fetched: set[int] = set()
        self._thread = threading.local()  # a program may call modules in several

    def enter(self, module: torch.nn.Module) -> None:
        """A module is called; the outermost ones are of interest."""
        depth = getattr(self._thread, "depth", 0)
        self._thread.depth = depth + 1
        if depth or not any(True for _ in module.parameters()):
            return
        if torch.is_grad_enabled():
            self.called.setdefault(module, time.perf_counter())
            self.loaders |= self._fetched
        self._fetched = set()

    def leave(self) -> None:
        """It has returned."""
        self._thread.depth -= 1

    def fetched(self, loader: int) -> None:
        """A batch has come, for whichever module is called next."""
        self._fetched.add(loader)

    def trained_by(self, optimizer: Optimizer) -> list[torch.nn.Module]:
        """The modules that own what the optimizer changes.

        Where none does, since it changes copies of the parameters: all that were called.
        """
        called = list(self.called)
        inner = {part for module in called for part in module.modules() if part is not module}
        outer = [module for module in called if module not in inner]
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [m for m in outer if any(id(p) in owned for p in m.parameters())] or outer


def _guarded(
    method: Callable[Concatenate[Watch, _P], _R],
) -> Callable[Concatenate[Watch, _P], _R | None]:
    """The method; a fault in it ends the recording, and never reaches the program."""

    @wraps(method)
    def guarded(watch: Watch, /, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        if watch.is_off:
            return None
        try:
            return method(watch, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the program goes on whatever happens
            watch.stop(f"{type(error).__name__}: {error}")
            return None

    return guarded


class Watch:
    """Watches one process: searches for what is trained, then tells the recorder.

    Parameters
    ----------
    started
        When the process began, on the clock of ``time.perf_counter``.
    setting
        Where the logs go, and what they say.
    """

    def __init__(self, started: float, setting: Setting) -> None:
        self.is_off = False
        self._started = started
        self._setting = setting
        self._search: Search | None = Search()
        self._loop: TrainingLoop | None = None
        self._roots: set[int] = set()
        self._optimizer: Optimizer | None = None
        self._thread = 0
        self._trains_in_training_mode = True

    def install(self) -> None:
        """Put this watch between the program and torch, for as long as the process lasts."""
        self._put_around_modules()
        for owner, name, begins, ends in (
            (torch.autograd, "backward", self.backward_begins, self.backward_ends),
            (_BaseDataLoaderIter, "__next__", self.fetch_begins, self.fetch_ends),
            (torch.amp.GradScaler, "step", self.scaler_begins, self.scaler_ends),
            (torch, "save", self.save_begins, self.save_ends),
        ):
            setattr(owner, name, _around(getattr(owner, name), begins, ends))
        register_optimizer_step_pre_hook(lambda optimizer, *_: self.step_begins(optimizer))
        register_optimizer_step_post_hook(lambda optimizer, *_: self.step_ends(optimizer))
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave)

    def stop(self, why: str) -> None:
        """Record nothing more, and say why."""
        self.is_off = True
        print(f"fitkit: recording stopped, {why}", file=sys.stderr)  # noqa: T201
        self._leave()

    @_guarded
    def close(self) -> None:
        """The program ends."""
        self._end()

    @_guarded
    def call_begins(self, module: torch.nn.Module) -> bool:
        """A module is called; whether its end is to be told, too."""
        if search := self._search:
            search.enter(module)
            return True
        if id(module) in self._roots and (loop := self._following()):
            loop.forward_begins(self._is_training(module))
            return True
        return False

    @_guarded
    def call_ends(self, module: torch.nn.Module, failed: bool) -> None:
        """It has returned, or raised an exception."""
        if search := self._search:
            search.leave()
        elif failed and id(module) in self._roots and (loop := self._following()):
            loop.forward_fails(self._is_training(module))

    @_guarded
    def backward_begins(self, *_: Any, **__: Any) -> bool:
        """Gradients are computed."""
        loop = self._following()
        return loop is not None and loop.backward_begins()

    @_guarded
    def backward_ends(self, failed: bool, *_: Any, **__: Any) -> None:
        """They are there, or an exception has come."""
        if loop := self._following():
            loop.backward_ends(failed)

    @_guarded
    def fetch_begins(self, iterator: Any) -> bool:
        """A batch is asked for. Loaders over one data set are one: each epoch may make its own."""
        if loop := self._following():
            loop.fetch_begins(id(iterator._dataset))
        return True

    @_guarded
    def fetch_ends(self, failed: bool, iterator: Any) -> None:
        """It has come, or there is none left."""
        if loop := self._following():
            loop.fetch_ends(id(iterator._dataset), found=not failed)
        elif (search := self._search) and not failed:
            search.fetched(id(iterator._dataset))

    @_guarded
    def scaler_begins(self, scaler: object, *_: Any, **__: Any) -> bool:
        """A gradient scaler decides whether an optimizer may step."""
        if loop := self._following():
            loop.update_begins(id(scaler))
        return True

    @_guarded
    def scaler_ends(
        self, failed: bool, scaler: object, optimizer: Optimizer, *_: Any, **__: Any
    ) -> None:
        """It has decided, and the optimizer has stepped if it was to."""
        if loop := self._following():
            loop.update_ends(id(scaler), optimizer is self._optimizer and not failed)

    @_guarded
    def save_begins(self, thing: object, *_: Any, **__: Any) -> bool:
        """Something is saved; a storage, whenever a tensor is pickled, which is no checkpoint."""
        loop = self._following()
        if loop is None or isinstance(thing, (torch.UntypedStorage, torch.TypedStorage)):
            return False
        loop.save_begins()
        return True

    @_guarded
    def save_ends(self, *_: Any, **__: Any) -> None:
        """It has been, or could not be."""
        if loop := self._following():
            loop.save_ends()

    @_guarded
    def step_begins(self, optimizer: Optimizer) -> None:
        """An optimizer steps."""
        if loop := self._following():
            loop.update_begins(id(optimizer))

    @_guarded
    def step_ends(self, optimizer: Optimizer) -> None:
        """It has stepped."""
        if search := self._search:
            self._record(search, optimizer)
        elif loop := self._following():
            loop.update_ends(id(optimizer), optimizer is self._optimizer)

    def _following(self) -> TrainingLoop | None:
        """The loop, in the thread that trains; what other threads do is no part of it."""
        return self._loop if self._thread == threading.get_ident() else None

    def _is_training(self, module: torch.nn.Module) -> bool:
        """Programs evaluate without gradients, or at least not in training mode."""
        in_mode = module.training or not self._trains_in_training_mode
        return in_mode and torch.is_grad_enabled()

    def _put_around_modules(self) -> None:
        self._covered = torch.nn.Module.__call__
        self._cover = _around_module(self._covered, self)
        setattr(torch.nn.Module, _CALL, self._cover)

    def _record(self, search: Search, optimizer: Optimizer) -> None:
        """The search is over, if the optimizer trains a module at all."""
        modules = search.trained_by(optimizer)
        if not modules:
            return
        names = [_name(module) for module in modules]
        root = modules[0] if len(modules) == 1 else _side_by_side(names, modules)
        if torch.nn.Module.__call__ is self._cover:
            setattr(torch.nn.Module, _CALL, self._covered)
        recorder = self._recorder(root, None if len(names) == 1 else "+".join(names))
        self._put_around_modules()  # around the recorder: a step begins before its first module
        recorder.event("before training", min(search.called[m] for m in modules) - self._started)
        self._search = None
        self._roots = {id(module) for module in modules}
        self._optimizer = optimizer
        self._trains_in_training_mode = any(module.training for module in modules)
        self._thread = threading.get_ident()
        self._loop = TrainingLoop(recorder, set(search.loaders))
        parts = {part for module in modules for part in module.modules()}
        others = {type(module).__name__ for module in search.called if module not in parts}
        if others:
            print(  # noqa: T201
                f"fitkit: recording {'+'.join(names)}; not {', '.join(sorted(others))}",
                file=sys.stderr,
            )

    def _recorder(self, root: torch.nn.Module, name: str | None) -> Recorder:
        """A recorder in the first folder that has no log of this rank."""
        setting = self._setting
        for folder in setting.folders():
            with suppress(FileExistsError):
                return Recorder(
                    folder,
                    root,
                    network=setting.network or name,
                    local_batch=setting.local_batch,
                )
        raise AssertionError  # there is always another one

    def _leave(self) -> None:
        """End the recording as far as it goes; in a forked process, which writes no log."""
        with suppress(Exception):
            self._end()

    def _end(self) -> None:
        """Record nothing more, and let go of what is the program's.

        What is installed in torch stays as long as the process and holds this watch. Through a
        network whose class the program's main file defines it would hold the variables of that
        file, which Python then never frees: files that they leave open would stay unwritten.
        """
        loop = self._loop
        self.is_off = True
        self._search = self._loop = self._optimizer = None
        if loop is not None:
            loop.close()


def _around(
    function: Callable[..., Any],
    begins: Callable[..., bool | None],
    ends: Callable[..., None],
) -> Callable[..., Any]:
    """The function, with a word before and after; ``ends`` learns whether it raised."""

    @wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not begins(*args, **kwargs):
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException:
            ends(True, *args, **kwargs)
            raise
        ends(False, *args, **kwargs)
        return result

    hide_from_compiler(watched)
    return watched


def _around_module(call: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    """The same for the call of a module.

    Torch's profiler takes any function in this place for that of ``torch.nn``, and crashes if it
    has no variable ``self``.
    """

    @wraps(call)
    def watched(self: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        # A compiler that traces this sees the call alone.
        if torch.compiler.is_compiling() or not watch.call_begins(self):
            return call(self, *args, **kwargs)
        try:
            result = call(self, *args, **kwargs)
        except BaseException:
            watch.call_ends(self, True)
            raise
        watch.call_ends(self, False)
        return result

    hide_from_compiler(watched)
    return watched


def _name(module: torch.nn.Module) -> str:
    """Class of a network, without what torch wraps it in."""
    while True:
        inner = getattr(module, "_orig_mod", None)  # compiled
        if isinstance(module, _PARALLEL):
            inner = module.module
        if inner is None:
            return type(module).__name__
        module = inner


def _side_by_side(names: Iterable[str], modules: Iterable[torch.nn.Module]) -> torch.nn.Module:
    """Networks that the program calls one by one, as one that is never called itself."""
    numbered = enumerate(zip(names, modules, strict=True))
    return torch.nn.ModuleDict({f"{name}{i}": module for i, (name, module) in numbered})
