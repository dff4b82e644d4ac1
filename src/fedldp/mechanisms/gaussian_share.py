"""One client's share of the noise in a secure sum, added to a vector of whole grid steps.

Source: Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning
with Secure Aggregation", ICML 2021, Algorithm 1: clip, round at random on the condition that the
norm stays within a bound, add discrete Gaussian noise, reduce by the modulus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import GaussianShare
from fedldp.accounting.numerics.gaussian import gaussian_sigma
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import strict_count
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, check_block
from fedldp.mechanisms.discrete import discrete_gaussian
from fedldp.mechanisms.summing import Summing
from fedldp.mechanisms.words import WordFormat, WordSum

LARGEST_WORD = 32
WORDS = (24, LARGEST_WORD)
"""The numbers of bits of a modulus, of which the first is used that is large enough."""

FEWEST_BITS, MOST_BITS = 3, 16
"""The deviation of one share is a power of two in grid steps, from 8 steps."""

_LARGEST_RADIUS = 2.0**24
"""The largest radius, in steps. Up to this radius, squared norms are integers that float64
represents exactly."""

_MARGIN = 1e-9
"""A relative margin, far larger than all rounding errors between a budget and its statement."""

_REJECTED = 2.0**-20
"""beta: the largest probability that a random rounding is too long and is replaced by rounding
towards zero."""

_SLACK = math.sqrt(-2 * math.log(_REJECTED))
_WRAPS = 1e-6
"""The largest probability that a round's sum exceeds the modulus in some coordinate."""

_DRAWN_BITS = 16


