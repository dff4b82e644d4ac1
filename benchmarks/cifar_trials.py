"""Tries out why the noise-free twin of LDP-FL on CIFAR-10 stays below the paper's 62.55 %.

    python -m benchmarks.cifar_trials RESULTS.jsonl NAME...   measures what the file lacks

Federated averaging as in the recipe ``fedavg-cifar10`` (500 clients of 100 examples, 15 rounds,
batches of 10, rate 0.015), except that 20 clients, drawn in each round, stand for the mean of 500.
A trial changes what its line says. This is a plain loop, because the package would add the noise of
20 reports, not of 500; its recipes ``*-cifar10-tried-*`` ask all 500. ``$FEDLDP_DATA`` names the
data folder.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedldp.data import load_dataset, resolve_data_dir

CLIENTS = 500
EXAMPLES = 100
FIRST = 1.0
"""The radius of a tensor's range while all its numbers are equal."""


@dataclass(frozen=True)
class Trial:
    """One run, with the recipe's values by default.

    Attributes:
        norm: "none", "group" (groups of 8 channels) or "batch" (its buffers are averaged, too).
        epochs: of a client in a round.
        rate: the learning rate.
        widths: channels of the three blocks.
        hidden: units of the dense layer.
        start: initial weights: "he" as the recipe's, or "torch" as torch's own layers.
        momentum: of a client's SGD; it starts at zero in every round.
        shift: the most pixels of a random shift, which comes with random flips; 0 for neither.
        whole: whether a client's 100 examples are drawn anew from all 50,000 in every round.
        epsilon: of LDP-FL with adaptive ranges, for weights and statistics: clipping, and the noise
            of a mean of 500 reports, as a normal one of the same variance; None for neither.
        rounds: of the run.
        clients: asked in a round.
        seed: of torch, for all randomness.
    """

    norm: str = "none"
    epochs: int = 5
    rate: float = 0.015
    widths: tuple[int, int, int] = (32, 64, 128)
    hidden: int = 64
    start: str = "he"
    momentum: float = 0.0
    shift: int = 0
    whole: bool = False
    epsilon: float | None = None
    rounds: int = 15
    clients: int = 20
    seed: int = 0


TRIALS = {
    "recipe": Trial(),
    "whole-set": Trial(whole=True),
    "group-norm": Trial(norm="group"),
    "torch-start-group-norm": Trial(norm="group", start="torch"),
    "wide-group-norm": Trial(norm="group", widths=(64, 128, 256)),
    "whole-set-group-norm": Trial(norm="group", whole=True),
    "group-norm-augment-10": Trial(norm="group", epochs=10, shift=3),
    "group-norm-augment-20": Trial(norm="group", epochs=20, shift=3),
    "torch-start-batch-norm": Trial(norm="batch", start="torch", rounds=10),
    "torch-start-batch-norm-noise": Trial(norm="batch", start="torch", epsilon=10, rounds=10),
    "torch-start-batch-norm-augment": Trial(norm="batch", start="torch", shift=3, rounds=8),
    "torch-start-batch-norm-momentum": Trial(norm="batch", start="torch", momentum=0.5, rounds=5),
    "torch-start-batch-norm-momentum-10": Trial(
        norm="batch", start="torch", momentum=0.5, epochs=10, rounds=10
    ),
    "torch-start": Trial(start="torch", rounds=5),
    "batch-norm": Trial(norm="batch", rounds=10),
    "batch-norm-noise": Trial(norm="batch", epsilon=10, rounds=10),
}


