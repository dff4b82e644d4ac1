"""Feature priority (Talaei, Izadi 2024) at the paper's settings, and its sound variant.

What the paper does not state is as in ``nbafl``. Its figures have epsilon 0.5 for the features with
more noise and 10 for everything else, the second layer included.
"""

from __future__ import annotations

from typing import Any, Literal

from fedldp.systems import SystemConfig
from fedldp.systems.priority import PriorityConfig
from fedldp.systems.priority_public import PriorityPublicConfig

_MNIST: dict[str, Any] = {
    "dataset": "mnist", "num_examples": 33_600, "model": "mlp", "num_clients": 30, "rounds": 25,
    "local_epochs": 1, "batch_size": 10, "learning_rate": 0.02,
}  # fmt: skip
_DIGITS: dict[str, Any] = {
    "dataset": "digits", "standardise": True, "model": "logistic", "batch_size": 5,
    "learning_rate": 0.1,
}  # fmt: skip

Noisier = Literal["least", "most"]


def _priority(
    noisier: Noisier, share: float, importance: Literal["variance", "sensitivity"]
) -> SystemConfig:
    return PriorityConfig(
        **_MNIST,
        delta=0.01,
        epsilon_low=0.5,
        epsilon_high=10.0,
        clip=5.0,
        send="update",
        importance=importance,
        noisier=noisier,
        noisier_share=share,
    )


def _public(noisier: Noisier, share: float) -> SystemConfig:
    return PriorityPublicConfig(
        **_MNIST, epsilon=1e4, clip=1.0, noisier=noisier, noisier_share=share
    )


def priority_mnist_fig6_least20() -> SystemConfig:
    """Priority on MNIST: eps 0.5 on the 20 % least important features, else 10; Fig. 6."""
    return _priority("least", 0.2, "variance")


def priority_mnist_fig6_least40() -> SystemConfig:
    """Priority on MNIST: eps 0.5 on the 40 % least important features, else 10; Fig. 6."""
    return _priority("least", 0.4, "variance")


def priority_mnist_fig6_most20() -> SystemConfig:
    """Priority on MNIST: eps 0.5 on the 20 % most important features, else 10; Fig. 6."""
    return _priority("most", 0.2, "variance")


def priority_mnist_fig7_least50() -> SystemConfig:
    """Priority on MNIST: eps 0.5 on the 50 % least important features, else 10; Fig. 7."""
    return _priority("least", 0.5, "variance")


def priority_mnist_fig7_most50() -> SystemConfig:
    """Priority on MNIST: eps 0.5 on the 50 % most important features, else 10; Fig. 7."""
    return _priority("most", 0.5, "variance")


def priority_mnist_fig7_least80() -> SystemConfig:
    """Priority on MNIST: eps 0.5 on the 80 % least important features, else 10; Fig. 7."""
    return _priority("least", 0.8, "variance")


def priority_mnist_fig7_most80() -> SystemConfig:
    """Priority on MNIST: eps 0.5 on the 80 % most important features, else 10; Fig. 7."""
    return _priority("most", 0.8, "variance")


def priority_mnist_fig8_least20() -> SystemConfig:
    """As fig6-least20, with the sensitivity-based importance; Fig. 8."""
    return _priority("least", 0.2, "sensitivity")


def priority_mnist_fig8_least40() -> SystemConfig:
    """As fig6-least40, with the sensitivity-based importance; Fig. 8."""
    return _priority("least", 0.4, "sensitivity")


def priority_mnist_fig8_most20() -> SystemConfig:
    """As fig6-most20, with the sensitivity-based importance; Fig. 8."""
    return _priority("most", 0.2, "sensitivity")


def priority_mnist_fig8_least50() -> SystemConfig:
    """As fig7-least50, with the sensitivity-based importance; Fig. 8."""
    return _priority("least", 0.5, "sensitivity")


def priority_mnist_fig8_most50() -> SystemConfig:
    """As fig7-most50, with the sensitivity-based importance; Fig. 8."""
    return _priority("most", 0.5, "sensitivity")


def priority_mnist_fig8_least80() -> SystemConfig:
    """As fig7-least80, with the sensitivity-based importance; Fig. 8."""
    return _priority("least", 0.8, "sensitivity")


def priority_mnist_fig8_most80() -> SystemConfig:
    """As fig7-most80, with the sensitivity-based importance; Fig. 8."""
    return _priority("most", 0.8, "sensitivity")


def priority_public_mnist_least20() -> SystemConfig:
    """Sound variant on MNIST: eps 10,000 for a run, 20 times the noise on 20 % least important."""
    return _public("least", 0.2)


def priority_public_mnist_least40() -> SystemConfig:
    """Sound variant on MNIST: eps 10,000 for a run, 20 times the noise on 40 % least important."""
    return _public("least", 0.4)


def priority_public_mnist_most20() -> SystemConfig:
    """Sound variant on MNIST: eps 10,000 for a run, 20 times the noise on 20 % most important."""
    return _public("most", 0.2)


def priority_digits() -> SystemConfig:
    """Priority on scikit-learn's digits: eps 5 on the 40 % least important features, else 50."""
    return PriorityConfig(
        **_DIGITS,
        num_clients=20,
        rounds=10,
        delta=0.01,
        epsilon_low=5.0,
        epsilon_high=50.0,
        clip=2.0,
        send="update",
        noisier_share=0.4,
    )


def priority_public_digits() -> SystemConfig:
    """Sound variant on digits: eps 64 for a run, twice the noise on 40 % least important."""
    return PriorityPublicConfig(
        **_DIGITS, num_clients=100, rounds=5, epsilon=64.0, clip=0.5, noise_ratio=2.0,
        noisier_share=0.4,
    )  # fmt: skip
