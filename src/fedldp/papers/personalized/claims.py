"""What this paper's claims compute; ``claims.toml`` names these functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedldp.algorithms.recipes import find_recipe
from fedldp.papers import Engine

_MIXES = {
    "mnist-fig2": ("llh", "lmh", "lhh"),
    "fmnist-fig3": ("llh", "lmh", "lhh"),
    "covertype-fig4": ("lmh", "lh"),
    "mnist-fig5": ("lmh", "lh"),
    "fmnist-fig6": ("lmh", "lh"),
    "covertype-fig7": ("lmh", "lh"),
}
"""The budget mixes of each figure."""


def bits_of_a_weight(engine: Engine) -> Sequence[float]:
    """Return the number of bits per weight in a report: with noise, as a sign, and with neither."""
    made: list[float] = []
    for curve in ("fig2-low", "fig5-low", "fig2-none"):
        estimate: Any = find_recipe(f"personalized-mnist-{curve}").config.composition.estimate
        made.append(estimate.mechanism(0, 1000).payload_bits(1000) / 1000)
    return made


def sigma_by_clip(engine: Engine) -> Sequence[float]:
    """Return Fig. 2's σ at L with the figure's clip, and with a clip of 2."""
    config = find_recipe("personalized-mnist-fig2-low").config
    wide: Any = config.composition.estimate
    narrow: Any = config.model_copy(update={"clip": 2.0}).composition.estimate
    return [wide.sigma(0), narrow.sigma(0)]


def nobody(engine: Engine) -> Sequence[float]:
    """Return the smallest and the largest value, over all mixes, of two numbers.

    The first is the percentage of draws that select nobody; the second is the factor by which a
    client is selected more often than P_i if such draws are repeated.
    """
    largest = [max(probabilities) for probabilities, _ in _probabilities()]
    shares, times = [100 * (1 - each) for each in largest], [1 / each for each in largest]
    return [min(shares), max(shares), min(times), max(times)]


def shares_of_low(engine: Engine) -> Sequence[float]:
    """Return the weight of clients with the smallest budget in the mean of (C), (B), (A), by mix.

    For (C) this is the average weight over all ω that select at least one client.
    """
    made: list[float] = []
    for probabilities, budgets in _probabilities():
        low = [budget == min(budgets) for budget in budgets]
        weighted = sum(each for each, is_low in zip(probabilities, low, strict=True) if is_low)
        selected = start = 0.0
        # An ω between start and level selects the clients with P_i >= level.
        for level in sorted(set(probabilities)):
            chosen = [
                is_low for each, is_low in zip(probabilities, low, strict=True) if each >= level
            ]
            selected += (level - start) * sum(chosen) / len(chosen)
            start = level
        made += [selected / max(probabilities), weighted, sum(low) / len(low)]
    return made


def _probabilities() -> list[tuple[list[float], list[float]]]:
    """Return every client's P_i and budget, for each mix of every figure."""
    made = []
    for name in (f"{figure}-{mix}" for figure, mixes in _MIXES.items() for mix in mixes):
        noise: Any = find_recipe(f"personalized-{name}-c").config.composition.estimate
        rho = [1 / noise.sigma(client) for client in range(noise.settings.num_clients)]
        made.append(([each / sum(rho) for each in rho], list(noise.settings.epsilon)))
    return made
