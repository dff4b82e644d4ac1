"""The two-point randomiser: one bit for each coordinate.

Source: Duchi, Jordan, Wainwright 2018; with ranges (c, r) in Sun, Qian, Chen 2021, eq. 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import TwoValuedBits
from fedldp.bounding import check_releasable
from fedldp.errors import ConfigError
from fedldp.mechanisms import BitMechanism, MechanismSettings
from fedldp.randomness import Stream

# Coordinates randomised at a time: the working arrays stay in the second-level cache.
_BLOCK = 1 << 16

_EXACT = Context(prec=60)

LIMITS = {64: (1e-12, 32.0), 32: (1e-6, 10.0)}
"""The least and the largest epsilon by the bits of the comparison: beyond them too few integers lie
between the two probabilities, or below the smaller one."""


@dataclass(frozen=True)
class TwoPoint(BitMechanism):
    """Report a coordinate x in [-1, 1] as the bit 1 with probability 1/2 + x/(2K), else 0.

    K = (e^eps + 1)/(e^eps - 1), so K (2 bit - 1) estimates x without bias, with variance K^2 - x^2.

    Guarantee: pure ``epsilon_per_weight`` for one coordinate; d times that for a report of d.
    It holds exactly, whatever floating point does: a coordinate's bit is U < T, with U a uniform
    integer of ``integer_bits`` bits and T an integer clamped to [Tmin, 2^B - Tmin], so both outcome
    probabilities lie between Tmin/2^B and 1 - Tmin/2^B for every input.

    Args:
        epsilon_per_weight: from 1e-12 to 32 (1e-6 to 10 with 32 bits).
        integer_bits: B, 64 or 32.

    Raises:
        ConfigError: ``epsilon_per_weight`` is out of range.
    """

    name: ClassVar[str] = "two_point"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    epsilon_per_weight: float
    integer_bits: Literal[64, 32] = 64

    def __post_init__(self) -> None:
        if self.integer_bits not in LIMITS:
            raise ConfigError(f"integer_bits = {self.integer_bits}: choose 64 or 32")
        _check_epsilon("epsilon_per_weight", self.epsilon_per_weight, self.integer_bits)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> TwoPoint:
        """Return the mechanism of ``settings.epsilon`` per weight."""
        _check_epsilon("epsilon", settings.epsilon, settings.integer_bits)
        return cls(settings.epsilon, settings.integer_bits)

    def event(self, size: int) -> TwoValuedBits:
        """Return ``size`` independent bits of ``epsilon_per_weight`` each (Theorem 1)."""
        realised = math.nextafter(self.realised_epsilon, math.inf)
        return TwoValuedBits(epsilon=min(realised, self.epsilon_per_weight), coordinates=size)

    @cached_property
    def threshold_min(self) -> int:
        """Tmin = ceil(2^B / (1 + e^eps)), exact in integers."""
        return _ceil_of_share(self.epsilon_per_weight, self.integer_bits)

    @cached_property
    def realised_epsilon(self) -> float:
        """The pure epsilon that the integers really give: ln((2^B - Tmin)/Tmin) <= epsilon."""
        odds = _EXACT.divide(
            Decimal((1 << self.integer_bits) - self.threshold_min), Decimal(self.threshold_min)
        )
        # The exact value is no larger than epsilon, so a rounding to a float may not make it so.
        return min(float(_EXACT.ln(odds)), self.epsilon_per_weight)

    @property
    def scale(self) -> float:
        """K as realised: 2^B / (2^B - 2 Tmin)."""
        full = 1 << self.integer_bits
        return full / (full - 2 * self.threshold_min)

    @property
    def _half(self) -> int:
        # Thresholds relative to 2^(B-1) are symmetric, from -half to half, and fit a signed word.
        return (1 << (self.integer_bits - 1)) - self.threshold_min

    def thresholds(self, values: NDArray[np.floating]) -> list[int]:
        """Return the integer threshold T of each value, shape (d,): P(bit = 1) = T / 2^B."""
        middle = 1 << (self.integer_bits - 1)
        return [middle + self._offset(float(y)) for y in self._scaled(np.asarray(values))]

    def _scaled(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        # In units of 2^32 (of one for B = 32): the integer part is compared with a random word.
        half = values.dtype.type(math.ldexp(self._half, self._shift))
        if math.ldexp(float(half), -self._shift) < self._half:
            # Rounded up, so that -1 and 1 reach the last thresholds, where all are clamped.
            half = np.nextafter(half, values.dtype.type(math.inf))
        scaled: NDArray[np.floating] = np.clip(values, -1, 1)
        scaled *= half
        return scaled

    @property
    def _shift(self) -> int:
        return 32 - self.integer_bits

    def _offset(self, scaled: float) -> int:
        exact = math.floor(scaled * 2.0**-self._shift)
        return max(-self._half, min(exact, self._half))

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one bit for each coordinate, most significant first; see ``Mechanism.encode``."""
        check_releasable(values)
        flat = values.reshape(-1)
        packed = [
            self._encode_block(flat[start : start + _BLOCK], stream)
            for start in range(0, flat.size, _BLOCK)
        ]
        return b"".join(packed)

    def _encode_block(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Compare U with T by their high 32 bits; draw low bits only where those are equal.

        The low word of a uniform integer is independent of its high word, so drawing it late
        changes nothing in the distribution; it is needed once in 2^32 coordinates.
        """
        scaled = self._scaled(values)
        words = stream.integers(values.size, np.int32)
        up = self._half >> -self._shift
        high = _to_int32(np.floor(scaled), largest=up)
        np.clip(high, -self._half >> -self._shift, up, out=high)
        ones = words < high
        if self.integer_bits > 32:
            ties = words == high
            for i in np.flatnonzero(ties) if ties.any() else ():
                offset = self._offset(float(scaled[i]))
                drawn = (int(words[i]) << 32) + int(stream.integers(1, np.uint32)[0])
                ones[i] = drawn < offset
        return np.packbits(ones).tobytes()

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` clipped to [-1, 1]."""
        return np.clip(values.astype(np.float64), -1, 1)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return K^2 - x^2 (Lemma 2, with the term that the paper drops)."""
        return self.scale**2 - self.bound(values) ** 2

    @classmethod
    def examples(cls) -> Sequence[TwoPoint]:
        """Return instances for the contract tests."""
        return [cls(1.0), cls(0.01), cls(8.0), cls(32.0), cls(1.0, 32), cls(10.0, 32)]


def _to_int32(whole: NDArray[np.floating], largest: int) -> NDArray[np.int32]:
    # The threshold of the very top may be rounded up to 2^31, which int32 does not hold: a float32
    # below it is rounded up by 128 at most.
    if largest < 2**31 - 256:
        return whole.astype(np.int32)
    over = whole >= 2**31
    result = np.where(over, 0, whole).astype(np.int32)
    result[over] = largest
    return result


def _ceil_of_share(epsilon: float, bits: int) -> int:
    """Return ceil(2^bits / (1 + e^epsilon)), by decimals that leave no doubt about the ceiling."""
    share = _EXACT.divide(Decimal(2**bits), _EXACT.add(1, _EXACT.exp(Decimal(epsilon))))
    return int(share.to_integral_value(rounding=ROUND_CEILING))


def _check_epsilon(name: str, epsilon: float, integer_bits: Literal[64, 32]) -> None:
    least, largest = LIMITS[integer_bits]
    if not least <= epsilon <= largest:
        raise ConfigError(
            f"{name} = {epsilon}: give a number from {least:g} to {largest:g} (with integer_bits = "
            f"{integer_bits})"
        )
