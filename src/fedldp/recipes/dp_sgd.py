"""DP-SGD (Abadi et al. 2016) in a federation: records are protected while clients train."""

from __future__ import annotations

from fedldp.systems import SystemConfig
from fedldp.systems.dp_sgd import DpSgdConfig


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
