"""k-ary randomised response: the true category with probability p, otherwise any other one.

Source: Kairouz, Bonawitz, Ramage 2016, "Discrete Distribution Estimation under Local Privacy";
the estimator is from Wang, Blocki, Li, Jha 2017, "Locally Differentially Private Protocols for
Frequency Estimation".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.core.numbers import exp_below, round_up
from fedldp.core.randomness import Stream
from fedldp.mechanisms.categories import CategoryMechanism, check_categories
from fedldp.mechanisms.piecewise import Window

_MOST_LEVELS = 64


@dataclass(frozen=True)
class KRR(CategoryMechanism):
    """Report category i of k with p = e^eps/(e^eps + k - 1), each other one with q = p/e^eps.

    For labels, use ``randomise``. For a vector, see ``CategoryMechanism``: every coordinate's level
    is a category; two levels are the two-point randomiser.

    Guarantee: pure ``epsilon`` for one category; d times that for a vector of d coordinates. It
    holds exactly: p and q are integers over their total, and their ratio is at most e^epsilon.

    Args:
        epsilon: the budget of one category, from 1e-6 to 32.
        categories: k, from 2 to 65,536.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "k_rr"

    epsilon: float
    categories: int

    @classmethod
    def candidates(cls, epsilon: float) -> Iterable[KRR]:
        """Return mechanisms of 2 to 64 levels."""
        return (cls(epsilon, k) for k in range(2, _MOST_LEVELS + 1))

    @cached_property
    def window(self) -> Window:
        """The distribution of a report: a window of one cell, the true category."""
        return Window.of_ratio(exp_below(Fraction(self.epsilon)), 1, self.categories)

    @property
    def realised_epsilon(self) -> float:
        """The pure epsilon of one category, ln(p/q), rounded up."""
        return self.window.realised(self.epsilon)

    @property
    def revealing_probability(self) -> float:
        """The probability of a report that names one of the two categories: p + q."""
        return round_up(Fraction(self.window.high + self.window.low, self.window.total))

    @property
    def gain(self) -> float:
        """The gain p - q: p is the probability of the true category, q that of any other one."""
        return (self.window.high - self.window.low) / self.window.total

    @property
    def other_probability(self) -> float:
        """q; see ``CategoryMechanism.other_probability``."""
        return self.window.low / self.window.total

    def randomise(self, categories: NDArray[np.integer], stream: Stream) -> NDArray[np.int64]:
        """Return a category for each of ``categories``; see ``CategoryMechanism.randomise``."""
        check_categories(categories, self.categories)
        return self.window.draw(categories.astype(np.uint64), stream).astype(np.int64)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the mean square of the estimate of a level, rounding included, less x^2."""
        bounded = self.bound(values)
        return self.window.mean_square(bounded) - bounded**2

    def payload_bits(self, size: int) -> int:
        """Return 8 or 16 bits for each coordinate."""
        return 8 * self._word.itemsize * size

    @property
    def _word(self) -> np.dtype[Any]:
        return np.dtype("u1" if self.categories <= 256 else "<u2")

    def _pack(self, reports: NDArray[np.integer]) -> bytes:
        return reports.astype(self._word).tobytes()

    def _levels(self, payload: bytes, size: int) -> NDArray[np.int64]:
        reports = np.frombuffer(payload, self._word).astype(np.int64)
        if reports.max() >= self.categories:
            raise RunError(
                "a report with unknown categories: client and server run different mechanisms"
            )
        return 2 * reports - (self.categories - 1)

    @classmethod
    def examples(cls) -> Sequence[KRR]:
        """Return instances for the contract tests."""
        return [cls(1.0, 10), cls(0.01, 2), cls(32.0, 4), cls(10.0, 65_536)]
