"""LDPFL (Chamikara et al. 2022) at the paper's settings, and shorter runs of them.

The paper does not state, and these are ours: one hidden layer of 64 units in the global network;
the rounds, but for the 80 of Table 1; Adam's learning rate, 0.001; ELU, dropout and the width of
the hidden layer in the clients' networks; the non-IID partition. Its images are augmented, it does
not say how; ours are not. Its RMSprop has a decay of 1e-6 for each step; ours has none.

The runs with "short" in their names train encoders for 8 epochs (5 on MNIST), not 50, and take one
local epoch in a round, not 50, with SGD at a learning rate 50 times larger.
"""

from __future__ import annotations

from typing import Any

from fedldp.recipes import Expected, Recipe, Source, grid
from fedldp.systems.ldpfl import LdpflConfig

PAPER = "Chamikara et al. 2022"
TOLERANCE = 0.02
"""The paper gives whole percents, "about"."""

NON_IID = "dirichlet:0.3"

_MNIST = LdpflConfig(
    dataset="mnist", model="mlp_64", num_clients=2, rounds=20, local_epochs=50, batch_size=32,
    optimizer="adam", learning_rate=0.001, encoder_channels=[32, 64],
    encoder_layers="mnist",
)  # fmt: skip
_DEEP: dict[str, Any] = {
    "model": "mlp_64", "rounds": 80, "local_epochs": 50, "batch_size": 32, "optimizer": "sgd",
    "learning_rate": 0.001, "encoder_channels": [32, 64, 128], "encoder_padding": True,
}  # fmt: skip
_FMNIST = LdpflConfig(**_DEEP, dataset="fmnist", num_clients=10)
_NINE = _FMNIST.changed(clients_per_round=9)
_CIFAR10 = LdpflConfig(**{**_DEEP, "dataset": "cifar10", "num_clients": 2, "rounds": 20})
# A hundredth of the paper's 531,131 examples each; a client tests on 15 % of its own.
_OF_SVHN = 5311
_SVHN = LdpflConfig(
    **{**_DEEP, "rounds": 40}, dataset="svhn-extra", test_share=0.15, num_clients=10
)
_DIGITS = LdpflConfig(
    dataset="digits", model="mlp_64", num_clients=2, rounds=10, local_epochs=5, batch_size=32,
    learning_rate=0.05, encoder_channels=[16, 32], encoder_padding=True, encoder_epochs=15,
)  # fmt: skip


def _short(config: LdpflConfig, **changes: Any) -> LdpflConfig:
    rate = config.learning_rate * (50 if config.optimizer == "sgd" else 1)
    return config.changed(local_epochs=1, learning_rate=rate, **changes)


_MNIST_SHORT = _short(_MNIST, encoder_epochs=5, rounds=10)
_IN_SHORT = "{encoder_epochs} epochs of encoders, {rounds} rounds of one local epoch"


def _source(place: str, row: str, column: str = "accuracy") -> Source:
    return Source(paper=PAPER, place=place, row=row, column=column)


def _about(accuracy: float) -> Expected:
    return Expected(accuracy=accuracy, tolerance=TOLERANCE)


def _mnist(name: str) -> Recipe:
    return Recipe(
        name=name,
        config=_MNIST,
        summary="LDPFL on MNIST: alpha {alpha:g}, eps {epsilon:g}, {num_clients} clients; Fig. 3",
        source=_source("Fig. 3", "MNIST, {num_clients} clients".format(**dict(_MNIST))),
        expected=_about(0.98),
    )


def _fmnist(name: str, place: str, row: str) -> Recipe:
    return Recipe(
        name=name,
        config=_NINE,
        summary="LDPFL on Fashion-MNIST: {clients_per_round} of {num_clients} clients a round, "
        f"{{rounds}} rounds; {place}",
        source=_source(place, row),
        expected=_about(0.81),
    )


def _cifar10(name: str) -> Recipe:
    return Recipe(
        name=name,
        config=_CIFAR10,
        summary="LDPFL on CIFAR-10: {num_clients} clients; Fig. 5",
        source=_source("Fig. 5", "CIFAR-10, federation"),
    )


def _svhn(figure: int, clients: int) -> Recipe:
    return Recipe(
        name=f"ldpfl-svhn-fig{figure}-clients{clients}",
        config=_SVHN.changed(num_clients=clients, num_examples=clients * _OF_SVHN),
        summary="LDPFL on SVHN: {num_clients} clients, a hundredth each; Figs. 9 to 11",
        source=_source(f"Fig. {figure}", "SVHN", f"{clients} clients"),
    )


def _own(name: str, config: LdpflConfig, place: str, row: str) -> Recipe:
    """Return the recipe of the clients' own networks, which are final in a run's first round."""
    return Recipe(
        name=name,
        config=config.changed(rounds=1),
        summary=f"LDPFL on {row}: the clients' own networks on their own tests; {place}",
        source=Source(
            paper=PAPER, place=place, row=row, column="own networks", metric="local_accuracy"
        ),
    )


