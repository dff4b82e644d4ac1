"""What client and server of a secure sum agree on: parameters, committees, messages and masks.

The clients of a round may be divided into committees, each with its own sum. The division depends
only on the numbers of clients and committees, so every client knows it before a run: client i is in
committee i modulo the number of committees. The server adds up the sums.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.core.randomness import KEY_BYTES
from fedldp.mechanisms.summing import Summing, Words
from fedldp.secure_sum.crypto import SHARE_BYTES, TAG_BYTES, agree, derive, expand

KEYS_BYTES = 2 * KEY_BYTES
SHARES_BYTES = 2 * SHARE_BYTES
SEALED_BYTES = SHARES_BYTES + TAG_BYTES
IDENTITY_BYTES = 32
SIGNATURE_BYTES = 64

LARGEST_CLIENT = 2**32 - 2


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """The public parameters of a secure sum; every client has its own copy.

    Vectors of integers are added modulo 2^bits. Each integer is sent as an unsigned word of 8, 16,
    32 or 64 bits: the smallest one with at least ``bits`` bits.

    Attributes:
        num_clients: the largest number of clients in one sum, n; at least 2.
        threshold: the number of clients needed until the end, t; n + untrusted < 2 t <= 2 n.
        size: the number of words from one client, d.
        bits: the number of bits of the modulus, from 1 to 64.
        untrusted: the number of clients of a sum that may collude with the server or be missing, u.

    Raises:
        ConfigError: an argument is out of range.
    """

    num_clients: int
    threshold: int
    size: int
    bits: int
    untrusted: int = 0

    def __post_init__(self) -> None:
        n, u = self.num_clients, self.untrusted
        if n < 2:
            raise ConfigError(f"num_clients = {n}: a sum of one hides nothing; give 2 or more")
        if not 0 <= u <= n - 2:
            raise ConfigError(
                f"untrusted = {u}: of the {n} clients of a sum at least 2 must be trusted, "
                f"because a sum of one hides nothing; give a number from 0 to {n - 2}"
            )
        if not n + u < 2 * self.threshold <= 2 * n:
            raise ConfigError(
                f"threshold = {self.threshold}: give more than half of the {n} clients of a sum"
                + (f" (counting the {u} untrusted clients twice)" if u else "")
                + f": {(n + u) // 2 + 1} to {n}"
            )
        if self.size < 1:
            raise ConfigError(f"size = {self.size}: give at least 1")
        if not 1 <= self.bits <= 64:
            raise ConfigError(f"bits = {self.bits}: give an integer from 1 to 64")

    @classmethod
    def of(
        cls, summing: Summing, num_clients: int, threshold: int | None, untrusted: int = 0
    ) -> SecureSum:
        """Return the parameters of a sum of reports.

        Args:
            summing: how the reports are summed.
            num_clients: the largest number of clients in one sum.
            threshold: the number of clients needed until the end. None: the smallest permitted
                number above two thirds of ``num_clients``.
            untrusted: the number of clients of a sum that may collude with the server or be
                missing.

        Raises:
            ConfigError: an argument is out of range.
        """
        if threshold is None:
            threshold = max(2 * num_clients // 3, (num_clients + untrusted) // 2) + 1
        return cls(
            num_clients=num_clients,
            threshold=threshold,
            size=summing.size,
            bits=summing.bits,
            untrusted=untrusted,
        )

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of the words that are sent."""
        return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if self.bits <= 8 * size)}")

    def words(self, numbers: NDArray[np.integer]) -> Words:
        """Return ``numbers``, shape (d,), as words modulo 2^bits.

        Raises:
            PrivacyError: ``numbers`` are not d integers.
        """
        integers = isinstance(numbers, np.ndarray) and numbers.dtype.kind in "iu"
        if not integers or numbers.shape != (self.size,):
            raise PrivacyError(f"the numbers to sum are not an array of {self.size} integers")
        return self.reduced(numbers.astype(self.dtype))

    def reduced(self, words: Words) -> Words:
        """Reduce ``words`` modulo 2^bits, in place, and return them."""
        if self.bits < 8 * self.dtype.itemsize:
            words &= self.dtype.type((1 << self.bits) - 1)
        return words

    def packed(self) -> bytes:
        """Return the parameters as bytes."""
        return struct.pack(
            "<QQQQQ", self.num_clients, self.threshold, self.size, self.bits, self.untrusted
        )

    def context(self, told: bytes, keys: bytes) -> bytes:
        """Return the bytes that all keys of one sum depend on.

        They cover the parameters, the round, all clients with their keys, and everything else that
        all clients are told. Clients that were told different things cannot open each other's
        shares.
        """
        return hashlib.sha256(self.packed() + hashlib.sha256(told).digest() + keys).digest()


