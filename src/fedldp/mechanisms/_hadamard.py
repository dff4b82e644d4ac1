"""Hadamard's transform of many vectors at once, as products of small matrices."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

Floats = TypeVar("Floats", NDArray[np.float32], NDArray[np.float64])

_FACTOR_BITS = 6


def transform(rows: Floats) -> Floats:
    """Return H x for each row x; H has entries +1 and -1, and its natural order.

    The sums are exact, and so the same in any order, where each row holds integers whose absolute
    values add up to at most 2^24 (float32) or 2^53 (float64).

    Args:
        rows: shape (n, P), P a power of two.

    Returns:
        Shape (n, P), of the same type.
    """
    bits = rows.shape[1].bit_length() - 1
    found, inner = rows, 1
    for part in range(turns := -(-bits // _FACTOR_BITS)):
        take = (bits + part) // turns  # factors of about the same size
        small = _small(take, rows.dtype)
        if inner == 1:
            found = found.reshape(-1, 1 << take) @ small
        else:
            found = np.matmul(small, found.reshape(-1, 1 << take, inner))
        inner <<= take
    return found.reshape(rows.shape)


@lru_cache(maxsize=16)
def _small(bits: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.asarray(hadamard(1 << bits), dtype)
