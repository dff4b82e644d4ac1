"""Feature priority (Talaei, Izadi 2024) at the paper's settings, and its sound variant.

What the paper does not state is as in ``nbafl``. Its figures have epsilon 0.5 for the features with
more noise and 10 for everything else, the second layer included.
"""

from __future__ import annotations

from fedldp.recipes import Recipe, Source, nbafl
from fedldp.systems.priority import PriorityConfig
from fedldp.systems.priority_public import PriorityPublicConfig

_LEAST20 = PriorityConfig(
    dataset="mnist", num_examples=33_600, model="mlp", num_clients=30, rounds=25, local_epochs=1,
    batch_size=10, learning_rate=0.02, delta=0.01, epsilon_low=0.5, epsilon_high=10.0, clip=5.0,
    send="update", noisier_share=0.2,
)  # fmt: skip
_PUBLIC_LEAST20 = PriorityPublicConfig(
    dataset="mnist", num_examples=33_600, model="mlp", num_clients=30, rounds=25, local_epochs=1,
    batch_size=10, learning_rate=0.02, epsilon=1e4, clip=1.0,
    noisier_share=0.2,
)  # fmt: skip

_CURVES = {
    6: ("variance", (("least", 20), ("least", 40), ("most", 20))),
    7: ("variance", (("least", 50), ("most", 50), ("least", 80), ("most", 80))),
    8: (
        "sensitivity",
        (("least", 20), ("least", 40), ("most", 20), ("least", 50), ("most", 50), ("least", 80),
         ("most", 80)),
    ),
}  # fmt: skip
"""By figure: the importance, and which features have more noise, with their share in percent."""


def _curve(figure: int, importance: str, noisier: str, percent: int) -> Recipe:
    return Recipe(
        name=f"priority-mnist-fig{figure}-{noisier}{percent}",
        config=_LEAST20.changed(
            importance=importance, noisier=noisier, noisier_share=percent / 100
        ),
        summary="Priority on MNIST: eps {epsilon_low:g} on the {noisier_share:.0%} {noisier} "
        f"important features by {importance}, else {{epsilon_high:g}}; Fig. {figure}",
        source=Source(
            paper=nbafl.PAPER,
            place=f"Fig. {figure}",
            row=f"{percent} % {noisier} important, by {importance}",
        ),
    )


def _sound(row: str) -> Source:
    return Source(paper=nbafl.PAPER, place="Sound", row=row)


RECIPES = (
    *(
        _curve(figure, importance, noisier, percent)
        for figure, (importance, curves) in _CURVES.items()
        for noisier, percent in curves
    ),
    *(
        Recipe(
            name=f"priority-mnist-tried-weights-{noisier}20",
            config=_LEAST20.changed(noisier=noisier, send="weights"),
            summary="Priority on MNIST: eps {epsilon_low:g} on the {noisier_share:.0%} {noisier} "
            "important features, weights clipped and sent, as published",
            source=Source(
                paper=nbafl.PAPER, place="Tried", row="Fig. 6, weights are sent",
                column=f"20 % {noisier} important",
            ),
        )
        for noisier in ("least", "most")
    ),
    *(
        Recipe(
            name=f"priority-public-mnist-{noisier}{percent}",
            config=_PUBLIC_LEAST20.changed(noisier=noisier, noisier_share=percent / 100),
            summary="Sound variant on MNIST: eps {epsilon:,.0f} for a run, {noise_ratio:g} times "
            "the noise on the {noisier_share:.0%} {noisier} important features",
            source=_sound(f"{percent} % {noisier} important"),
        )
        for noisier, percent in (("least", 20), ("least", 40), ("most", 20))
    ),
    Recipe(
        name="priority-public-mnist-alike",
        config=_PUBLIC_LEAST20.changed(noise_ratio=1.0),
        summary="Sound variant on MNIST: eps {epsilon:,.0f} for a run, the same noise on all "
        "features",
        source=_sound("no feature has more"),
    ),
    Recipe(
        name="priority-digits",
        config=PriorityConfig(
            dataset="digits", standardise=True, model="logistic", batch_size=5, learning_rate=0.1,
            num_clients=20, rounds=10, delta=0.01, epsilon_low=5.0, epsilon_high=50.0, clip=2.0,
            send="update", noisier_share=0.4,
        ),
        summary="Priority on scikit-learn's digits: eps {epsilon_low:g} on the "
        "{noisier_share:.0%} {noisier} important features, else {epsilon_high:g}",
    ),
    Recipe(
        name="priority-public-digits",
        config=PriorityPublicConfig(
            dataset="digits", standardise=True, model="logistic", batch_size=5, learning_rate=0.1,
            num_clients=100, rounds=5, epsilon=64.0, clip=0.5, noise_ratio=2.0, noisier_share=0.4,
        ),
        summary="Sound variant on digits: eps {epsilon:g} for a run, {noise_ratio:g} times the "
        "noise on the {noisier_share:.0%} {noisier} important features",
    ),
)  # fmt: skip
