"""Base of the randomisers of one category among k: how they randomise the numbers of a vector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureCoordinates
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, SummedReports
from fedldp.mechanisms.grids import check_between

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 32.0
LARGEST_CATEGORIES = 1 << 16

_GRID = np.linspace(0, 1, 101)


class CategoryMechanism(Mechanism):
    """A randomiser of one category among k: for labels, or for a vector, coordinate by coordinate.

    A coordinate is clipped to [-1, 1] and rounded at random, without bias, to one of the k levels
    2 i/(k - 1) - 1. The number i of its level is its category. The setting ``clip`` does not apply.
    """

    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        check_between("epsilon", self.epsilon, SMALLEST_EPSILON, LARGEST_EPSILON)
        known = isinstance(self.categories, int) and 2 <= self.categories <= LARGEST_CATEGORIES
        if not known:
            raise ConfigError(
                f"categories = {self.categories}: give an integer from 2 to {LARGEST_CATEGORIES}"
            )

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Self:
        """Return the mechanism of ``settings.epsilon`` for a weight, with the least variance.

        The number of levels minimises the largest variance over all values.
        """
        check_between("epsilon", settings.epsilon, SMALLEST_EPSILON, LARGEST_EPSILON)
        return min(cls.candidates(settings.epsilon), key=lambda m: float(m.variance(_GRID).max()))

    @classmethod
    @abstractmethod
    def candidates(cls, epsilon: float) -> Iterable[Self]:
        """Return mechanisms with a given budget to choose from."""

    @property
    @abstractmethod
    def realised_epsilon(self) -> float:
        """The pure epsilon of one category, from the integers that are compared, rounded up."""

    @property
    @abstractmethod
    def revealing_probability(self) -> float:
        """The probability of reports that distinguish two categories, rounded up.

        For any two categories, all other reports are equally likely under both.
        """

    @property
    @abstractmethod
    def gain(self) -> float:
        """The gain p - q: p is the probability of the true category, q that of any other one."""

    @property
    @abstractmethod
    def other_probability(self) -> float:
        """q: how often a report names a given category that is not the true one."""

    @abstractmethod
    def randomise(self, categories: NDArray[np.integer], stream: Stream) -> NDArray[np.integer]:
        """Return the report of each category; ``categories`` has shape (n,), from 0 to k - 1.

        Raises:
            PrivacyError: ``categories`` is anything else.
        """

    def event(self, size: int) -> PureCoordinates:
        """Return the cost of ``size`` categories, or of a vector of ``size`` coordinates."""
        return PureCoordinates(
            groups=((self.realised_epsilon, size),), telling=self.revealing_probability
        )

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return the packed reports of all coordinates' categories; see ``Mechanism.encode``."""
        check_releasable(values)
        bounded = self.bound(values).reshape(-1)
        levels = round_at_random(bounded, self.categories - 1, stream)
        return self._pack(self.randomise(levels.astype(np.int64), stream))

    @abstractmethod
    def _pack(self, reports: NDArray[np.integer]) -> bytes:
        """Return the result of ``randomise`` as bytes."""

    @abstractmethod
    def _levels(self, payload: bytes, size: int) -> NDArray[np.int64]:
        """Return the sum of the reported levels 2 i - (k - 1) of each coordinate, shape (d,)."""

    def aggregate(self, size: int) -> IntegerSums:
        """Return an empty sum of reports of ``size`` coordinates."""
        num_bytes = -(-self.payload_bits(size) // 8)
        scale = (self.categories - 1) * self.gain
        return IntegerSums(size, num_bytes, lambda payload: self._levels(payload, size), scale)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` clipped to [-1, 1]."""
        return np.clip(values.astype(np.float64), -1, 1)


class IntegerSums(SummedReports):
    """The sum of the whole numbers in reports; divided by a scale it gives the mean."""

    def __init__(
        self,
        size: int,
        num_bytes: int,
        decode: Callable[[bytes], NDArray[np.int64]],
        scale: float,
    ) -> None:
        super().__init__(np.zeros(size, np.int64), num_bytes)
        self._decode = decode
        self._scale = scale

    def read(self, payload: bytes) -> None:
        """Add the whole numbers of a report."""
        self._sum += self._decode(payload)

    def scaled(self, reports: int) -> NDArray[np.float64]:
        """Return the estimate sum/(n scale) of each coordinate's mean."""
        return np.asarray(self._sum / (reports * self._scale))


def check_categories(categories: Any, count: int) -> None:
    """Refuse anything but an array of categories.

    Raises:
        PrivacyError: ``categories`` is not an integer array of shape (n,), with values of at least
            0 and less than ``count``.
    """
    if type(categories) is not np.ndarray or categories.dtype.kind not in "iu":
        raise PrivacyError("pass categories as an integer array")
    if categories.ndim != 1 or not categories.size:
        raise PrivacyError(f"pass categories of shape (n,) with n above 0, not {categories.shape}")
    if categories.min() < 0 or categories.max() >= count:
        raise PrivacyError(f"a category is outside 0 to {count - 1}: nothing was released")


def round_at_random(values: NDArray[np.float64], last: int, stream: Stream) -> NDArray[np.uint64]:
    """Return random integers from 0 to ``last`` with mean (x + 1)/2 last, for x in [-1, 1].

    This only prepares the input of a randomiser, so its rounding errors cost no privacy. They shift
    a mean by less than 2^-32.
    """
    part = (stream.integers(values.size, np.uint32) + 0.5) * 2.0**-32
    rounded = np.floor((values + 1) * (last / 2) + part)
    return np.clip(rounded, 0, last).astype(np.uint64)


def rounded_square(values: NDArray[np.float64], last: int) -> NDArray[np.float64]:
    """Return the mean of (i - last/2)^2 for the integers i that ``round_at_random`` returns."""
    part = (values + 1) * (last / 2) % 1
    square: NDArray[np.float64] = (values * (last / 2)) ** 2 + part * (1 - part)
    return square
