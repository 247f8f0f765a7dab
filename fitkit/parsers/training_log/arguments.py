"""What programs say of a run at its start.

Options of Megatron-LM and DeepSpeed, ``hidden_size ....... 1024``; the checkpoint that Megatron-LM
goes on from; model and processes of timm's script.
"""

from __future__ import annotations

import re

from fitkit.parsers.training_log.findings import Findings
from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import COUNT

# Name in the log and ours: a column of runs, or what columns are worked out from.
_NAMES = {
    "world_size": "world_size",
    "data_parallel_size": "data_parallel",
    "tensor_model_parallel_size": "tensor_parallel",
    "model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "context_parallel_size": "context_parallel",
    "micro_batch_size": "micro_batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "global_batch_size": "global_batch",
    "train_batch_size": "global_batch",
    "gradient_accumulation_steps": "accumulation",
    "seq_length": "sequence_length",
    "hidden_size": "hidden_size",
    "num_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "log_interval": "log_interval",
    "steps_per_print": "steps_per_print",
    "train_iters": "train_iters",
}
_OPTION = re.compile(
    r"\s{1,12}(?P<name>[a-z]\w{2,50}) \.{0,60} ?(?P<value>\d{1,9}|torch\.\w{1,20})\s*$"
)
_PARAMETERS = re.compile(
    r"\s*> number of parameters on \(tensor, pipeline\) model parallel rank "
    r"\((?P<tensor>\d{1,6}), (?P<pipeline>\d{1,6})\): (?P<count>\d{1,15})\s*$"
)


_MODEL = re.compile(
    r"\bModel (?P<name>[\w./-]{1,120}) created, param count: ?(?P<count>\d{1,15})\b"
)
_WORLD = re.compile(r"\b(?:Process|process) \d{1,7}, total (?P<world>\d{1,7}), device ")
_LOADED = re.compile(rf"loaded checkpoint \S.{{0,400}} at iteration (?P<at>{COUNT})\b")


class Arguments:
    """Reads options; those that say nothing of a run are not kept."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._parameters: dict[tuple[str, str], int] = {}

    def read(self, line: Line) -> bool:
        """Keep what is known of the columns of a run."""
        return self._option(line) or self._sentence(line)

    def _sentence(self, line: Line) -> bool:
        text = line.text
        if "loaded checkpoint" in text and (loaded := _LOADED.search(text)):
            self._findings.loaded = int(loaded["at"])
        elif "created, param count" in text and (model := _MODEL.search(text)):
            self._findings.option("network", model["name"], line.where)
            self._findings.option("n_params", int(model["count"]), line.where)
        elif ", total " in text and (world := _WORLD.search(text)):
            self._findings.option("world_size", int(world["world"]) or None, line.where)
        else:
            return False
        return True

    def _option(self, line: Line) -> bool:
        text, where = line.text, line.where
        if found := _PARAMETERS.match(text):
            self._parameters[found["tensor"], found["pipeline"]] = int(found["count"])
            return True
        found = _OPTION.match(text) if "_" in text else None
        if not found:
            return False
        name, value = found["name"], found["value"]
        if name == "params_dtype" and value.startswith("torch."):
            self._findings.option("precision", value.removeprefix("torch."), where)
        elif name in _NAMES and value.isdecimal() and int(value):
            self._findings.option(self._column(name, line), int(value), where)
        return True

    def _column(self, name: str, line: Line) -> str:
        """Where DeepSpeed runs inside Megatron-LM, its world is the data-parallel part of it."""
        is_part = name == "world_size" and "[config.py:" in line.raw
        shared = {"tensor_parallel", "pipeline_parallel"} & self._findings.facts.keys()
        return "data_parallel" if is_part and shared else _NAMES[name]

    def finish(self) -> None:
        """Add up the parameters of all parts of the model, if each part is known."""
        facts = self._findings.facts
        parts = facts.get("tensor_parallel", 1) * facts.get("pipeline_parallel", 1)
        if self._parameters and len(self._parameters) == parts:
            self._findings.state("n_params", sum(self._parameters.values()))
