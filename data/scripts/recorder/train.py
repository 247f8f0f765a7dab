"""Train a small network on synthetic data, with one process for each worker.

Nothing here knows of fitkit: the runs of data/recorder were recorded with ``fitkit record``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

sys.path.insert(0, str(Path(__file__).parents[1] / "pytorch"))
import models


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("tinygpt", "vggsmall"), required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples a step and worker")
    parser.add_argument("--steps", type=int, default=22)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo")
    network, data = models.build(options.model)
    wrapped = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    sampler = DistributedSampler(data)
    batches = iter(DataLoader(data, options.batch, sampler=sampler, drop_last=True))
    for step in range(options.steps):
        inputs, targets = next(batches)
        loss = loss_function(wrapped(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
