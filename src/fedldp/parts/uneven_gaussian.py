"""Gaussian noise that is larger in some coordinates, on a vector that is clipped as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.randomness import Stream

_FARTHEST_NOISE = 8
"""In standard deviations; noise beyond it may be cut to the 32 bits of an index."""


@dataclass(frozen=True, eq=False)
class UnevenGaussian(Gaussian):
    """Report a vector of L2 norm at most ``clip``, some coordinates with more noise than the rest.

    Guarantee: that of ``Gaussian`` with ``sigma``, the least noise of all, provided that which
    coordinates get more does not depend on the data. The report is the one of ``Gaussian`` with
    noise of variance noisier_sigma^2 - sigma^2 added to some coordinates: post-processing. Nothing
    better can be proven, for all of a difference may lie where the noise is least.

    Args:
        clip: as for ``Gaussian``.
        sigma: standard deviation of the least noise.
        noisier: which coordinates get more, shape (d,).
        noisier_sigma: standard deviation of their noise, from ``sigma``.

    Raises:
        ConfigError: an argument is out of range.
    """

    noisier: NDArray[np.bool_]
    noisier_sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noisier_sigma(self, self.noisier_sigma)

    def noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return the noise of all coordinates in grid steps; see ``GridNoise.noise``."""
        steps = super().noise(size, stream)
        factor = math.sqrt((self.noisier_sigma / self.sigma) ** 2 - 1)
        more = factor * super().noise(int(self.noisier.sum()), stream)
        steps[self.noisier] += np.rint(more).astype(np.int64)
        return steps

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of every coordinate."""
        return np.where(self.noisier, self.noisier_sigma**2, self.sigma**2)


def check_noisier_sigma(least: Gaussian, sigma: float) -> None:
    """Refuse more noise that is less than the least, or too much for a report's indices.

    Raises:
        ConfigError: ``sigma`` is out of range.
    """
    largest = least.ball.step * (2**31 - least.ball.radius) / _FARTHEST_NOISE
    if not least.sigma <= sigma <= largest:
        raise ConfigError(
            f"noisier_sigma = {sigma:g}: give a number from {least.sigma:g}, the noise of the "
            f"other coordinates, to {largest:g}"
        )
