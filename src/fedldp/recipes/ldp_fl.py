"""LDP-FL (Sun, Qian, Chen 2021): its table, its figures, and its noise-free twins.

The paper does not state batch size and local epochs: 10 and 5 are ours. Nor does its text give the
points of its figures: n, f_r, r and the epsilons between the ends are ours. A run of 20 rounds has
the accuracy after each, so it gives all of Fig. 4's curve against the number of rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedldp.recipes import Recipe
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


@dataclass(frozen=True, kw_only=True)
class _Task:
    """What the paper varies on one data set.

    Attributes:
        title: of the data set, for people.
        base: the recipe that is varied.
        epsilon: of Figs. 3 and 4 (Section 5.1).
        panel: of Fig. 5, the accuracy against ``epsilons``.
        epsilons: of that panel.
        radius: of Table 1's fixed range.
        table: the paper's accuracies in Table 1, in percent: at epsilon 5 and at 10, by ranges.
    """

    title: str
    base: Recipe
    epsilon: float
    panel: str
    epsilons: tuple[float, ...]
    radius: float
    table: dict[str, tuple[float, float]]

    def recipes(self) -> Iterator[tuple[str, Recipe]]:
        """Yield every recipe with the end of its name."""
        all_clients = self.base().num_clients
        for n in (50, 100, 200, 500):
            what = f"{n} clients, eps {self.epsilon:g}; Fig. 3"
            yield self._recipe(f"fig3-n{n}", what, num_clients=n, epsilon=self.epsilon)
        for share in (0.1, 0.2, 0.5, 1.0):
            drawn = round(share * all_clients)
            what = f"{drawn} of {all_clients} clients a round, eps {self.epsilon:g}; Fig. 4, f_r"
            yield self._recipe(
                f"fig4-fr{share:g}", what, clients_per_round=drawn, epsilon=self.epsilon
            )
        what = f"20 rounds, eps {self.epsilon:g}; Fig. 4, communication rounds"
        yield self._recipe("fig4-rounds", what, rounds=20, epsilon=self.epsilon)
        for epsilon in self.epsilons:
            what = f"eps {epsilon:g}; Fig. 5 {self.panel}"
            yield self._recipe(f"fig5{self.panel}-eps{epsilon:g}", what, epsilon=epsilon)
        for ranges, accuracies in self.table.items():
            changes: dict[str, Any] = {"ranges": ranges}
            if ranges == "fixed":
                changes["range_radius"] = self.radius
            for epsilon, accuracy in zip((5.0, 10.0), accuracies, strict=True):
                what = f"eps {epsilon:g}, {ranges} ranges; Table 1, {accuracy:g} %"
                yield self._recipe(
                    f"table1-{ranges}-eps{epsilon:g}", what, **changes, epsilon=epsilon
                )

    def _recipe(self, label: str, what: str, **changes: Any) -> tuple[str, Recipe]:
        return label, _changed(self.base, f"LDP-FL on {self.title}: {what}.", **changes)


def _changed(base: Recipe, description: str, **changes: Any) -> Recipe:
    def recipe() -> SystemConfig:
        return base().changed(**changes)

    recipe.__doc__ = description
    return recipe


_TASKS = {
    "mnist": _Task(
        title="MNIST", base=ldp_fl_mnist, epsilon=1.0,
        panel="a", epsilons=(0.1, 0.2, 0.3, 0.5, 1.0),
        radius=0.075, table={"fixed": (96.34, 96.39), "adaptive": (96.06, 96.11)},
    ),
    "fmnist": _Task(
        title="Fashion-MNIST", base=ldp_fl_fmnist, epsilon=5.0,
        panel="b", epsilons=(1.0, 2.0, 3.0, 4.0, 10.0),
        radius=0.015, table={"fixed": (85.95, 86.10), "adaptive": (87.54, 87.57)},
    ),
    "cifar10": _Task(
        title="CIFAR-10", base=ldp_fl_cifar10, epsilon=10.0,
        panel="c", epsilons=(1.0, 2.0, 3.0, 5.0, 10.0),
        radius=1.0, table={"fixed": (13.54, 14.28), "adaptive": (58.89, 60.37)},
    ),
}  # fmt: skip

RECIPES: dict[str, Recipe] = {
    f"ldp-fl-{name}-{label}": recipe
    for name, task in _TASKS.items()
    for label, recipe in task.recipes()
}
RECIPES |= {
    f"ldp-fl-cifar10-fig5d-r{radius:g}": _changed(
        ldp_fl_cifar10,
        f"LDP-FL on CIFAR-10: eps 10, fixed range (0, {radius:g}); Fig. 5 d, about 20 %.",
        ranges="fixed",
        range_radius=radius,
    )
    for radius in (0.01, 0.05, 0.1, 0.5, 1.0)
}
RECIPES |= {"ldp-fl-digits": quickstart, "fedavg-digits": fedavg_quickstart}
