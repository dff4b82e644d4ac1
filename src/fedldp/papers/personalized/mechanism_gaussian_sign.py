"""The sign of a vector with Gaussian noise: post-processing of the Gaussian mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.deferred import special
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Counts
from fedldp.mechanisms.gaussian import Gaussian


@dataclass(frozen=True)
class GaussianSign(Gaussian):
    """Report one bit for each coordinate: whether ``Gaussian`` would send at least 0.

    The sign b of x + N(0, sigma^2) has mean 2 Phi(x/sigma) - 1, whose slope at 0 is
    sqrt(2/pi)/sigma. So sigma sqrt(pi/2) b estimates x to first order around 0, is biased towards 0
    farther out, and has at most pi/2 times the variance of the Gaussian report.

    Guarantee: the same as for ``Gaussian``. The bits of a report come from one vector that is
    clipped as a whole, so they are not private one by one: no shuffler or sum accepts them.
    """

    name: ClassVar[str] = "gaussian_sign"
    is_setting: ClassVar[bool] = False
    unsplit: ClassVar[str] = (
        "bits come from a vector that is clipped as a whole, so no bit can be sent by itself"
    )

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one bit for each coordinate, most significant first; see ``Mechanism.encode``."""
        indices = np.frombuffer(super().encode(values, stream), "<i4")
        return np.packbits(indices >= 0).tobytes()

    def payload_bits(self, size: int) -> int:
        """Return 1 for each coordinate."""
        return size

    @property
    def scale(self) -> float:
        """The size of the two values that a bit stands for, sigma sqrt(pi/2)."""
        return self.sigma * math.sqrt(math.pi / 2)

    def aggregate(self, size: int) -> Counts:
        """Return an empty count of ones of reports of ``size`` coordinates."""
        return Counts(size, self.scale)

    def expected(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return sigma sqrt(pi/2) (2 Phi(x/sigma) - 1), for the bounded x."""
        bent: NDArray[np.float64] = special.erf(self.bound(values) / (self.sigma * math.sqrt(2)))
        return self.scale * bent

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of a bit's value."""
        return self.scale**2 - self.expected(values) ** 2

    @classmethod
    def examples(cls) -> Sequence[GaussianSign]:
        """Return instances for tests."""
        return [cls(1.0, 75.0), cls(100.0, 0.5)]
