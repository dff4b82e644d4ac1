"""Small data for tests, made of random numbers or of the digits that need no download."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedldp.algorithms.problem import Problem
from fedldp.data import Examples

PROBLEM = Problem((1, 8, 8), 10, 60)
"""The public facts of 60 examples like ``images``."""

SMALL: dict[str, Any] = {
    "dataset": "digits", "num_examples": 60, "num_clients": 3, "rounds": 4, "model": "logistic",
    "learning_rate": 0.5,
}  # fmt: skip
"""Settings of a small run with ``PROBLEM``."""


def images(count: int, seed: int = 0) -> Examples:
    """Return random images of 8 by 8 pixels between 0 and 1, with labels from 0 to 9."""
    drawn = np.random.default_rng(seed)
    features = drawn.random((count, 1, 8, 8), dtype=np.float32)
    return Examples(features, drawn.integers(0, 10, count))
