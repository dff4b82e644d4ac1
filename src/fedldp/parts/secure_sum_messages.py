"""What the two sides of the secure sum agree on: its parameters, fixed point, and messages."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedldp.bounding import check_releasable
from fedldp.errors import ConfigError, PrivacyError, RunError
from fedldp.parts.secure_sum_crypto import KEY_BYTES, SECRET_BYTES, TAG_BYTES, Words

KEYS_BYTES = 2 * KEY_BYTES
SHARES_BYTES = 2 * SECRET_BYTES
SEALED_BYTES = SHARES_BYTES + TAG_BYTES

LARGEST_BITS = 52
LARGEST_CLIENT = 2**32 - 2
SMALLEST_CLIP, LARGEST_CLIP = 1e-9, 1e9


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """The public parameters of a secure sum; every client has its own copy of them.

    A value v, clipped to [-clip, clip], has the code round(v / clip * L), L = 2^(bits - 1) - 1, to
    the nearest integer, halves to even. Codes are added modulo 2^32, or 2^64 where 32 bits are too
    few: as num_clients * 2^bits is at most the modulus, the sum of the codes is exact. A decoded
    sum is off by at most clip/(2 L) for each client, by rounding alone.

    Attributes:
        num_clients: the most clients that one sum has, n; at least 2.
        threshold: clients needed to the end, t; n/2 < t <= n.
        size: values of one client, d.
        clip: bound on the magnitude of a value, from 1e-9 to 1e9.
        bits: of one code, from 2 to 52.

    Raises:
        ConfigError: an argument is out of range, or the sum would not fit into 64 bits.
    """

    num_clients: int
    threshold: int
    size: int
    clip: float
    bits: int

    def __post_init__(self) -> None:
        if self.num_clients < 2:
            raise ConfigError(
                f"num_clients = {self.num_clients}: a sum of one hides nothing; give 2 or more"
            )
        if not self.num_clients < 2 * self.threshold <= 2 * self.num_clients:
            raise ConfigError(
                f"threshold = {self.threshold}: give more than half of the {self.num_clients} "
                "clients of a sum, and at most all"
            )
        if self.size < 1:
            raise ConfigError(f"size = {self.size}: give at least 1")
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise ConfigError(
                f"clip = {self.clip:g}: give a number from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}"
            )
        if not 2 <= self.bits <= LARGEST_BITS:
            raise ConfigError(f"code_bits = {self.bits}: give an integer from 2 to {LARGEST_BITS}")
        if self.num_clients << self.bits > 1 << 64:
            raise ConfigError(
                f"code_bits = {self.bits}: the sum of {self.num_clients} clients does not fit into "
                f"64 bits; give at most {64 - (self.num_clients - 1).bit_length()}"
            )

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The words that are added: their size is the modulus."""
        return np.dtype("<u4" if self.num_clients << self.bits <= 1 << 32 else "<u8")

    @property
    def largest_code(self) -> int:
        """The code of ``clip``, L."""
        return (1 << (self.bits - 1)) - 1

    def encode(self, values: NDArray[np.floating]) -> Words:
        """Return the codes of one client's ``values``, shape (d,), as words (two's complement).

        Raises:
            PrivacyError: the values are not finite floats, or not d.
        """
        check_releasable(values)
        if values.shape != (self.size,):
            raise PrivacyError(f"values have the shape {values.shape}, the sum ({self.size},)")
        clipped = np.clip(values.astype(np.float64), -self.clip, self.clip)
        return np.rint(clipped / self.clip * self.largest_code).astype(np.int64).astype(self.dtype)

    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum of values of which ``codes`` is the sum of codes, shape (d,)."""
        return codes.astype(np.float64) * (self.clip / self.largest_code)

    def signed(self, words: Words) -> NDArray[np.int64]:
        """Return the integers in (-modulus/2, modulus/2) that ``words`` stand for."""
        return words.view(np.dtype(f"<i{self.dtype.itemsize}")).astype(np.int64)

    def context(self, keys: bytes) -> bytes:
        """Return what all keys of one sum depend on: the parameters, the round, and all clients.

        Clients that were told different ones cannot open each other's shares.
        """
        own = struct.pack(
            "<QQQQd", self.num_clients, self.threshold, self.size, self.bits, self.clip
        )
        return hashlib.sha256(own + keys).digest()


class Kind(IntEnum):
    """The messages, in order: odd ones from a client, even ones from the server to all clients."""

    CLIENT_KEYS = 1
    ALL_KEYS = 2
    CLIENT_SHARES = 3
    ALL_SHARES = 4
    CLIENT_SUM = 5
    ALL_SURVIVORS = 6
    CLIENT_REVEALED = 7


_HEADER = struct.Struct("<BQ")
_CLIENT = struct.Struct("<I")


def pack(kind: Kind, round: int, records: Mapping[int, bytes]) -> bytes:
    """Return a message: kind and round, then each client's number and record, by number."""
    body = (_CLIENT.pack(client) + records[client] for client in sorted(records))
    return _HEADER.pack(kind, round) + b"".join(body)


def unpack(kind: Kind, round: int, message: bytes, width: int) -> dict[int, bytes]:
    """Return the records, each of ``width`` bytes, of a message, by the clients' numbers.

    Raises:
        RunError: it is of another kind or round, cut short, or names a client twice.
    """
    if message[: _HEADER.size] != _HEADER.pack(kind, round):
        raise RunError(f"round {round}: not a message {kind.name} of this round: refused")
    body, step = message[_HEADER.size :], _CLIENT.size + width
    records = {
        _CLIENT.unpack_from(body, start)[0]: body[start + _CLIENT.size : start + step]
        for start in range(0, len(body) - step + 1, step)
    }
    if pack(kind, round, records) != message:
        raise RunError(f"round {round}: a message {kind.name} is malformed: refused")
    return records
