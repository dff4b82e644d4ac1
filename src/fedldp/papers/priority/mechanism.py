"""Gaussian noise that is larger in some coordinates of a vector clipped as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian import Gaussian

_FARTHEST_NOISE = 8
"""A number of standard deviations; noise beyond it may not fit into the 32 bits of an index."""


@dataclass(frozen=True, eq=False)
class UnevenGaussian(Gaussian):
    """Report a vector of L2 norm at most ``clip``, some coordinates with more noise than the rest.

    Guarantee: the same as for ``Gaussian`` with ``sigma``, the least noise of all, provided that
    the choice of noisier coordinates does not depend on the data. The report is that of
    ``Gaussian`` with noise of variance (ratio^2 - 1) sigma^2 added to some coordinates, which is
    post-processing. Nothing better can be proven, because the whole difference may lie where the
    noise is least.

    Args:
        clip: as for ``Gaussian``.
        sigma: the standard deviation of the least noise.
        noisier: which coordinates get more noise, shape (d,).
        ratio: the standard deviation of their noise over ``sigma``, at least 1.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "uneven_gaussian"
    is_setting: ClassVar[bool] = False

    noisier: NDArray[np.bool_]
    ratio: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self, self.ratio)

    def noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return the noise of all coordinates in grid steps; see ``GridNoise.noise``."""
        steps = super().noise(size, stream)
        factor = math.sqrt(self.ratio**2 - 1)
        more = factor * super().noise(int(self.noisier.sum()), stream)
        steps[self.noisier] += np.rint(more).astype(np.int64)
        return steps

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of every coordinate, shape (d,)."""
        return self.sigma**2 * np.where(self.noisier, self.ratio**2, 1.0)


def check_ratio(least: Gaussian, ratio: float, given: str = "ratio") -> None:
    """Refuse a larger noise that is below the least noise, or too much for a report's indices.

    Args:
        least: the mechanism of the least noise.
        ratio: the larger deviation over the smaller one.
        given: the user's settings that ``ratio`` follows from, with their values.

    Raises:
        ConfigError: ``ratio`` is out of range.
    """
    largest = ((1 << 31) - least.ball.radius) / (_FARTHEST_NOISE << least.scale_bits)
    if not 1 <= ratio <= largest:
        raise ConfigError(
            f"{given}: that is {ratio:g} times as much noise on some features; give values for "
            f"which it is 1 to {largest:g} times"
        )
