"""Secure aggregation (Bonawitz et al. 2017): the row "SMC" of tables that compare LDP with it."""

from __future__ import annotations

from fedldp.recipes import Expected, Recipe, Source, fedavg, ldpfl, shared_settings
from fedldp.recipes.dp_sgd import TABLE1
from fedldp.systems.secure_aggregation import SecureAggregationConfig

RECIPES = (
    Recipe(
        name="secure-aggregation-digits",
        config=SecureAggregationConfig(
            **shared_settings(fedavg.DIGITS.changed(num_clients=10, rounds=5)), dropout=0.1
        ),
        summary="Secure aggregation on digits: {num_clients} clients, of whom one in ten leaves "
        "during a round",
    ),
    Recipe(
        name="secure-aggregation-mnist",
        config=SecureAggregationConfig(
            **shared_settings(fedavg.MNIST.changed(clients_per_round=20))
        ),
        summary="Secure aggregation on MNIST: fedavg-mnist with {clients_per_round} of "
        "{num_clients} clients in a round",
    ),
    Recipe(
        name="secure-aggregation-fmnist-table1",
        config=SecureAggregationConfig(**TABLE1, learning_rate=0.05),
        summary='Secure aggregation on Fashion-MNIST: LDPFL\'s Table 1, row "SMC"',
        source=Source(paper=ldpfl.PAPER, place="Table 1", row="secure aggregation (SMC)"),
        expected=Expected(accuracy=0.90, tolerance=ldpfl.TOLERANCE),
    ),
)
