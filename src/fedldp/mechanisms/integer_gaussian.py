"""Discrete Gaussian noise on a vector of integers whose caller bounds how far it can change.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020;
for sums of shares, Kairouz, Liu, Steinke, ICML 2021. The coarser grid is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import GaussianShare, InClear
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import strict_count
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings
from fedldp.mechanisms.discrete import LARGEST_SCALE_BITS, gaussian_steps
from fedldp.mechanisms.summing import Summing
from fedldp.mechanisms.words import UnprotectedIntegers, WordFormat, WordSum, in_steps

FEWEST_BITS = 3
"""The noise's deviation is a power of two in steps, from 8 steps."""

_LARGEST = 2.0**52


@dataclass(frozen=True)
class IntegerGaussian(Mechanism):
    """Whole numbers on a coarser grid, plus discrete Gaussian noise, modulo 2^bits.

    A vector S of d integers becomes floor((S + g/2)/g) for the step g, plus noise of deviation
    2^scale_bits in every coordinate.

    Guarantee: two vectors that are at most ``distance`` apart in L2 norm are at most
    distance/g + sqrt(d) apart on the coarser grid, because each coordinate moves by at most half a
    step. The event is ``GaussianShare`` of that distance, in exact integers. The code that computes
    the vectors must ensure that they are no further apart (``training.person_gradients``). The only
    clipping here is of numbers beyond 2^52, which moves no two vectors further apart.

    Args:
        distance: the largest L2 distance of neighbouring vectors, in fine steps.
        step: the number of fine steps in a coarse one, g, from 1.
        scale_bits: the deviation is 2^scale_bits coarse steps; from 3 to 22.
        bits: the number of bits of the modulus: 8 to 64, in whole bytes.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "integer_gaussian"
    is_setting: ClassVar[bool] = False
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    distance: int
    step: int
    scale_bits: int
    bits: int

    def __post_init__(self) -> None:
        for name in ("distance", "step"):
            if strict_count(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: give an integer of at least 1")
        if not FEWEST_BITS <= self.scale_bits <= LARGEST_SCALE_BITS:
            raise ConfigError(
                f"scale_bits = {self.scale_bits}: give {FEWEST_BITS} to {LARGEST_SCALE_BITS}"
            )
        if self.bits not in range(8, 65, 8):
            raise ConfigError(f"bits = {self.bits}: give a multiple of 8, up to 64")

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> IntegerGaussian:
        """Return the mechanism for one client's vectors of whole numbers within ``clip``."""
        from fedldp.mechanisms.gaussian_share import largest_mu

        return integer_gaussian(
            settings.size,
            largest_mu(settings.epsilon, settings.delta),
            distance=2 * math.ceil(settings.clip),
            shares=1,
            vectors=1,
            largest=math.ceil(settings.clip),
        )

    def event(self, size: int) -> GaussianShare:
        """Return the event of one report, in exact integers."""
        return GaussianShare(
            squared_distance=coarser(self.distance, self.step, size) ** 2,
            variance=1 << 2 * self.scale_bits,
        )

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one word for each coordinate; see ``Mechanism.encode``."""
        check_releasable(values)
        return self.words.pack(self.noisy(whole(values.reshape(-1)), stream)).tobytes()

    @property
    def words(self) -> WordFormat:
        """The format of a report."""
        return WordFormat(self.bits)

    def payload_bits(self, size: int) -> int:
        """Return ``bits`` for each coordinate."""
        return self.bits * size

    def aggregate(self, size: int) -> WordSum:
        """Return an empty sum of reports of ``size`` coordinates."""
        return WordSum(self.words, size, in_steps(self.step))

    def summing(self, size: int, most: int) -> Summing:
        """Return how reports add up: modulo 2^``bits``."""
        return self.words.summing(size)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values``, rounded to the coarser grid."""
        return (whole(values) + self.step // 2) // self.step * np.float64(self.step)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of the noise, in squared fine steps."""
        return np.full(values.shape, (float(self.step) * 2.0**self.scale_bits) ** 2)

    @classmethod
    def examples(cls) -> Sequence[IntegerGaussian]:
        """Return instances for tests."""
        return [cls(2_000, 1, 8, 24), cls(1 << 31, 1 << 12, 22, 40), cls(64, 3, 3, 64)]

    def noisy(self, values: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        """Return whole numbers on the coarser grid, with noise, in coarse steps."""
        steps = (values + self.step // 2) // self.step
        return steps + gaussian_steps(steps.size, self.scale_bits, stream)


@dataclass(frozen=True)
class Integers(UnprotectedIntegers):
    """Unprotected whole numbers, for a server that clients trust.

    Guarantee: none. What the server computes from their sum, with its own noise, is its release.

    Attributes:
        what: a description of the numbers for readers of the event.
    """

    name: ClassVar[str] = "integers"

    what: str = "whole-numbers"

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Integers:
        """Return the mechanism; no setting affects it."""
        return cls()

    def event(self, size: int) -> InClear:
        """Return the event of numbers sent in the clear."""
        return InClear(what=self.what)

    def integers(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return finite ``values``, rounded to integers."""
        return whole(values)

    def mean_of(self, total: NDArray[np.int64], reports: int) -> NDArray[np.float64]:
        """Return the mean of the reports' vectors, given their sum."""
        return in_steps(1)(total, reports)

    @classmethod
    def examples(cls) -> Sequence[Integers]:
        """Return an instance for tests."""
        return [cls()]


def whole(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return finite numbers as integers, clipped to 2^52 in magnitude."""
    rounded = np.rint(values.astype(np.float64)).clip(-_LARGEST, _LARGEST)
    return rounded.astype(np.int64)


def coarser(distance: int, step: int, size: int) -> int:
    """Return the largest L2 distance on a grid of ``step`` fine steps, rounded up.

    Args:
        distance: the distance on the fine grid.
        step: the step of the coarse grid, in fine steps.
        size: the number of coordinates.

    >>> coarser(1000, 10, 90)
    110
    """
    return -(-distance // step) + math.isqrt(size - 1) + 1


def integer_gaussian(
    size: int,
    mu: float,
    *,
    distance: int,
    shares: int,
    vectors: int,
    largest: int,
    reports: int = 1,
) -> IntegerGaussian:
    """Return the mechanism with sufficient noise, on the grid that needs the least noise.

    Args:
        size: the number of coordinates, d.
        mu: mu of one release, against an adversary who sees a sum of ``shares`` reports.
        distance: the largest L2 distance of neighbouring vectors, in fine steps.
        shares: honest shares in every sum, from 1.
        vectors: the largest number of vectors that all reports together add up; the modulus holds
            their sum and the noise, except with probability 2^-60.
        largest: the largest number in such a vector, in magnitude, in fine steps. It may be more
            than half the distance: two vectors of counts are closer than their norms.
        reports: the largest number of reports that are added up, each with noise of its own.

    Raises:
        ConfigError: no grid fits.
    """
    best: IntegerGaussian | None = None
    reached = 0.0
    for scale_bits in range(FEWEST_BITS, LARGEST_SCALE_BITS + 1):
        variance = shares * 4**scale_bits
        most = math.isqrt(max(0, math.floor(mu**2 * (variance - 16))))
        room = most - coarser(0, 1, size)
        if room < 1:
            continue
        step = -(-distance // room)
        noise = max(128 * math.isqrt(variance), 16 * math.isqrt(reports * 4**scale_bits))
        widest = vectors * (-(-largest // step) + 1) + noise
        bits = 8 * -(-(widest.bit_length() + 1) // 8)
        signal = distance / step / math.sqrt(variance)  # signal over noise, which both grids reduce
        if bits <= 64 and signal > reached:
            best, reached = IntegerGaussian(distance, step, scale_bits, bits), signal
    if best is not None:
        return best
    raise ConfigError(
        f"epsilon: no grid is fine enough for sums of {size} coordinates with the noise "
        "needed; give a larger epsilon, fewer rounds or a smaller model"
    )
