"""Print what the recorder costs, and how well its layer times agree with torch's profiler.

  python benchmarks/recorder.py [--rounds N] [--only overhead|agreement]

Exits with 1 if a figure misses its bar. CPU time is taken where it will do, since it repeats on a
machine that does other work, too; the agreement compares wall-clock times and wants a quiet one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from time import process_time

import pandas as pd
import torch
from lines import Line, Section, Sections, run
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import fitkit
from fitkit.recorder import Recorder

SCRIPTS = Path(__file__).parents[1] / "data" / "scripts" / "pytorch"
sys.path.insert(0, str(SCRIPTS))
import models  # noqa: E402 - ours, as it ran for the samples

CASES = (("vggsmall", 16), ("resnetsmall", 4), ("tinygpt", 1))
OVERHEAD, AGREEMENT = 0.15, 0.15
STEPS, PROFILED = 20, 8
OVERHEAD_TEXT = """
CPU time of a step (median of a round of 20) with the recorder, less that of the rounds without it
before and after, as a share of the latter; median of {rounds} rounds, one thread. The first step
of a round counts operations and is not among them. Below: with `fitkit record`, in processes of
their own, and what the log takes on disk.
"""
AGREEMENT_TEXT = """
Forward time of each layer without the layers that it calls: the least over all calls, recorder
against `torch.profiler` with stack, rounds of {steps} steps in turn, {rounds} each, wall clock. The
difference is a share of the profiler's time.
"""
_CHILD = """
import sys, time, statistics
sys.path[:0] = {paths!r}
import recorder
training = recorder.Training({name!r}, {batch})
times = []
for _ in range(40):
    began = time.process_time()
    training.step()
    times.append(time.process_time() - began)
print(statistics.median(times[10:]))
"""


class Training:
    """A network, its optimizer and one batch to train on again and again."""

    def __init__(self, name: str, batch: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model, data = models.build(name)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.inputs, self.targets = next(iter(DataLoader(data, batch)))

    def step(self) -> None:
        """One step."""
        self.backward(self.forward())
        self.update()

    def forward(self) -> torch.Tensor:
        """The loss."""
        output = self.model(self.inputs)
        return functional.cross_entropy(output.flatten(0, -2), self.targets.flatten())

    def backward(self, loss: torch.Tensor) -> None:
        """The gradients."""
        loss.backward()

    def update(self) -> None:
        """Use and forget them."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def recorded_step(self, recorder: Recorder) -> None:
        """One step with its phases recorded."""
        with recorder.step():
            with recorder.phase("forward"):
                loss = self.forward()
            with recorder.phase("backward"):
                self.backward(loss)
            with recorder.phase("optimizer"):
                self.update()

    def called(self) -> dict[str, str]:
        """The profiler's name of each module → its name in the model.

        The profiler numbers the instances of a class in the order of their first calls.
        """
        names, seen = {}, defaultdict(int)

        def note(name: str, module: torch.nn.Module) -> None:
            if name not in names.values():
                kind = type(module).__name__
                names[f"nn.Module: {kind}_{seen[kind]}"] = name
                seen[kind] += 1

        handles = [
            module.register_forward_pre_hook(
                lambda module, _, name=name: note(name or type(module).__name__, module)
            )
            for name, module in self.model.named_modules()
        ]
        self.forward()
        for handle in handles:
            handle.remove()
        return names


def overhead(rounds: int, folder: Path) -> Section:
    """CPU time with and without."""
    lines, sizes = [], []
    for name, batch in CASES:
        training = Training(name, batch)
        shares, before = [], _plain(training)
        for number in range(rounds):
            ours, size = _recorded(training, folder / f"{name}{number}")
            after = _plain(training)
            shares.append(2 * ours / (before + after) - 1)
            before = after
        title = f"{name}, batch {batch}, {before * 1e3:.1f} ms"
        lines.append(Line(title, statistics.median(shares), OVERHEAD))
        sizes.append(Line(f"{name}, log of a step", size / 1e3, unit="kB"))
    lines.append(_of_command("resnetsmall", 4, rounds, folder))
    return Section("Overhead of the recorder", OVERHEAD_TEXT.format(rounds=rounds), lines + sizes)


def _plain(training: Training) -> float:
    return _median_cpu(training.step)


def _recorded(training: Training, folder: Path) -> tuple[float, float]:
    """CPU time of a step and bytes of its log."""
    with Recorder(folder, training.model) as recorder:
        training.recorded_step(recorder)
        log = next(folder.iterdir())
        before = log.stat().st_size
        seconds = _median_cpu(lambda: training.recorded_step(recorder))
        return seconds, (log.stat().st_size - before) / STEPS


