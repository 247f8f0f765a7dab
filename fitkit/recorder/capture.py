"""Shapes, operations and the layer graph, measured in one step by watching every operator.

A mode of torch's dispatcher sees each operator with its tensors, forward and backward. It slows
the step down, so it is on in the first step and in one more for each new set of shapes.
Multiplications and additions of matrix products, convolutions and attention are counted, by the
formulas of ``torch.utils.flop_counter`` and a few here; element-wise operations are not. A layer
that runs a product without a formula, or no product at all, has no count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fitkit.recorder.data_flow import DataFlow, n_bytes_of
from fitkit.recorder.module_calls import tensors_of
from fitkit.recorder.stamps import BACKWARD, BACKWARD_AGAIN, BACKWARD_END, parts_of

_LOGGER = logging.getLogger(__name__)
# An operator without a formula in torch whose name has one of these words may multiply matrices.
_PRODUCTS = frozenset((
    "addbmm", "addmm", "addmv", "addr", "attention", "baddbmm", "bmm", "cdist", "cholesky", "conv",
    "convolution", "dot", "einsum", "fft", "gru", "linalg", "linear", "lstm", "matmul", "mm", "mv",
    "qr", "quantized", "rnn", "solve", "sparse", "svd", "trilinear", "vdot",
))  # fmt: skip


@dataclass
class LayerShape:
    """What one module did in a step, all calls together."""

    n: int = 0
    flop: int | None = None
    backward_flop: int | None = None
    input_bytes: int = 0
    output_bytes: int = 0
    input_grad_bytes: int = 0
    uncounted: set[str] = field(default_factory=set)  # passes with a product of unknown size


@dataclass
class _Frame:
    """A call that has not returned."""

    index: int
    mark: int  # of the data flow when it began
    n_called: int = 0  # modules that it called


class Capture:
    """Follows the operators of one step.

    Parameters
    ----------
    in_backward
        Tells whether gradients are being computed.

    Attributes
    ----------
    layers
        What was measured of each module.
    has_failed
        Whether measuring met a fault, so that nothing of it holds.
    """

    def __init__(self, in_backward: Callable[[], bool]) -> None:
        from torch.utils.flop_counter import flop_registry

        self.has_failed = False
        self.layers: dict[int, LayerShape] = {}
        self._in_backward = in_backward
        self._formulas = {**flop_registry, **_attention_of_cpu(), **_gradients_of_convolution()}
        self._flow = DataFlow()
        self._stack: list[_Frame] = []
        self._callers: dict[int, int] = {}
        self._owner = -1  # module whose gradients are being computed
        self._mode = _dispatch_mode(self._operator)
        self._active = False

    def stop(self) -> None:
        """Stop watching."""
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        self._flow.forget()
        if self._active:
            self._active = False
            # A mode that the program has put on top and not taken away hides ours, which then
            # stays without an effect.
            if _get_current_dispatch_mode() is self._mode:
                self._mode.__exit__(None, None, None)

    # --- modules ------------------------------------------------------------------------------

    def enter(self, index: int) -> None:
        """A module is called; the first call begins the watch.

        Not the begin of the step: a loader that starts its workers then would hand it on to them.
        """
        if not self._active:
            self._active = True
            self._mode.__enter__()
        self._callers[index] = self._stack[-1].index if self._stack else -1
        if self._stack:
            self._stack[-1].n_called += 1
        self._stack.append(_Frame(index, self._flow.mark()))

    def leave(self, index: int, inputs: Any, output: Any) -> None:
        """A module has returned."""
        frame = _Frame(index, 0, n_called=1)
        while self._stack:
            frame = self._stack.pop()
            if frame.index == index:
                break
        if self._in_backward():
            return
        layer = self.layers.setdefault(index, LayerShape())
        layer.n += 1
        taken, made = _different(inputs), _different(output)
        layer.input_bytes += sum(map(n_bytes_of, taken))
        layer.output_bytes += sum(map(n_bytes_of, made))
        if any(tensor.grad_fn is not None for tensor in made):
            layer.input_grad_bytes += sum(n_bytes_of(t) for t in taken if t.requires_grad)
        if frame.n_called == 0:
            self._flow.call(index, taken, made, frame.mark)

    def hook(self, node: Any, stamp: Any) -> None:
        """Follow the backward pass at a node where this stamp is made."""
        node.register_prehook(partial(self._backward, *stamp.args))

    def _backward(self, code: int, gradients: Any) -> None:
        kind, index = parts_of(code)
        if kind in (BACKWARD, BACKWARD_AGAIN):
            self._owner = index
        elif kind == BACKWARD_END and self._owner == index:
            self._owner = self._callers.get(index, -1)

    def graph_ends(self) -> None:
        """All gradients are computed."""
        self._owner = -1

    def result(self, calls: list[tuple[Any, ...]]) -> dict[str, Any]:
        """What was measured, as the log's line ``shapes`` says it."""
        first = [shapes for index, shapes, _ in calls if index == calls[0][0]]
        samples = sum(shapes[0][0] for shapes in first if shapes and shapes[0])
        edges = [[src, dst, n_bytes] for (src, dst), n_bytes in sorted(self._flow.edges.items())]
        layers = [_described(index, layer) for index, layer in sorted(self.layers.items())]
        measured = {"n_calls": len(first), "layers": layers, "edges": edges}
        return {"n_samples": samples, **measured} if samples else measured

    # --- operators ----------------------------------------------------------------------------

    def _operator(self, function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if self._active and not self.has_failed:
            try:
                self._follow(function, args, kwargs, result)
            except Exception as error:  # noqa: BLE001 - measuring must never stop the training
                self.has_failed = True
                _LOGGER.warning("shapes are not measured: %s: %s", type(error).__name__, error)
        return result

    def _follow(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        in_backward = self._in_backward()
        self._count(function, args, kwargs, result, in_backward)
        if not in_backward:
            self._flow.operate(list(tensors_of((args, kwargs))), tensors_of(result))

    def _count(self, function: Any, args: Any, kwargs: Any, result: Any, in_backward: bool) -> None:
        index = self._stack[-1].index if self._stack else self._owner if in_backward else -1
        if index < 0:
            return
        layer = self.layers.setdefault(index, LayerShape())
        which = "backward_flop" if in_backward else "flop"
        packet = getattr(function, "_overloadpacket", None)
        formula = self._formulas.get(packet)
        if formula is None:
            if _may_multiply(function):
                layer.uncounted.add(which)
            return
        try:
            flop = int(formula(*args, **kwargs, out_val=result))
        except Exception:  # noqa: BLE001 - a formula of torch that fails must not stop training
            layer.uncounted.add(which)
            return
        setattr(layer, which, (getattr(layer, which) or 0) + flop)


def _described(index: int, layer: LayerShape) -> dict[str, Any]:
    known: dict[str, Any] = {"layer": index, "n": layer.n}
    for name in ("flop", "backward_flop"):
        if name not in layer.uncounted and getattr(layer, name) is not None:
            known[name] = getattr(layer, name)
    for name in ("input_bytes", "output_bytes", "input_grad_bytes"):
        known[name] = getattr(layer, name)
    return known


def _different(value: Any) -> list[Any]:
    """Tensors in a value, each once."""
    return list({id(tensor): tensor for tensor in tensors_of(value)}.values())


def _may_multiply(function: Any) -> bool:
    """Whether an operator without a formula may contain products."""
    name = str(function)
    if not name.startswith(("aten.", "prim.", "c10d.")):
        return True  # of a library that torch knows nothing of
    return not _PRODUCTS.isdisjoint(name.split(".")[1].split("_"))


def _attention_of_cpu() -> dict[Any, Callable[..., int]]:
    """Formulas of attention's CPU kernels, which torch's table lacks."""
    import torch
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query.shape, key.shape, value.shape))

    def backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape))

    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }


def _gradients_of_convolution() -> dict[Any, Callable[..., int]]:
    """Formula of a convolution's gradients; torch's forgets the groups in that of the weight.

    Each of the two, of the input and of the weight, pairs the same elements as the forward pass:
    an element of the input, one of the weight and one of the output.
    """
    import torch
    from torch.utils.flop_counter import conv_flop_count

    def backward(grad: Any, inputs: Any, weight: Any, *others: Any, **_: Any) -> int:
        transposed, mask = others[4], list(map(bool, others[7]))
        forward = conv_flop_count(inputs.shape, weight.shape, grad.shape, transposed)
        return int(forward) * (mask[0] + mask[1])

    return {torch.ops.aten.convolution_backward: backward}


def _dispatch_mode(operator: Callable[..., Any]) -> Any:
    """A dispatch mode that hands every operator over; made here, as torch is imported late."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return operator(function, args, kwargs or {})

    return Watching()