class SumKind(IntEnum):
    """The kinds of messages, in order: a client sends the odd ones, the server the even ones.

    Each message is sent once. The server sends the same message to all clients, except for
    OWN_SHARES, which holds only the boxes sealed for one client.
    """

    CLIENT_KEYS = 1
    ALL_KEYS = 2
    CLIENT_SHARES = 3
    CLIENT_SUM = 5
    ALL_SURVIVORS = 6
    CLIENT_REVEALED = 7
    CLIENT_COMPLAINT = 9
    """Sent instead of CLIENT_SUM: the clients whose boxes this client cannot open."""
    OWN_SHARES = 10
    """The boxes sealed for one client, by sender. Kind 4, now unused, sent the boxes of everyone to
    all."""


_HEADER = struct.Struct("<BQ")
_CLIENT = struct.Struct("<I")


def pack(kind: SumKind, round: int, records: Mapping[int, bytes]) -> bytes:
    """Return a message: kind and round, then clients' numbers and records, in ascending order."""
    body = (_CLIENT.pack(client) + records[client] for client in sorted(records))
    return _HEADER.pack(kind, round) + b"".join(body)


def unpack(kind: SumKind, round: int, message: bytes, width: int) -> dict[int, bytes]:
    """Return the records in a message, each of ``width`` bytes, by the number of the client.

    Raises:
        RunError: the message is of another kind or round, cut short, or names a client twice.
    """
    if message[: _HEADER.size] != _HEADER.pack(kind, round):
        raise RunError(f"round {round}: expected {kind.name} of this round: message refused")
    body, step = message[_HEADER.size :], _CLIENT.size + width
    records = {
        _CLIENT.unpack_from(body, start)[0]: body[start + _CLIENT.size : start + step]
        for start in range(0, len(body) - step + 1, step)
    }
    if pack(kind, round, records) != message:
        raise RunError(f"round {round}: {kind.name} is malformed: message refused")
    return records


@dataclass(frozen=True)
class Committees:
    """How clients are divided into committees whose sizes differ by at most one.

    Attributes:
        clients: the number of clients, numbered from 0.
        number: the number of committees; 1 means a single sum of all clients.
    """

    clients: int
    number: int = 1

    @classmethod
    def of_size(cls, clients: int, least: int | None) -> Committees:
        """Return the most committees that have at least ``least`` clients each; one for None."""
        return cls(clients, 1 if least is None else max(1, clients // least))

    @property
    def fewest(self) -> int:
        """The number of clients in the smallest committee."""
        return self.clients // self.number

    @property
    def most(self) -> int:
        """The number of clients in the largest committee."""
        return -(-self.clients // self.number)

    def of(self, client: int) -> int:
        """Return the committee of a client, from 0."""
        return client % self.number

    def members(self, committee: int) -> range:
        """Return the clients of a committee, ascending."""
        return range(committee, self.clients, self.number)


def point(client: int) -> int:
    """Return the point of the client's share; 0 is the point of the secret itself."""
    return client + 1


def mask_private(seed: bytes, client: int) -> bytes:
    """Return the client's private mask key, derived from a seed that is split into shares."""
    return derive(seed, "mask key", b"", client)


def self_mask(setup: SecureSum, seed: bytes, context: bytes, client: int) -> Words:
    """Return the client's own mask."""
    return expand(derive(seed, "self mask", context, client), setup.size, setup.dtype)


def add_pair_mask(
    total: Words,
    setup: SecureSum,
    private: bytes,
    keys: bytes,
    context: bytes,
    *,
    client: int,
    peer: int,
) -> None:
    """Add to ``client``'s vector the mask that it shares with ``peer``, or subtract the mask.

    Args:
        total: the vector, shape (d,).
        setup: the parameters.
        private: the private mask key of one of the two.
        keys: both public keys of the other one.
        context: the context of the sum.
        client: the client whose vector it is.
        peer: the other client. The one with the larger number adds, the other one subtracts.
    """
    secret = agree(private, keys[KEY_BYTES:])
    key = derive(secret, "pair mask", context, min(client, peer), max(client, peer))
    mask = expand(key, setup.size, setup.dtype)
    if client > peer:
        total += mask
    else:
        total -= mask