def _median_cpu(step: object) -> float:
    times = []
    for _ in range(STEPS):
        began = process_time()
        step()
        times.append(process_time() - began)
    return statistics.median(times)


def _of_command(name: str, batch: int, rounds: int, folder: Path) -> Line:
    """The same with `fitkit record`, which the program does not know of."""
    paths = [str(Path(__file__).parent), str(SCRIPTS)]
    program = folder / "train.py"
    program.write_text(_CHILD.format(paths=paths, name=name, batch=batch))
    python, logs = sys.executable, str(folder / "command")
    plain, recorded = (python,), (python, "-m", "fitkit", "record", "-d", logs, "--", python)
    shares = []
    for number in range(max(2, rounds // 3)):
        seconds = {}
        for command in (plain, recorded)[:: 1 if number % 2 else -1]:
            done = subprocess.run([*command, str(program)], check=True, capture_output=True)
            seconds[command] = float(done.stdout)
        shares.append(seconds[recorded] / seconds[plain] - 1)
    return Line(f"{name}, batch {batch}, fitkit record", statistics.median(shares), OVERHEAD)


def agreement(rounds: int, folder: Path) -> Section:
    """Layer times of the recorder and of the profiler."""
    lines = []
    for name, batch in CASES:
        training = Training(name, batch)
        names = training.called()
        logs, traces = folder / f"{name}_logs", []
        for number in range(rounds):
            _record(training, logs / f"round{number}")
            traces.append(_profile(training, folder / f"{name}{number}.json"))
        theirs = pd.Series(_least_self_times(traces)).rename(names)
        ours = _recorded_times(logs)
        both = pd.concat(
            {"ours": ours, "theirs": theirs[theirs.index.isin(names.values())]}, axis=1
        )
        assert len(both.dropna()) == len(names), both
        apart = (both.ours - both.theirs).abs() / both.theirs
        title = f"{name}, batch {batch}, {len(names)} modules"
        lines.append(Line(f"{title}, median", apart.median(), AGREEMENT))
        weighted = float((both.ours - both.theirs).abs().sum() / both.theirs.sum())
        lines.append(Line(f"{title}, weighted by time", weighted))
    text = AGREEMENT_TEXT.format(steps=PROFILED, rounds=rounds)
    return Section("Layer times of recorder and profiler", text, lines)


def _record(training: Training, folder: Path) -> None:
    with Recorder(folder, training.model) as recorder:
        for _ in range(PROFILED + 1):  # the first one counts operations
            training.recorded_step(recorder)


def _recorded_times(logs: Path) -> pd.Series:
    """Least forward time of each layer, in seconds."""
    layers = fitkit.ingest([logs], logs.with_suffix(".dataset")).read("layers")
    return layers[layers.phase == "forward"].groupby("layer").min_s.min()


def _profile(training: Training, path: Path) -> Path:
    training.step()
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        for _ in range(PROFILED):
            training.step()
    profiler.export_chrome_trace(str(path))
    return path


def _least_self_times(traces: Iterable[Path]) -> dict[str, float]:
    """Seconds of each module without those that it calls, the least of all its calls."""
    least: dict[str, float] = {}
    for trace in traces:
        events = json.loads(trace.read_text())["traceEvents"]
        calls = [event for event in events if event.get("name", "").startswith("nn.Module: ")]
        for name, seconds in _self_times(calls):
            least[name] = min(seconds, least.get(name, seconds))
    return least


def _self_times(calls: list[dict[str, object]]) -> Iterable[tuple[str, float]]:
    calls.sort(key=lambda call: (call["ts"], -call["dur"]))
    own = [call["dur"] for call in calls]
    open_: list[int] = []
    for index, call in enumerate(calls):
        while open_ and calls[open_[-1]]["ts"] + calls[open_[-1]]["dur"] <= call["ts"]:
            open_.pop()
        if open_:
            own[open_[-1]] -= call["dur"]
        open_.append(index)
    return ((call["name"], seconds / 1e6) for call, seconds in zip(calls, own, strict=True))


def main() -> int:
    """Print the sections; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=("overhead", "agreement"))
    options = parser.parse_args()
    sections: Sections = {
        "overhead": lambda _, folder: overhead(options.rounds, folder),
        "agreement": lambda _, folder: agreement(options.rounds, folder),
    }
    chosen = {k: v for k, v in sections.items() if options.only in (None, k)}
    with tempfile.TemporaryDirectory() as folder:
        missed = list(run(chosen, Path(), Path(folder)))
    for line in missed:
        print(f"misses its bar: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
