"""The distributed discrete Gaussian: central DP's noise in sums, and no server that is trusted.

Model, clients and data are ours; rounds, clip and learning rate were chosen on other seeds than
those that are reported (docs/distributed_noise.md).
"""

from __future__ import annotations

from typing import Any

from fedldp.recipes import Recipe
from fedldp.systems.distributed_gaussian import DistributedGaussianConfig

_MNIST: dict[str, Any] = {
    "dataset": "mnist", "num_clients": 1000, "rounds": 20, "local_epochs": 1, "batch_size": 10,
    "delta": 1e-5,
}  # fmt: skip
_RUN = "{num_clients:,} clients, a run of eps {epsilon:g}"

RECIPES = (
    Recipe(
        name="distributed-gaussian-digits",
        config=DistributedGaussianConfig(
            dataset="digits",
            standardise=True,
            model="logistic",
            num_clients=100,
            rounds=10,
            local_epochs=5,
            batch_size=5,
            learning_rate=0.1,
            epsilon=8.0,
            clip=0.5,
        ),
        summary=f"Distributed Gaussian on scikit-learn's digits: {_RUN}",
    ),
    Recipe(
        name="distributed-gaussian-mnist",
        config=DistributedGaussianConfig(
            **_MNIST, standardise=True, model="cnn", learning_rate=0.2, epsilon=8.0, clip=2.0
        ),
        summary=f"Distributed Gaussian on MNIST: the CNN, {_RUN}",
    ),
    Recipe(
        name="distributed-gaussian-mnist-logistic",
        config=DistributedGaussianConfig(
            **_MNIST, model="logistic", learning_rate=0.4, epsilon=2.0, clip=1.0
        ),
        summary=f"Distributed Gaussian on MNIST: logistic regression, {_RUN}",
    ),
)
