"""How reports are summed if their server needs only the sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import PrivacyError
from fedldp.protocol.wire import Counted, Report

Words = NDArray[np.unsignedinteger]
"""Unsigned integers that are added modulo a power of two."""


@dataclass(frozen=True, kw_only=True)
class Summing:
    """How the reports of a mechanism are summed.

    Attributes:
        size: words of one report.
        bits: the words are added modulo 2^bits; 1 to 64.
        words: returns the integers of one client's report, shape (size,); they are added modulo
            2^bits.
        total: returns what the server step reads: a ``Counted`` of the reports in the sum, or a
            ``Report`` with their number as its weight. Its arguments are the round, the sum modulo
            2^bits (unsigned, shape (size,)), and the number of reports in it. A client that lies
            can turn the sum into any other, so no sum may be refused.
    """

    size: int
    bits: int
    words: Callable[[Report], NDArray[np.integer]]
    total: Callable[[int, Words, int], Report | Counted]

    def summed(self, round: int, reports: Sequence[Report]) -> Report | Counted:
        """Return what the server step reads if exactly these reports are in the sum."""
        words = np.zeros(self.size, np.uint64)
        for report in reports:
            words += self.words(report).astype(np.int64).view(np.uint64)
        return self.total(round, words & np.uint64((1 << self.bits) - 1), len(reports))


def counts_of_bits(size: int, most_reports: int) -> Summing:
    """Return how reports of one bit for each coordinate are summed: their ones are counted.

    The payload of a report is its bits, most significant first, as ``BitMechanism`` packs them. A
    count never exceeds the number of reports: anything more that a lying client adds is cut off.

    Args:
        size: coordinates of a report.
        most_reports: the most reports in one sum; up to 255 take a byte for each coordinate.
    """
    return Summing(
        size=size,
        bits=most_reports.bit_length(),
        words=partial(_bits_of, size),
        total=partial(_counted, size),
    )


def signed(words: Words, bits: int) -> NDArray[np.int64]:
    """Return the integers in [-2^(bits - 1), 2^(bits - 1)) that words modulo 2^bits stand for."""
    away = 64 - bits
    return (words.astype(np.uint64) << np.uint64(away)).view(np.int64) >> np.int64(away)


def _bits_of(size: int, report: Report) -> NDArray[np.uint8]:
    if len(report.payload) != -(-size // 8):
        raise PrivacyError(f"a report of {len(report.payload)} bytes does not hold {size} bits")
    return np.unpackbits(np.frombuffer(report.payload, np.uint8), count=size)


def _counted(size: int, round: int, words: Words, reports: int) -> Counted:
    ones = np.minimum(words, reports).astype(np.int64)
    return Counted(round=round, size=size, chunk=size, ones=ones, reports=reports)
