"""How the reports of a system are summed, where its server step needs no more than their sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedldp.errors import PrivacyError
from fedldp.parts.secure_sum_crypto import Words
from fedldp.parts.secure_sum_messages import SecureSum
from fedldp.wire import Counted, Report


@dataclass(frozen=True, kw_only=True)
class Summing:
    """How the reports of a system are summed.

    Attributes:
        size: words of one report.
        bits: the words are added modulo 2^bits; 1 to 64.
        words: gives the integers of one client's report, shape (size,); what they are modulo
            2^bits is added.
        total: gives what the server step reads, from the round, the sum modulo 2^bits, unsigned,
            shape (size,), and the number of reports in it: ``Counted`` of so many reports, or a
            ``Report`` with that number as its weight. A client that lies makes the sum any other,
            so no sum may be refused.
    """

    size: int
    bits: int
    words: Callable[[Report], NDArray[np.integer]]
    total: Callable[[int, Words, int], Report | Counted]

    def setup(self, num_clients: int, threshold: int | None, untrusted: int = 0) -> SecureSum:
        """Return the parameters of one round's sum.

        Args:
            num_clients: the most clients of a round.
            threshold: clients needed to the end; where it is None two thirds, or as many as the
                untrusted ones make necessary.
            untrusted: participants of a round that may collude with the server or be missing.

        Raises:
            ConfigError: an argument is out of range.
        """
        if threshold is None:
            threshold = max(2 * num_clients // 3, (num_clients + untrusted) // 2) + 1
        return SecureSum(
            num_clients=num_clients,
            threshold=threshold,
            size=self.size,
            bits=self.bits,
            untrusted=untrusted,
        )


def counts_of_bits(size: int, most_reports: int) -> Summing:
    """Return how reports of one bit for each coordinate are summed: their ones are counted.

    The payload of a report is its bits, most significant first, as ``BitMechanism`` packs them. A
    total has no count beyond the number of reports: what a client that lies adds is cut off there.

    Args:
        size: coordinates of a report.
        most_reports: in one sum; up to 255 cost a byte for each coordinate.
    """
    return Summing(
        size=size,
        bits=most_reports.bit_length(),
        words=partial(_bits_of, size),
        total=partial(_counted, size),
    )


def _bits_of(size: int, report: Report) -> NDArray[np.uint8]:
    if len(report.payload) != -(-size // 8):
        raise PrivacyError(f"a report of {len(report.payload)} bytes is not {size} bits")
    return np.unpackbits(np.frombuffer(report.payload, np.uint8), count=size)


def _counted(size: int, round: int, words: Words, reports: int) -> Counted:
    ones = np.minimum(words, reports).astype(np.int64)
    return Counted(round=round, size=size, chunk=size, ones=ones, reports=reports)
