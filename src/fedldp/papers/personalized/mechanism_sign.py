"""The private sign: +1 with probability Phi(x/sigma).

Source: Jin, Huang, He, Dai, Wu 2020, "Stochastic-Sign SGD for Federated Learning with Theoretical
Guarantees" (arXiv 2002.10940), dp-sign; Wu, Xu, Zhu 2023, "Local Differential Privacy-Based
Federated Learning under Personalized Settings", for non-IID data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import check_positive
from fedldp.core.randomness import Stream
from fedldp.mechanisms import BitMechanism, MechanismSettings
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP, check_between
from fedldp.mechanisms.two_point import LIMITS, TwoPoint
from fedldp.papers.personalized.numerics import sign_epsilon_per_coordinate, sign_sigma


@dataclass(frozen=True)
class Sign(BitMechanism):
    """Clip every coordinate x to [-c, c], and send the bit 1 with probability Phi(x/sigma).

    Phi is the standard normal distribution function, so this is the sign of x plus Gaussian noise.
    It is also the two-point randomiser of y = (2 Phi(x/sigma) - 1)/(2 Phi(c/sigma) - 1) with the
    epsilon below, and is drawn by that randomiser. A bit stands for c K or -c K, where K is the
    scale of that randomiser. So a report estimates c y, which equals x at -c, 0 and c, and is
    further from 0 in between.

    Guarantee: pure ln(Phi(c/sigma)/Phi(-c/sigma)) for one coordinate, and d times that for a report
    of d coordinates: each is clipped separately, so each may be at either end. It holds exactly, by
    the integer thresholds of ``TwoPoint``, whatever floating point does.

    Args:
        clip: c, from 1e-9 to 1e9.
        sigma: positive, and such that ``TwoPoint`` accepts a coordinate's epsilon.
        integer_bits: the number of bits in a random comparison, 64 or 32.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "sign"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    clip: float
    sigma: float
    integer_bits: Literal[64, 32] = 64

    def __post_init__(self) -> None:
        check_between("clip", self.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_positive("sigma", self.sigma)
        if self.integer_bits not in LIMITS:
            raise ConfigError(f"integer_bits = {self.integer_bits}: choose 64 or 32")
        least, largest = LIMITS[self.integer_bits]
        if not least <= self.epsilon_per_weight <= largest:
            raise ConfigError(
                f"sigma = {self.sigma}: with clip = {self.clip} a coordinate costs epsilon "
                f"{self.epsilon_per_weight:g}; give a sigma for which it is {least:g} to "
                f"{largest:g} (with integer_bits = {self.integer_bits})"
            )

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Sign:
        """Return the mechanism with the proven cost ``settings.epsilon`` for a weight."""
        check_between("clip", settings.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_between("epsilon", settings.epsilon, *LIMITS[settings.integer_bits])
        sigma = sign_sigma(settings.clip, settings.epsilon)
        return cls(settings.clip, sigma, settings.integer_bits)

    @cached_property
    def epsilon_per_weight(self) -> float:
        """The pure epsilon of one coordinate, rounded up."""
        return sign_epsilon_per_coordinate(self.clip, self.sigma)

    @cached_property
    def bits(self) -> TwoPoint:
        """The randomiser of y."""
        return TwoPoint(self.epsilon_per_weight, self.integer_bits)

    @property
    def scale(self) -> float:
        """The size of the two values that a bit stands for, c K."""
        return self.clip * self.bits.scale

    def event(self, size: int) -> BinaryRandomizedResponse:
        """Return ``size`` independent bits of ``epsilon_per_weight`` each."""
        return self.bits.event(size)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one bit for each coordinate, most significant first; see ``Mechanism.encode``."""
        check_releasable(values)
        return self.bits.encode(self._curve(values), stream)

    def _curve(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        # 2 Phi(t) - 1 is erf(t/sqrt(2)). Numerator and denominator both use erf, so that y is
        # exactly 1 at the clip.
        unit = self.sigma * math.sqrt(2)
        bent: NDArray[np.float64] = erf(self.bound(values) / unit) / erf(self.clip / unit)
        return bent

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` clipped to [-c, c]."""
        return np.clip(values.astype(np.float64), -self.clip, self.clip)

    def expected(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return c y, for the bounded x."""
        return self.clip * self._curve(values)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return (c K)^2 - (c y)^2."""
        return self.scale**2 - self.expected(values) ** 2

    @classmethod
    def examples(cls) -> Sequence[Sign]:
        """Return instances for the contract tests."""
        return [
            cls(1.0, 1.0),
            cls(4.0, paper_sigma(5.0, 1e-5, 8.0)),
            cls(0.5, 1e3),
            cls(1.0, 0.15),
            cls(1.0, 0.3, 32),
        ]


def paper_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the paper's sigma, (Delta_2/epsilon) sqrt(2 ln(1.25/delta)).

    This classical formula calibrates Gaussian noise for epsilon up to 1, if Delta_2 is the
    sensitivity that a clip proves. For a larger epsilon the formula is not valid in general. The
    events state what holds for this sigma.

    Args:
        epsilon: positive.
        delta: above 0 and below 1.
        sensitivity: Delta_2, positive.

    Raises:
        ConfigError: an argument is out of range.

    Source: Wu, Xu, Zhu 2023; Dwork, Roth 2014, Theorem A.1.

    >>> round(paper_sigma(5.0, 1e-5, 8.0), 12)
    7.751688420169
    """
    check_positive("epsilon", epsilon)
    check_positive("sensitivity", sensitivity)
    if not 0 < delta < 1:
        raise ConfigError(f"delta = {delta}: give a number above 0 and below 1, such as 1e-5")
    return sensitivity / epsilon * math.sqrt(2 * math.log(1.25 / delta))