@dataclass(frozen=True)
class SharedGaussian(Mechanism):
    """A vector of L2 norm at most 1, as integers plus a share of Gaussian noise, modulo 2^bits.

    Encoding, for a vector x of D coordinates:

    - x radius/max(||x||, 1), each coordinate rounded up or down at random, unbiased. If the squared
      norm is then above ``squared_norm``, every coordinate is rounded towards zero instead, which
      makes no norm longer. So the bound always holds, by exact integers.
    - plus discrete Gaussian noise of deviation 2^scale_bits steps, modulo 2^bits.

    Both roundings are computed, whatever the vector is. According to Kairouz, Liu, Steinke, the
    result of the first one is within ``squared_norm`` with a probability of at least 1 - 2^-20 if
    ``largest_radius`` gave the radius; the guarantee does not depend on this probability.

    Guarantee, replacing the client's whole input: ``GaussianShare`` with a squared distance of
    4 squared_norm, whatever the rounding did, because two vectors of that norm may be opposite.

    Args:
        radius: the radius of the ball of inputs, in grid steps, from 1 to 2^24.
        squared_norm: the largest squared norm of an integer vector.
        scale_bits: the share's deviation is 2^scale_bits steps; from 3 to 16.
        bits: the number of bits of the modulus: 8 to 32, in whole bytes.

    Raises:
        ConfigError: an argument is out of range, or ``squared_norm`` leaves no room for rounding.
    """

    name: ClassVar[str] = "gaussian_share"
    is_setting: ClassVar[bool] = False
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    radius: float
    squared_norm: int
    scale_bits: int
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.radius <= _LARGEST_RADIUS:
            raise ConfigError(f"radius = {self.radius}: give 1 to {_LARGEST_RADIUS:g} grid steps")
        strict_count("squared_norm", self.squared_norm)
        if self.squared_norm <= (self.radius * (1 + _MARGIN)) ** 2:
            raise ConfigError(
                f"squared_norm = {self.squared_norm}: give more than the radius squared"
            )
        if not FEWEST_BITS <= self.scale_bits <= MOST_BITS:
            raise ConfigError(f"scale_bits = {self.scale_bits}: give {FEWEST_BITS} to {MOST_BITS}")
        if self.bits not in range(8, LARGEST_WORD + 1, 8):
            raise ConfigError(f"bits = {self.bits}: give a multiple of 8, up to {LARGEST_WORD}")

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> SharedGaussian:
        """Return the mechanism whose share alone protects a client for one round."""
        size = 1 << (settings.size - 1).bit_length()  # the size of a rotated vector
        mu = largest_mu(settings.epsilon, settings.delta)
        return shared_gaussian(size, mu, shares=1, clients=1, rounds=1, words=WORDS[-1:])

    def event(self, size: int) -> GaussianShare:
        """Return the event of one share, in exact integers."""
        return GaussianShare(
            squared_distance=4 * self.squared_norm, variance=1 << 2 * self.scale_bits
        )

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one word for each coordinate; see ``Mechanism.encode``."""
        check_releasable(values)
        # Not ``self.encode_many``, which may call a subclass's own ``encode``, and so this.
        return bytes(SharedGaussian.encode_many(self, values.reshape(1, -1), [stream])[0])

    def encode_many(
        self, values: NDArray[np.floating], streams: Sequence[Stream]
    ) -> NDArray[np.uint8]:
        """Return rows of words; see ``Mechanism.encode_many``."""
        check_block(values, streams)
        steps = self._clipped(values)
        size = values.shape[1]
        drawn = np.empty(values.shape, np.uint16)
        for row, stream in zip(drawn, streams, strict=True):
            row[:] = stream.integers(size, np.uint16)
        rounded = steps + 2.0 ** -(_DRAWN_BITS + 1)
        rounded += drawn * 2.0**-_DRAWN_BITS
        np.floor(rounded, out=rounded)
        shorter = np.trunc(steps, out=steps)
        chosen = np.where(self._hold(rounded)[:, None], rounded, shorter).astype(np.int64)
        for own, stream in zip(chosen, streams, strict=True):
            own += self._noise(size, stream)
        return self.words.pack(chosen)

    @property
    def words(self) -> WordFormat:
        """The format of a report."""
        return WordFormat(self.bits)

    def payload_bits(self, size: int) -> int:
        """Return ``bits`` for each coordinate."""
        return self.bits * size

    def aggregate(self, size: int) -> WordSum:
        """Return an empty sum of reports of ``size`` coordinates."""
        return WordSum(self.words, size, lambda total, reports: total / (reports * self.radius))

    def summing(self, size: int, most: int) -> Summing:
        """Return how reports of ``size`` words add up: modulo 2^``bits``."""
        return self.words.summing(size)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values``, scaled down if their norm is above 1."""
        return self._clipped(values.reshape(1, -1)).reshape(values.shape) / self.radius

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return an upper bound on the variance of noise and rounding."""
        return np.full(values.shape, (4.0**self.scale_bits + 0.25) / self.radius**2)

    @classmethod
    def examples(cls) -> Sequence[SharedGaussian]:
        """Return instances for tests."""
        return [cls(1000.0, 1_100_000, 10, 24), cls(20.0, 2_000, 3, 16), cls(1e6, 10**13, 16, 32)]

    def _clipped(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return each row in steps, scaled down if its norm is above 1."""
        wide = values.astype(np.float64)
        # Scale down first, so that no square overflows.
        wide /= np.maximum(np.abs(wide).max(1, keepdims=True), 1.0)
        norms = np.sqrt(np.square(wide).sum(1, keepdims=True))
        wide *= self.radius / np.maximum(norms, 1.0)
        return wide

    def _hold(self, steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        # The sums are exact, because they add up integers to a total below 2^53.
        return np.asarray(np.square(steps).sum(1) <= self.squared_norm)

    def _noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return a share in grid steps: exact, or idealised in a simulation."""
        if stream.simulated:
            drawn = stream.generator().standard_normal(size, np.float32)
            drawn *= 1 << self.scale_bits
            return np.rint(drawn, out=drawn).astype(np.int64)
        return discrete_gaussian(size, self.scale_bits, stream)


def largest_radius(squared_norm: int, size: int) -> float:
    """Return the largest radius for which rounding respects ``squared_norm``; 0 if there is none.

    The squared norm S of a random rounding of a vector of norm r exceeds r^2 + D/4 + sqrt(2
    ln(1/beta)) (r + sqrt(D)/2) with a probability of at most beta = 2^-20, and never exceeds (r +
    sqrt(D))^2. The result is the larger of the two radii that these bounds allow.

    Source: Kairouz, Liu, Steinke 2021, the squared norm bound of their main theorem.
    """
    root = math.sqrt(size)
    constant = size / 4 + _SLACK * root / 2 - squared_norm
    likely = (math.sqrt(max(_SLACK**2 - 4 * constant, 0.0)) - _SLACK) / 2
    return max(likely, math.sqrt(squared_norm) - root, 0.0) * (1 - _MARGIN)


def largest_mu(epsilon: float, delta: float) -> float:
    """Return a mu whose epsilon at ``delta`` is ``epsilon``, less a margin for rounding."""
    return (1 - _MARGIN) / gaussian_sigma(epsilon, delta)


@lru_cache(maxsize=1024)
def shared_gaussian(
    size: int,
    mu: float,
    *,
    shares: int,
    clients: int,
    rounds: int,
    words: tuple[int, ...] = WORDS,
) -> SharedGaussian:
    """Return the mechanism on the finest grid whose sums fit the first modulus that has one.

    A coordinate of a rotated sum is sub-Gaussian with a variance of at most (n r)^2/D + n/4 + n
    s^2: equal vectors of full length from all clients, their rounding, and their noise. So all
    coordinates of all rounds are within t times the root of this variance, except with probability
    2 D T exp(-t^2/2).

    Args:
        size: coordinates of a rotated vector, D.
        mu: mu of one round, against an adversary who sees sums.
        shares: honest shares in every sum, from 1.
        clients: clients in every sum, n.
        rounds: rounds of the run, T.
        words: numbers of bits of a modulus, to try in this order.

    Raises:
        ConfigError: no grid fits.
    """
    times = math.sqrt(2 * math.log(2 * size * rounds / _WRAPS))
    for bits, scale_bits in product(words, range(MOST_BITS, FEWEST_BITS - 1, -1)):
        variance = 1 << 2 * scale_bits
        squared_norm = math.floor(mu**2 * (shares * variance - 16) / 4)
        radius = largest_radius(squared_norm, size)
        spread = clients * radius * radius * clients / size + clients * (variance + 0.25)
        fits = times * math.sqrt(spread) + 1 < 2.0 ** (bits - 1)
        if fits and 1 <= radius <= _LARGEST_RADIUS:
            return SharedGaussian(radius, squared_norm, scale_bits, bits)
    raise ConfigError(
        f"mechanism = {SharedGaussian.name}: in words of {words[-1]} bits, no grid is fine enough "
        f"for vectors of {size} coordinates and coarse enough for sums over {clients} clients; "
        "give a larger epsilon, fewer rounds or a smaller model"
    )
