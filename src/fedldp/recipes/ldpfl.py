"""LDPFL (Chamikara et al. 2022) at the paper's settings, shorter runs of them, and their twins.

The paper does not state, and these are ours: one hidden layer of 64 units in the global network;
the rounds, but for the 80 of Table 1; Adam's learning rate, 0.001; ELU and dropout in the clients'
networks; the non-IID partition. Its images are augmented, it does not say how; ours are not. Its
RMSprop has a decay of 1e-6 for each step; ours has none.

The runs with "short" in their names train encoders for 8 epochs (5 on MNIST), not 50, and take one
local epoch in a round, not 50, with SGD at a learning rate 50 times larger.
"""

from __future__ import annotations

from typing import Any

from fedldp.recipes import Recipe
from fedldp.recipes.dp_sgd import TABLE1
from fedldp.systems import SystemConfig
from fedldp.systems.fedavg import FedAvgConfig
from fedldp.systems.ldpfl import LdpflConfig

_MNIST: dict[str, Any] = {
    "dataset": "mnist", "model": "mlp_64", "num_clients": 2, "rounds": 20, "local_epochs": 50,
    "batch_size": 32, "optimizer": "adam", "learning_rate": 0.001, "encoder_channels": [32, 64],
}  # fmt: skip
_DEEP: dict[str, Any] = {
    "model": "mlp_64", "rounds": 80, "local_epochs": 50, "batch_size": 32, "optimizer": "sgd",
    "learning_rate": 0.001, "encoder_channels": [32, 64, 128], "encoder_padding": True,
}  # fmt: skip
_FMNIST: dict[str, Any] = {"dataset": "fmnist", "num_clients": 10, **_DEEP}
_CIFAR10: dict[str, Any] = {**_DEEP, "dataset": "cifar10", "num_clients": 2, "rounds": 20}

_NON_IID = "dirichlet:0.3"


