"""Times rounds of a recipe, beside the plain PyTorch loop that one would write first.

    FEDLDP_DATA=... python -m benchmarks.round [RECIPE] [PAIRS] [CLIENTS]

RECIPE is a recipe of LDP-FL with a convolutional model: ldp-fl-mnist (the default) or
ldp-fl-cifar10. Both sides do the same work: SGD of every client on its share of the examples, eq. 2
on every weight, the mean, and the accuracy on the test set. With CLIENTS, fewer clients take part
in a round, each with the same share. fedldp uses two worker processes of one thread; the plain loop
uses one process with two threads and torch's default settings. They alternate. The CPU time of all
processes is shown too; the first round's includes the start of the workers. The machine must be
idle, because the plain loop's two threads wait for each other, for minutes if other processes use
their cores.
"""

from __future__ import annotations

import copy
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fedldp
from benchmarks.kernels import plain_torch
from fedldp.algorithms.config import RunConfig
from fedldp.data import Dataset, load_dataset, partition
from fedldp.models import build_model
from fedldp.protocol.server_loop import Round
from fedldp.simulation.engine import simulate

WORKERS = 2


def plain_round(config: RunConfig, dataset: Dataset, members: list[np.ndarray]) -> float:
    """Train every client in turn and return the seconds of the round."""
    torch.set_num_threads(2)
    features = torch.from_numpy(dataset.train.features)
    labels = torch.from_numpy(dataset.train.labels)
    test, answers = torch.from_numpy(dataset.test.features), torch.from_numpy(dataset.test.labels)
    server = build_model(config.model, tuple(features.shape[1:]), dataset.num_classes)
    started = time.perf_counter()
    total = {name: torch.zeros_like(p) for name, p in server.named_parameters()}
    for own in members:
        model = copy.deepcopy(server)
        optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
        criterion = nn.CrossEntropyLoss()
        x, y = features[own], labels[own]
        for _ in range(config.local_epochs):
            order = torch.randperm(len(own))
            for start in range(0, len(own), config.batch_size):
                batch = order[start : start + config.batch_size]
                optimizer.zero_grad()
                criterion(model(x[batch]), y[batch]).backward()
                optimizer.step()
        for name, parameter in model.named_parameters():
            total[name] += plain_torch(parameter.detach().clamp(-0.075, 0.075))
    with torch.no_grad():
        for name, parameter in server.named_parameters():
            parameter.copy_(total[name] / len(members))
        for x, y in zip(test.split(1000), answers.split(1000), strict=True):
            (server(x).argmax(1) == y).float().mean()
    return time.perf_counter() - started


def cpu_seconds() -> float:
    """Return the CPU time of this process and its workers."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # the process has ended
            continue
        if int(stat.parent.name) == os.getpid() or int(fields[1]) == os.getpid():
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the seconds of both and their ratio."""
    name = sys.argv[1] if len(sys.argv) > 1 else "ldp-fl-mnist"
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    config = fedldp.recipe(name, rounds=pairs)
    clients = int(sys.argv[3]) if len(sys.argv) > 3 else config.num_clients
    if clients < config.num_clients:
        # The noise of so few clients would make training diverge; updates in a small range cost the
        # same work.
        quiet = {"send": "update", "ranges": "fixed", "range_radius": 1e-4}
        config = config.changed(clients_per_round=clients, **quiet)
    dataset = load_dataset(config.dataset, standardise=True)
    shares = partition(dataset.train.labels, config.num_clients, "iid", np.random.default_rng(0))
    members = [*shares][:clients]
    wall: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []
    before = cpu_seconds()

    def take_turn(record: Round) -> None:
        nonlocal before
        ours = cpu_seconds() - before
        between = cpu_seconds()
        theirs = plain_round(config, dataset, members)
        before = cpu_seconds()
        wall.append((record.seconds, theirs))
        cpu.append((ours, before - between))
        print(
            f"fedldp {record.seconds:.1f} s (CPU {ours:.1f} s), "
            f"plain loop {theirs:.1f} s (CPU {cpu[-1][1]:.1f} s)",
            flush=True,
        )

    simulate(config, workers=WORKERS, after_round=take_turn)
    ratios = [statistics.median(theirs / ours for ours, theirs in of) for of in (wall, cpu)]
    print(
        f"{name}, {clients} clients: ratio {ratios[0]:.2f}, of CPU time {ratios[1]:.2f} "
        f"(medians of {pairs} pairs), torch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
