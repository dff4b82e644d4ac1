"""Mechanisms with one mistake each; ``found_by`` names the check that must notice it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedldp.accounting.events import BinaryRandomizedResponse, Event, SubsetResponse
from fedldp.core.bounding import check_releasable
from fedldp.core.randomness import Stream
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.nearest_direction import NearestDirection
from fedldp.testing.toys import ToyBits


@dataclass(frozen=True)
class Unequal(ToyBits):
    """Two mechanisms with the same parameters differ."""

    found_by = "one value"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = ToyBits.__hash__


@dataclass(frozen=True)
class SpendsMore(ToyBits):
    """It is made with twice the epsilon of the settings, and says so."""

    found_by = "event"

    @classmethod
    def from_settings(cls, settings: Any) -> SpendsMore:
        return cls(2 * settings.epsilon if settings.epsilon < 2 else 5.5)


@dataclass(frozen=True)
class TakesIntegers(ToyBits):
    """It takes whatever numpy can convert."""

    found_by = "refusals"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        return super().encode(np.nan_to_num(np.asarray(values, np.float64)), stream)


@dataclass(frozen=True)
class ReadsFirst(ToyBits):
    """It draws before it looks whether the values can be protected."""

    found_by = "refusals"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        stream.bytes(1)
        return super().encode(values, stream)


@dataclass(frozen=True)
class Overflows(Laplace):
    """The L1 norm is summed as it is: values near 1e308 have an infinite norm."""

    found_by = "huge and tiny values"

    def bound(self, values: np.ndarray) -> np.ndarray:
        values = values.astype(np.float64)
        return values * min(1.0, self.clip / max(np.abs(values).sum(), 1e-300))

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        return super().encode(self.bound(values), stream)


@dataclass(frozen=True)
class LengthTells(ToyBits):
    """A clipped vector is sent with one more byte."""

    found_by = "length of a report"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        return super().encode(values, stream) + b"\0" * bool(np.abs(values).max() > 1)

    def aggregate(self, size: int) -> Any:
        return _changed(super().aggregate(size), add=lambda add: lambda p: add(p[: -(-size // 8)]))


@dataclass(frozen=True)
class OneStreamForAll(ToyBits):
    """All of many reports are drawn from the first stream."""

    found_by = "many as one by one"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        return super().encode(values, stream)

    def encode_many(self, values: np.ndarray, streams: Sequence[Stream]) -> np.ndarray:
        return super().encode_many(values, [streams[0]] * len(streams))


@dataclass(frozen=True)
class ClipsInPlace(ToyBits):
    """It clips the caller's own array."""

    found_by = "input untouched"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        np.clip(values, -1, 1, out=values)
        return super().encode(values, stream)


@dataclass(frozen=True)
class DrawsFloats(ToyBits):
    """It compares floats, drawn by a generator that is not cryptographic."""

    found_by = "integers"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        drawn = stream.generator().random(values.size) * 256
        return np.packbits(drawn.astype(np.int64) < self.thresholds(values.reshape(-1))).tobytes()


@dataclass(frozen=True)
class SameKeys(ToyBits):
    """The noise is drawn from a key of its own: it is the same in every round."""

    found_by = "noise of two rounds"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        return super().encode(values, Stream(b"k" * 32, simulated=stream.simulated))


@dataclass(frozen=True)
class TooLarge(ToyBits):
    """The server's estimate is 1.4 times too large."""

    found_by = "mean and variance"

    def aggregate(self, size: int) -> Any:
        return _changed(super().aggregate(size), mean=lambda mean: lambda: 1.4 * mean())


@dataclass(frozen=True)
class LessNoise(ToyBits):
    """It states half of its variance."""

    found_by = "mean and variance"

    def variance(self, values: np.ndarray) -> np.ndarray:
        return super().variance(values) / 2


@dataclass(frozen=True)
class LosesABlock(ToyBits):
    """From coordinate 65,536 on, it encodes the coordinate before."""

    found_by = "long reports"

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        if values.size > 65_536:
            values = np.concatenate([values[:65_536], values[65_535:-1]])
        return super().encode(values, stream)


@dataclass(frozen=True)
class TakesAnyLength(ToyBits):
    """The server cuts a report that is too long."""

    found_by = "aggregate"

    def aggregate(self, size: int) -> Any:
        return _changed(super().aggregate(size), add=lambda add: lambda p: add(p[: -(-size // 8)]))


@dataclass(frozen=True)
class LastCounts(ToyBits):
    """The server's mean is that of the last report."""

    found_by = "aggregate"

    def aggregate(self, size: int) -> Any:
        one = super().aggregate(size)
        found = super().aggregate(size)

        def add(payload: bytes) -> None:
            again = ToyBits.aggregate(self, size)
            again.add(payload)
            found.mean = again.mean  # type: ignore[method-assign]

        found.add = add  # type: ignore[method-assign]
        found.mean = one.mean  # type: ignore[method-assign]
        return found


@dataclass(frozen=True)
class OtherWeights(NearestDirection):
    """Its category states the weights of a smaller epsilon."""

    found_by = "category"

    def category(self, size: int) -> SubsetResponse | None:
        return NearestDirection(self.epsilon / 2, self.clip).category(size)


@dataclass(frozen=True)
class HalfStated(ToyBits):
    """The event states half of what a report costs."""

    found_by = "law"

    def event(self, size: int) -> Event:
        stated = super().event(size).epsilon / 2
        return BinaryRandomizedResponse(epsilon=stated, coordinates=size)


def _changed(aggregate: Any, **changes: Any) -> Any:
    for name, change in changes.items():
        setattr(aggregate, name, change(getattr(aggregate, name)))
    return aggregate


PLANTED: list[Any] = [
    Unequal, SpendsMore, TakesIntegers, ReadsFirst, Overflows, LengthTells,
    OneStreamForAll, ClipsInPlace, DrawsFloats, SameKeys, TooLarge, LessNoise, LosesABlock,
    TakesAnyLength, LastCounts, OtherWeights, HalfStated,
]  # fmt: skip