def _short(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    rate = settings["learning_rate"] * (50 if settings["optimizer"] == "sgd" else 1)
    return {**settings, "local_epochs": 1, "learning_rate": rate, **changes}


def ldpfl_mnist() -> SystemConfig:
    """LDPFL on MNIST: alpha 10, eps 0.5, 2 clients; the paper's "up to 98 %" (Fig. 3)."""
    return LdpflConfig(**_MNIST)


def ldpfl_mnist_short() -> SystemConfig:
    """LDPFL on MNIST, shorter: encoders of 5 epochs, 10 rounds of one local epoch."""
    return LdpflConfig(**_short(_MNIST, encoder_epochs=5, rounds=10))


def ldpfl_fmnist() -> SystemConfig:
    """LDPFL on Fashion-MNIST: 10 clients, 9 in a round, 80 rounds; 81 % (Table 1, Fig. 6)."""
    return LdpflConfig(**_FMNIST, clients_per_round=9)


def ldpfl_fmnist_short() -> SystemConfig:
    """LDPFL on Fashion-MNIST, shorter: encoders of 8 epochs, 80 rounds of one local epoch."""
    return LdpflConfig(**_short(_FMNIST, encoder_epochs=8, clients_per_round=9))


def fedavg_fmnist_table1() -> SystemConfig:
    """FedAvg on Fashion-MNIST, 9 of 10 clients a round: the non-private row of Table 1, 90 %."""
    return FedAvgConfig(**TABLE1, learning_rate=0.05, weighting="uniform")


def ldpfl_fmnist_fig7() -> SystemConfig:
    """LDPFL on Fashion-MNIST, non-IID, 10 clients (Fig. 7)."""
    return LdpflConfig(**_FMNIST, partition=_NON_IID)


def ldpfl_fmnist_fig7_short() -> SystemConfig:
    """LDPFL on Fashion-MNIST, non-IID, 10 clients, shorter (Fig. 7)."""
    return LdpflConfig(**_short(_FMNIST, encoder_epochs=8, partition=_NON_IID))


def fedavg_fmnist_fig7() -> SystemConfig:
    """FedAvg on Fashion-MNIST, non-IID, 10 clients: what Fig. 7 compares LDPFL with."""
    return FedAvgConfig(
        **{**TABLE1, "clients_per_round": None},
        learning_rate=0.05,
        partition=_NON_IID,
        weighting="uniform",
    )


def ldpfl_cifar10() -> SystemConfig:
    """LDPFL on CIFAR-10: 2 clients (Fig. 5)."""
    return LdpflConfig(**_CIFAR10)


def ldpfl_cifar10_fig5_alone() -> SystemConfig:
    """LDPFL on CIFAR-10 without a federation: one client with half of the examples (Fig. 5)."""
    return LdpflConfig(**{**_CIFAR10, "num_clients": 1, "num_examples": 25_000})


def ldpfl_mnist_alone_short() -> SystemConfig:
    """LDPFL on MNIST without a federation, shorter: one client with half of the examples."""
    changes = {"num_clients": 1, "num_examples": 30_000}
    return LdpflConfig(**_short(_MNIST, encoder_epochs=5, rounds=10, **changes))


def ldpfl_mnist_public() -> SystemConfig:
    """LDPFL on MNIST, an encoder trained on Fashion-MNIST, labels randomised: finite epsilons."""
    return LdpflConfig(
        **_short(_MNIST, encoder_epochs=5, rounds=10),
        encoder="public",
        public_dataset="fmnist",
        label_epsilon=1.0,
        evaluation="common",
    )


def ldpfl_digits() -> SystemConfig:
    """LDPFL on scikit-learn's digits, which need no download: 2 clients, small encoders."""
    return LdpflConfig(**_DIGITS)


def ldpfl_digits_public() -> SystemConfig:
    """LDPFL on digits, a random public encoder, labels randomised at eps 3: finite epsilons."""
    settings = {**_DIGITS, "rounds": 5, "evaluation": "common"}
    return LdpflConfig(**settings, encoder="public", label_epsilon=3.0)


_DIGITS: dict[str, Any] = {
    "dataset": "digits", "model": "mlp_64", "num_clients": 2, "rounds": 10, "local_epochs": 5,
    "batch_size": 32, "learning_rate": 0.05, "encoder_channels": [16, 32],
    "encoder_padding": True, "encoder_epochs": 15,
}  # fmt: skip


def _with_alpha(alpha: float) -> tuple[str, Recipe]:
    def recipe() -> SystemConfig:
        return LdpflConfig(**_MNIST, alpha=alpha)

    recipe.__doc__ = f"LDPFL on MNIST: alpha {alpha:g} (Fig. 12)."
    return f"ldpfl-mnist-fig12-alpha{alpha:g}", recipe


def _with_clients(number: int) -> Recipe:
    # A hundredth of the paper's 531,131 examples each; a client tests on 15 % of its own.
    settings = {**_DEEP, "num_clients": number, "num_examples": number * 5311, "rounds": 40}

    def recipe() -> SystemConfig:
        return LdpflConfig(dataset="svhn-extra", test_share=0.15, **settings)

    recipe.__doc__ = f"LDPFL on SVHN: {number} clients, a hundredth each (Figs. 9 to 11)."
    return recipe


# Figs. 9 to 11 are the loss and the accuracy of the same runs.
RECIPES: dict[str, Recipe] = (
    dict(_with_alpha(alpha) for alpha in (4.0, 6.0, 8.0, 10.0))
    | {
        f"ldpfl-svhn-fig{figure}-clients{number}": _with_clients(number)
        for figure in (9, 10, 11)
        for number in (10, 20, 30, 40, 50)
    }
    | {
        "ldpfl-mnist-fig3": ldpfl_mnist,
        "ldpfl-cifar10-fig5": ldpfl_cifar10,
        "ldpfl-fmnist-fig6": ldpfl_fmnist,
        "ldpfl-fmnist-table1": ldpfl_fmnist,
    }
)
