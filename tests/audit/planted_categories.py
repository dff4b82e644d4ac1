"""Mechanisms that report one category, with one mistake each, and correct twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.k_closest import FrameChoice, KClosest, _units
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.nearest_direction import DirectionChoice, NearestDirection
from fedldp.mechanisms.piecewise import Window


@dataclass(frozen=True)
class PublicK(KClosest):
    """``k_closest`` that encodes vectors one by one, each with its own k: as private as stated."""

    def closest(self, values: np.ndarray) -> int:
        return self.choice(values.size).closest

    def seed(self, stream: Stream) -> bytes:
        return stream.bytes(16).tobytes()

    def encode_many(self, values: np.ndarray, streams: Sequence[Stream]) -> np.ndarray:
        frames, reports = self.choice(values.shape[1]).frames, []
        for row, stream in zip(values, streams, strict=True):
            seed = self.seed(stream)
            along = frames.along(_units(row[None], self.clip), [seed])
            choice = FrameChoice(self.epsilon, frames, self.closest(row))
            reports.append(seed + choice.draw(along, [stream]).tobytes())
        return np.frombuffer(b"".join(reports), np.uint8).reshape(len(streams), -1)


class PrivateK(PublicK):
    """Chooses k by the vector: fewer directions count as close if its mean is positive."""

    def closest(self, values: np.ndarray) -> int:
        pairs = self.choice(values.size).frames.pairs
        return pairs // 5 if values.mean() > 0 else pairs


class Blurred(NearestDirection):
    """``nearest_direction`` with a replaceable randomised response."""

    kind = KRR

    @property
    def choice(self) -> DirectionChoice:
        right = super().choice
        return replace(right, blur=self.kind(right.blur.epsilon, right.blur.categories))


class _OneMore(KRR):
    def randomise(self, categories: np.ndarray, stream: Stream) -> np.ndarray:
        drawn_by = replace(self.window, high=self.window.high + 1)
        return drawn_by.draw(categories.astype(np.uint64), stream).astype(np.int64)


class OneMore(Blurred):
    """Draws the true category with one more word than stated."""

    kind = _OneMore


class _RoundedUp(KRR):
    @property
    def window(self) -> Window:  # type: ignore[override]
        right = super().window
        return replace(right, high=right.high + 1)


class RoundedUp(Blurred):
    """Rounds H up instead of down, both when drawing and when stating, so that H/L exceeds
    e^eps."""

    kind = _RoundedUp


class RefusesCorner(Blurred):
    """Refuses vectors that are negative throughout, so that a missing report reveals one."""

    def encode_many(self, values: np.ndarray, streams: Sequence[Stream]) -> np.ndarray:
        if (values < 0).all():
            raise PrivacyError("refused")
        return super().encode_many(values, streams)


class _Given(Stream):
    def __init__(self, words: np.ndarray) -> None:
        super().__init__(bytes(32), simulated=False)
        self.words = words

    def integers(self, count: int, dtype: type) -> np.ndarray:  # type: ignore[type-arg]
        return self.words


@dataclass(frozen=True)
class NamedSeed(PublicK):
    """The seed follows from the client's number, so whoever reads the code learns the sender."""

    client: int = 0

    def seed(self, stream: Stream) -> bytes:
        stream.bytes(16)
        return self.client.to_bytes(16, "little")


class _Scattered(KRR):
    def randomise(self, categories: np.ndarray, stream: Stream) -> np.ndarray:
        odd = np.uint64(0x9E3779B97F4A7C15)
        words = _Given(stream.integers(1, np.uint64) * odd)
        return self.window.draw(categories.astype(np.uint64), words).astype(np.int64)


class Scattered(Blurred):
    """As private as stated, but with a different order of words, in which those of a category are
    not consecutive."""

    kind = _Scattered


class BetterSeed(PublicK):
    """Draws two seeds, and keeps the one whose directions suit the values better."""

    def encode_many(self, values: np.ndarray, streams: Sequence[Stream]) -> np.ndarray:
        choice, reports = self.choice(values.shape[1]), []
        for row, stream in zip(values, streams, strict=True):
            unit = _units(row[None], self.clip)
            seeds = [self.seed(stream) for _ in range(2)]
            along = [choice.frames.along(unit, [seed]).copy() for seed in seeds]
            best = int(np.abs(along[1]).max() > np.abs(along[0]).max())
            reports.append(seeds[best] + choice.draw(along[best], [stream])[0].tobytes())
        return np.frombuffer(b"".join(reports), np.uint8).reshape(len(streams), -1)
