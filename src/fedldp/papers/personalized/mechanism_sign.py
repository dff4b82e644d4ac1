"""The private sign: +1 with probability Phi(x/sigma).

Source: Jin, Huang, He, Dai, Wu 2020, "Stochastic-Sign SGD for Federated Learning with Theoretical
Guarantees" (arXiv 2002.10940), dp-sign; Wu, Xu, Zhu 2023, "Local Differential Privacy-Based
Federated Learning under Personalized Settings", for non-IID data. Its closed forms, and bounds for
whole vectors, stand below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.accounting.numerics.known import check
from fedldp.core.bounding import check_releasable
from fedldp.core.deferred import special
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import check_positive
from fedldp.core.randomness import Stream
from fedldp.mechanisms import BitMechanism, MechanismSettings
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP, check_between
from fedldp.mechanisms.two_point import LIMITS, TwoPoint


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

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "sign"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    clip: float
    sigma: float
    integer_bits: Literal[64] = field(default=64, init=False)

    def __post_init__(self) -> None:
        check_between("clip", self.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_positive("sigma", self.sigma)
        least, largest = LIMITS
        if not least <= self.epsilon_per_weight <= largest:
            raise ConfigError(
                f"sigma = {self.sigma}: with clip = {self.clip} a coordinate costs epsilon "
                f"{self.epsilon_per_weight:g}; give a sigma for which it is {least:g} to "
                f"{largest:g}"
            )

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Sign:
        """Return the mechanism with the proven cost ``settings.epsilon`` for a weight."""
        check_between("clip", settings.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_between("epsilon", settings.epsilon, *LIMITS)
        return cls(settings.clip, sign_sigma(settings.clip, settings.epsilon))

    @cached_property
    def epsilon_per_weight(self) -> float:
        """The pure epsilon of one coordinate, rounded up."""
        return sign_epsilon_per_coordinate(self.clip, self.sigma)

    @cached_property
    def bits(self) -> TwoPoint:
        """The randomiser of y."""
        return TwoPoint(self.epsilon_per_weight)

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
        bent: NDArray[np.float64] = special.erf(self.bound(values) / unit) / special.erf(
            self.clip / unit
        )
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

    Source: Wu, Xu, Zhu 2023; Dwork, Roth 2014, Theorem A.1.

    >>> round(paper_sigma(5.0, 1e-5, 8.0), 12)
    7.751688420169
    """
    return sensitivity / epsilon * math.sqrt(2 * math.log(1.25 / delta))


# A relative margin that covers the few rounding errors of each closed form.
_ROUNDING = 2.0**-49


def sign_epsilon_per_coordinate(clip: float, sigma: float) -> float:
    """Return the pure epsilon of a randomised sign: +1 with probability Phi(x/sigma), |x| <= clip.

    It is ln(Phi(clip/sigma)/Phi(-clip/sigma)), rounded up.

    Args:
        clip: the bound of the coordinate, positive.
        sigma: standard deviation, positive.
    """
    ratio = clip / sigma
    if ratio < 1:
        # ln((1 + t)/(1 - t)), t = 2 Phi(ratio) - 1, keeps the digits that a difference of
        # logarithms would lose.
        return _up(2 * math.atanh(math.erf(ratio / math.sqrt(2))))
    return _up(float(special.log_ndtr(ratio) - special.log_ndtr(-ratio)))


def sign_sigma(clip: float, epsilon_per_coordinate: float) -> float:
    """Return the sigma for which a randomised sign costs ``epsilon_per_coordinate``.

    Args:
        clip: the bound of the coordinate, positive.
        epsilon_per_coordinate: above 0 and up to 700.

    Returns:
        clip/Phi^-1(e^eps/(1 + e^eps)), rounded up.
    """
    smaller = 1 / (1 + math.exp(epsilon_per_coordinate))
    # For a tiny epsilon, 1/2 - smaller has lost its digits; slightly more noise makes up for that.
    sigma = clip / -float(special.ndtri(smaller)) * (1 + 1e-10)
    while sign_epsilon_per_coordinate(clip, sigma) > epsilon_per_coordinate:
        sigma *= 1 + 1e-8
    return sigma


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


check("sign_epsilon", sign_epsilon_per_coordinate(4, 7.75168842016862), 0.833424791950697, 1e-10)
