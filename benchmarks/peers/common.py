"""What the plain loop and the peers share: data from files, the model in torch, the randomiser.

Nothing of fedldp is imported here: these scripts run in environments that do not have it. The
driver (``run.py``) writes the inputs, with fedldp's loader, partition and first weights:

    features.npy, labels.npy            the training examples
    test_features.npy, test_labels.npy  the test examples
    members.npy                         row c holds the rows of client c's examples
    initial.npy                         the server's first weights, one vector
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from workloads import EPSILON, RADIUS, WORKLOADS, Workload

PREFIX = "@cell "  # begins the lines that the driver reads; frameworks print others


def arguments() -> argparse.Namespace:
    """Return what the driver passes to the script of every framework."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    return parser.parse_args()


def say(event: str, **values: object) -> None:
    """Tell the driver that something happened now."""
    line = json.dumps({"event": event, "at": time.monotonic(), **values})
    sys.stdout.write(f"\n{PREFIX}{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Inputs:
    """The driver's files, as tensors; the operating system shares them between processes."""

    features: Tensor
    labels: Tensor
    test_features: Tensor
    test_labels: Tensor
    members: Tensor
    initial: Tensor

    @classmethod
    def read(cls, folder: Path) -> Inputs:
        """Map the files of ``folder`` into memory; a page is read when it is first used."""
        names = ("features", "labels", "test_features", "test_labels", "members", "initial")
        return cls(*(torch.from_numpy(np.load(folder / f"{n}.npy", mmap_mode="c")) for n in names))

    def of_client(self, client: int) -> tuple[Tensor, Tensor]:
        """Return one client's examples."""
        rows = self.members[client]
        return self.features[rows], self.labels[rows]

    def of_client_shuffled(self, client: int) -> tuple[Tensor, Tensor]:
        """Return one client's examples in a new random order."""
        rows = self.members[client]
        rows = rows[torch.randperm(len(rows))]
        return self.features[rows], self.labels[rows]


def build(workload: Workload, initial: Tensor) -> nn.Module:
    """Return the model of a workload with its first weights."""
    if workload.model == "cnn":
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(1, 10, 5),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(10, 20, 5),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            dense1=nn.Linear(320, 50),
            relu3=nn.ReLU(),
            dense2=nn.Linear(50, 10),
        )
    else:
        layers = OrderedDict(flatten=nn.Flatten(), dense=nn.Linear(784, 10))
    model = nn.Sequential(layers)
    # A copy for each module: torch makes the parameters views of the vector.
    nn.utils.vector_to_parameters(initial.clone(), model.parameters())
    return model


def train(model: nn.Module, features: Tensor, labels: Tensor, workload: Workload) -> None:
    """Train one epoch of SGD, in a random order, as one writes it down in torch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=workload.learning_rate)
    criterion = nn.CrossEntropyLoss()
    order = torch.randperm(len(labels))
    for start in range(0, len(labels), workload.batch_size):
        batch = order[start : start + workload.batch_size]
        optimizer.zero_grad()
        criterion(model(features[batch]), labels[batch]).backward()
        optimizer.step()


def two_point(weights: Tensor) -> Tensor:
    """Return clipped and randomised weights: eq. 2 as one writes it down in torch."""
    e = math.exp(EPSILON)
    scale = RADIUS * (e + 1) / (e - 1)
    clipped = weights.detach().clamp(-RADIUS, RADIUS)
    probability = (clipped * (e - 1) + RADIUS * (e + 1)) / (2 * RADIUS * (e + 1))
    return torch.where(torch.rand(weights.shape) < probability, scale, -scale)


def accuracy(model: nn.Module, inputs: Inputs) -> float:
    """Return the share of the test examples that the model gets right."""
    with torch.no_grad():
        found = model(inputs.test_features).argmax(1)
    return float((found == inputs.test_labels).float().mean())
