"""Whole numbers without noise, whose sums are exact: codes of values, and grid steps of vectors.

By themselves they protect nothing. A secure sum hides single codes, and a server adds noise to the
sum of steps.

Source of the steps: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy",
NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import GaussianReport, InClear
from fedldp.core.bounding import GridBall
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import EXACT_SUM
from fedldp.core.randomness import Stream
from fedldp.mechanisms import MechanismSettings
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP
from fedldp.mechanisms.summing import Summing
from fedldp.mechanisms.words import INTEGERS, UnprotectedIntegers, in_steps

LARGEST_BITS = 52


@dataclass(frozen=True, kw_only=True)
class ClippedCodes(UnprotectedIntegers):
    """Codes of values in [-clip, clip], 64 bits each. By themselves they protect nothing.

    A value v, clipped to that range, has the code round(v / clip * L), L = 2^(bits - 1) - 1,
    rounded to the nearest integer, halves to even. Rounding shifts a decoded sum by at most
    clip/(2 L) for each client.

    Guarantee: none. The event states that the sum is sent in the clear, which is what codes are
        for.

    Attributes:
        clip: the bound on the magnitude of a value, from 1e-9 to 1e9.
        bits: the number of bits of one code, from 2 to 52.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "codes"

    clip: float
    bits: int = 24

    def __post_init__(self) -> None:
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise ConfigError(
                f"clip = {self.clip:g}: give a number from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}"
            )
        if not 2 <= self.bits <= LARGEST_BITS:
            raise ConfigError(f"bits = {self.bits}: give an integer from 2 to {LARGEST_BITS}")

    @property
    def largest(self) -> int:
        """The code of ``clip``, L."""
        return (1 << (self.bits - 1)) - 1

    def sum_bits(self, num_clients: int) -> int:
        """Return the number of bits of a modulus that holds the exact sum of ``num_clients`` codes.

        Raises:
            ConfigError: more than 64 bits would be needed.
        """
        more = (num_clients - 1).bit_length()
        if self.bits + more > 64:
            raise ConfigError(
                f"bits = {self.bits}: the sum of {num_clients} clients does not fit into 64 "
                f"bits; give at most {64 - more}"
            )
        return self.bits + more

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> ClippedCodes:
        """Return codes of 24 bits within ``settings.clip``."""
        return cls(clip=settings.clip)

    def event(self, size: int) -> InClear:
        """Return what the codes release: their sum is exact and unprotected."""
        return InClear(what=(EXACT_SUM(of="weights"),))

    def summing(self, size: int, most: int) -> Summing:
        """Return how codes are added up, exactly."""
        return INTEGERS.summing(size, self.sum_bits(most))

    def integers(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the codes of finite ``values``, of the same shape."""
        clipped = np.clip(values.astype(np.float64), -self.clip, self.clip)
        return np.rint(clipped / self.clip * self.largest).astype(np.int64)

    def mean_of(self, total: NDArray[np.int64], reports: int) -> NDArray[np.float64]:
        """Return the mean of the values, given the sum of their codes."""
        return total.astype(np.float64) * (self.clip / self.largest) / reports

    @classmethod
    def examples(cls) -> Sequence[ClippedCodes]:
        """Return instances for tests."""
        return [cls(clip=8.0, bits=24), cls(clip=1e-9, bits=2), cls(clip=1e9, bits=52)]


@dataclass(frozen=True)
class BoundedSteps(UnprotectedIntegers):
    """Unprotected grid vectors with norm at most the clip of ``noise``: 64 bits per coordinate.

    Guarantee of a report: none. ``noised`` states the guarantee of a sum with the noise. Replacing
    one client's whole input moves the sum of all vectors by at most 2 radius steps, because a
    comparison of integers puts each vector into the ball after rounding (``GridBall.clip``). So a
    sum with discrete Gaussian noise has the guarantee that ``Gaussian`` states for one vector,
    regardless of who the other clients are and what they send. The guarantee also holds modulo
    2^64: sums, sums of sums and the noise are all added in that ring (``noisy``). A smaller ring
    would not suffice. Other clients could make the sum wrap around; if it were read as signed
    numbers before the noise was added, it would distinguish neighbours however large the noise.

    Args:
        noise: the noise that the server adds to a sum; its grid and clip apply to the vectors.
    """

    name: ClassVar[str] = "bounded_steps"

    noise: Gaussian

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> BoundedSteps:
        """Return the mechanism for the noise of ``settings.epsilon`` and ``settings.delta``."""
        return cls(Gaussian.from_settings(settings))

    @property
    def ball(self) -> GridBall:
        """The set of vectors that may be sent."""
        return self.noise.ball

    def event(self, size: int) -> InClear:
        """Return the event of vectors sent in the clear.

        Raises:
            ConfigError: a vector of ``size`` coordinates is too long (see ``GridBall.check_size``).
        """
        self.ball.check_size(size)
        return InClear(what="clipped-updates")

    def noised(self, size: int) -> GaussianReport:
        """Return what a sum of such vectors with the noise releases about one of them."""
        return self.noise.event(size)

    def integers(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return finite ``values`` in steps, rounded to the grid and clipped by norm."""
        return self.ball.clip(values)

    def mean_of(self, total: NDArray[np.int64], reports: int) -> NDArray[np.float64]:
        """Return the mean of the reports' vectors, given their sum in steps."""
        return in_steps(self.ball.step)(total, reports)

    def summing(self, size: int, most: int) -> Summing:
        """Return how reports add up: modulo 2^64, however few there are; see the class."""
        return INTEGERS.summing(size)

    def noisy(self, total: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        """Return a sum of reports with noise, both modulo 2^64, in steps, shape (d,).

        Args:
            total: the sum.
            stream: the server's stream.
        """
        return total + self.noise.noise(total.size, stream)

    @classmethod
    def examples(cls) -> Sequence[BoundedSteps]:
        """Return instances for tests."""
        return [cls(each) for each in Gaussian.examples()]
