"""Bits that become 0 or 1 by integer comparisons: what the mechanisms of bits share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.exact import log_up
from fedldp.core.randomness import Stream

FULL = 1 << 64

# Bits randomised at a time: the working arrays stay in the second-level cache.
_BLOCK = 1 << 17
# U < T is decided by the high bits of both, and by the low ones where the high ones are equal.
_LOW_BITS = 48


@dataclass(frozen=True)
class BitLaw:
    """How one bit is randomised: to a 1 with probability T/2^64, where T depends on the bit.

    Attributes:
        if_one: T of a 1, from 1 to 2^64 - 1.
        if_zero: T of a 0, likewise, and another number.

    Raises:
        ConfigError: an outcome is impossible, or tells nothing.
    """

    if_one: int
    if_zero: int

    def __post_init__(self) -> None:
        if not (0 < self.if_one < FULL and 0 < self.if_zero < FULL):
            raise ConfigError(f"{self}: give probabilities above 0 and below 1")
        if self.if_one == self.if_zero:
            raise ConfigError(
                "a randomised 1 and a randomised 0 are the same: give a larger epsilon, or fewer "
                "bits, or another alpha"
            )

    @classmethod
    def of_odds(cls, zero_if_one: Fraction, zero_if_zero: Fraction) -> BitLaw:
        """Return the law of two odds P(0)/P(1), those of a 1 and of a 0.

        T = 2^64/(1 + odds) is rounded so that the two come closer, which costs no privacy.
        """
        one, zero = FULL / (1 + zero_if_one), FULL / (1 + zero_if_zero)
        if one > zero:
            low, high = math.ceil(zero), math.floor(one)
            return cls(max(low, high), low)
        low, high = math.ceil(one), math.floor(zero)
        return cls(low, max(low, high))

    @cached_property
    def epsilon(self) -> float:
        """The pure epsilon of the bit: ln of the largest ratio of an outcome's probabilities."""
        ones = Fraction(self.if_one, self.if_zero)
        zeros = Fraction(FULL - self.if_one, FULL - self.if_zero)
        return log_up(max(ones, 1 / ones, zeros, 1 / zeros))

    @property
    def one_hot_epsilon(self) -> float:
        """The pure epsilon of a vector with a single 1, which may move: then two bits change."""
        ones = Fraction(self.if_one, self.if_zero)
        zeros = Fraction(FULL - self.if_one, FULL - self.if_zero)
        return log_up(max(ones / zeros, zeros / ones))

    @property
    def gain(self) -> float:
        """P(1 -> 1) - P(0 -> 1)."""
        return (self.if_one - self.if_zero) / FULL

    def variances(self) -> tuple[float, float]:
        """Return the variance of a randomised 0 and of a randomised 1."""
        zero, one = (t / FULL * ((FULL - t) / FULL) for t in (self.if_zero, self.if_one))
        return zero, one


def randomise(bits: NDArray[np.uint8], laws: Sequence[BitLaw], stream: Stream) -> NDArray[np.uint8]:
    """Return randomised copies of rows of bits: about a second for 10^8 of them.

    Every bit has a uniform integer U of 64 bits to itself, and becomes U < T. The low 48 bits of U
    are drawn where its high 16 are those of T: for one bit in 65,536, whatever the bits are. They
    are independent of the high ones, so drawing them late changes nothing in the distribution.

    Args:
        bits: zeros and ones, shape (n, l); see ``check_bits``.
        laws: the bit in column j has law j modulo their number.
        stream: where U comes from.
    """
    columns = bits.shape[1]
    high, low = _thresholds(laws, columns)
    result = np.empty(bits.shape, np.uint8)
    rows = max(1, _BLOCK // columns)
    for start in range(0, len(bits), rows):
        block = bits[start : start + rows].astype(np.bool_)
        limits = np.where(block, high[1], high[0])
        words = stream.integers(block.size, np.uint16).reshape(block.shape)
        ones = words < limits
        ties = np.nonzero(words == limits)
        rest = stream.integers(len(ties[0]), np.uint64) >> np.uint64(64 - _LOW_BITS)
        ones[ties] = rest < low[block[ties].astype(np.intp), ties[1]]
        result[start : start + rows] = ones
    return result


def check_bits(bits: object) -> None:
    """Refuse what is no matrix of bits.

    Raises:
        PrivacyError: ``bits`` is no uint8 array of two axes with zeros and ones alone.
    """
    if type(bits) is not np.ndarray or bits.dtype != np.uint8 or bits.ndim != 2 or not bits.size:
        raise PrivacyError("pass bits as a uint8 array of shape (n, l) that is not empty")
    if bits.max() > 1:
        raise PrivacyError("the bits to release hold a value above 1: nothing was released")


def _thresholds(
    laws: Sequence[BitLaw], columns: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint64]]:
    """Return the high and the low bits of T, each of shape (2, columns): of zeros, of ones."""
    pairs = np.array([[law.if_zero for law in laws], [law.if_one for law in laws]], np.uint64)
    all_columns = pairs[:, np.arange(columns) % len(laws)]
    high = (all_columns >> np.uint64(_LOW_BITS)).astype(np.uint16)
    return high, all_columns & np.uint64((1 << _LOW_BITS) - 1)
