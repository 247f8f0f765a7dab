"""Write the logs ``synthetic_*`` of training programs: made-up times in the formats of the tools.

The same seed gives the same bytes. ``deepspeed_zero2_w2.log`` and ``torchrun_*.log`` are not made
here: they are runs of our own, see ``README.md``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

SEED = 20261130
BEGIN = datetime(2026, 3, 1, 12)
LABEL = "synthetic: written by make_synthetic.py, no real run"


def megatron_arguments(**options: object) -> Iterator[str]:
    """The block of options."""
    yield "------------------------ arguments ------------------------"
    for name, value in sorted(options.items()):
        yield f"  {name} {'.' * (48 - len(name))} {value}"
    yield "-------------------- end of arguments ---------------------"


def megatron_core(rng: random.Random) -> Iterator[str]:
    """Eight ranks, two by two by two: timers as minimum and maximum across ranks."""
    yield LABEL
    yield from megatron_arguments(
        world_size=8, data_parallel_size=2, tensor_model_parallel_size=2,
        pipeline_model_parallel_size=2, context_parallel_size=1, micro_batch_size=4,
        global_batch_size=32, seq_length=2048, hidden_size=1024, num_layers=24,
        num_attention_heads=16, params_dtype="torch.bfloat16", log_interval=10, train_iters=60,
        data_path=["/data/text"], seed=1234,
    )  # fmt: skip
    for tensor in range(2):
        for pipeline in range(2):
            yield (
                " > number of parameters on (tensor, pipeline) model parallel rank "
                f"({tensor}, {pipeline}): 100000000"
            )
    yield "(min, max) time across ranks (ms):"
    for name, low, high in (
        ("model-and-optimizer-setup", 4321.12, 4350.99),
        ("train/valid/test-data-iterators-setup", 812.5, 990.25),
    ):
        yield f"    {(name + ' ').ljust(48, '.')}: ({low:.2f}, {high:.2f})"
    times: list[float] = []
    for iteration in range(1, 61):
        times.append((2400 if iteration == 1 else 400) * rng.uniform(0.98, 1.02))
        if iteration == 1 or iteration % 10 == 0:
            covered = times[:1] if iteration == 1 else times[-10:]
            yield from megatron_iteration(iteration, covered)
        if iteration == 30:
            yield "(min, max) time across ranks (ms):"
            yield f"    {'evaluate '.ljust(48, '.')}: (1520.31, 1520.48)"
    yield f" [{BEGIN + timedelta(seconds=60)}] iteration       60 saved"


def megatron_iteration(iteration: int, covered: list[float]) -> Iterator[str]:
    """The line of an iteration, and the timers: sums over the log interval divided by it."""
    mean = sum(covered) / len(covered)
    stamp = (BEGIN + timedelta(seconds=iteration)).strftime("%Y-%m-%d %H:%M:%S.%f")
    yield (
        f" [{stamp}] iteration {iteration:8d}/{60:8d} | consumed samples: {32 * iteration:12d} |"
        f" elapsed time per iteration (ms): {mean:.1f} | learning rate: 1.500000E-04 |"
        f" global batch size: {32:5d} | lm loss: 9.876543E+00 | loss scale: 1.0 |"
        " grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    step = sum(covered) / 10
    shares = (
        ("forward-backward", 0.90, 0.92), ("forward-compute", 0.25, 0.28),
        ("backward-compute", 0.48, 0.52), ("batch-generator", 0.01, 0.02),
        ("forward-recv", 0.02, 0.06), ("backward-send", 0.01, 0.01),
        ("all-grads-sync", 0.03, 0.08), ("params-all-gather", 0.01, 0.015),
        ("optimizer-inner-step", 0.03, 0.03), ("optimizer", 0.06, 0.06),
    )  # fmt: skip
    yield "(min, max) time across ranks (ms):"
    for name, low, high in shares:
        yield f"    {(name + ' ').ljust(48, '.')}: ({low * step:.2f}, {high * step:.2f})"


def megatron_2021(rng: random.Random) -> Iterator[str]:
    """The release of 2021: one line of timers, those of one rank; srun labels the tasks."""
    yield f"0: {LABEL}"
    options = megatron_arguments(
        world_size=4, data_parallel_size=4, tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1, micro_batch_size=8, global_batch_size=32, log_interval=1,
        train_iters=500000,
    )  # fmt: skip
    for line in options:
        yield f"0: {line}"
    for iteration in range(1, 9):
        step = 130 * rng.uniform(0.97, 1.03)
        yield (
            f"3:  iteration {iteration:8d}/{500000:8d} | consumed samples: {32 * iteration:12d} |"
            f" elapsed time per iteration (ms): {step:.1f} | learning rate: 1.500E-04 |"
            f" global batch size: {32:5d} | lm loss: 1.041234E+01 | loss scale: 65536.0 |"
            " number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        parts = {
            "forward-compute": 0.25, "backward-compute": 0.35, "backward-params-all-reduce": 0.17,
            "backward-embedding-all-reduce": 0.0, "optimizer-copy-to-main-grad": 0.01,
            "optimizer-unscale-and-check-inf": 0.02, "optimizer-clip-main-grad": 0.02,
            "optimizer-copy-main-to-model-params": 0.02, "optimizer": 0.15, "batch-generator": 0.01,
        }  # fmt: skip
        timers = "".join(f" | {name}: {share * step:.2f}" for name, share in parts.items())
        yield f"3: time (ms){timers}"


def maskrcnn(rng: random.Random) -> Iterator[str]:
    """maskrcnn-benchmark: median of the last 20 iterations, mean of all."""
    yield f"0: {LABEL}"
    times: list[float] = []
    for iteration in range(1, 201):
        times.append((0.9 if iteration < 4 else 0.13) * rng.uniform(0.95, 1.1))
        if iteration % 20 == 0:
            median, mean = sorted(times[-20:])[9], sum(times) / len(times)
            stamp = BEGIN + timedelta(seconds=sum(times))
            text = stamp.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
            yield (
                f"0: {text} maskrcnn_benchmark.trainer INFO: eta: 0:21:07  iter: {iteration}  "
                f"time: {median:.4f} ({mean:.4f})  data: 0.0002 (0.0125)  "
                "loss: 1.2855 (2.3843)  lr: 0.009600  max mem: 10259"
            )


def torchvision(rng: random.Random) -> Iterator[str]:
    """The references of torchvision: mean of the last 20 steps."""
    yield LABEL
    for epoch in range(2):
        times: list[float] = []
        for step in range(100):
            times.append((2.0 if step == 0 else 0.4) * rng.uniform(0.97, 1.03))
            if step % 20 == 0 or step == 99:
                window = times[-20:]
                yield (
                    f"Epoch: [{epoch}]  [{step:3d}/100]  eta: 0:00:33  lr: 0.1  "
                    f"img/s: {32 / times[-1]:.6f} ({80.0:.6f})  loss: 6.9 (7.0)  "
                    f"time: {sum(window) / len(window):.4f}  data: 0.0031  max mem: 3546"
                )
        yield f"Epoch: [{epoch}] Total time: 0:00:{sum(times):02.0f}"
        yield f"Test:   [{0:2d}/10]  eta: 0:00:05  loss: 6.9 (6.9)  time: 0.5301  data: 0.4012"
        yield "Test:  Total time: 0:00:03"
    yield "Training time 0:01:28"


def timm(rng: random.Random) -> Iterator[str]:
    """timm: time of the last step, mean of the epoch; eight processes, 128 images each."""
    yield LABEL
    yield (
        "Training in distributed mode with multiple processes, 1 device per process."
        "Process 0, total 8, device cuda:0."
    )
    yield "Model resnet50 created, param count:25557032"
    for epoch in range(2):
        times: list[float] = []
        for step in range(101):
            times.append((3.0 if step == 0 else 0.35) * rng.uniform(0.97, 1.03))
            if step % 10 == 0 or step == 100:
                last, mean = times[-1], sum(times) / len(times)
                yield (
                    f"Train: {epoch} [{step:>4d}/101 ({100 * step / 100:>3.0f}%)]  "
                    f"Loss: 6.94 (6.95)  Time: {last:.3f}s, {1024 / last:>7.2f}/s  "
                    f"({mean:.3f}s, {1024 / mean:>7.2f}/s)  LR: 1.000e-01  Data: 0.010 (0.031)"
                )
    yield "*** Best metric: 1.234 (epoch 1)"


LOGS = {
    "megatron_core": megatron_core, "megatron_2021": megatron_2021, "maskrcnn": maskrcnn,
    "torchvision": torchvision, "timm": timm,
}  # fmt: skip


def main(folder: Path) -> None:
    """Write every log into the folder."""
    for name, make in LOGS.items():
        rng = random.Random(SEED)  # noqa: S311 (no secret)
        text = "\n".join(make(rng)) + "\n"
        (folder / f"synthetic_{name}.log").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
