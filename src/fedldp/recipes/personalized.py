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

from fedldp.recipes import Expected, Recipe, Source
from fedldp.systems.personalized import PersonalizedConfig
from fedldp.systems.personalized_sound import PersonalizedSoundConfig

PAPER = "Wu, Xu, Zhu 2023"
_TOLERANCE = 0.05
"""Three or ten clients with a few hundred examples each: seeds alone scatter by 1 to 5 points."""

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
        place: in the paper.
        noise_free: the paper's accuracy without noise, in percent.
        settings: of all recipes of the figure.
    """

    name: str
    title: str
    budgets: tuple[float, float, float]
    mixes: dict[str, str]
    place: str
    noise_free: float
    settings: dict[str, Any]

    def recipes(self) -> Iterator[Recipe]:
        """Yield every recipe."""
        by_letter = dict(zip("LMH", self.budgets, strict=True))
        for level, epsilon in zip(("low", "middle", "high"), self.budgets, strict=True):
            yield self._recipe(
                level, f"all {level}", "all clients eps {epsilon:g}, mean (A)", epsilon=epsilon
            )
        plain = "bare-sign" if self.settings["perturbation"] == "sign" else "none"
        yield self._recipe("none", "no noise", "no noise", perturbation=plain)
        for mix, letters in self.mixes.items():
            budgets = [by_letter[letter] for letter in letters]
            listed = ", ".join(f"{epsilon:g}" for epsilon in budgets)
            for letter, aggregation in _AGGREGATIONS.items():
                yield self._recipe(
                    f"{mix}-{letter}",
                    mix.upper(),
                    f"eps {listed}, {aggregation} ({letter.upper()})",
                    column=f"({letter.upper()})",
                    epsilon=budgets,
                    aggregation=aggregation,
                )

    def _recipe(
        self, label: str, row: str, what: str, column: str = "accuracy", **changes: Any
    ) -> Recipe:
        return Recipe(
            name=f"personalized-{self.name}-{label}",
            config=PersonalizedConfig(**{**self.settings, **changes}),
            summary=f"Personalised LDP, {self.place}: {self.title}, {what}",
            source=Source(paper=PAPER, place=self.place, row=row, column=column),
            expected=Expected(accuracy=self.noise_free / 100, tolerance=_TOLERANCE)
            if label == "none"
            else None,
        )


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
        title="MNIST, IID",
        place="Fig. 2",
        budgets=(1.0, 5.0, 10.0),
        mixes=_THREE_CLIENTS,
        noise_free=88.7,
        settings=_settings(
            "mnist", 3, 10, 50, **_IID, delta=1 / 500, sampling_probability=0.8, clip=200.0
        ),
    ),
    # 3 x 500 examples and a test of 300 fit scikit-learn's 1,797 digits, which Section 5.1 names
    # beside MNIST. U = 3 comes near the paper without noise; images in 0 to 16, as there.
    _Figure(
        name="digits-fig2",
        title="8x8 digits, IID",
        place="Fig. 2, digits",
        budgets=(1.0, 5.0, 10.0),
        mixes=_THREE_CLIENTS,
        noise_free=88.7,
        settings={
            "dataset": "digits",
            "feature_scale": 16.0,
            "num_clients": 3,
            "rounds": 10,
            "batch_size": _WHOLE_PORTION,
            "perturbation": "gaussian",
            "local_epochs": 3,
            "delta": 1 / 500,
            "sampling_probability": 0.8,
            "clip": 200.0,
        },
    ),
    _Figure(
        name="fmnist-fig3",
        title="Fashion-MNIST, IID",
        place="Fig. 3",
        budgets=(0.05, 0.5, 1.0),
        mixes=_THREE_CLIENTS,
        noise_free=73.1,
        settings=_settings(
            "fmnist", 3, 20, 50, **_IID, delta=1 / 1000, sampling_probability=0.9, clip=2.0
        ),
    ),
    _Figure(
        name="covertype-fig4",
        title="Covertype, IID",
        place="Fig. 4",
        budgets=(1.0, 5.0, 10.0),
        mixes=_TEN_CLIENTS,
        noise_free=49.0,
        settings=_settings(
            "covertype", 10, 50, 148, **_IID, delta=1 / 50000, sampling_probability=0.8, clip=2.0
        ),
    ),
    _Figure(
        name="mnist-fig5",
        title="MNIST, non-IID",
        place="Fig. 5",
        budgets=(5.0, 10.0, 15.0),
        mixes=_TEN_CLIENTS,
        noise_free=65.2,
        settings=_settings("mnist", 10, 10, 400, **_NON_IID, clip=4.0),
    ),
    _Figure(
        name="fmnist-fig6",
        title="Fashion-MNIST, non-IID",
        place="Fig. 6",
        budgets=(5.0, 10.0, 15.0),
        mixes=_TEN_CLIENTS,
        noise_free=49.8,
        settings=_settings("fmnist", 10, 10, 200, **_NON_IID, clip=4.0),
    ),
    _Figure(
        name="covertype-fig7",
        title="Covertype, non-IID",
        place="Fig. 7",
        budgets=(1.0, 5.0, 10.0),
        mixes=_TEN_CLIENTS,
        noise_free=62.6,
        settings=_settings("covertype", 10, 20, 371, **_NON_IID, clip=2.0),
    ),
)

_CURVES = {recipe.name: recipe for figure in _FIGURES for recipe in figure.recipes()}


def _tried() -> Iterator[Recipe]:
    """Yield curves of the figures with what the paper does not state, or prints, varied."""
    for figure, label, what, changes, curves in _VARIED:
        for curve in curves:
            plain = _CURVES[f"personalized-{figure}-{curve}"]
            assert plain.source is not None
            at, column = plain.source.row, plain.source.column
            yield Recipe(
                name=f"personalized-{figure}-{label}-{curve}",
                config=plain.config.changed(**changes),
                summary=f"{plain.summary}; {what}",
                source=Source(
                    paper=PAPER,
                    place="Tried",
                    row=f"{plain.source.place}, {what}",
                    column=at if column == "accuracy" else f"{at} {column}",
                ),
            )


_LMH = ("lmh-a", "lmh-b", "lmh-c")
_VARIED: tuple[tuple[str, str, str, dict[str, Any], tuple[str, ...]], ...] = (
    ("mnist-fig2", "bytes", "images in bytes", {"feature_scale": 255.0},
     ("none", "low", "high", *_LMH)),
    ("digits-fig2", "rate0.3", "alpha 0.3", {"learning_rate": 0.3}, _LMH),
    ("digits-fig2", "rate3", "alpha 3", {"learning_rate": 3.0}, _LMH),
    ("digits-fig2", "keep", "the last model where nobody is selected", {"empty_selection": "keep"},
     ("lmh-c",)),
    ("fmnist-fig3", "clip200", "c = 200", {"clip": 200.0}, ("low", "middle", "high", *_LMH)),
    ("fmnist-fig3", "budgets10", "ten times the budgets", {"epsilon": [0.5, 5.0, 10.0]}, _LMH),
    ("covertype-fig4", "clip200", "c = 200", {"clip": 200.0}, _LMH),
    *(
        (figure, label, what, changes, ("none",))
        for figure in ("mnist-fig5", "fmnist-fig6", "covertype-fig7")
        for label, what, changes in (
            ("dirichlet0.2", "Dirichlet concentration 0.2", {"partition": "dirichlet:0.2"}),
            ("dirichlet1", "Dirichlet concentration 1", {"partition": "dirichlet:1"}),
            ("steps20", "U = 20", {"local_epochs": 20}),
        )
    ),
    ("mnist-fig5", "steps20", "U = 20", {"local_epochs": 20}, ("high",)),
)  # fmt: skip
"""Figure, a name's part, what is varied, the settings, and the curves."""