def network(trial: Trial) -> nn.Sequential:
    """Return the recipe's network, or one with a norm behind each convolution."""
    layers: list[nn.Module] = []
    inward = 3
    for width in trial.widths:
        for _ in range(2):
            layers.append(nn.Conv2d(inward, width, 3, padding=1))
            if trial.norm == "group":
                layers.append(nn.GroupNorm(width // 8, width))
            elif trial.norm == "batch":
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU())
            inward = width
        layers.append(nn.MaxPool2d(2))
    dense = [nn.Linear(inward * 16, trial.hidden), nn.ReLU(), nn.Linear(trial.hidden, 10)]
    made = nn.Sequential(*layers, nn.Flatten(), *dense)
    if trial.start == "he":
        for part in made:
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
    for weights in made.parameters():
        if weights.dim() == 4:  # as Module.to(memory_format=...), which has no types, would do
            weights.data = weights.data.contiguous(memory_format=torch.channels_last)
    return made


def augmented(batch: Tensor, shift: int) -> Tensor:
    """Return each image shifted by at most ``shift`` pixels, half of them flipped."""
    padded = functional.pad(batch, (shift,) * 4)
    rows, columns = torch.randint(0, 2 * shift + 1, (2, len(batch))).tolist()
    flips = torch.rand(len(batch)) < 0.5
    found = torch.stack(
        [x[:, r : r + 32, c : c + 32] for x, r, c in zip(padded, rows, columns, strict=True)]
    )
    return torch.where(flips[:, None, None, None], found.flip(3), found)


def train(model: nn.Module, features: Tensor, labels: Tensor, trial: Trial) -> None:
    """Train on one client's examples, in place."""
    parameters: list[Tensor] = list(model.parameters())
    velocities = [torch.zeros_like(each) for each in parameters]
    for _ in range(trial.epochs):
        for rows in torch.split(torch.randperm(len(labels)), 10):
            batch = features[rows]
            if trial.shift:
                batch = augmented(batch, trial.shift)
            batch = batch.contiguous(memory_format=torch.channels_last)
            loss = functional.cross_entropy(model(batch), labels[rows])
            slopes = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_mul_(velocities, trial.momentum)
                torch._foreach_add_(velocities, slopes)
                torch._foreach_add_(parameters, velocities, alpha=-trial.rate)


def average(found: list[Tensor], before: Tensor, trial: Trial) -> Tensor:
    """Return the mean of a tensor over clients, as from reports of 500 if there is an epsilon.

    Args:
        found: the clients' tensors; a count of batches, an integer, is no coordinate.
        before: the server's tensor, whose middle and half width are the range.
        trial: gives epsilon.
    """
    values = torch.stack([each.double() for each in found])
    if trial.epsilon is None or not before.is_floating_point():
        return values.mean(0)
    low, high = before.min().double(), before.max().double()
    centre, radius = (low + high) / 2, (high - low) / 2 if high > low else torch.tensor(FIRST)
    values = values.clamp(centre - radius, centre + radius)
    factor = radius / math.tanh(trial.epsilon / 2)
    variance = (factor**2 - (values - centre) ** 2).mean(0) / CLIENTS
    mean: Tensor = values.mean(0) + variance.sqrt() * torch.randn(before.shape).double()
    return mean


def run(trial: Trial, folder: Path) -> Iterator[float]:
    """Yield the accuracy on the test set after each round, in percent."""
    data = load_dataset("cifar10", data_dir=folder, standardise=True)
    features, labels = torch.tensor(data.train.features), torch.tensor(data.train.labels)
    test, answers = torch.tensor(data.test.features), torch.tensor(data.test.labels)
    torch.manual_seed(trial.seed)
    order = torch.randperm(len(labels)).view(CLIENTS, EXAMPLES)
    model = network(trial)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(trial.rounds):
        found: dict[str, list[Tensor]] = {name: [] for name in state}
        for client in torch.randperm(CLIENTS)[: trial.clients]:
            model.load_state_dict(state)
            model.train()
            rows = torch.randint(0, len(labels), (EXAMPLES,)) if trial.whole else order[client]
            train(model, features[rows], labels[rows], trial)
            for name, value in model.state_dict().items():
                found[name].append(value.clone())
        state = {n: average(found[n], own, trial).to(own.dtype) for n, own in state.items()}
        tested = {n: own.clamp(min=0) if n.endswith("var") else own for n, own in state.items()}
        model.load_state_dict(tested)
        model.eval()
        with torch.no_grad():
            right = sum(
                int(torch.sum(model(x).argmax(1) == y))
                for x, y in zip(torch.split(test, 500), torch.split(answers, 500), strict=True)
            )
        yield 100 * right / len(answers)


def measure(results: Path, names: list[str]) -> None:
    """Measure the named trials, or all trials, that the file lacks."""
    there = {row["name"] for row in rows_of(results)} if results.exists() else set()
    torch.set_num_threads(1)
    for name in names or list(TRIALS):
        if name in there:
            continue
        began = time.process_time()
        found = []
        for accuracy in run(TRIALS[name], resolve_data_dir(None)):
            found.append(round(accuracy, 2))
            print(name, len(found), accuracy, flush=True)
        row = {
            "name": name,
            **asdict(TRIALS[name]),
            "accuracies": found,
            "cpu_seconds": round(time.process_time() - began),
            "torch": version("torch"),
            "date": time.strftime("%Y-%m-%d"),
        }
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def rows_of(results: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of results, one for each trial."""
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results as a table: what each trial changes, and its accuracies."""
    common = asdict(Trial())
    lines = [
        "| trial | changed | after 5 rounds | after 10 | after 15 | CPU minutes |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        changed = ", ".join(
            f"{name} {'/'.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in row.items()
            if name in common and value not in (common[name], list(TRIALS["recipe"].widths))
        )
        found = row["accuracies"]
        after = " | ".join(f"{found[n - 1]:.1f}" if n <= len(found) else "-" for n in (5, 10, 15))
        minutes = f"{row['cpu_seconds'] / 60:.0f}"
        lines.append(f"| {row['name']} | {changed or '-'} | {after} | {minutes} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    measure(Path(sys.argv[1]), sys.argv[2:])
