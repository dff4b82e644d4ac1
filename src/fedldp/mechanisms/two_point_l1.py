"""The two-point randomiser of a vector of bounded L1 norm: private as a whole, not bit by bit.

Source: the randomiser is from Duchi, Jordan, Wainwright 2018 (see ``two_point``); the bound for the
whole vector is this project's own, proved below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import check_positive
from fedldp.core.randomness import Stream
from fedldp.mechanisms import BitMechanism, MechanismSettings
from fedldp.mechanisms.two_point import LIMITS, TwoPoint

# Exceeds the relative rounding error of any few elementary functions in float64.
_ROUND_UP = 1 + 2.0**-48


@dataclass(frozen=True)
class TwoPointL1(BitMechanism):
    """Clip x to [-1, 1] and to an L1 norm of S = ``clip``, then send its two-point bits.

    Guarantee: pure min(d eps0, S (a - ln(1 - a))) for a whole report of d coordinates, with
    eps0 = ``epsilon_per_weight`` and a = (e^eps0 - 1)/(e^eps0 + 1); pure eps0 for one coordinate.

    Proof: a bit b = +1 or -1 has probability (1 + b y)/2, where y = a x. For inputs x and x', ln(1
    + b y) <= |y|, and -ln(1 - |y'|) <= -(|y'|/a) ln(1 - a) by convexity, for |y'| <= a. Summed over
    the coordinates, with sum |y| <= a S, the log-ratio is at most a S - S ln(1 - a). The bound also
    holds with rounding: see ``l1_limit``.

    Args:
        epsilon_per_weight: eps0, as for ``TwoPoint``.
        clip: S, the largest L1 norm of a vector of normalised coordinates; positive.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "two_point_l1"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    epsilon_per_weight: float
    clip: float
    integer_bits: Literal[64] = field(default=64, init=False)

    def __post_init__(self) -> None:
        check_positive("clip", self.clip)
        _ = self.bits  # checks epsilon_per_weight

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> TwoPointL1:
        """Return the mechanism with the largest eps0 whose whole report is ``epsilon``-private."""
        check_positive("epsilon", settings.epsilon)
        per_weight = _largest_epsilon_per_weight(settings)
        least = LIMITS[0]
        if per_weight < least:
            raise ConfigError(
                f"epsilon = {settings.epsilon:g}: with clip = {settings.clip:g} that is "
                f"{per_weight:g} per weight, less than {least:g}; give a larger epsilon or a "
                "smaller clip"
            )
        mechanism = cls(per_weight, settings.clip)
        mechanism.l1_limit(settings.size)  # refuses a clip that is too small
        return mechanism

    @cached_property
    def bits(self) -> TwoPoint:
        """The randomiser of the clipped coordinates."""
        return TwoPoint(self.epsilon_per_weight)

    @property
    def scale(self) -> float:
        """K of the bits, as realised."""
        return self.bits.scale

    def event(self, size: int) -> BinaryRandomizedResponse:
        """Return ``size`` bits of eps0 each, with a whole-report bound if the L1 clip can apply.

        The clip cannot apply if it leaves even the vector with the largest norm unchanged.
        """
        bits = self.bits.event(size)
        if self.l1_limit(size) >= size:
            return bits
        return replace(bits, whole=whole_report_epsilon(self.epsilon_per_weight, self.clip, size))

    def l1_limit(self, size: int) -> float:
        """Return the computed L1 norm up to which ``size`` coordinates are left unchanged.

        It is far enough below ``clip`` that the proof holds for the actual thresholds. With h =
        2^63 - Tmin <= a 2^63, the thresholds are 2^63 + floor(h x), with h and the product rounded
        to float64. So y is off by a relative 2^-51, and by 2^-63 for the floor. A float64 sum of d
        absolute values is below the true sum by a relative d 2^-53 at most, in any order. So sum
        |y| <= a S if the computed norm is at most S (1 - (d + 8) 2^-52) - d/h: its first term
        leaves twice the room that the relative errors need, including its own.

        Raises:
            ConfigError: nothing is left of ``clip``.
        """
        floors = size / self.bits.comparison.half
        limit = self.clip * (1 - _slack(size)) - floors
        if limit <= 0:
            raise ConfigError(
                f"clip = {self.clip} is too small for {size} coordinates that cost an epsilon of "
                f"{self.epsilon_per_weight:g} each; give a larger clip or epsilon"
            )
        return limit

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one bit for each coordinate, most significant first; see ``Mechanism.encode``."""
        check_releasable(values)
        return self.bits.encode(self.bound(values), stream)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` clipped to [-1, 1], then scaled down to the L1 norm ``clip``."""
        bounded = self.bits.bound(values)
        norm = float(np.abs(bounded).sum())
        limit = self.l1_limit(values.size)
        # Scale down by an extra slack, so that bounding the result again leaves it unchanged.
        return bounded if norm <= limit else bounded * (limit * (1 - _slack(values.size)) / norm)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return K^2 - x^2, for the bounded x."""
        return self.scale**2 - self.bound(values) ** 2

    @classmethod
    def examples(cls) -> Sequence[TwoPointL1]:
        """Return instances for the contract tests."""
        return [cls(1.0, 100.0), cls(0.01, 1.0), cls(32.0, 2.5), cls(8.0, 1e6)]


def whole_report_epsilon(epsilon_per_weight: float, clip: float, size: int) -> float:
    """Return min(d eps0, S (a - ln(1 - a))), rounded up: pure epsilon of a whole report.

    It increases with ``epsilon_per_weight``. Here -ln(1 - a) = ln(1 + (e^eps0 - 1)/2).

    Args:
        epsilon_per_weight: eps0.
        clip: S, the L1 norm bound on the normalised vector.
        size: d, its coordinates.
    """
    per_norm: float = math.tanh(epsilon_per_weight / 2) + math.log1p(
        math.expm1(epsilon_per_weight) / 2
    )
    bound: float = min(size * epsilon_per_weight, clip * per_norm) * _ROUND_UP
    return bound


def _largest_epsilon_per_weight(settings: MechanismSettings) -> float:
    """Bisect down to neighbouring floats, and return the lower one."""
    low, high = 0.0, LIMITS[1]
    if whole_report_epsilon(high, settings.clip, settings.size) <= settings.epsilon:
        return high
    while low < (middle := (low + high) / 2) < high:
        if whole_report_epsilon(middle, settings.clip, settings.size) <= settings.epsilon:
            low = middle
        else:
            high = middle
    return low


def _slack(size: int) -> float:
    return (size + 8) * 2.0**-52
