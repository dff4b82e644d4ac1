"""Packed bits: counting the ones in many reports, in working memory that a thread keeps.

Allocating new pages costs as much as computing in them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError

# How many bytes of a row are processed at a time, so that the working arrays of 252 rows stay in
# the cache.
_COLUMNS = 8192
# Once only this many numbers of equal weight are left, their bits are unpacked and added.
_LAST = 4


def count_ones(payloads: NDArray[np.uint8], size: int) -> NDArray[np.int64]:
    """Return how many of the reports have a one, for each coordinate, shape (size,).

    Args:
        payloads: one report in each row, bits packed with the most significant first, shape
            (n, ceil(size/8)); padding bits do not count.
        size: coordinates of a report.

    Raises:
        RunError: ``payloads`` is not a uint8 array of this shape.
    """
    if payloads.dtype != np.uint8 or payloads.ndim != 2 or payloads.shape[1] != packed_bytes(size):
        raise RunError(
            f"reports of shape {payloads.shape} and type {payloads.dtype} for {size} coordinates: "
            f"give uint8 rows of {packed_bytes(size)} bytes"
        )
    pieces = (payloads[:, left : left + _COLUMNS] for left in range(0, payloads.shape[1], _COLUMNS))
    ones = np.zeros(size, np.int64)
    _add_ones(pieces, ones)
    return ones


def add_ones(payloads: Sequence[bytes], ones: NDArray[np.int64]) -> None:
    """Add the counts of at least one report, of ``packed_bytes(ones.size)`` bytes each.

    The reports are joined and counted a piece at a time, while that piece is in the cache.
    """
    pieces = (
        np.frombuffer(
            b"".join([payload[left : left + _COLUMNS] for payload in payloads]), np.uint8
        ).reshape(len(payloads), -1)
        for left in range(0, packed_bytes(ones.size), _COLUMNS)
    )
    _add_ones(pieces, ones)


def _add_ones(pieces: Iterable[NDArray[np.uint8]], ones: NDArray[np.int64]) -> None:
    for number, columns in enumerate(pieces):
        total = ones[8 * _COLUMNS * number : 8 * _COLUMNS * (number + 1)]
        top = 0
        while top < len(columns):
            rows = _adder_rows(len(columns) - top)
            total += _count_few(columns[top : top + rows])[: total.size]
            top += rows


def packed_bytes(size: int) -> int:
    """Return the bytes that ``size`` bits fill."""
    return -(-size // 8)


def _adder_rows(available: int) -> int:
    """Return how many rows to add next: 252, 124, 60, 28 or 12; or all of fewer than 12."""
    if available < 3 * _LAST:
        return available
    return min(256, 1 << ((available + _LAST).bit_length() - 1)) - _LAST


def _count_few(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the ones in each column of bits; ``_adder_rows`` gives the number of rows.

    The bits of a byte are added side by side, as in a tree of carry-save adders: three rows give
    numbers of two bits; two such numbers and one more row give one of three bits; and so on. Bits
    of each weight have their own array (Harley, Seal; see Warren 2013, chapter 5).
    """
    if len(rows) < 3 * _LAST:
        return _unpacked_sum(rows)
    numbers = (len(rows) + _LAST) // 4
    used = 3 * numbers
    first, second, third = rows[:used].reshape(3, numbers, -1)
    low, high, spare = kept_array("count", (3, numbers, rows.shape[1]), np.uint8)
    np.bitwise_xor(first, second, out=low)
    np.bitwise_and(first, second, out=high)
    np.bitwise_and(low, third, out=spare)
    low ^= third
    high |= spare
    weights = [low, high]
    while numbers > _LAST:
        numbers //= 2
        carry, spare = rows[used : used + numbers], spare[:numbers]
        used += numbers
        for place, bits in enumerate(weights):
            weights[place], carry = _add(bits[:numbers], bits[numbers:], carry, spare)
        weights.append(carry)
    assert used == len(rows)
    total = _unpacked_sum(weights.pop())
    while weights:
        total += total
        total += _unpacked_sum(weights.pop())
    return total


def _add(
    a: NDArray[np.uint8], b: NDArray[np.uint8], c: NDArray[np.uint8], spare: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the sum and the carry of three bits, in the memory of ``a`` and ``b``."""
    np.bitwise_and(a, b, out=spare)
    a ^= b
    np.bitwise_and(a, c, out=b)
    a ^= c
    b |= spare
    return a, b


def _unpacked_sum(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # There are fewer than 256 rows, so a byte holds each sum.
    total: NDArray[np.uint8] = np.unpackbits(rows, axis=1).sum(0, dtype=np.uint8)
    return total


class _Kept(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[str, NDArray[np.uint8]] = {}
        self.arrays: dict[str, NDArray[Any]] = {}


_kept = _Kept()


def kept_array(use: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array with arbitrary content, valid until the thread's next call for the same use.

    Ask only for blocks of bounded size: the memory is never freed.
    """
    array: NDArray[Any] | None = _kept.arrays.get(use)
    if array is not None and array.shape == shape and array.dtype == dtype:
        return array
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = _kept.buffers.get(use)
    if buffer is None or buffer.size < size:
        buffer = _kept.buffers[use] = np.empty(size, np.uint8)
    fresh: NDArray[Any] = buffer[:size].view(dtype).reshape(shape)
    _kept.arrays[use] = fresh
    return fresh
