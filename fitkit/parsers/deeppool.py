r"""Layer profiles of DeepPool: ``.prof`` with forward and backward, older ``.txt`` with quantiles.

A line for each layer of a network, in the order in which it was built, at one batch of one GPU::

    conv2d{"in_channels":3,"kernel_size":3,"out_channels":64,"padding":1,"stride":1}[64][3,224,224]
        2.157  2157  6

(in one line): kind and parameters, samples, dimensions of the input of one sample, then
milliseconds of both passes and microseconds of each, or milliseconds of both: mean, median, 90th
and 99th percentile. A line with their sum closes the block; each block is a run. No line says
what feeds what.

In some profiles the backward pass of a layer with weights is timed with the activation after it:
6 us for a convolution, which computes twice as much there as in its 2157 us forward. Such a pair
is one layer here, ``conv2d_0+ReLU2d_1``, for only its sum is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fitkit.errors import ParseError
from fitkit.parsers.deeppool_layers import ProfiledLayer, layer_of
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.records import Layer, Record, Run

_PARAMETERS = r"(?P<params>\{[^{}]{0,2000}\})"
_LAYER = re.compile(
    rf"\s{{0,400}}(?P<kind>[A-Za-z]\w{{0,60}}){_PARAMETERS}\[(?P<batch>\d{{1,9}})\]"
    r"(?P<dims>\[[\d,]{1,200}\]|\d{1,12})(?P<figures>(?:\s{1,40}-?\d{1,12}(?:\.\d{0,9})?){3,4})\s*$"
)
_HEAD = re.compile(
    rb"^[ \t]{0,400}[A-Za-z]\w{0,60}\{(?:\"\w{1,60}\":[^{}]{1,200})?\}\[\d{1,9}\]"
    rb"(?:\[[\d,]{1,200}\]|\d{1,12})[ \t]{1,40}\d{1,12}\.",
    re.MULTILINE,
)
_SUM = re.compile(r"\s{0,400}(?:SUM\(avg\)|sum:)\s{1,40}(?P<ms>\d{1,12}(?:\.\d{1,9})?)\s*$")
_TITLE = re.compile(r"\s{0,400}#")
_FILE = re.compile(  # A100_vgg.prof, vggLayerGpuProfileA100.txt
    r"(?:(?P<first>[A-Z]{1,3}\d{1,4})_(?P<net>\w{1,60})|"
    r"(?P<old>[a-z]\w{0,60}?)LayerGpuProfile(?P<gpu>[A-Z]{1,3}\d{1,4})?.{0,80})\.\w+"
)
_WEIGHTED = ("conv2d", "linear")
_ACTIVATIONS = ("ReLU1d", "ReLU2d")
# Backward of a layer with weights computes at least what forward does; so small, it is elsewhere.
_MISSING = 0.1


@dataclass
class _Block:
    """A network at one batch: its layers, and the sum that closes it."""

    layers: list[ProfiledLayer] = field(default_factory=list)
    stated_ms: float | None = None
    last_line: int = 0

    @property
    def shape(self) -> tuple[str, ...]:
        """What its layers are, without the batch."""
        return tuple(layer.key for layer in self.layers)


class DeeppoolParser:
    """Profiles of a network's layers over batch sizes, as DeepPool's planner reads them."""

    name = "deeppool"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it has the line of a layer."""
        return _HEAD.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file for itself."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield a run and its layers for each block.

        Raises
        ------
        ParseError
            If a line cannot be read, or there is no line of a layer.
        """
        file = source.files[0]
        found = _read(source, file)
        blocks = [block for block in found if block.layers]
        if not blocks:
            raise ParseError(file.label, 0, "no line of a layer")
        for block in found:
            _check(source, file, block)
        named = _FILE.fullmatch(file.name)
        network = (named["net"] or named["old"]) if named else None
        is_mixed = len({block.shape for block in blocks}) > 1
        for index, block in enumerate(blocks):
            suffix = f"-{index}" if len(blocks) > 1 else ""
            run = Run(
                source.run_id + suffix,
                source.source_id,
                framework="deeppool",
                network=f"{network}-{len(block.layers)}" if network and is_mixed else network,
                device=(named["first"] or named["gpu"]) if named else None,
                n_workers=1,
                state="incomplete" if block.stated_ms is None else "completed",
            )
            yield from _records(source, file, run, block)


def _read(source: Source, file: SourceFile) -> list[_Block]:
    """Blocks of a file; the last may lack the line that closes it."""
    blocks = [_Block()]
    for number, line in source.lines(file):
        block = blocks[-1]
        if closing := _SUM.fullmatch(line):
            block.stated_ms, block.last_line = float(closing["ms"]), number
            blocks.append(_Block())
        elif line.strip() and not _TITLE.match(line):
            layer = _layer(number, line, len(block.layers))
            if layer is None or source.problems.may_be_cut(file, number):
                source.problems.bad_line(file, number, line)
            else:
                block.layers.append(layer)
                block.last_line = number
    return blocks if blocks[-1].layers else blocks[:-1]


def _layer(number: int, line: str, index: int) -> ProfiledLayer | None:
    found = _LAYER.fullmatch(line)
    if found is None:
        return None
    figures = [float(figure) for figure in found["figures"].split()]
    if any(figure < 0 for figure in figures):
        return None
    return layer_of(
        number, index, found["kind"], found["params"], int(found["batch"]), found["dims"], figures
    )


def _check(source: Source, file: SourceFile, block: _Block) -> None:
    note = source.problems.note
    if not block.layers:
        note(file, block.last_line, "no_rows", "a sum without a layer before it")
        return
    if block.stated_ms is None:
        text = f"{len(block.layers)} layers without the sum that closes a block: the file is cut"
        note(file, block.last_line, "incomplete", text)
        return
    total = math.fsum(layer.both_s for layer in block.layers) * 1e3
    # Each of them, and the sum, is rounded in its last digit.
    if abs(total - block.stated_ms) > 0.005 + 0.001 * len(block.layers):
        text = f"the layers add up to {total:.3f} ms, the line says {block.stated_ms:.3f} ms"
        note(file, block.last_line, "sum_mismatch", text)


def _is_shifted(block: _Block) -> bool:
    """Whether layers with weights have next to no backward pass, and those after them do."""
    return _lacks_backward(
        [
            one
            for one, after in pairwise(block.layers)
            if one.kind in _WEIGHTED and after.kind in _ACTIVATIONS
        ]
    )


def _lacks_backward(layers: Sequence[ProfiledLayer]) -> bool:
    """Whether they take next to no time backward, as far as the passes are told apart."""
    forward = math.fsum(one.forward_s or 0.0 for one in layers)
    return math.fsum(one.backward_s or 0.0 for one in layers) < _MISSING * forward


def _paired(layers: Sequence[ProfiledLayer]) -> list[ProfiledLayer]:
    """Each layer with weights as one with the activation that follows it."""
    found: list[ProfiledLayer] = []
    for layer in layers:
        if found and found[-1].kind in _WEIGHTED and layer.kind in _ACTIVATIONS:
            found[-1] = found[-1].joined(layer)
        else:
            found.append(layer)
    return found


def _records(source: Source, file: SourceFile, run: Run, block: _Block) -> Iterator[Record]:
    layers = block.layers
    if _is_shifted(block):
        layers = _paired(layers)
        alone = [one.name for one in layers if one.kind in _WEIGHTED and _lacks_backward([one])]
        text = (
            f"the backward pass of layers with weights is timed with the activation after them: "
            f"each such pair is one layer here, {len(layers)} of {len(block.layers)}"
        )
        rest = f"; backward of {', '.join(alone)} is nowhere" if alone else ""
        source.problems.note(file, layers[0].line, "backward_shifted", text + rest)
    batches = {layer.n_samples for layer in layers}
    batch = batches.pop() if len(batches) == 1 else None
    local = float(batch) if batch is not None else None
    run = source.complete(replace(run, global_batch=batch, local_batch=local))
    yield run
    for index, layer in enumerate(layers):
        yield from _layer_records(run, layer, index)


def _layer_records(run: Run, layer: ProfiledLayer, index: int) -> Iterator[Layer]:
    """A row for each pass; one for both where the profile does not part them."""
    passes = {"forward": layer.forward_s, "backward": layer.backward_s}
    if layer.forward_s is None:
        passes = {"compute": layer.both_s}
    for phase, seconds in passes.items():
        yield Layer(
            run_id=run.run_id,
            rank=0,
            layer=layer.name,
            layer_type=layer.kind,
            phase=phase,
            n=1,
            layer_index=index,
            local_batch=float(layer.n_samples),
            duration_s=seconds,
            median_s=layer.median_s,
            p90_s=layer.p90_s,
            **layer.sizes(phase, is_first=index == 0),
        )
