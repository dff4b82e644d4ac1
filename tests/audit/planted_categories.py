"""Mechanisms that report one category, with one mistake each, and correct twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedldp.core.randomness import Stream
from fedldp.mechanisms.k_closest import FrameChoice, Frames, KClosest, _units
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.nearest_direction import DirectionChoice, NearestDirection
from fedldp.mechanisms.piecewise import Window


@dataclass(frozen=True)
class PublicK(KClosest):
    """``k_closest`` that encodes vectors one by one, each with its own k: as private as stated."""

    def closest(self, values: np.ndarray) -> int:
        return self.choice(values.size).closest

    def chosen(self, frames: Frames, closest: int) -> FrameChoice:
        return FrameChoice(self.epsilon, frames, closest)

    def seed(self, stream: Stream) -> bytes:
        return stream.bytes(16).tobytes()

    def encode_many(self, values: np.ndarray, streams: Sequence[Stream]) -> np.ndarray:
        frames, reports = self.choice(values.shape[1]).frames, []
        for row, stream in zip(values, streams, strict=True):
            seed = self.seed(stream)
            along = frames.along(_units(row[None], self.clip), [seed])
            category = self.chosen(frames, self.closest(row)).draw(along, [stream])
            reports.append(seed + category.tobytes())
        return np.frombuffer(b"".join(reports), np.uint8).reshape(len(streams), -1)


class PrivateK(PublicK):
    """Chooses k by the vector: fewer directions count as close if its mean is positive."""

    def closest(self, values: np.ndarray) -> int:
        pairs = self.choice(values.size).frames.pairs
        return pairs // 5 if values.mean() > 0 else pairs


class KOfTheNorm(PublicK):
    """Chooses k by the vector: all directions count as close if its norm is below a half."""

    def closest(self, values: np.ndarray) -> int:
        choice = self.choice(values.size)
        long = np.linalg.norm(np.clip(values, -1e9, 1e9)) > self.clip / 2
        return choice.closest if long else choice.frames.pairs


@dataclass(frozen=True)
class ClosedPlaces(FrameChoice):
    """Assigns the first word of each place to the previous place."""

    def place(self, stream: Stream) -> int:
        word = int(stream.integers(1, np.uint64)[0])
        while word >= self.window.total:
            word = int(stream.integers(1, np.uint64)[0])
        beyond = max(0, word - 1) - self.closest * self.window.high
        if beyond < 0:
            return max(0, word - 1) // self.window.high
        return self.closest + beyond // self.window.low


class ClosedWords(PublicK):
    """See ``ClosedPlaces``: the first place has one word too many, and the last one too few."""

    def chosen(self, frames: Frames, closest: int) -> FrameChoice:
        return ClosedPlaces(self.epsilon, frames, closest)


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


class LastTwice(Blurred):
    """Also keeps words beyond the last category instead of drawing again."""

    class _Kind(KRR):
        def randomise(self, categories: np.ndarray, stream: Stream) -> np.ndarray:
            words = np.minimum(stream.integers(1, np.uint64), np.uint64(self.window.total - 1))
            return self.window.draw(categories.astype(np.uint64), _Given(words)).astype(np.int64)

    kind = _Kind


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
