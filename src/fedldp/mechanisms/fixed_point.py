"""Fixed-point codes: a real number as a sign bit, whole bits and fraction bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError

BitOrder = Literal["highest", "lowest"]

MOST_BITS = 48
"""Whole and fraction bits together: float64 represents that many bits exactly."""


@dataclass(frozen=True)
class FixedPoint:
    """Sign and magnitude: the magnitude is |x| rounded down, and saturates if it is too large.

    The bits of a number are its sign (1 if it is negative), then its magnitude from the highest
    digit, 2^(whole_bits - 1), down to the lowest, 2^-fraction_bits. The paper's eq. 10 counts the
    digits from the lowest up and has no place for the sign; in that order, the sign comes last
    here. The order decides which digits the paper's Theorem 2 blurs most. It changes no guarantee.

    Attributes:
        whole_bits: digits before the point, from 0.
        fraction_bits: digits after the point, from 0.
        order: "highest": sign, then from the highest digit; "lowest": the reverse, as in eq. 10.

    Raises:
        ConfigError: there are no digits, or too many.

    Source: Chamikara et al. 2022, "Local Differential Privacy for Federated Learning", Section 3.2.

    >>> FixedPoint(whole_bits=2, fraction_bits=1).encode(np.array([[1.5, -2.25, 99.0]]))
    array([[0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1]], dtype=uint8)
    """

    whole_bits: int
    fraction_bits: int
    order: BitOrder = "highest"

    def __post_init__(self) -> None:
        for name, value in (("whole_bits", self.whole_bits), ("fraction_bits", self.fraction_bits)):
            if value < 0:
                raise ConfigError(f"{name} = {value}: give 0 or more")
        if not 0 < self.whole_bits + self.fraction_bits <= MOST_BITS:
            raise ConfigError(
                f"whole_bits = {self.whole_bits} and fraction_bits = {self.fraction_bits}: give 1 "
                f"to {MOST_BITS} in total"
            )

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
        scaled = np.floor(bounded * 2.0**self.fraction_bits).astype(np.int64)
        magnitudes = np.minimum(scaled, largest)
        bits = np.empty((*values.shape, self.length), np.uint8)
        bits[..., 0] = np.signbit(values)
        for place in range(1, self.length):
            bits[..., place] = magnitudes >> (self.length - 1 - place) & 1
        if self.order == "lowest":
            bits = bits[..., ::-1]
        return bits.reshape(len(values), -1)
