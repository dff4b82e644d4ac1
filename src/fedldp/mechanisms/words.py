"""Reports of whole numbers that add up modulo a power of two."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import check_releasable
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, SumAggregate
from fedldp.mechanisms.summing import Summing, Words, signed
from fedldp.protocol.wire import Report


@dataclass(frozen=True)
class WordFormat:
    """Integers modulo 2^bits, as little-endian words.

    Attributes:
        bits: the number of bits of a word: 8 to 64, in whole bytes.
    """

    bits: int

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of words in memory."""
        return np.dtype("<u4" if self.bits <= 32 else "<u8")

    def pack(self, values: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return integers modulo 2^bits, shape (..., d), as bytes, shape (..., bytes of words)."""
        low = values.astype("<i8", copy=False).view(np.uint8).reshape(*values.shape, 8)
        words = np.empty((*values.shape, self.bits // 8), np.uint8)
        for place in range(self.bits // 8):  # numpy copies short pieces slowly
            words[..., place] = low[..., place]
        return words.reshape(*values.shape[:-1], -1)

    def unpack(self, payload: bytes) -> Words:
        """Return the words of a report, shape (d,)."""
        given = np.frombuffer(payload, np.uint8).reshape(-1, self.bits // 8)
        whole = np.zeros((len(given), self.dtype.itemsize), np.uint8)
        for place in range(self.bits // 8):
            whole[:, place] = given[:, place]
        return whole.reshape(-1).view(self.dtype)

    def summing(self, size: int, bits: int | None = None) -> Summing:
        """Return how reports of ``size`` words add up.

        Args:
            size: words of a report.
            bits: the modulus is 2^bits; None for 2^``self.bits``.
        """
        modulus = self.bits if bits is None else bits
        return Summing(
            size=size,
            bits=modulus,
            words=lambda report: self.unpack(report.payload),
            total=partial(self._total, size, modulus),
        )

    def _total(self, size: int, bits: int, round: int, words: Words, reports: int) -> Report:
        payload = self.pack(signed(words, bits)).tobytes()
        return Report(round=round, size=size, payload=payload, chunk=size, weight=float(reports))


INTEGERS = WordFormat(64)
"""Whole numbers as reports hold them if nothing is known of their size."""


class WordSum(SumAggregate):
    """The sum of words modulo 2^bits, which is all a secure sum reveals; exact in any order.

    Args:
        words: the format of the reports.
        size: words of a report.
        mean: returns the mean of the reports' vectors, given ``total()`` and the number of reports.
    """

    def __init__(
        self,
        words: WordFormat,
        size: int,
        mean: Callable[[NDArray[np.int64], int], NDArray[np.float64]],
    ) -> None:
        super().__init__(np.zeros(size, words.dtype), size * words.bits // 8)
        self._words = words
        self._mean_of = mean

    def read(self, payload: bytes) -> None:
        """Add the words of a report; they wrap at a multiple of 2^bits."""
        self._sum += self._words.unpack(payload)

    def total(self) -> NDArray[np.int64]:
        """Return the sum as the integers nearest to zero, shape (d,).

        Raises:
            RunError: no report is in the sum.
        """
        self.counted()
        return signed(self._sum, self._words.bits)

    def scaled(self, reports: int) -> NDArray[np.float64]:
        """Return the mean of the reports' vectors, shape (d,), given their number."""
        return self._mean_of(self.total(), reports)


def in_steps(step: float) -> Callable[[NDArray[np.int64], int], NDArray[np.float64]]:
    """Return the mean of vectors of whole steps of this length; for ``WordSum``."""
    return lambda total, reports: total * np.float64(step / reports)


class UnprotectedIntegers(Mechanism):
    """Whole numbers without noise, 64 bits each: a report protects nothing, and sums are exact."""

    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"
    is_setting: ClassVar[bool] = False

    @abstractmethod
    def integers(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return what is sent for finite ``values``, of the same shape."""

    @abstractmethod
    def mean_of(self, total: NDArray[np.int64], reports: int) -> NDArray[np.float64]:
        """Return the mean of the values, given the sum of what is sent for them."""

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return 64 bits for each coordinate; see ``Mechanism.encode``. Nothing is drawn."""
        check_releasable(values)
        return INTEGERS.pack(self.integers(values.reshape(-1))).tobytes()

    def payload_bits(self, size: int) -> int:
        """Return 64 for each coordinate."""
        return INTEGERS.bits * size

    def aggregate(self, size: int) -> WordSum:
        """Return an empty sum of reports of ``size`` coordinates."""
        return WordSum(INTEGERS, size, self.mean_of)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the values that are sent for ``values``."""
        check_releasable(values)
        return self.mean_of(self.integers(values), 1)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return zeros."""
        return np.zeros(values.shape)
