"""Randomised bits by integer comparison: shared by the mechanisms that report bits.

Fixed-point codes: a real number as a sign bit, whole bits and fraction bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.numbers import log_up
from fedldp.core.randomness import Stream

FULL = 1 << 64

# How many bits are randomised at a time, so that the working arrays stay in the second-level cache.
_BLOCK = 1 << 17
# The high bits of U and T decide U < T; if they are equal, the low bits do.
_LOW_BITS = 48


@dataclass(frozen=True)
class BitLaw:
    """How one bit is randomised: to 1 with probability T/2^64, where T depends on the bit.

    Attributes:
        if_one: T for a 1, from 1 to 2^64 - 1.
        if_zero: T for a 0, in the same range but different.

    Raises:
        ConfigError: an outcome is impossible, or reveals nothing.
    """

    if_one: int
    if_zero: int

    def __post_init__(self) -> None:
        if not (0 < self.if_one < FULL and 0 < self.if_zero < FULL):
            raise ConfigError(f"{self}: give probabilities above 0 and below 1")
        if self.if_one == self.if_zero:
            raise ConfigError(
                "a randomised 1 and a randomised 0 have the same distribution: give a larger "
                "epsilon, fewer bits, or another alpha"
            )

    @classmethod
    def of_odds(cls, zero_if_one: Fraction, zero_if_zero: Fraction) -> BitLaw:
        """Return the law given by the odds P(0)/P(1) for a 1 and for a 0.

        T = 2^64/(1 + odds) is rounded so that the two values move closer, which costs no privacy.
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
        """The pure epsilon of a one-hot vector: if its single 1 moves, two bits change."""
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
    """Return randomised copies of rows of bits: about a second for 10^8 bits.

    Every bit has its own uniform 64-bit integer U, and becomes 1 if U < T. The low 48 bits of U are
    drawn only if its high 16 bits equal those of T: for one bit in 65,536, whatever the bits are.
    They are independent of the high bits, so drawing them late does not change the distribution.

    Args:
        bits: zeros and ones, shape (n, l); see ``check_bits``.
        laws: the bit in column j has law j modulo the number of laws.
        stream: the source of U.
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
    """Refuse anything but a matrix of bits.

    Raises:
        PrivacyError: ``bits`` is not a uint8 array of two axes with only zeros and ones.
    """
    if type(bits) is not np.ndarray or bits.dtype != np.uint8 or bits.ndim != 2 or not bits.size:
        raise PrivacyError("pass bits as a uint8 array of shape (n, l) that is not empty")
    if bits.max() > 1:
        raise PrivacyError("the bits to release hold a value above 1: nothing was released")


def _thresholds(
    laws: Sequence[BitLaw], columns: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint64]]:
    """Return the high and the low bits of T, each of shape (2, columns): for zeros, for ones."""
    pairs = np.array([[law.if_zero for law in laws], [law.if_one for law in laws]], np.uint64)
    all_columns = pairs[:, np.arange(columns) % len(laws)]
    high = (all_columns >> np.uint64(_LOW_BITS)).astype(np.uint16)
    return high, all_columns & np.uint64((1 << _LOW_BITS) - 1)


Rounding = Literal["down", "nearest"]


@dataclass(frozen=True)
class FixedPoint:
    """Sign and magnitude: the magnitude is |x| rounded, and saturates if it is too large.

    The bits of a number are its sign (1 if it is negative), then its magnitude from the highest
    digit, 2^(whole_bits - 1), down to the lowest, 2^-fraction_bits, as in the authors' code. The
    order decides which digits the paper's Theorem 2 blurs most. It changes no guarantee.

    Attributes:
        whole_bits: digits before the point.
        fraction_bits: digits after the point; with the others at most 48, which float64 represents
            exactly.
        rounding: "down", or "nearest", as in the authors' code; halfway, to an even magnitude.

    Source: Chamikara et al. 2022, "Local Differential Privacy for Federated Learning", Section 3.2.

    >>> FixedPoint(whole_bits=2, fraction_bits=1).encode(np.array([[1.5, -2.25, 99.0]]))
    array([[0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1]], dtype=uint8)
    """

    whole_bits: int
    fraction_bits: int
    rounding: Rounding = "down"

    @property
    def length(self) -> int:
        """The number of bits of one number, l."""
        return 1 + self.whole_bits + self.fraction_bits

    def encode(self, values: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Return the bits of every row's numbers, number by number.

        Args:
            values: shape (n, d).

        Returns:
            Zeros and ones, shape (n, d * length).

        Raises:
            PrivacyError: a value is NaN or infinite, or the array is empty or of another type.
        """
        check_releasable(values)
        largest = 2 ** (self.whole_bits + self.fraction_bits) - 1
        bounded = np.minimum(np.abs(values.astype(np.float64)), 2.0**self.whole_bits)
        rounded = np.floor if self.rounding == "down" else np.rint
        scaled = rounded(bounded * 2.0**self.fraction_bits).astype(np.int64)
        magnitudes = np.minimum(scaled, largest)
        bits = np.empty((*values.shape, self.length), np.uint8)
        bits[..., 0] = np.signbit(values)
        for place in range(1, self.length):
            bits[..., place] = magnitudes >> (self.length - 1 - place) & 1
        return bits.reshape(len(values), -1)
