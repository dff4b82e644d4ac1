"""Hadamard's transform of many vectors at once, as products of small matrices."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

Floats = TypeVar("Floats", NDArray[np.float32], NDArray[np.float64])

_FACTOR_BITS = 4
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
    for turns in range(-(-bits // _FACTOR_BITS), 0, -1):
        take = -(-bits // turns)  # factors of about equal size, the largest first
        bits -= take
        small = _small(take, rows.dtype)
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
def _small(bits: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.asarray(hadamard(1 << bits), dtype)
