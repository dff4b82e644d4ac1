"""Mechanisms whose payload is no row of equal pieces, sound ones and ones with a mistake."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from planted import FloatBits, WrongK

from fedldp.core.bounding import check_releasable
from fedldp.core.errors import RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Aggregate


class SignsFirst(FloatBits):
    """First the randomised signs of all coordinates, then a random size for each.

    A size is 0, 1, 2 or 3, whatever the values are, so a report is exactly as private as its signs.
    It takes three bits, so four bits of sizes are never all ones, but four signs may be.
    """

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        signs = self.uniform(values.size, stream) < self.probabilities(values)
        sizes = stream.generator().integers(0, 4, values.size)[:, None] >> [2, 1, 0] & 1
        return np.packbits(signs).tobytes() + np.packbits(sizes).tobytes()

    def payload_bits(self, size: int) -> int:
        return 4 * size

    def aggregate(self, size: int) -> Any:
        return SignedSizes(size, self)

    def read(self, payload: bytes, size: int) -> np.ndarray:
        """Return the estimate from one report."""
        rows = np.frombuffer(payload, np.uint8)
        signs = np.unpackbits(rows, count=size) * 2.0 - 1
        sizes = np.unpackbits(rows[-(-size // 8) :], count=3 * size).reshape(size, 3)
        return self.scale * signs + self.of_sizes(sizes @ [4, 2, 1] - 1.5)

    def of_sizes(self, sizes: np.ndarray) -> np.ndarray:
        return sizes / 8


class SignedSizes(Aggregate):
    """The mean of the estimates of ``mechanism.read``."""

    def __init__(self, size: int, mechanism: SignsFirst) -> None:
        self.size, self.mechanism = size, mechanism
        self.read: list[np.ndarray] = []

    def add(self, payload: bytes) -> None:
        self.read.append(self.mechanism.read(payload, self.size))

    def mean(self) -> np.ndarray:
        return np.mean(self.read, axis=0)


class UnreadSizes(SignsFirst):
    """The server does not read the sizes."""

    def of_sizes(self, sizes: np.ndarray) -> np.ndarray:
        return np.zeros(len(sizes))


class Centred(SignsFirst):
    """The server moves its estimates so that their sum is zero."""

    def read(self, payload: bytes, size: int) -> np.ndarray:
        found = super().read(payload, size)
        return found - found.mean()


class Checked(SignsFirst):
    """The server refuses a report whose checksum is wrong."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        report = super().encode(values, stream)
        return report + zlib.crc32(report).to_bytes(4, "little")

    def payload_bits(self, size: int) -> int:
        return super().payload_bits(size) + 32

    def read(self, payload: bytes, size: int) -> np.ndarray:
        if zlib.crc32(payload[:-4]) != int.from_bytes(payload[-4:], "little"):
            raise RunError("damaged")
        return super().read(payload[:-4], size)


class SignsFirstWrongK(SignsFirst, WrongK):
    """Its signs have the probabilities of ``WrongK``."""


class SignsFirstRepeating(SignsFirst):
    """Its noise repeats after 700 coordinates."""

    def uniform(self, size: int, stream: Stream) -> np.ndarray:
        return np.resize(stream.generator().random(min(size, 700)), size)


class AnswersTwice(FloatBits):
    """Each coordinate is a pair of answers, of which the server reads only the first."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        uniform = self.uniform(2 * values.size, stream).reshape(-1, 2)
        return np.packbits(uniform < self.probabilities(values)[:, None]).tobytes()

    def payload_bits(self, size: int) -> int:
        return 2 * size

    def aggregate(self, size: int) -> Any:
        return FirstAnswers(size, self)


class FirstAnswers(SignedSizes):
    """The mean of the estimates from every second bit."""

    def add(self, payload: bytes) -> None:
        bits = np.unpackbits(np.frombuffer(payload, np.uint8), count=2 * self.size)
        self.read.append(self.mechanism.scale * (2.0 * bits[::2] - 1))
