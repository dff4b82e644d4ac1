"""Which of a few public random directions is nearest: a whole vector in one category of k.

Source: ours, from known parts. One direction and its opposite are the randomiser of Duchi, Jordan,
Wainwright 2013, "Local Privacy and Statistical Minimax Rates". Replacing a continuous randomiser by
public random points is from Shah, Chen, Balle, Kairouz, Theis 2022, "Optimal Compression of Locally
Differentially Private Mechanisms".
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureReport, SubsetResponse
from fedldp.core.bounding import check_releasable, scaled_down
from fedldp.core.deferred import special
from fedldp.core.errors import RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, SummedReports
from fedldp.mechanisms.grids import check_between, complete
from fedldp.mechanisms.k_rr import KRR

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 1e9
LARGEST_USED = 32.0
"""Budget beyond this is not used: a category is then hardly ever changed."""
MOST_DIRECTIONS = 16

_SEED_BYTES = 16
_LARGEST_CLIP = 1e6
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True)
class DirectionChoice:
    """m random directions, their opposites, and the mechanism that randomises the nearest one.

    Attributes:
        directions: m.
        blur: k-ary randomised response of 2 m categories: 2 i is direction i, 2 i + 1 its opposite.
    """

    directions: int
    blur: KRR

    @cached_property
    def scale(self) -> float:
        """The norm of a report's expectation for a unit vector: (p - q) E[M].

        M is the largest |z| of m standard normal z. All 2 m vectors sum to zero, so randomising the
        category multiplies the expectation by p - q.
        """
        return self.blur.gain * _moment(self.directions, 1)

    def mean_square(self, unit: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean square of each coordinate of a reported vector, for the vector ``unit``.

        For the nearest vector it is u^2 E[M^2] + 1 - u^2: orthogonal to u it is an ordinary normal
        vector. The squares of all 2 m vectors sum to 2 m on average, and each has probability at
        least q.
        """
        nearest = unit**2 * _moment(self.directions, 2) + 1 - unit**2
        smaller = self.blur.window.low / self.blur.window.total
        return self.blur.gain * nearest + smaller * 2 * self.directions


@dataclass(frozen=True)
class NearestDirection(Mechanism):
    """Clip x to an L2 norm of ``clip`` and report which of 2 m random vectors is likely nearest.

    x/clip is completed to a unit vector u of d + 1 dimensions. A fresh public seed gives m standard
    normal vectors. Among these and their opposites, one has the largest inner product with u. Its
    number goes through k-ary randomised response, and is sent with the seed. The vector that the
    report names, times clip/scale, estimates x without bias.

    Guarantee: pure ``epsilon`` for the whole report, exactly. The seed is drawn independently of
    the values, and given the seed a report is one of 2 m categories, drawn with integers alone.
    Clipping and the floats of the inner products decide which vector is nearest; privacy does not
    depend on them.

    Its variance is 1.04 times the variance of PrivUnit at epsilon 0.5, at most 1.3 times up to 4,
    and 1.8 times at 8.

    Args:
        epsilon: the budget of the whole report, from 1e-6; at most 32 of it is used.
        clip: the largest L2 norm of a vector of normalised coordinates; positive.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "nearest_direction"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    epsilon: float
    clip: float

    def __post_init__(self) -> None:
        check_between("epsilon", self.epsilon, SMALLEST_EPSILON, LARGEST_EPSILON)
        check_between("clip", self.clip, 1 / _LARGEST_CLIP, _LARGEST_CLIP)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> NearestDirection:
        """Return the mechanism that spends ``settings.epsilon`` on a report."""
        return cls(settings.epsilon, settings.clip)

    @property
    def choice(self) -> DirectionChoice:
        """The number of directions with the least variance, and its randomiser."""
        return _best_choice(min(self.epsilon, LARGEST_USED))

    def event(self, size: int) -> PureReport:
        """Return the realised epsilon of the one category."""
        return PureReport(epsilon=self.choice.blur.realised_epsilon)

    def category(self, size: int) -> SubsetResponse:
        """Return the weights of the one category, given its seed."""
        return self.choice.blur.window.category()

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return the 16-byte seed of the directions, and a category in one byte."""
        check_releasable(values)
        unit = complete(self.bound(values).reshape(-1) / self.clip)
        seed = stream.bytes(_SEED_BYTES).tobytes()
        choice = self.choice
        along = [
            float((_direction(seed, i, unit.size) * unit).sum()) for i in range(choice.directions)
        ]
        nearest = int(np.argmax(np.abs(along)))
        category = np.array([2 * nearest + (along[nearest] < 0)])
        return seed + choice.blur.randomise(category, stream).astype("u1").tobytes()

    def payload_bits(self, size: int) -> int:
        """Return the number of bits in a seed and a byte, the same for any ``size``."""
        return 8 * (_SEED_BYTES + 1)

    def aggregate(self, size: int) -> DirectionSums:
        """Return an empty sum of reports of ``size`` coordinates."""
        return DirectionSums(size, self.choice.directions, self.clip / self.choice.scale)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` scaled down to the L2 norm ``clip``."""
        return scaled_down(values, self.clip)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return (clip/scale)^2 times the mean square of a reported coordinate, less x^2."""
        bounded = self.bound(values)
        square = self.choice.mean_square(bounded / self.clip)
        return (self.clip / self.choice.scale) ** 2 * square - bounded**2

    @classmethod
    def examples(cls) -> Sequence[NearestDirection]:
        """Return instances for the contract tests."""
        return [cls(1.0, 1.0), cls(0.01, 5.0), cls(4.0, 0.5), cls(40.0, 1000.0)]


@lru_cache(maxsize=256)
def _best_choice(epsilon: float) -> DirectionChoice:
    choices = (DirectionChoice(m, KRR(epsilon, 2 * m)) for m in range(1, MOST_DIRECTIONS + 1))
    return min(choices, key=lambda c: float(c.mean_square(np.zeros(1))[0]) / c.scale**2)


@lru_cache(maxsize=64)
def _moment(count: int, power: int) -> float:
    """Return the mean of M^power, where M is the largest |z| of ``count`` standard normal z."""
    last = 12.0  # the integrand is negligible beyond this
    points = last * (_NODES + 1) / 2
    beyond = 1 - special.erf(points / math.sqrt(2)) ** count
    return float((_WEIGHTS * power * points ** (power - 1) * beyond).sum() * last / 2)


def _direction(seed: bytes, number: int, dimension: int) -> NDArray[np.float64]:
    """Return a standard normal vector that everyone computes identically, up to float rounding."""
    key = hashlib.blake2b(seed + bytes([number]), digest_size=32).digest()
    words = Stream(key, simulated=True).integers(dimension, np.uint32)
    return special.ndtri((words + 0.5) * 2.0**-32)  # type: ignore[no-any-return]


class DirectionSums(SummedReports):
    """The sum of the vectors that reports name; with the factor clip/scale it gives the mean."""

    def __init__(self, size: int, directions: int, factor: float) -> None:
        super().__init__(np.zeros(size), _SEED_BYTES + 1, factor)
        self._directions = directions

    def read(self, payload: bytes) -> None:
        """Add the vector that a report names.

        Raises:
            RunError: it names an unknown direction.
        """
        number, opposite = divmod(payload[-1], 2)
        if number >= self._directions:
            raise RunError(
                "a report names an unknown direction: client and server run different mechanisms"
            )
        direction = _direction(payload[:-1], number, self._sum.size + 1)[:-1]
        self._sum += -direction if opposite else direction
