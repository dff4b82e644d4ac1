"""Code shared by mechanisms that bound a vector by norm, with noise in every coordinate or none."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import LARGEST_GRID_RADIUS, LARGEST_WEIGHT, GridBall, check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Aggregate, Mechanism, SummedReports, check_block
from fedldp.mechanisms.discrete import LARGEST_SCALE_BITS

_INDEX = np.dtype("<i4")
SMALLEST_CLIP, LARGEST_CLIP = 1e-9, 1e9


class GridNoise(Mechanism):
    """Clip a vector by norm on a public grid, and add whole grid steps of noise.

    A report is a 32-bit grid index for each coordinate. The grid is fine: the noise's scale is 2^22
    steps, or down to 2^12 if the clip is many times that scale. The clipped vector and the noise of
    a deployment are integers, and the guarantee counts steps, so it does not depend on floating
    point. An index beyond 32 bits would be clipped, which costs no privacy and will never happen.
    """

    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"
    order: ClassVar[Literal[1, 2]]

    clip: float

    @property
    @abstractmethod
    def clip_over_scale(self) -> Fraction:
        """The clip in units of the noise's scale, exact."""

    @abstractmethod
    def noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return noise in grid steps, shape (size,): exact, or idealised in a simulation."""

    @cached_property
    def scale_bits(self) -> int:
        """The number of bits b such that the noise's scale is 2^b grid steps."""
        room = LARGEST_GRID_RADIUS.bit_length() - 1
        return min(LARGEST_SCALE_BITS, room - int(self.clip_over_scale).bit_length())

    @property
    def proven_scale(self) -> Fraction:
        """The noise's scale in grid steps, as the guarantee counts it."""
        return Fraction(1 << self.scale_bits)

    @cached_property
    def ball(self) -> GridBall:
        """The set of grid vectors before noise; their norm is at most ``clip``."""
        radius = math.floor(self.clip_over_scale * self.proven_scale)
        step = float(Fraction(self.clip) / self.clip_over_scale / (1 << self.scale_bits))
        return GridBall(self.order, radius, step)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return 32 bits for each coordinate; see ``Mechanism.encode``.

        Raises:
            ConfigError: the vector is too long for its clip (see ``GridBall.check_size``).
        """
        check_releasable(values)
        # Not ``self.encode_many``, which may call a subclass's own ``encode``, and so this.
        return bytes(GridNoise.encode_many(self, values.reshape(1, -1), [stream])[0])

    def encode_many(
        self, values: NDArray[np.floating], streams: Sequence[Stream]
    ) -> NDArray[np.uint8]:
        """Return rows of reports; see ``Mechanism.encode_many``."""
        check_block(values, streams)
        steps = self.ball.clip_rows(values)
        for row, stream in zip(steps, streams, strict=True):
            row += self.noise(row.size, stream)
        return self.packed(steps, streams)

    def packed(self, steps: NDArray[np.int64], streams: Sequence[Stream]) -> NDArray[np.uint8]:
        """Return the reports of noisy grid vectors, shape (n, bytes of a report)."""
        limits = np.iinfo(_INDEX)
        steps.clip(limits.min, limits.max, out=steps)
        return steps.astype(_INDEX).view(np.uint8)

    def furthest(self, direction: NDArray[np.floating]) -> bytes:
        """Return indices as large as a server accepts; see ``Mechanism.furthest``."""
        most = min(2**31 - 1, int(LARGEST_WEIGHT / 2 / self.ball.step))
        return np.where(direction > 0, most, -most).astype(_INDEX).tobytes()

    def payload_bits(self, size: int) -> int:
        """Return 32 for each coordinate."""
        return 8 * _INDEX.itemsize * size

    def aggregate(self, size: int) -> Aggregate:
        """Return an empty sum of reports of ``size`` coordinates."""
        return GridSum(size, self.ball.step)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` rounded to the grid and clipped by norm."""
        return self.ball.clip(values) * np.float64(self.ball.step)


class GridSum(SummedReports):
    """The sum of the reported grid indices, exact in any order."""

    def __init__(self, size: int, step: float) -> None:
        super().__init__(np.zeros(size, np.int64), size * _INDEX.itemsize, step)

    def read(self, payload: bytes) -> None:
        """Add the indices of a report."""
        self._sum += np.frombuffer(payload, _INDEX)

    def scaled(self, reports: int) -> NDArray[np.float64]:
        """Return the estimate of the mean, given the number of reports."""
        return np.asarray(self._sum * np.float64(self._factor / reports))


def check_between(name: str, value: float, smallest: float, largest: float) -> None:
    """Refuse a parameter that is out of range, NaN or infinite.

    Raises:
        ConfigError: ``value`` is refused.
    """
    if not smallest <= value <= largest:
        raise ConfigError(f"{name} = {value}: give a number from {smallest:g} to {largest:g}")


def complete(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Extend a vector of norm at most 1, shape (d,), to a unit vector, shape (d + 1,)."""
    return np.append(vector, math.sqrt(max(0.0, 1 - float((vector * vector).sum()))))
