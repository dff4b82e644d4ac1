"""Random bits U < T with thresholds computed from numbers in [-1, 1], for the two-point bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedldp.core.randomness import ROOM, Stream
from fedldp.mechanisms.packing import kept_array

DRAWN = 1 << 16
"""The number of coordinates whose high words are drawn together. The low words of their ties are
drawn next. The working arrays of this many coordinates stay in the second-level cache."""

# How far a quick threshold may lie above the exact one: the last place of a float32 below 2^31,
# plus two roundings to whole numbers.
_ABOVE = 128 + 2


class Quick(NamedTuple):
    """How floats become the high words of thresholds, to within a few units.

    The word is ``factor`` x, with x clipped to ``lowest`` and ``highest``, rounded towards zero,
    plus ``raised``: never below the exact word, and at most ``margin`` above it.
    """

    factor: np.floating
    lowest: np.floating
    highest: np.floating
    raised: np.int32
    margin: int


@dataclass(frozen=True)
class ThresholdComparison:
    """Bits that are 1 if U < T, for a uniform integer U of 64 bits and a threshold T.

    T is 2^63 + floor(h x) for x clipped to [-1, 1], then clamped to 2^63 - h and 2^63 + h whatever
    floating point did to the product. U and T are compared by their high words. The high
    words of T are computed quickly, to within a few units. Coordinates for which these units could
    matter are settled one by one, in exact integers. Only the random words decide how many such
    coordinates there are, with probability (margin + 1)/2^32 each, so no value takes more time than
    another. Only the time itself is covered: an observer who sees both how many microseconds an
    answer took and its bits learns that these few coordinates were each close to their threshold.

    Attributes:
        half: h, from 1 to 2^63 - 1.
    """

    half: int

    @lru_cache(maxsize=4096)  # noqa: B019  # of the mechanisms in use; another takes microseconds
    def quick(self, single: bool) -> Quick:
        """Return how values of type float32 (or else float64) become high words."""
        dtype = np.float32 if single else np.float64
        # ``half`` is in units of 2^32, because a product's integer part is compared with a random
        # word.
        factor, one = dtype(math.ldexp(self.half, -32)), dtype(1)
        if math.ldexp(float(factor), 32) < self.half:
            # Rounded up, so that -1 and 1 reach the last thresholds, where all values are clamped.
            factor = np.nextafter(factor, dtype(math.inf))
        below_one = np.nextafter(one, dtype(0))
        # The factor times -1 may be below the lowest threshold, but the factor times the float next
        # to -1 is not.
        if factor < 2**31:
            return Quick(factor, -below_one, one, np.int32(0), _ABOVE)
        # This case occurs only for float32. A value of 1 would give the word 2^31, which int32
        # cannot hold; the next lower value gives 128 less.
        return Quick(factor, -below_one, below_one, np.int32(128), _ABOVE + 128)

    def offset(self, value: np.floating) -> int:
        """Return T - 2^63, from -h to h, for a finite number of type float32 or float64."""
        one = value.dtype.type(1)
        scaled = max(-one, min(value, one)) * self.quick(value.dtype == np.float32).factor
        exact = math.floor(float(scaled) * 2.0**32)
        return max(-self.half, min(exact, self.half))

    def settle(self, value: np.floating, word: int, stream: Stream) -> bool:
        """Return U < T for one value, in exact integers.

        The low word of a uniform integer is independent of its high word, so drawing it late does
        not change the distribution; it is needed once in 2^32 coordinates.

        Args:
            value: finite, of type float32 or float64.
            word: the high word of U, less 2^31.
            stream: the source of the low word, if the high words are equal.
        """
        offset = self.offset(value)
        high = offset >> 32
        if word != high:
            return word < high
        return (word << 32) + int(stream.integers(1, np.uint32)[0]) < offset

    def draw(self, values: NDArray[np.floating], streams: Sequence[Stream]) -> NDArray[np.uint8]:
        """Return the bits of rows of values, packed with the most significant first.

        Args:
            values: finite, float32 or float64, shape (n, d).
            streams: n streams; the bits of row i come only from stream i.

        Returns:
            Shape (n, ceil(d/8)).
        """
        count, size = values.shape
        columns = min(size, DRAWN)
        rows = min(count, DRAWN // columns)
        if (rows, columns) == values.shape:
            return self._draw_block(values, streams)
        packed = np.empty((count, -(-size // 8)), np.uint8)
        for top in range(0, count, rows):
            below = top + rows
            for left in range(0, size, columns):
                right = left + columns
                bits = self._draw_block(values[top:below, left:right], streams[top:below])
                packed[top:below, left // 8 : -(-right // 8)] = bits
        return packed

    def _draw_block(
        self, values: NDArray[np.floating], streams: Sequence[Stream]
    ) -> NDArray[np.uint8]:
        factor, lowest, highest, raised, margin = self.quick(values.dtype == np.float32)
        product = kept_array("product", values.shape, values.dtype)
        high = kept_array("high", values.shape, np.int32)
        ones = kept_array("ones", values.shape, np.bool_)
        words = _words(streams, values.shape[1])
        values.clip(lowest, highest, out=product)
        product *= factor
        np.copyto(high, product, casting="unsafe")  # rounds towards zero
        np.less(words, high, out=ones)
        # If a word is far above its threshold, the difference wraps to a large unsigned number.
        high -= words
        if raised:
            high += raised
        above = high.view(np.uint32)
        if np.minimum.reduce(above, axis=None) <= margin:
            for row, column in np.argwhere(above <= margin):
                word = int(words[row, column])
                ones[row, column] = self.settle(values[row, column], word, streams[row])
        return np.packbits(ones, axis=1)


def _words(streams: Sequence[Stream], count: int) -> NDArray[np.int32]:
    """Return the next ``count`` high words of each stream, less 2^31, in rows."""
    if len(streams) == 1:
        return streams[0].integers(count, np.int32).reshape(1, count)
    size = 4 * count
    buffer = kept_array("words", (size * len(streams) + ROOM,), np.uint8)
    for place, stream in enumerate(streams):
        stream.fill(buffer[place * size :], size)  # what follows, the next stream overwrites
    return buffer[:-ROOM].view(np.int32).reshape(len(streams), count)
