"""DP-SGD (Abadi et al. 2016) in a federation: records are protected while clients train.

The row of Chamikara et al. 2022, Table 1, has 10 clients, 9 of them a round, and 80 rounds; its
model, local work and budget are not stated. They are ours, and the same for all of its rows.
"""

from __future__ import annotations

from typing import Any

from fedldp.recipes import Expected, Recipe, Source, ldpfl
from fedldp.systems.dp_sgd import DpSgdConfig

TABLE1: dict[str, Any] = {
    "dataset": "fmnist", "standardise": True, "model": "cnn", "num_clients": 10,
    "clients_per_round": 9, "rounds": 80, "local_epochs": 1, "batch_size": 60,
}  # fmt: skip

RECIPES = (
    Recipe(
        name="dp-sgd-fmnist-table1",
        config=DpSgdConfig(**TABLE1, learning_rate=0.5, noise_multiplier=1.0, clip=1.0),
        summary="DP-SGD on Fashion-MNIST: {clients_per_round} of {num_clients} clients a round, "
        "noise multiplier {noise_multiplier:g}; LDPFL's Table 1",
        source=Source(paper=ldpfl.PAPER, place="Table 1", row="DP-SGD"),
        expected=Expected(accuracy=0.80, tolerance=ldpfl.TOLERANCE),
    ),
    Recipe(
        name="dp-sgd-digits",
        config=DpSgdConfig(
            dataset="digits",
            standardise=True,
            model="logistic",
            num_clients=10,
            rounds=10,
            local_epochs=1,
            batch_size=24,
            learning_rate=0.5,
            noise_multiplier=2.0,
            clip=1.0,
        ),
        summary="DP-SGD on scikit-learn's digits: {num_clients} clients, noise multiplier "
        "{noise_multiplier:g}",
    ),
)
