"""Mistakes that show only at a few coordinates, values, sizes or reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from planted import FloatBits

from fedldp.core.bounding import check_releasable
from fedldp.core.randomness import Stream
from fedldp.mechanisms.two_point_l1 import TwoPointL1


class RepeatingNoise(FloatBits):
    """The noise repeats after 70,000 coordinates, as from a buffer that is too short."""

    def uniform(self, size: int, stream: Stream) -> np.ndarray:
        return np.resize(stream.generator().random(min(size, 70_000)), size)


@dataclass(frozen=True)
class HalfNorm(TwoPointL1):
    """The L1 norm counts only one sign, so that of an alternating corner is half of the true
    norm."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        clipped = np.clip(values.astype(np.float64), -1, 1)
        norm = max(clipped.clip(min=0).sum(), -clipped.clip(max=0).sum())
        limit = self.l1_limit(values.size)
        return self.bits.encode(clipped * min(1.0, limit / max(norm, 1e-300)), stream)

    def encode_many(self, values: np.ndarray, streams: object) -> np.ndarray:
        rows = [self.encode(row, stream) for row, stream in zip(values, streams, strict=True)]  # type: ignore[call-overload]
        return np.array([np.frombuffer(row, np.uint8) for row in rows])


class CertainWindow(FloatBits):
    """The answer is deterministic between 0.60 and 0.61."""

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        inside = (values > 0.60) & (values < 0.61)
        return np.where(inside, 1.0, super().probabilities(values))


class RangeOfSome(FloatBits):
    """Scales values by the largest one, if it is between 3 and 5."""

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        largest = np.abs(values).max()
        return super().probabilities(values / largest if 3 < largest < 5 else values)


class Unreadable(FloatBits):
    """Its reports are right, but the server cannot read them."""

    def aggregate(self, size: int) -> object:  # type: ignore[override]
        raise TypeError("no such thing")
