"""Calls of modules, and the autograd nodes of what they return.

While a recorder is open, ``torch.nn.Module.__call__`` is one that stamps before and after it calls
the original, as torch.fx and torch.ao do to see calls. Forward hooks would serve, but a module
with hooks is called in a slower way, which costs a small network two percent of its step. Nothing
is attached to the model itself, so copies of it are not recorded and it can be pickled.

Backward hooks of modules are not used: they wrap outputs in views, which in-place successors must
not modify. Instead the node that made a module's output is stamped as it begins (its gradient is
complete), and the node that made its input as the gradient reaches it.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from fitkit.recorder.stamps import (
    BACKWARD,
    BACKWARD_AGAIN,
    BACKWARD_END,
    FORWARD,
    FORWARD_END,
    GRAPH_END,
    RECOMPUTE,
    RECOMPUTE_END,
    code_of,
)

if TYPE_CHECKING:
    from fitkit.recorder.capture import Capture

_LOGGER = logging.getLogger(__name__)
Stamper = Callable[[int], None]
Hooks = dict[int, Callable[[Any], None]]
_INERT: WeakSet[Callable[..., Any]] = WeakSet()  # calls whose recorder is closed
_Begun = tuple[Any, bool, bool]  # node of the input, whether to stamp it, is it a recomputation


def tensors_of(value: Any) -> Iterator[Any]:
    """Tensors in what a module takes or returns: bare, in sequences, mappings or data classes."""
    if hasattr(value, "grad_fn"):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_of(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_of(part)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_of(getattr(value, name, None))


def _nodes_of(value: Any) -> list[Any]:
    """Different autograd nodes that made the tensors in a value."""
    nodes: list[Any] = []
    for tensor in tensors_of(value):
        node = tensor.grad_fn
        if node is not None and not any(node is known for known in nodes):
            nodes.append(node)
    return nodes


@dataclass(slots=True)
class _Watched:
    """A module: its index and what is needed at its calls, made once."""

    index: int
    forward: int  # codes of the stamps
    forward_end: int
    recompute: int
    recompute_end: int
    begin: Hooks
    end: Hooks
    again: Hooks


def _hook_cheaply(tensor: Any, node: Any, hooks: Hooks) -> None:
    """Register hooks on the node that made a tensor, as ``Tensor.register_hook`` does.

    Without a handle that could remove them: making it takes longer than all else that a call
    costs. The tensor's own hooks stay what they were.
    """
    own = tensor._backward_hooks
    tensor._backward_hooks = hooks
    node._register_hook_dict(tensor)
    tensor._backward_hooks = own


def hide_from_compiler(function: Any) -> None:
    """Let torch.compile not begin with this function, as it does with none of torch.nn."""
    with suppress(ImportError, AttributeError, TypeError):  # other versions of torch may lack it
        from torch._C._dynamo import eval_frame

        skip, default = eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
        strategy = eval_frame._FrameExecStrategy(skip, default)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)


class ModuleCalls:
    """Stamps the calls of some modules, their backward passes and their recomputation.

    Parameters
    ----------
    modules
        The modules, in the order of their indices.
    stamp
        Stamps an event.

    Attributes
    ----------
    recording
        Whether calls are stamped.
    in_phase
        Whether a phase of the step is open; without one, calls that build no graph are taken for
        an evaluation and are not stamped.
    capture
        What measures shapes and operations in this step, if anything does.
    outermost
        Of each outermost call in this step: module, shapes of its tensors, whether it builds a
        graph.
    failed
        Whether a module raised in this step, or the recorder.
    given_up
        Why modules are no longer watched, after a fault of the recorder.
    """

    def __init__(self, modules: Sequence[Any], stamp: Stamper) -> None:
        import torch

        self._torch = torch
        self._stamp = stamp
        self._watched = {module: self._watch(index) for index, module in enumerate(modules)}
        self._thread = get_ident()
        self._graph_task = torch._C._current_graph_task_id
        self.recording = False
        self.in_phase = False
        self.capture: Capture | None = None
        self.given_up: str | None = None
        self.begin_step()
        self._call = self._around(torch.nn.Module.__call__)
        if modules:
            torch.nn.Module.__call__ = self._call
            # Else torch would keep the modules, and with their classes the variables of the main
            # file, at the exit of a program that leaves its recorder open.
            atexit.register(self.remove)

    def _watch(self, index: int) -> _Watched:
        stamp = self._stamp

        def on_node(code: int, gradients: Any) -> None:
            stamp(code)

        def hook(kind: int) -> Hooks:
            return {0: partial(on_node, code_of(kind, index))}

        forward, forward_end, again, again_end = (
            code_of(kind, index) for kind in (FORWARD, FORWARD_END, RECOMPUTE, RECOMPUTE_END)
        )
        return _Watched(
            index, forward, forward_end, again, again_end,
            begin=hook(BACKWARD), end=hook(BACKWARD_END), again=hook(BACKWARD_AGAIN),
        )  # fmt: skip

    def begin_step(self) -> None:
        """Forget what an earlier step may have left behind."""
        self._depth = 0
        self._last: Any = None  # node of the last output
        self._made: set[int] = set()  # numbers of the nodes that made outputs
        self._task = -1
        self.outermost: list[tuple[Any, ...]] = []
        self.failed = False

    def end_step(self) -> None:
        """Let go of the graph."""
        self._last = None
        self._made.clear()

    def in_backward(self) -> bool:
        """Whether gradients are being computed."""
        return bool(self._graph_task() != -1)

    def remove(self) -> None:
        """Watch no more; hooks on nodes vanish with their graph."""
        self._watched.clear()
        self.end_step()
        atexit.unregister(self.remove)
        _INERT.add(self._call)
        # What something else has put on top stays, and calls this one, which does nothing then.
        while (top := self._torch.nn.Module.__call__) in _INERT:
            self._torch.nn.Module.__call__ = top.__wrapped__

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The call of a module, with a stamp before and after."""
        calls, find = self, self._watched.get
        is_compiling = self._torch.compiler.is_compiling

        # torch.profiler finds modules by the name ``self`` in the frames of this function.
        @wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not calls.recording or (watched := find(self)) is None:
                return original(self, *args, **kwargs)
            begun = calls._begin(watched, args)
            if begun is None:
                return original(self, *args, **kwargs)
            try:
                output = original(self, *args, **kwargs)
            except BaseException:
                calls._fail(watched, begun)
                raise
            calls._end(watched, begun, (args, kwargs), output)
            return output

        hide_from_compiler(call)
        return call

    def _begin(self, watched: _Watched, args: tuple[Any, ...]) -> _Begun | None:
        """Stamp the begin of a call; None if it is not to be recorded."""
        if get_ident() != self._thread:
            return None
        again = self._graph_task() != -1
        if not (self._depth or again or self.in_phase or self._torch.is_grad_enabled()):
            return None
        try:
            node = getattr(args[0], "grad_fn", None) if args else None
            fresh = node is not None and node is not self._last
            if self.capture is not None:
                self.capture.enter(watched.index)
        except Exception as error:  # noqa: BLE001 - recording must never stop the training
            self._give_up(error)
            return None
        self._depth += 1
        self._stamp(watched.recompute if again else watched.forward)
        return node, fresh, again

    def _end(self, watched: _Watched, begun: _Begun, inputs: Any, output: Any) -> None:
        """Stamp the end of a call, and hook the nodes that it made."""
        node, fresh, again = begun
        self._stamp(watched.recompute_end if again else watched.forward_end)
        self._depth -= 1
        if not self._watched:
            return  # nothing is, since the call began
        try:
            self._follow(watched, output, node, fresh)
            if self.capture is not None:
                self.capture.leave(watched.index, inputs, output)
            if self._depth <= 0 and not again:
                self._end_outermost(watched.index, inputs, output)
        except Exception as error:  # noqa: BLE001 - recording must never stop the training
            self._give_up(error)

    def _fail(self, watched: _Watched, begun: _Begun) -> None:
        """A module has raised; one that is called again may do so to end early."""
        again = begun[2]
        self._stamp(watched.recompute_end if again else watched.forward_end)
        self._depth -= 1
        self.failed |= not again

    def _give_up(self, error: Exception) -> None:
        self.given_up = f"{type(error).__name__}: {error}"
        _LOGGER.warning("layers are no longer recorded: %s", self.given_up)
        self.failed = True
        self.remove()

    def _follow(self, watched: _Watched, output: Any, node: Any, fresh: bool) -> None:
        """Put the hooks on the nodes that made the output and the input of a call."""
        made = getattr(output, "grad_fn", None)
        if made is None:
            made = self._follow_several(watched, output, node)
        elif made is node:
            return  # it returns what it was given
        elif self._is_new(made):
            if type(output) is self._torch.Tensor and self.capture is None:
                _hook_cheaply(output, made, watched.begin)
            else:
                self._on(made, watched.begin)
        if made is None:
            return  # nor does it build a graph
        self._last = made
        if fresh:
            self._on(node, watched.end)

    def _follow_several(self, watched: _Watched, output: Any, node: Any) -> Any:
        """Put hooks on the nodes that made several tensors; returns the first, if there is one."""
        nodes = [made for made in _nodes_of(output) if made is not node]
        hooks = watched.begin
        for made in filter(self._is_new, nodes):
            self._on(made, hooks)
            hooks = watched.again
        return nodes[0] if nodes else None

    def _is_new(self, node: Any) -> bool:
        """Whether no module returned it before: the gradient is that one's, if it was called here.

        A node's number, counted in its thread, tells without keeping the graph.
        """
        number = node._sequence_nr()
        if number in self._made:
            return False
        self._made.add(number)
        return True

    def _on(self, node: Any, hooks: Hooks) -> None:
        for hook in hooks.values():
            node.register_prehook(hook)
            if self.capture is not None:
                self.capture.hook(node, hook)

    def _end_outermost(self, index: int, inputs: Any, output: Any) -> None:
        shapes = tuple(tuple(tensor.shape) for tensor in tensors_of(inputs))
        nodes = _nodes_of(output)
        self.outermost.append((index, shapes, bool(nodes)))
        for node in nodes:
            node.register_prehook(self._graph_begins)

    def _graph_begins(self, gradients: Any) -> None:
        task = self._graph_task()
        if task != self._task and self.recording:
            self._task = task
            # Runs when all gradients of parameters are there, before the wrapper for distributed
            # training waits for its reductions: it queues its own callback later.
            engine = self._torch.autograd.Variable._execution_engine
            engine.queue_callback(self._graph_ends)

    def _graph_ends(self) -> None:
        if self.capture is not None:
            self.capture.graph_ends()
        self._stamp(code_of(GRAPH_END))
