"""What this paper's claims compute; ``claims.toml`` names these functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

from fedldp.algorithms.recipes import find_recipe
from fedldp.papers import Engine
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits
from fedldp.papers.ldpfl.mechanism_unary import Unary, Variant


def kept_by_eq_11(engine: Engine) -> Sequence[float]:
    """Return the probability that eq. 11 keeps a bit at epsilon 0.5, in percent."""
    return [100 / (1 + math.exp(-0.5 / 10_240))]


def budgets_of_a_bit(engine: Engine) -> Sequence[float]:
    """Return eq. 11's epsilon of a bit: in one vector, and in 1,024 values of ten bits."""
    return [0.5 / 10_240, 0.5 / 1_024 / 10]


def realised_epsilons(engine: Engine) -> Sequence[float]:
    """Return the epsilon of our integer sampling for one-hot vectors, at a claimed epsilon of 1."""
    return [Unary(1.0, 10, variant).law.one_hot_epsilon for variant in get_args(Variant)]


def proven(engine: Engine, theorem: Literal["theorem_1", "theorem_2"]) -> Sequence[float]:
    """Return the epsilon that is proven for 10,240 bits under a theorem."""
    event = RandomisedBits(0.5, theorem, 10.0).event(10_240)
    return [math.fsum(epsilon * count for epsilon, count in event.groups)]


def zeros_kept(engine: Engine, *alphas: float) -> Sequence[float]:
    """Return the percentage of zeros that Theorem 1 keeps, for each alpha."""
    return [_kept(0, 10_240, alpha) for alpha in alphas]


def ones_kept_of(engine: Engine, *lengths: int) -> Sequence[float]:
    """Return the percentage of ones that Theorem 1 keeps in strings of some lengths."""
    return [_kept(1, num_bits, 10.0) for num_bits in lengths]


def ones_kept(engine: Engine, *alphas: float) -> Sequence[float]:
    """Return the percentage of ones that Theorem 2 keeps, at even and odd positions, by alpha."""
    laws = [RandomisedBits(0.5, "theorem_2", alpha).laws(10_240) for alpha in alphas]
    return [100 * law[place].if_one / 2**64 for place in (0, 1) for law in laws]


def mostly_kept(engine: Engine) -> Sequence[float]:
    """Return how many of the four kinds of bits (1 or 0, even or odd position) are mostly kept."""
    alpha, x = 10.0, 0.5 / (10_240 / 2)
    zeros = alpha * math.exp(x) / (1 + alpha * math.exp(x))
    laws = [alpha / (1 + alpha), zeros, 1 / (1 + alpha**3), zeros]
    return [float(sum(law > 0.5 for law in laws))]


def bits(engine: Engine) -> Sequence[float]:
    """Return the number of bits per example for each recipe's data set."""
    made: list[float] = []
    for name in ("ldpfl-mnist", "ldpfl-cifar10", "ldpfl-svhn-fig8", "ldpfl-fmnist"):
        config = find_recipe(name).config
        features: Any = config.composition.features
        made.append(float(features.num_bits(engine.problem(config))))
    return made


def change_of_odds(engine: Engine) -> Sequence[float]:
    """Return by what percentage epsilon 10 changes the odds of keeping a bit from epsilon 0.5."""
    return [100 * (math.exp(9.5 / 5120) - 1)]


def _kept(bit: Literal[0, 1], num_bits: int, alpha: float) -> float:
    """Return the probability that Theorem 1 keeps a bit of an example, in percent."""
    (law,) = RandomisedBits(0.5, "theorem_1", alpha).laws(num_bits)
    return 100 * (law.if_one / 2**64 if bit else 1 - law.if_zero / 2**64)
