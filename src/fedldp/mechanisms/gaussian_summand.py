"""Gaussian noise with each client's own deviation, on one common grid, so that reports add up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.discrete import LARGEST_SCALE_BITS
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.summing import Summing
from fedldp.mechanisms.words import INTEGERS, WordSum, in_steps

FINER_BITS = 10
"""The common unit is at least 2^this times finer than any client's own grid."""

_REACH_BITS = 30
"""A report is below 2^this steps of the client's own grid: up to 2^26 steps from the vector, and 64
deviations of 2^22 steps each from the noise."""


@dataclass(frozen=True)
class GaussianSummand(Gaussian):
    """The report of ``Gaussian`` in steps of a public unit, in words of 64 bits that add up.

    The step of the client's own grid is a whole number of units. So the report is a report of
    ``Gaussian`` times that number, plus a uniform fraction of a step in each coordinate. The
    fraction is drawn independently of everything, so all of this is post-processing. This one
    report has the guarantee of ``Gaussian``, whatever it is summed with and whether or not the sum
    is secret. Clients' deviations may differ: the reader of a sum needs the unit and the number of
    reports, but no client's deviation. Without the fractions of steps, a sum would be a multiple of
    the greatest common divisor of all clients' steps; if clients share one deviation, the divisor
    would reveal it exactly.

    Args:
        clip: as for ``Gaussian``.
        sigma: as for ``Gaussian``; a multiple of 2^22 units.
        unit: the unit of the words, a power of two.

    Raises:
        ConfigError: an argument is out of range, or the unit does not divide the grid's step.
    """

    name: ClassVar[str] = "gaussian_summand"
    is_setting: ClassVar[bool] = False

    unit: float

    def __post_init__(self) -> None:
        super().__post_init__()
        times = Fraction(self.sigma) / (Fraction(self.unit) * (1 << LARGEST_SCALE_BITS))
        if times.denominator != 1 or times < 1 or math.frexp(self.unit)[0] != 0.5:
            raise ConfigError(
                f"unit = {self.unit}: give a power of two that divides sigma/2^22 = "
                f"{self.sigma / (1 << LARGEST_SCALE_BITS)}"
            )

    @property
    def units(self) -> int:
        """The number of units in one step of the client's own grid."""
        own = Fraction(self.sigma) / (1 << self.scale_bits)
        return int(own / Fraction(self.unit))

    def packed(self, steps: NDArray[np.int64], streams: Sequence[Stream]) -> NDArray[np.uint8]:
        """Return noisy grid vectors and fractions of a step, in units; see ``GridNoise.packed``."""
        steps *= self.units
        for row, stream in zip(steps, streams, strict=True):
            row += self._parts(row.size, stream)
        return INTEGERS.pack(steps)

    def _parts(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return fractions of a step in units, uniform up to 2^-30, of mean 0 or -1/2."""
        drawn = stream.integers(size, np.uint64) % np.uint64(self.units)
        return drawn.astype(np.int64) - self.units // 2

    def payload_bits(self, size: int) -> int:
        """Return 64 for each coordinate."""
        return INTEGERS.bits * size

    def aggregate(self, size: int) -> WordSum:
        """Return an empty sum of reports of ``size`` coordinates."""
        return WordSum(INTEGERS, size, in_steps(self.unit))

    def summing(self, size: int, most: int) -> Summing:
        """Return how reports add up: modulo 2^64, which holds their sum if ``fits`` returns True.

        The number of bits is the same for all clients, so it reveals nothing about anyone's noise.
        """
        return INTEGERS.summing(size)

    def fits(self, most: int) -> bool:
        """Return whether a word holds a sum of ``most`` reports with this noise."""
        return most * self.units << _REACH_BITS <= 1 << (INTEGERS.bits - 1)

    @classmethod
    def examples(cls) -> Sequence[GaussianSummand]:
        """Return instances for tests."""
        return [summand(1.0, 75.0, 2.0**-27), summand(100.0, 0.5, 2.0**-34)]


def common_unit(sigma: float) -> float:
    """Return the unit of sums in which the least noise of any client has deviation ``sigma``.

    >>> common_unit(1.0) == 2.0**-32
    True
    """
    return math.ldexp(0.5, math.frexp(sigma)[1] - LARGEST_SCALE_BITS - FINER_BITS)


def summand(clip: float, sigma: float, unit: float) -> GaussianSummand:
    """Return the summand with noise of at least ``sigma``.

    The noise exceeds ``sigma`` by less than a relative 2^-FINER_BITS.

    Args:
        clip: as for ``Gaussian``.
        sigma: as for ``Gaussian``, at least the deviation that ``common_unit`` was given.
        unit: the unit of the sum.
    """
    step = Fraction(unit) * (1 << LARGEST_SCALE_BITS)
    return GaussianSummand(clip, float(math.ceil(Fraction(sigma) / step) * step), unit)