_SOUND_MNIST, _SOUND_DIGITS = (
    PersonalizedSoundConfig(
        dataset=dataset, num_clients=clients, epsilon=epsilons, standardise=True, rounds=1,
        local_epochs=5, batch_size=_WHOLE_PORTION, learning_rate=0.1, clip=1.0,
    )
    for dataset, clients, epsilons in (
        ("mnist", 3000, [1.0, 5.0, 10.0] * 1000), ("digits", 100, [1.0, 5.0, 10.0, 10.0] * 25),
    )
)  # fmt: skip
_SOUND_FIG2 = PersonalizedSoundConfig(
    **_settings("mnist", 3, 10, 50, local_epochs=20),
    delta=1 / 500,
    sampling_probability=0.8,
    epsilon=[1.0, 5.0, 10.0],
    clip=20.0,
)
_BY_DEVIATION = ("-deviation", "weights 1/sigma, the paper's", {"weighting": "deviation"})
_ALIKE = ("-uniform", "equal weights", {"weighting": "uniform"})
_SOUND: tuple[tuple[PersonalizedSoundConfig, str, str, dict[str, Any]], ...] = (
    (_SOUND_FIG2, "-fig2-llh", "Fig. 2: LLH", {"epsilon": [1.0, 1.0, 10.0]}),
    (_SOUND_FIG2, "-fig2", "Fig. 2: LMH", {}),
    (_SOUND_FIG2, "-fig2-lhh", "Fig. 2: LHH", {"epsilon": [1.0, 10.0, 10.0]}),
    (_SOUND_MNIST, "", "one round", {}),
    (_SOUND_MNIST, *_BY_DEVIATION),
    (_SOUND_MNIST, *_ALIKE),
    (_SOUND_MNIST, "-signs", "signs alone, 1 bit a weight", {"report": "sign"}),
    (_SOUND_MNIST, "-rounds5", "five rounds", {"rounds": 5}),
    (_SOUND_MNIST, "-rounds5-selected", "five rounds, selected first",
     {"rounds": 5, "selects_first": True}),
    (_SOUND_DIGITS, "", "one round", {}),
    (_SOUND_DIGITS, *_BY_DEVIATION),
    (_SOUND_DIGITS, *_ALIKE),
)  # fmt: skip
"""What is changed, a name's part, what for, and the settings."""


def _sound(base: PersonalizedSoundConfig, part: str, what: str, changes: dict[str, Any]) -> Recipe:
    title = {"mnist": "MNIST", "digits": "digits"}[base.dataset]
    return Recipe(
        name=f"personalized-sound-{base.dataset}{part}",
        config=base.changed(**changes),
        summary=f"Personalised LDP, budgets kept, on {title}: {base.num_clients:,} clients, "
        f"eps 1, 5 or 10 for a whole run; {what}",
        source=Source(
            paper=PAPER, place="Sound", row=f"{title}, {base.num_clients:,} clients", column=what
        ),
    )


RECIPES = (
    *_CURVES.values(),
    Recipe(
        name="personalized-mnist-noniid",
        config=_CURVES["personalized-mnist-fig5-lmh-c"].config,
        summary="Personalised LDP on MNIST, non-IID: randomised signs, eps 5, 10 and 15, "
        "{aggregation} (C)",
    ),
    Recipe(
        name="personalized-digits",
        config=PersonalizedConfig(
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
        ),
        summary="Personalised LDP on digits at the settings of Fig. 2: eps 1, 5, 10, "
        "{aggregation} (C)",
    ),
    *_tried(),
    *(_sound(*row) for row in _SOUND),
)