RECIPES = (
    _mnist("ldpfl-mnist"),
    _mnist("ldpfl-mnist-fig3"),
    Recipe(
        name="ldpfl-mnist-short",
        config=_MNIST_SHORT,
        summary=f"LDPFL on MNIST, shorter: {_IN_SHORT}",
        source=_source("Fig. 3", "MNIST, shorter"),
        expected=_about(0.98),
    ),
    _fmnist("ldpfl-fmnist", "Table 1", "LDPFL"),
    _fmnist("ldpfl-fmnist-fig6", "Fig. 6", "Fashion-MNIST"),
    _fmnist("ldpfl-fmnist-table1", "Table 1", "LDPFL"),
    Recipe(
        name="ldpfl-fmnist-short",
        config=_short(_NINE, encoder_epochs=8),
        summary=f"LDPFL on Fashion-MNIST, shorter: {_IN_SHORT}",
        source=_source("Table 1", "LDPFL, shorter"),
        expected=_about(0.81),
    ),
    Recipe(
        name="ldpfl-fmnist-fig7",
        config=_FMNIST.changed(partition=NON_IID),
        summary="LDPFL on Fashion-MNIST, non-IID, {num_clients} clients; Fig. 7",
        source=_source("Fig. 7", "LDPFL"),
    ),
    Recipe(
        name="ldpfl-fmnist-fig7-short",
        config=_short(_FMNIST, encoder_epochs=8, partition=NON_IID),
        summary="LDPFL on Fashion-MNIST, non-IID, {num_clients} clients, shorter; Fig. 7",
        source=_source("Fig. 7", "LDPFL, shorter"),
    ),
    _cifar10("ldpfl-cifar10"),
    _cifar10("ldpfl-cifar10-fig5"),
    Recipe(
        name="ldpfl-cifar10-fig5-alone",
        config=_CIFAR10.changed(num_clients=1, num_examples=25_000),
        summary="LDPFL on CIFAR-10 without a federation: one client with half of the examples; "
        "Fig. 5",
        source=_source("Fig. 5", "CIFAR-10, alone"),
    ),
    Recipe(
        name="ldpfl-mnist-alone-short",
        config=_MNIST_SHORT.changed(num_clients=1, num_examples=30_000),
        summary="LDPFL on MNIST without a federation, shorter: one client with half of the "
        "examples",
        source=_source("Fig. 5", "MNIST, alone, shorter"),
    ),
    Recipe(
        name="ldpfl-mnist-public",
        config=_MNIST_SHORT.changed(
            encoder="public",
            public_dataset="fmnist",
            label_epsilon=1.0,
            evaluation="common",
        ),
        summary="LDPFL on MNIST, an encoder trained on Fashion-MNIST, labels randomised: finite "
        "epsilons",
    ),
    Recipe(
        name="ldpfl-digits",
        config=_DIGITS,
        summary="LDPFL on scikit-learn's digits, which need no download: {num_clients} clients, "
        "small encoders",
    ),
    Recipe(
        name="ldpfl-digits-public",
        config=_DIGITS.changed(rounds=5, evaluation="common", encoder="public", label_epsilon=3.0),
        summary="LDPFL on digits, a random public encoder, labels randomised at eps "
        "{label_epsilon:g}: finite epsilons",
    ),
    *grid(
        "ldpfl-mnist-fig12-alpha{alpha:g}",
        "LDPFL on MNIST: alpha {alpha:g}; Fig. 12",
        _MNIST,
        source=_source("Fig. 12", "MNIST", "alpha {alpha:g}"),
        alpha=(4.0, 6.0, 8.0, 10.0),
    ),
    *grid(
        "ldpfl-mnist-fig12-alpha{alpha:g}-short",
        f"LDPFL on MNIST, shorter: alpha {{alpha:g}}, {_IN_SHORT}; Fig. 12",
        _MNIST_SHORT,
        source=_source("Fig. 12", "MNIST, shorter", "alpha {alpha:g}"),
        alpha=(4.0, 6.0, 8.0, 10.0),
    ),
    _own("ldpfl-mnist-fig2", _MNIST, "Fig. 2", "MNIST"),
    _own("ldpfl-mnist-fig2-short", _MNIST_SHORT, "Fig. 2", "MNIST, shorter"),
    _own("ldpfl-cifar10-fig4", _CIFAR10, "Fig. 4", "CIFAR-10"),
    _own("ldpfl-fmnist-fig6a", _NINE, "Fig. 6", "Fashion-MNIST"),
    _own(
        "ldpfl-fmnist-fig6a-short",
        _short(_NINE, encoder_epochs=8),
        "Fig. 6",
        "Fashion-MNIST, shorter",
    ),
    _own(
        "ldpfl-svhn-fig8",
        _SVHN.changed(num_clients=50, num_examples=50 * _OF_SVHN),
        "Fig. 8",
        "SVHN",
    ),
    *(_svhn(figure, clients) for figure in (9, 10, 11) for clients in (10, 20, 30, 40, 50)),
)
