"""The Gaussian mechanism: clip the vector in L2 norm and add normal noise to every coordinate.

Source: Canonne, Kamath, Steinke 2020 for the discrete noise; Balle, Wang 2018 for its calibration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import GaussianReport
from fedldp.core.bounding import replace_one_sensitivity
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import MechanismSettings
from fedldp.mechanisms.discrete import gaussian_steps
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP, GridNoise, check_between

_LARGEST_RATIO = 1e4
_ROUNDING_VARIANCE = 16


@dataclass(frozen=True)
class Gaussian(GridNoise):
    """Report every coordinate of a vector of L2 norm at most ``clip`` with noise N(0, sigma^2).

    A simulation draws idealised noise in real arithmetic and rounds it to the grid. A deployment
    draws the discrete Gaussian exactly: y steps with probability proportional to
    exp(-y^2/(2 s^2)), where s is sigma in steps.

    Guarantee, replacing the client's whole input, with a sensitivity of D = 2 radius steps:

    - zCDP with rho = D^2/(2 s^2) (Canonne, Kamath, Steinke 2020, Theorem 14).
    - As private as N(0, 1) against N(mu, 1), mu = D/(s - 16/s) <= 2 clip/sigma, up to 1e-100 more
      in epsilon and a factor of 1 + 1e-100 in delta. Proof: round N(0, s^2 - 16) to the grid with a
      discrete Gaussian of variance 16 around it. By Poisson summation each result has, up to a
      factor within 1 +- 1e-136 for each coordinate, its probability under the discrete Gaussian of
      variance s^2 (Peikert 2010, Theorem 3.1). So the report is a post-processing of one with
      Gaussian noise of variance s^2 - 16 >= (s - 16/s)^2.

    Args:
        clip: the bound on the L2 norm of the normalised vector, from 1e-9 to 1e9.
        sigma: the standard deviation of the noise, from clip/10,000 to 10,000 clip.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "gaussian"
    order: ClassVar[Literal[1, 2]] = 2

    clip: float
    sigma: float

    def __post_init__(self) -> None:
        check_between("clip", self.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_between("sigma", self.sigma, self.clip / _LARGEST_RATIO, self.clip * _LARGEST_RATIO)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Gaussian:
        """Return the mechanism of ``settings.epsilon`` and ``settings.delta`` per client-round.

        Source: Balle, Wang 2018, the analytic calibration.
        """
        from fedldp.accounting.numerics.gaussian import gaussian_sigma

        check_between("clip", settings.clip, SMALLEST_CLIP, LARGEST_CLIP)
        per_unit = gaussian_sigma(settings.epsilon, settings.delta)
        sigma = per_unit * replace_one_sensitivity(settings.clip)
        given = f"epsilon = {settings.epsilon:g} and delta = {settings.delta:g}"
        check_noise(settings.clip, sigma, given=given, knob="epsilon")
        return cls(settings.clip, math.nextafter(sigma, math.inf))

    @property
    def clip_over_scale(self) -> Fraction:
        """The clip in standard deviations, exact."""
        return Fraction(self.clip) / Fraction(self.sigma)

    @property
    def proven_scale(self) -> Fraction:
        """The deviation, in grid steps, of a Gaussian that is no more private: s - 16/s."""
        scale = Fraction(1 << self.scale_bits)
        return scale - _ROUNDING_VARIANCE / scale

    def event(self, size: int) -> GaussianReport:
        """Return mu and rho, rounded up.

        Raises:
            ConfigError: a report of ``size`` coordinates is too long (see ``GridBall.check_size``).
        """
        self.ball.check_size(size)
        mu = self.ball.sensitivity / self.proven_scale
        rho = Fraction(self.ball.sensitivity, 1 << self.scale_bits) ** 2 / 2
        up = math.inf
        return GaussianReport(mu=math.nextafter(float(mu), up), rho=math.nextafter(float(rho), up))

    def noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return Gaussian noise in grid steps; see ``GridNoise.noise``."""
        return gaussian_steps(size, self.scale_bits, stream)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return sigma^2 for every coordinate."""
        return np.full(values.shape, self.sigma**2)

    @classmethod
    def examples(cls) -> Sequence[Gaussian]:
        """Return instances for the contract tests."""
        return [cls(100.0, 0.5), cls(1.0, 75.0), cls(0.5, 1e-3), cls(1e6, 100.0), cls(0.01, 100.0)]


def check_noise(clip: float, sigma: float, *, given: str, knob: str) -> None:
    """Refuse noise that ``Gaussian`` does not accept, in terms of what a user set.

    Args:
        clip: as for ``Gaussian``, and in its range.
        sigma: as for ``Gaussian``; it follows from ``given``.
        given: settings and their values, such as "epsilon = 1 and delta = 1e-05".
        knob: which of these settings may be changed; larger values reduce ``sigma/clip``.

    Raises:
        ConfigError: ``sigma`` is out of range.
    """
    if not clip / _LARGEST_RATIO <= sigma <= clip * _LARGEST_RATIO:
        turn = "larger" if sigma > clip else "smaller"
        raise ConfigError(
            f"{given}: the noise would be {sigma / clip:g} times the norm bound, but must be "
            f"{1 / _LARGEST_RATIO:g} to {_LARGEST_RATIO:g} times; give a {turn} {knob}"
        )
