"""PrivUnit: a direction that is likely to lie in a cap around the true one. Simulation only.

Source: Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018 (arXiv 1812.00984), Algorithm 1, PrivUnit2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureReport
from fedldp.accounting.numerics.solve import solve
from fedldp.core.bounding import check_releasable, scaled_down
from fedldp.core.deferred import special
from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.core.numbers import check_at_least, check_positive
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, SummedReports
from fedldp.mechanisms.grids import complete

SMALLEST_EPSILON = 1e-3
LARGEST_GAMMA = 1 - 1e-9
LARGEST_P0 = 1 - 1e-12

# The share of the requested epsilon to aim for. It is below 1 by more than the rounding errors of
# the parameters, which are below 1e-14 if the share of the cap is a float, and below 1e-9 otherwise
# (for an epsilon above 600).
_SAFE_SIDE = 1 - 1e-8

# Cap shares below this value are computed from their logarithm.
_SMALLEST_SHARE = 1e-280
_NODES, _WEIGHTS = np.polynomial.laguerre.laggauss(32)


@dataclass(frozen=True)
class Cap:
    """The distribution of V on the unit sphere around a unit vector u, and its moments.

    With probability ``p0``, V is uniform on the cap <V, u> >= gamma, otherwise on the rest of the
    sphere. So its density has two values, with ratio p0/(1 - p0) (1 - share)/share, which is above
    1.

    Attributes:
        dimension: D, the dimension of u and V, at least 2.
        p0: above the cap's share of the sphere, below 1.
        gamma: the cosine at the edge of the cap, in [0, 1).

    Raises:
        ConfigError: an attribute is out of range.
    """

    dimension: int
    p0: float
    gamma: float

    def __post_init__(self) -> None:
        if self.dimension < 2:
            raise ConfigError(f"dimension = {self.dimension}: give at least 2")
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"gamma = {self.gamma}: give a number of at least 0 and below 1")
        if not self.share < self.p0 < 1:
            raise ConfigError(
                f"p0 = {self.p0}: give a number below 1 and above the cap's share of the sphere, "
                f"{self.share:g}"
            )

    @property
    def share(self) -> float:
        """The cap's share of the sphere, I_(1 - gamma^2)((D - 1)/2, 1/2)/2."""
        return math.exp(self._log_share)

    @property
    def epsilon(self) -> float:
        """The pure epsilon of V: ln of the ratio of the two densities."""
        return math.log(self.p0 / (1 - self.p0)) - self._log_share + math.log1p(-self.share)

    @cached_property
    def mean(self) -> float:
        """The m in E[V] = m u."""
        inside = math.exp(self._log_slope - self._log_share)
        outside = -math.exp(self._log_slope) / (1 - self.share)
        return self.p0 * inside + (1 - self.p0) * outside

    @cached_property
    def mean_square(self) -> float:
        """The mean of <V, u>^2."""
        # By parts, D times the integral of t^2 over the cap is share + (D - 1) gamma slope.
        excess = (self.dimension - 1) * self.gamma * math.exp(self._log_slope - self._log_share)
        inside = self.p0 * (1 + excess)
        outside = (1 - self.p0) * (1 - excess * self.share / (1 - self.share))
        return (inside + outside) / self.dimension

    @cached_property
    def _log_share(self) -> float:
        return _log_share(self.dimension, self.gamma)

    @cached_property
    def _log_slope(self) -> float:
        return _log_slope(self.dimension, self.gamma)

    def cosine(self, generator: np.random.Generator) -> float:
        """Return a random <V, u>, by rejection: about two proposals."""
        inside = generator.random() < self.p0
        if inside and self.share < 0.25:
            return self._cosine_in_small_cap(generator)
        while True:
            along = generator.standard_normal()
            cosine = along / math.sqrt(along**2 + generator.chisquare(self.dimension - 1))
            if (cosine >= self.gamma) == inside:
                return cosine

    def draw(self, unit: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """Return a random V around ``unit``, both of shape (D,)."""
        generator = stream.generator()  # not cryptographic: the stream is simulated
        cosine = self.cosine(generator)
        across = generator.standard_normal(unit.size)
        across -= (across * unit).sum() * unit
        across *= math.sqrt((1 - cosine) * (1 + cosine) / (across * across).sum())
        return cosine * unit + across

    def _cosine_in_small_cap(self, generator: np.random.Generator) -> float:
        # With s = (1 - t^2)/(1 - gamma^2), s^((D-1)/2) is uniform up to a factor 1/t.
        power = 2 / (self.dimension - 1)
        while True:
            log_s = power * math.log1p(-generator.random())
            cosine = math.sqrt(-math.expm1(_log_sine_square(self.gamma) + log_s))
            if generator.random() * cosine < self.gamma:
                return cosine


@dataclass(frozen=True)
class PrivUnit(Mechanism):
    """Clip x to an L2 norm of ``clip`` and send a random unit vector whose mean is along it.

    x/clip is completed to a unit vector u of D = d + 1 dimensions, so its norm needs no separate
    budget. V is drawn from the best ``Cap`` around u for (epsilon, D). The first d coordinates of V
    are sent; times clip/m they estimate x without bias.

    Guarantee: pure ``epsilon`` for the whole report, in idealised real arithmetic: V has one of two
    densities, with a ratio of at most e^epsilon, whatever u is. There is no such proof for the
    floats that are actually sent, so this mechanism is for simulation only; other streams are
    refused.

    Args:
        epsilon: the budget of the whole report, at least 0.001.
        clip: the largest L2 norm of a vector of normalised coordinates; positive.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "privunit"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    epsilon: float
    clip: float

    def __post_init__(self) -> None:
        check_at_least("epsilon", self.epsilon, SMALLEST_EPSILON)
        check_positive("clip", self.clip)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> PrivUnit:
        """Return the mechanism that spends ``settings.epsilon`` on a report."""
        return cls(settings.epsilon, settings.clip)

    def cap(self, size: int) -> Cap:
        """Return the cap for ``size`` coordinates; equal parameters give the same object."""
        return best_cap(self.epsilon, size + 1)

    def event(self, size: int) -> PureReport:
        """Return the event with the cap's epsilon, for ``size`` real numbers."""
        # The cap was chosen 1e-8 below the budget, which leaves room for the float's rounding.
        return PureReport(epsilon=self.cap(size).epsilon * (1 + 1e-9), idealised=True)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return the first d coordinates of V as float32.

        Raises:
            PrivacyError: the stream is not simulated, or ``values`` must not be released.
        """
        check_releasable(values)
        check_simulated(self.name, stream)
        unit = complete(self.bound(values).reshape(-1) / self.clip)
        return self.cap(values.size).draw(unit, stream)[:-1].astype("<f4").tobytes()

    def furthest(self, direction: NDArray[np.floating]) -> bytes:
        """Return a corner of the cube, beyond the sphere; see ``Mechanism.furthest``."""
        return np.where(direction > 0, 1, -1).astype("<f4").tobytes()

    def payload_bits(self, size: int) -> int:
        """Return 32 bits for each coordinate."""
        return 32 * size

    def aggregate(self, size: int) -> FloatSums:
        """Return an empty sum of reports of ``size`` coordinates."""
        return FloatSums(size, self.clip / self.cap(size).mean)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` scaled down to the L2 norm ``clip``."""
        return scaled_down(values, self.clip)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return (clip/m)^2 (T u^2 + (1 - T)(1 - u^2)/(D - 1)) - x^2, with T = E[<V, u>^2].

        V is cosine u + sine w, where w is uniform on the unit sphere orthogonal to u. Its
        coordinates have mean square (1 - u^2)/(D - 1).
        """
        bounded = self.bound(values)
        cap = self.cap(values.size)
        unit_square = (bounded / self.clip) ** 2
        along = cap.mean_square * unit_square
        across = (1 - cap.mean_square) * (1 - unit_square) / values.size
        return (self.clip / cap.mean) ** 2 * (along + across) - bounded**2

    @classmethod
    def examples(cls) -> Sequence[PrivUnit]:
        """Return instances for the contract tests."""
        return [cls(1.0, 1.0), cls(0.01, 5.0), cls(8.0, 0.5), cls(40.0, 1000.0)]


def check_simulated(name: str, stream: Stream) -> None:
    """Refuse a deployment's stream for a mechanism that only protects real numbers.

    Raises:
        PrivacyError: ``stream`` is not simulated.
    """
    if not stream.simulated:
        raise PrivacyError(
            f"{name} protects real numbers, not the floats that are sent: simulation only; "
            "choose k_closest, nearest_direction, two_point_l1, laplace or gaussian in deployment"
        )


@lru_cache(maxsize=256)
def best_cap(epsilon: float, dimension: int) -> Cap:
    """Return the cap with the largest m (the least variance) at pure epsilon or slightly less.

    Given gamma, epsilon fixes p0, and m = slope (e^eps - 1)/(1 + (e^eps - 1) share). There,
    d share/d gamma = -f and d slope/d gamma = -gamma f, with the density f of the cosine. So
    d ln m/d gamma has the sign of m - gamma: the best cap is the only one with gamma = m.
    """
    log_odds = epsilon + math.log(-math.expm1(-epsilon))  # ln(e^eps - 1)

    def improvement(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        log_share = _log_share(dimension, gamma)
        total = float(np.logaddexp(0, log_odds + log_share))
        return _log_slope(dimension, gamma) + log_odds - total - log_gamma

    last = math.log(LARGEST_GAMMA)
    gamma = LARGEST_GAMMA
    if improvement(last) < 0:
        gamma = math.exp(solve(improvement, 0.0, start=last, end=-100.0))
    log_share = _log_share(dimension, gamma)
    log_ratio = epsilon * _SAFE_SIDE + log_share - math.log1p(-math.exp(log_share))
    cap = Cap(dimension, min(float(special.expit(log_ratio)), LARGEST_P0), gamma)
    while cap.epsilon > epsilon * (1 - 2e-9):  # near 1, a float p0 is coarse: round it down
        cap = Cap(dimension, math.nextafter(cap.p0, 0), gamma)
    return cap


def _log_sine_square(gamma: float) -> float:
    return math.log1p(-gamma) + math.log1p(gamma)


def _log_share(dimension: int, gamma: float) -> float:
    """Return ln of the share of the sphere in ``dimension`` where the cosine is at least gamma."""
    alpha = (dimension - 1) / 2
    if gamma < 0.5:
        share = special.betaincc(0.5, alpha, gamma**2) / 2
    else:
        share = special.betainc(alpha, 0.5, (1 - gamma) * (1 + gamma)) / 2
    if share > _SMALLEST_SHARE:
        return math.log(share)
    # share/slope is the mean of 1/cosine, where s (see ``Cap``) is e^(-y/alpha) for an exponential
    # y. Such a small share has a large alpha gamma^2 and a smooth integrand.
    cosine_square = -np.expm1(_log_sine_square(gamma) - _NODES / alpha)
    return _log_slope(dimension, gamma) + math.log((_WEIGHTS / np.sqrt(cosine_square)).sum())


def _log_slope(dimension: int, gamma: float) -> float:
    """Return ln of the integral of t times its density over the cosines t from gamma to 1."""
    alpha = (dimension - 1) / 2
    log_beta = float(special.betaln(alpha, 0.5))
    return alpha * _log_sine_square(gamma) - math.log(2 * alpha) - log_beta


class FloatSums(SummedReports):
    """The sum of the reports' coordinates; with the factor clip/m it gives the mean."""

    def __init__(self, size: int, factor: float) -> None:
        super().__init__(np.zeros(size), 4 * size, factor)

    def read(self, payload: bytes) -> None:
        """Add the coordinates of a report."""
        self._sum += read_direction(payload)


def read_direction(payload: bytes) -> NDArray[np.float32]:
    """Return the coordinates that a report of a direction holds.

    Raises:
        RunError: they are not part of a unit vector.
    """
    direction = np.frombuffer(payload, "<f4")
    if not (np.abs(direction) <= 1).all():
        raise RunError(
            "a report is not part of a unit vector: client and server run different mechanisms"
        )
    return direction
