"""Unary encoding: one of k categories as k bits with a single 1, each bit randomised separately.

Source: symmetric: Erlingsson, Pihur, Korolova 2014, basic RAPPOR; optimised: Wang, Blocki, Li, Jha
2017, "Locally Differentially Private Protocols for Frequency Estimation", OUE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.core.numbers import exp_below, round_up
from fedldp.core.randomness import Stream
from fedldp.mechanisms.categories import CategoryMechanism, check_categories, rounded_square
from fedldp.papers.ldpfl.bits import FULL, BitLaw, randomise

Variant = Literal["symmetric", "optimised"]

_MOST_LEVELS = 16


@dataclass(frozen=True)
class Unary(CategoryMechanism):
    """Report a category of k as k randomised bits, with p = P(1 -> 1) and q = P(0 -> 1).

    "symmetric" is RAPPOR's p = e^(eps/2)/(1 + e^(eps/2)), q = 1 - p; "optimised" is OUE's p = 1/2,
    q = 1/(1 + e^eps). For labels, use ``randomise``. For a vector, see ``CategoryMechanism``: every
    coordinate's level is a category.

    Guarantee: pure ``epsilon`` for one category; d times that for a vector of d coordinates. The
    input is a category, and this code sets the single 1, so two inputs differ in two bits, whose
    ratios multiply to at most p (1 - q)/(q (1 - p)). It is exact, computed from the integers that
    are compared. Bits that may all differ cost more: use ``randomised_bits`` for them.

    Args:
        epsilon: the budget of one category, from 1e-6 to 32.
        categories: k, from 2 to 65,536.
        variant: which probabilities to use.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "unary"

    epsilon: float
    categories: int
    variant: Variant = "optimised"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in get_args(Variant):
            raise ConfigError(f"variant = {self.variant}: choose {', '.join(get_args(Variant))}")

    @classmethod
    def candidates(cls, epsilon: float) -> Iterable[Unary]:
        """Return mechanisms of 2 to 16 levels, of both variants."""
        levels = range(2, _MOST_LEVELS + 1)
        return (cls(epsilon, k, variant) for k in levels for variant in get_args(Variant))

    @cached_property
    def law(self) -> BitLaw:
        """How each bit is randomised."""
        if self.variant == "symmetric":
            power = exp_below(Fraction(self.epsilon) / 2)
            return BitLaw.of_odds(1 / power, power)
        return BitLaw.of_odds(Fraction(1), exp_below(Fraction(self.epsilon)))

    @property
    def realised_epsilon(self) -> float:
        """The pure epsilon of one category, ln(p (1 - q)/(q (1 - p))), rounded up."""
        return min(self.epsilon, self.law.one_hot_epsilon)

    @property
    def revealing_probability(self) -> float:
        """The probability that the bits of the two categories differ: p (1 - q) + q (1 - p)."""
        one, zero = Fraction(self.law.if_one, FULL), Fraction(self.law.if_zero, FULL)
        return round_up(one * (1 - zero) + zero * (1 - one))

    @property
    def gain(self) -> float:
        """The gain p - q: p is the probability of the true category, q that of any other one."""
        return self.law.gain

    @property
    def other_probability(self) -> float:
        """q; see ``CategoryMechanism.other_probability``."""
        return self.law.if_zero / FULL

    def randomise(self, categories: NDArray[np.integer], stream: Stream) -> NDArray[np.uint8]:
        """Return k bits for each category, shape (n, k); see ``CategoryMechanism.randomise``."""
        check_categories(categories, self.categories)
        bits = np.zeros((categories.size, self.categories), np.uint8)
        bits[np.arange(categories.size), categories] = 1
        return randomise(bits, [self.law], stream)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of the bits' sum of levels, given the level, and of the rounding."""
        bounded = self.bound(values)
        last = self.categories - 1
        square = rounded_square(bounded, last) * (2 / last) ** 2
        # The sum of the squares of all k levels.
        all_squares = self.categories * (self.categories + 1) / (3 * last)
        of_zero, of_one = self.law.variances()
        bits = of_zero * all_squares + (of_one - of_zero) * square
        return bits / self.gain**2 + square - bounded**2

    def payload_bits(self, size: int) -> int:
        """Return k bits for each coordinate."""
        return self.categories * size

    def _pack(self, reports: NDArray[np.integer]) -> bytes:
        return np.packbits(reports).tobytes()

    def _levels(self, payload: bytes, size: int) -> NDArray[np.int64]:
        bits = np.unpackbits(np.frombuffer(payload, np.uint8), count=size * self.categories)
        levels = 2 * np.arange(self.categories) - (self.categories - 1)
        return bits.reshape(size, self.categories) @ levels

    @classmethod
    def examples(cls) -> Sequence[Unary]:
        """Return instances for the contract tests."""
        return [
            cls(1.0, 4),
            cls(1.0, 4, "symmetric"),
            cls(0.01, 2),
            cls(32.0, 3, "symmetric"),
            cls(32.0, 16),
        ]
