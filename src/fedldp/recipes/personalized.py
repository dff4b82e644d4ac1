"""Personalised LDP (Wu, Xu, Zhu 2023): every curve of its figures 2 to 7, and the sound variant.

A figure has one data set and three budgets, L, M and H. Its recipes are

    personalized-mnist-fig2-low, -middle, -high, -none      all clients alike, (A); without noise
    personalized-mnist-fig2-llh-a, -llh-b, -llh-c, ...      a mix of budgets, and an aggregation

N R batch training examples are used, as in the paper: a client's portion for a round is the paper's
batch. Not stated there, and ours: the U local steps, 20 for IID and 5 for non-IID data, each on the
whole sampled portion (Algorithm 1, lines 11 to 13); images in [0, 1]; Dirichlet concentration 0.5.
The test set is whole, where the paper tests on a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedldp.recipes import Recipe
from fedldp.systems import SystemConfig
from fedldp.systems.personalized import PersonalizedConfig
from fedldp.systems.personalized_sound import PersonalizedSoundConfig

_WHOLE_PORTION = 1_000_000
_AGGREGATIONS = {"a": "mean", "b": "weighted", "c": "selection"}
_THREE_CLIENTS = {"llh": "LLH", "lmh": "LMH", "lhh": "LHH"}
_TEN_CLIENTS = {"lmh": "LLLMMMMHHH", "lh": "LLLLLHHHHH"}


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """One figure of the paper.

    Attributes:
        name: of its recipes.
        title: for people.
        budgets: epsilon of L, M and H.
        mixes: the budgets of the clients in a personalised scenario, by name.
        noise_free: the paper's accuracy without noise, in percent.
        gains: the paper's mean gains over (A) in points, by aggregation, where it gives them.
        settings: of all recipes of the figure.
    """

    name: str
    title: str
    budgets: tuple[float, float, float]
    mixes: dict[str, str]
    noise_free: float
    gains: dict[str, float]
    settings: dict[str, Any]

    def recipes(self) -> Iterator[tuple[str, Recipe]]:
        """Yield every recipe with its name."""
        by_letter = dict(zip("LMH", self.budgets, strict=True))
        for level, epsilon in zip(("low", "middle", "high"), self.budgets, strict=True):
            description = f"{self.title}, all clients eps {epsilon:g}, mean (A)"
            yield self._recipe(level, description, epsilon=epsilon)
        plain = "bare-sign" if self.settings["perturbation"] == "sign" else "none"
        description = f"{self.title}, no noise; the paper's {self.noise_free:g} %"
        yield self._recipe("none", description, perturbation=plain)
        for mix, letters in self.mixes.items():
            budgets = [by_letter[letter] for letter in letters]
            for letter, aggregation in _AGGREGATIONS.items():
                listed = ", ".join(f"{epsilon:g}" for epsilon in budgets)
                description = f"{self.title}, eps {listed}, {aggregation} ({letter.upper()})"
                if letter in self.gains:
                    description += f"; the paper's mean gain {self.gains[letter]:+g} points"
                yield self._recipe(
                    f"{mix}-{letter}", description, epsilon=budgets, aggregation=aggregation
                )

    def _recipe(self, label: str, description: str, **changes: Any) -> tuple[str, Recipe]:
        settings = {**self.settings, **changes}

        def recipe() -> SystemConfig:
            return PersonalizedConfig(**settings)

        recipe.__doc__ = description + "."
        return f"personalized-{self.name}-{label}", recipe


def _settings(
    dataset: str, num_clients: int, rounds: int, batch: int, **others: Any
) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "num_clients": num_clients,
        "rounds": rounds,
        "num_examples": num_clients * rounds * batch,
        "batch_size": _WHOLE_PORTION,
        **others,
    }


_IID: dict[str, Any] = {"perturbation": "gaussian", "local_epochs": 20}
_NON_IID: dict[str, Any] = {
    "perturbation": "sign", "local_epochs": 5, "partition": "dirichlet:0.5", "delta": 1e-5,
}  # fmt: skip

# Covertype has 464,809 training rows here and a subset with 74,369, fewer than the paper's
# 500,000: its batches are 148 for 1000, and 371 for 2500. Delta stays the paper's.
_FIGURES = (
    _Figure(
        name="mnist-fig2",
        title="Personalised LDP, Fig. 2: MNIST, IID",
        budgets=(1.0, 5.0, 10.0),
        mixes=_THREE_CLIENTS,
        noise_free=88.7,
        gains={"b": 5.57, "c": 11.28},
        settings=_settings(
            "mnist", 3, 10, 50, **_IID, delta=1 / 500, sampling_probability=0.8, clip=200.0
        ),
    ),
    _Figure(
        name="fmnist-fig3",
        title="Personalised LDP, Fig. 3: Fashion-MNIST, IID",
        budgets=(0.05, 0.5, 1.0),
        mixes=_THREE_CLIENTS,
        noise_free=73.1,
        gains={"b": 3.04, "c": 3.93},
        settings=_settings(
            "fmnist", 3, 20, 50, **_IID, delta=1 / 1000, sampling_probability=0.9, clip=2.0
        ),
    ),
    _Figure(
        name="covertype-fig4",
        title="Personalised LDP, Fig. 4: Covertype, IID",
        budgets=(1.0, 5.0, 10.0),
        mixes=_TEN_CLIENTS,
        noise_free=49.0,
        gains={"b": 4.07, "c": 10.90},
        settings=_settings(
            "covertype", 10, 50, 148, **_IID, delta=1 / 50000, sampling_probability=0.8, clip=2.0
        ),
    ),
    _Figure(
        name="mnist-fig5",
        title="Personalised LDP, Fig. 5: MNIST, non-IID",
        budgets=(5.0, 10.0, 15.0),
        mixes=_TEN_CLIENTS,
        noise_free=65.2,
        gains={"c": 6.97},
        settings=_settings("mnist", 10, 10, 400, **_NON_IID, clip=4.0),
    ),
    _Figure(
        name="fmnist-fig6",
        title="Personalised LDP, Fig. 6: Fashion-MNIST, non-IID",
        budgets=(5.0, 10.0, 15.0),
        mixes=_TEN_CLIENTS,
        noise_free=49.8,
        gains={"c": 19.85},
        settings=_settings("fmnist", 10, 10, 200, **_NON_IID, clip=4.0),
    ),
    _Figure(
        name="covertype-fig7",
        title="Personalised LDP, Fig. 7: Covertype, non-IID",
        budgets=(1.0, 5.0, 10.0),
        mixes=_TEN_CLIENTS,
        noise_free=62.6,
        gains={},
        settings=_settings("covertype", 10, 20, 371, **_NON_IID, clip=2.0),
    ),
)

RECIPES: dict[str, Recipe] = dict(recipe for figure in _FIGURES for recipe in figure.recipes())


def personalized_mnist_noniid() -> SystemConfig:
    """Personalised LDP on MNIST, non-IID: randomised signs, eps 5, 10 and 15, selection (C)."""
    return RECIPES["personalized-mnist-fig5-lmh-c"]()


def personalized_digits() -> SystemConfig:
    """Personalised LDP on digits at the settings of Fig. 2: eps 1, 5, 10, selection (C)."""
    return PersonalizedConfig(
        dataset="digits",
        feature_scale=16.0,  # integer pixels from 0 to 16, as the paper has them
        num_clients=3,
        rounds=10,
        local_epochs=20,
        batch_size=_WHOLE_PORTION,
        epsilon=[1.0, 5.0, 10.0],
        delta=1 / 500,
        sampling_probability=0.8,
        clip=200.0,
        aggregation="selection",
    )


def personalized_sound_digits() -> SystemConfig:
    """Personalised LDP, budgets kept, on digits: 100 clients, eps 1, 5 or 10 for a whole run."""
    return PersonalizedSoundConfig(
        dataset="digits",
        standardise=True,
        num_clients=100,
        rounds=1,
        local_epochs=5,
        batch_size=_WHOLE_PORTION,
        learning_rate=0.1,
        epsilon=[1.0, 5.0, 10.0, 10.0] * 25,
        clip=1.0,
    )


def personalized_sound_mnist() -> SystemConfig:
    """Personalised LDP, budgets kept, on MNIST: 3,000 clients, eps 1, 5 or 10 for a whole run."""
    return PersonalizedSoundConfig(
        dataset="mnist",
        standardise=True,
        num_clients=3000,
        rounds=1,
        local_epochs=5,
        batch_size=_WHOLE_PORTION,
        learning_rate=0.1,
        epsilon=[1.0, 5.0, 10.0] * 1000,
        clip=1.0,
    )


def personalized_sound_mnist_fig2() -> SystemConfig:
    """The budgets of Fig. 2 kept for whole runs: MNIST, three clients, eps 1, 5, 10."""
    return PersonalizedSoundConfig(
        **_settings("mnist", 3, 10, 50, local_epochs=20),
        delta=1 / 500,
        sampling_probability=0.8,
        epsilon=[1.0, 5.0, 10.0],
        clip=20.0,
    )
