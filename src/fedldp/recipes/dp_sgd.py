"""DP-SGD (Abadi et al. 2016) in a federation: records are protected while clients train.

The row of Chamikara et al. 2022, Table 1, has 10 clients, 9 of them a round, and 80 rounds; its
model, local work and budget are not stated. They are ours, and the same for all of its rows.
"""

from __future__ import annotations

from typing import Any

from fedldp.systems import SystemConfig
from fedldp.systems.dp_sgd import DpSgdConfig

TABLE1: dict[str, Any] = {
    "dataset": "fmnist", "standardise": True, "model": "cnn", "num_clients": 10,
    "clients_per_round": 9, "rounds": 80, "local_epochs": 1, "batch_size": 60,
}  # fmt: skip


def dp_sgd_fmnist_table1() -> SystemConfig:
    """DP-SGD on Fashion-MNIST: 9 of 10 clients a round, noise multiplier 1; LDPFL's about 80 %."""
    return DpSgdConfig(**TABLE1, learning_rate=0.5, noise_multiplier=1.0, clip=1.0)


def dp_sgd_digits() -> SystemConfig:
    """DP-SGD on scikit-learn's digits: 10 clients, noise multiplier 2."""
    return DpSgdConfig(
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
    )
