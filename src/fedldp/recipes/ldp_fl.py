"""LDP-FL (Sun, Qian, Chen 2021) at the paper's settings, and its noise-free twins.

The paper does not state batch size and local epochs: 10 and 5 are ours.
"""

from __future__ import annotations

from typing import Any

from fedldp.systems import SystemConfig
from fedldp.systems.fedavg import FedAvgConfig
from fedldp.systems.ldp_fl import LdpFlConfig

_MNIST: dict[str, Any] = {
    "dataset": "mnist", "standardise": True, "model": "cnn", "num_clients": 100, "rounds": 10,
    "local_epochs": 5, "batch_size": 10, "learning_rate": 0.03,
}  # fmt: skip
_FMNIST: dict[str, Any] = {**_MNIST, "dataset": "fmnist", "num_clients": 200, "rounds": 15}
_CIFAR10: dict[str, Any] = {
    "dataset": "cifar10", "standardise": True, "model": "vgg", "num_clients": 500, "rounds": 15,
    "local_epochs": 5, "batch_size": 10, "learning_rate": 0.015,
}  # fmt: skip


def ldp_fl_mnist() -> SystemConfig:
    """LDP-FL on MNIST: eps 1, 100 clients, fixed range (0, 0.075); the paper's 96.24 %."""
    return LdpFlConfig(**_MNIST, epsilon=1.0, range_radius=0.075)


def ldp_fl_mnist_model_shuffling() -> SystemConfig:
    """LDP-FL on MNIST with model shuffling, of earlier work: one message for all 21,840 weights."""
    return ldp_fl_mnist().changed(chunk=21_840)


def ldp_fl_fmnist() -> SystemConfig:
    """LDP-FL on Fashion-MNIST: eps 4, 200 clients, fixed range (0, 0.015) as printed; 86.26 %."""
    return LdpFlConfig(**_FMNIST, epsilon=4.0, range_radius=0.015)


def ldp_fl_cifar10() -> SystemConfig:
    """LDP-FL on CIFAR-10: eps 10, 500 clients, adaptive ranges, small VGG; the paper's 61.46 %."""
    return LdpFlConfig(**_CIFAR10, epsilon=10.0, ranges="adaptive")


def fedavg_mnist() -> SystemConfig:
    """FedAvg on MNIST: the noise-free twin of ldp-fl-mnist; the paper's 97.21 %."""
    return FedAvgConfig(**_MNIST)


def fedavg_fmnist() -> SystemConfig:
    """FedAvg on Fashion-MNIST: the noise-free twin of ldp-fl-fmnist; the paper's 87.58 %."""
    return FedAvgConfig(**_FMNIST)


def fedavg_cifar10() -> SystemConfig:
    """FedAvg on CIFAR-10: the noise-free twin of ldp-fl-cifar10; the paper's 62.55 %."""
    return FedAvgConfig(**_CIFAR10)


def quickstart() -> SystemConfig:
    """LDP-FL on scikit-learn's digits, which need no download: eps 1 per weight, 100 clients."""
    return LdpFlConfig(
        dataset="digits",
        standardise=True,
        model="logistic",
        num_clients=100,
        rounds=15,
        local_epochs=5,
        batch_size=5,
        learning_rate=0.3,
        epsilon=1.0,
        range_radius=0.2,
    )


def ldp_fl_digits_model_shuffling() -> SystemConfig:
    """LDP-FL on digits with model shuffling: quickstart, with one message for all 650 weights."""
    return quickstart().changed(chunk=650)


def fedavg_quickstart() -> SystemConfig:
    """FedAvg on digits: the noise-free twin of quickstart."""
    noisy = quickstart()
    shared = noisy.model_dump(include=set(SystemConfig.model_fields) - {"system"})
    return FedAvgConfig(**shared)
