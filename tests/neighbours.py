"""Small clients and their neighbours, for tests of what leaves a client."""

from __future__ import annotations

from typing import Any

import numpy as np
from clients import Roles

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.data import Examples
from fedldp.simulation.plan import plan

PROBLEM = Problem((1, 8, 8), 10, 60)
SMALL: dict[str, Any] = {
    "dataset": "digits", "num_examples": 60, "num_clients": 3, "rounds": 4, "model": "logistic",
    "learning_rate": 0.5,
}  # fmt: skip


def images(count: int, seed: int = 0) -> Examples:
    drawn = np.random.default_rng(seed)
    features = drawn.random((count, 1, 8, 8), dtype=np.float32)
    return Examples(features, drawn.integers(0, 10, count))


def with_another(examples: Examples, place: int) -> Examples:
    """Return the neighbour with one example and its label replaced."""
    features, labels = examples.features.copy(), examples.labels.copy()
    features[place] = -0.5 * features[place][:, ::-1]
    labels[place] = (labels[place] + 1) % 10
    return Examples(features, labels)


def roles_of(config: RunConfig) -> Roles:
    return Roles(config, PROBLEM)


def lines(config: RunConfig, unit: str) -> list[dict[str, Any]]:
    """Return the statement's lines for a unit."""
    found = plan(config, PROBLEM).privacy["guarantees"]
    return [line for line in found if line["unit"] == unit]
