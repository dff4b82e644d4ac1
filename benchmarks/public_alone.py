"""Measures what public data alone achieve, beside clients, with each kind of public features.

    python -m benchmarks.public_alone RESULTS.jsonl

The public data are scikit-learn's 1,797 digits of 8x8 pixels, with their labels, enlarged to
MNIST's size; the writers are not MNIST's, and live in another country. The first column uses no
client and no training image of MNIST. It does not measure again what the file already has.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fedldp
from benchmarks.blocks import from_template
from fedldp.algorithms.config import RunConfig
from fedldp.data import Dataset, Examples, load_dataset
from fedldp.data.public_features import finite_rows, with_constant
from fedldp.simulation.plan import plan, problem_with
from fedldp.simulation.settings import from_mapping

ENCODER = "encoder:digits.pt2"
"""A small convolutional network, trained on the public digits."""

KINDS = (
    "none",
    "unit-norm",
    "oriented-gradients",
    "soft-gradients",
    "pose",
    "public-axes:strokes",
    "random-convolutions",
    ENCODER,
)
COMMON: Mapping[str, Any] = {
    "system": "composed",
    "model": "logistic",
    "num_clients": 1000,
    "rounds": 1,
    "local_epochs": 5,
    "learning_rate": 1.0,
    "mechanism": "k_closest",
    "bound": "norm",
    "server_rate": 100.0,
}
OF_PIXELS = {"learning_rate": 0.1}
"""Replaces the value in ``COMMON`` for examples whose norm is about 10; neither was chosen by
scores."""

RIDGE = 0.1
"""The penalty's weight in the ridge regression on public data, whose examples have norm 1."""


class Column(NamedTuple):
    """A column of the table: a measurement, and the number of its seeds."""

    dataset: str
    epsilon: float | None
    seeds: int


COLUMNS = {
    "MNIST, public data alone, no client": Column("mnist", None, 1),
    "MNIST, 1,000 clients, epsilon 1": Column("mnist", 1.0, 10),
    "epsilon 4": Column("mnist", 4.0, 3),
    "epsilon 16": Column("mnist", 16.0, 3),
    "Fashion-MNIST, 1,000 clients, epsilon 4": Column("fmnist", 4.0, 3),
}
RESULTS = Path(__file__).parent / "results" / "2026-11-25-public-alone.jsonl"
Floats = NDArray[np.float64]


def public_digits() -> Examples:
    """Return the 1,797 public digits at MNIST's size, 20x20 pixels in a frame of 28x28."""
    import torch
    from torch.nn import functional

    found = load_dataset("digits")
    small = np.concatenate([found.train.features, found.test.features])
    large = functional.interpolate(torch.from_numpy(small), (20, 20), mode="bilinear")
    labels = np.concatenate([found.train.labels, found.test.labels])
    return Examples(functional.pad(large, (4, 4, 4, 4)).numpy(), labels)


def train_encoder(path: Path) -> None:
    """Train a network on the public digits, and write the part before its last layer."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(),
    )  # fmt: skip
    network = nn.Sequential(body, nn.Linear(64, 10))
    digits = public_digits()
    images, labels = torch.from_numpy(digits.features), torch.from_numpy(digits.labels)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(20):
        for batch in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    program = torch.export.export(body.eval(), (torch.zeros(1, 1, 28, 28),)).run_decompositions()
    torch.export.save(program, path)


def configuration(kind: str, dataset: str, **changes: Any) -> RunConfig:
    """Return the configuration of a run with features of a kind."""
    step = OF_PIXELS if kind == "none" else {}
    return from_mapping({**COMMON, **step, "features": kind, "dataset": dataset, **changes})


def features_of(kind: str, images: NDArray[np.float32], mnist: Dataset) -> Floats:
    """Return the features of images with a constant, scaled to norm 1."""
    config = configuration(kind, "mnist", epsilon=1.0)
    mapping = config.composition.features.mapping(problem_with(config, mnist, None))
    return finite_rows(with_constant(finite_rows(images if mapping is None else mapping(images))))


def alone(kind: str, mnist: Dataset) -> float:
    """Return the accuracy on MNIST's test set of a ridge regression on the public digits."""
    digits = public_digits()
    known, labels = features_of(kind, digits.features, mnist), np.eye(10)[digits.labels]
    gram = known.T @ known / len(known) + RIDGE / known.shape[1] * np.eye(known.shape[1])
    weights = np.linalg.solve(gram, known.T @ (labels - 0.1) / len(known))
    guesses = (features_of(kind, mnist.test.features, mnist) @ weights).argmax(axis=1)
    return float((guesses == mnist.test.labels).mean())


def measured(kind: str, column: Column, seed: int) -> dict[str, Any]:
    """Return one line of the results."""
    data = load_dataset(column.dataset)
    line = {"features": kind, "dataset": column.dataset, "epsilon": column.epsilon, "seed": seed}
    if column.epsilon is None:
        line["accuracy"] = alone(kind, data)
    else:
        config = configuration(kind, column.dataset, epsilon=column.epsilon, seed=seed)
        lines = plan(config, problem_with(config, data, None)).privacy.guarantees
        line["proven"] = min(
            each.epsilon
            for each in lines
            if (each.unit, each.adversary) == ("client-run", "server")
        )
        line["accuracy"] = fedldp.run(config, dataset=data).accuracy
    line["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
    return line | {name: version(name) for name in ("fedldp", "numpy", "torch")}


def measure(path: Path) -> None:
    """Append the missing measurements to a file of results."""
    found, path = read(path) if path.exists() else [], path.absolute()
    known = {(line["features"], line["dataset"], line["epsilon"], line["seed"]) for line in found}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        train_encoder(Path(ENCODER.partition(":")[2]))
        for kind, column in product(KINDS, COLUMNS.values()):
            for seed in range(column.seeds):
                if (kind, column.dataset, column.epsilon, seed) not in known:
                    line = json.dumps(measured(kind, column, seed))
                    print(line, flush=True)
                    with path.open("a", encoding="utf-8") as file:
                        file.write(f"{line}\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table of some results in Markdown, with means and deviations over seeds."""
    shown = [f"| `features` | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for kind in KINDS:
        cells = [f"`{kind}`"]
        for column in COLUMNS.values():
            of = [
                100 * line["accuracy"]
                for line in lines
                if (line["features"], line["dataset"]) == (kind, column.dataset)
                and line["epsilon"] == column.epsilon
            ]
            deviation = "" if len(of) < 2 else f" ± {np.std(of, ddof=1):.1f}"
            cells.append(f"{np.mean(of):.1f}{deviation}" if of else "-")
        shown.append(f"| {' | '.join(cells)} |")
    return "\n".join(shown) + "\n"


def page() -> str:
    """Return the page of the committed results."""
    lines = read(RESULTS)
    last = lines[-1]
    note = (
        f"Measured on {last['date']} with numpy {last['numpy']} and torch {last['torch']}: "
        f"`benchmarks/results/{RESULTS.name}`, made by `python -m benchmarks.public_alone`.\n"
    )
    return from_template("public_alone", {"public-alone": f"{table(lines)}\n{note}"})


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
