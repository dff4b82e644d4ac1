"""A public random rotation, which spreads the content of a few coordinates over all of them.

It preserves norms, so it costs no privacy. After the rotation, all coordinates of a sum are of
similar size, and a small modulus holds them.

Source: Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning
with Secure Aggregation", ICML 2021, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.deferred import linalg
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import KEY_BYTES, Stream

LARGEST_SIZE = 1 << 26
"""The largest number of coordinates after padding; see ``Rotation``."""

_EXACT_BITS = 53
_FACTOR_BITS = 5


@dataclass(frozen=True)
class Rotation:
    """x -> H S x/sqrt(D): zeros appended up to a power of two D, random signs S, Hadamard's H.

    The signs follow from ``number`` alone, so clients and server all have them. Inputs are rounded
    to multiples of 2^-p, p = 52 - ceil(log2(D)/2), so that all sums are of integers below 2^53:
    exact in any order. A vector gives the same bits on every machine, whether it is rotated alone
    or with other vectors.

    Attributes:
        size: coordinates of an input, d.
        number: the number of the rotation, such as the round.

    Raises:
        ConfigError: the vector is too long.
    """

    size: int
    number: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= LARGEST_SIZE:
            raise ConfigError(
                f"a vector of {self.size} coordinates cannot be rotated: use a model with at most "
                f"{LARGEST_SIZE} coordinates"
            )

    @property
    def padded(self) -> int:
        """The number of coordinates of an output, D."""
        return padded_size(self.size)

    def forward(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rotated vectors, shape (n, D), of vectors of norm at most 1, shape (n, d)."""
        unit = 2.0 ** (_EXACT_BITS - 1 - self.padded.bit_length() // 2)
        whole = np.zeros((len(rows), self.padded))
        np.multiply(rows, unit, out=whole[:, : self.size])
        np.rint(whole, out=whole)
        whole *= _signs(self.padded, self.number)
        found, _ = transform(whole, np.empty_like(whole))
        found *= 1 / (unit * np.sqrt(self.padded))
        return found

    def back(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the first d coordinates, shape (d,), of the vector that rotates to ``vector``."""
        turned = _transformed(vector)[: self.size]
        signs = _signs(self.padded, self.number)[: self.size]
        found: NDArray[np.float64] = turned * (signs / np.sqrt(self.padded))
        return found


def padded_size(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


@lru_cache(maxsize=4)
def _signs(size: int, number: int) -> NDArray[np.float64]:
    """Return signs that everyone knows, shape (size,)."""
    stream = Stream.derived(bytes(KEY_BYTES), "public rotation", str(number))
    bits = np.unpackbits(stream.bytes(-(-size // 8)), count=size)
    signs = np.where(bits, -1.0, 1.0)
    signs.flags.writeable = False
    return signs


def _transformed(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Hadamard's matrix times any vector, summed in an order that existing models depend on.

    ``transform`` sums in another order, and its result agrees to the last bit only for whole
    numbers.
    """
    found, bits = vector, vector.size.bit_length() - 1
    while bits:  # each step transforms the last axis and moves it first
        take = min(_FACTOR_BITS, bits)
        found = np.matmul(_small(take), found.reshape(-1, 1 << take).T)
        bits -= take
    return found.reshape(-1)


@lru_cache(maxsize=_FACTOR_BITS)
def _small(bits: int) -> NDArray[np.float64]:
    return np.asarray(linalg.hadamard(1 << bits), np.float64)


Floats = TypeVar("Floats", NDArray[np.float32], NDArray[np.float64])

_MATRIX_BITS = 4
"""The largest matrix has 2^this rows. This value and the order of sizes were the fastest that we
measured for vectors of 2^11 to 2^17 coordinates."""


def transform(rows: Floats, spare: Floats) -> tuple[Floats, Floats]:
    """Return H x for each row x; H has entries +1 and -1, in natural order.

    The sums are exact, and so the same in any order, if the absolute values of each row are
    integers that add up to at most 2^24 (float32) or 2^53 (float64).

    Args:
        rows: shape (n, P), P a power of two; contiguous, and overwritten.
        spare: another array of the same shape and type; contiguous, and overwritten.

    Returns:
        The result and the free array: ``rows`` and ``spare``, or the other way round.
    """
    bits = rows.shape[1].bit_length() - 1
    found, free, inner = rows, spare, 1
    for turns in range(-(-bits // _MATRIX_BITS), 0, -1):
        take = -(-bits // turns)  # factors of about equal size, the largest first
        bits -= take
        small = _matrix(take, rows.dtype)
        if inner == 1:
            shape = -1, 1 << take
            np.matmul(found.reshape(shape), small, out=free.reshape(shape))
        else:
            cube = -1, 1 << take, inner
            np.matmul(small, found.reshape(cube), out=free.reshape(cube))
        found, free = free, found
        inner <<= take
    return found, free


@lru_cache(maxsize=16)
def _matrix(bits: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.asarray(linalg.hadamard(1 << bits), dtype)
