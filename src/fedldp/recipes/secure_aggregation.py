"""Secure aggregation (Bonawitz et al. 2017): the row "SMC" of tables that compare LDP with it."""

from __future__ import annotations

from typing import Any

from fedldp.recipes.dp_sgd import TABLE1
from fedldp.recipes.ldp_fl import fedavg_mnist, fedavg_quickstart
from fedldp.systems import SystemConfig
from fedldp.systems.secure_aggregation import SecureAggregationConfig


def secure_aggregation_digits() -> SystemConfig:
    """Secure aggregation on digits: 10 clients, of whom one in ten leaves during a round."""
    settings = _as(fedavg_quickstart()) | {"num_clients": 10, "rounds": 5}
    return SecureAggregationConfig(**settings, dropout=0.1)


def secure_aggregation_mnist() -> SystemConfig:
    """Secure aggregation on MNIST: fedavg-mnist with 20 of 100 clients in a round."""
    return SecureAggregationConfig(**_as(fedavg_mnist().changed(clients_per_round=20)))


def secure_aggregation_fmnist_table1() -> SystemConfig:
    """Secure aggregation on Fashion-MNIST: LDPFL's Table 1, row "SMC", about 90 %."""
    return SecureAggregationConfig(**TABLE1, learning_rate=0.05)


def _as(plain: SystemConfig) -> dict[str, Any]:
    return plain.model_dump(include=set(SystemConfig.model_fields) - {"system"})
