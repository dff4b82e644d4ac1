"""One round of ldp-fl-mnist beside the plain PyTorch loop that one would write first.

    FEDLDP_DATA=... python benchmarks/mnist_round.py [PAIRS]

Both do the same work: 100 clients, 5 epochs of SGD with batch size 10 on 600 examples each, eq. 2
on every weight, the mean, and the accuracy on the test set. Ours uses two worker processes of one
thread, the plain loop one process with two threads and torch's default settings. They take turns.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time

import numpy as np
import torch
from kernels import plain_torch
from torch import nn

import fedldp
from fedldp.data import Dataset, load_dataset, partition
from fedldp.models import build_model
from fedldp.server.loop import Round
from fedldp.simulation.engine import simulate


def plain_round(dataset: Dataset, members: list[np.ndarray]) -> float:
    """Train every client in turn and return the seconds of the round."""
    torch.set_num_threads(2)
    features = torch.from_numpy(dataset.train.features)
    labels = torch.from_numpy(dataset.train.labels)
    test, answers = torch.from_numpy(dataset.test.features), torch.from_numpy(dataset.test.labels)
    server = build_model("cnn", (1, 28, 28), 10)
    started = time.perf_counter()
    total = {name: torch.zeros_like(p) for name, p in server.named_parameters()}
    for own in members:
        model = copy.deepcopy(server)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
        criterion = nn.CrossEntropyLoss()
        x, y = features[own], labels[own]
        for _ in range(5):
            order = torch.randperm(len(own))
            for start in range(0, len(own), 10):
                batch = order[start : start + 10]
                optimizer.zero_grad()
                criterion(model(x[batch]), y[batch]).backward()
                optimizer.step()
        for name, parameter in model.named_parameters():
            total[name] += plain_torch(parameter.detach().clamp(-0.075, 0.075))
    with torch.no_grad():
        for name, parameter in server.named_parameters():
            parameter.copy_(total[name] / len(members))
        (server(test).argmax(1) == answers).float().mean()
    return time.perf_counter() - started


def main() -> None:
    """Print the seconds of both and their ratio."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    config = fedldp.recipe("ldp-fl-mnist", rounds=pairs)
    dataset = load_dataset("mnist", standardise=True)
    members = partition(dataset.train.labels, 100, "iid", np.random.default_rng(0))
    ours: list[float] = []
    theirs: list[float] = []

    def take_turn(record: Round) -> None:
        ours.append(record.seconds)
        theirs.append(plain_round(dataset, members))
        print(f"fedldp {ours[-1]:.1f} s, plain loop {theirs[-1]:.1f} s", flush=True)

    simulate(config, workers=2, after_round=take_turn)
    ratio = statistics.median(t / o for o, t in zip(ours, theirs, strict=True))
    print(f"ratio {ratio:.2f} (median of {pairs} pairs), torch {torch.__version__}")


if __name__ == "__main__":
    main()
