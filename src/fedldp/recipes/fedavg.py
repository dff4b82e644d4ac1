"""FedAvg: the noise-free twins of the papers' systems, and what their tables call non-private."""

from __future__ import annotations

from fedldp.recipes import Expected, Recipe, Source, grid, ldp_fl, ldpfl, nbafl, shared_settings
from fedldp.recipes.dp_sgd import TABLE1
from fedldp.recipes.quickstart import DIGITS as NOISY_DIGITS
from fedldp.systems import SystemConfig
from fedldp.systems.fedavg import FedAvgConfig


def _twin(noisy: SystemConfig) -> FedAvgConfig:
    return FedAvgConfig(**shared_settings(noisy))


MNIST = _twin(ldp_fl.MNIST)
DIGITS = _twin(NOISY_DIGITS)


def _of_ldp_fl(config: FedAvgConfig, title: str, accuracy: float) -> Recipe:
    return Recipe(
        name=f"fedavg-{config.dataset}",
        config=config,
        summary=f"FedAvg on {title}: the noise-free twin of ldp-fl-{config.dataset}",
        source=Source(paper=ldp_fl.PAPER, place="Section 5.2", row=f"{title}, FedAvg"),
        # The paper gives them as differences from its own accuracy.
        expected=Expected(accuracy=accuracy / 100, tolerance=ldp_fl.TOLERANCE),
    )


_DIGITS_SUMMARY = "FedAvg on digits: the noise-free twin of quickstart"

RECIPES = (
    Recipe(name="fedavg-quickstart", config=DIGITS, summary=_DIGITS_SUMMARY),
    Recipe(name="fedavg-digits", config=DIGITS, summary=_DIGITS_SUMMARY),
    _of_ldp_fl(MNIST, "MNIST", 97.21),
    _of_ldp_fl(_twin(ldp_fl.FMNIST), "Fashion-MNIST", 87.58),
    _of_ldp_fl(_twin(ldp_fl.CIFAR10), "CIFAR-10", 62.55),
    *(
        Recipe(
            name=f"fedavg-fmnist-gap-{name}",
            config=_twin(ldp_fl.FMNIST).changed(**changes),
            summary=f"FedAvg on Fashion-MNIST: {what}",
            source=Source(paper=ldp_fl.PAPER, place=ldp_fl.GAP, row=what, column="FedAvg"),
            expected=Expected(accuracy=0.8758, tolerance=ldp_fl.TOLERANCE),
        )
        for name, (what, changes) in ldp_fl.LOCAL_WORK.items()
    ),
    *grid(
        "fedavg-mnist-fig3-n{num_clients}",
        "FedAvg on MNIST, {num_clients} clients: the noise-free twin of Fig. 3",
        MNIST,
        source=Source(
            paper=ldp_fl.PAPER,
            place="Fig. 3",
            row="MNIST, no noise",
            column="{num_clients} clients",
        ),
        num_clients=(50, 100, 200, 500),
    ),
    Recipe(
        name="fedavg-mnist-fig5",
        config=_twin(nbafl.MNIST),
        summary="FedAvg on MNIST: the noise-free curve of Talaei, Izadi's Fig. 5",
        source=Source(paper=nbafl.PAPER, place="Fig. 5", row="no noise"),
    ),
    Recipe(
        name="fedavg-fmnist-table1",
        config=FedAvgConfig(**TABLE1, learning_rate=0.05, weighting="uniform"),
        summary="FedAvg on Fashion-MNIST, {clients_per_round} of {num_clients} clients a round: "
        "the non-private row of Table 1",
        source=Source(paper=ldpfl.PAPER, place="Table 1", row="non-private (FedAvg)"),
        expected=Expected(accuracy=0.90, tolerance=ldpfl.TOLERANCE),
    ),
    Recipe(
        name="fedavg-fmnist-fig7",
        config=FedAvgConfig(
            **{**TABLE1, "clients_per_round": None},
            learning_rate=0.05,
            partition=ldpfl.NON_IID,
            weighting="uniform",
        ),
        summary="FedAvg on Fashion-MNIST, non-IID, {num_clients} clients: what Fig. 7 compares "
        "LDPFL with",
        source=Source(paper=ldpfl.PAPER, place="Fig. 7", row="FedAvg"),
    ),
)
