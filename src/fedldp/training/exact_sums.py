"""Sums of people's vectors of integers: their grid, and whose rows are whose."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedldp.data.examples import Examples

Floats = NDArray[np.float64]

NORM = 1 << 30
"""The largest L2 norm of one person's vector, in grid steps."""

MOST_PEOPLE = 1 << 22
"""Sums of up to this many vectors are exact in float64; a client's larger sum is clipped."""

PARTS = 1 << 21
"""The parts into which a row between two cells is divided."""

_LARGEST = NORM * MOST_PEOPLE


def whose_rows(examples: Examples) -> NDArray[np.int64]:
    """Return, for each row, the index of its person among the client's people, shape (n,)."""
    if examples.people is None:
        return np.arange(len(examples))
    return np.unique(examples.people, return_inverse=True)[1].astype(np.int64)


def summed_shares(
    cells: NDArray[np.int64] | Floats, people: NDArray[np.int64], number: int, norm: int
) -> NDArray[np.int64]:
    """Return the sum over people of ``norm`` times the share of a person's rows in each cell.

    Shares are rounded down to whole numbers, so a person's numbers are at least 0 and add up to at
    most ``norm``, which therefore bounds their L2 norm, too.

    Args:
        cells: the cell of each row, shape (n,); any other number counts as the nearest cell. If
            they are floats, a row between two cells is divided among them: of one at 3.25, the cell
            3 has 3/4 and the cell 4 has 1/4, in steps of 1/``PARTS``. None may be NaN.
        people: the index of each row's person, shape (n,).
        number: the number of cells, at least 1.
        norm: at most 2^31.

    Returns:
        shape (number,); exact for up to ``MOST_PEOPLE`` people, and at least 2^52 in a cell where a
        sum is not exact.
    """
    cells = cells.clip(0, number - 1)
    if np.issubdtype(cells.dtype, np.integer):
        pairs, given = np.unique(people * number + cells, return_counts=True)
        parts = 1
    else:
        lower = np.floor(cells).astype(np.int64)
        upper = np.rint((cells - lower) * PARTS).astype(np.int64)
        places = np.concatenate([lower, np.minimum(lower + 1, number - 1)])
        pairs, at = np.unique(np.tile(people, 2) * number + places, return_inverse=True)
        given = np.bincount(at, np.append(PARTS - upper, upper)).astype(np.int64)
        parts = PARTS
    whose, places = np.divmod(pairs, number)
    count = np.bincount(people)[whose]
    once, rest = np.divmod(given, count)  # so that no product is above 2^63
    shares = (once * norm + rest * norm // count) // parts
    return np.bincount(places, shares, number).astype(np.int64)


def cut(total: NDArray[np.int64]) -> Floats:
    """Return a sum of vectors as floats, clipped to 2^52 in each number.

    Clipping moves no two sums further apart.
    """
    return total.clip(-_LARGEST, _LARGEST).astype(np.float64)


_TERMS = [1 / math.factorial(k) for k in range(14)]
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = math.log(2) - _LN2_HIGH


def exp(values: Floats) -> Floats:
    """Return exp of numbers up to 0, computed only by sums and products of single numbers.

    A library's exp may treat an array's last numbers differently from the others.
    """
    bounded = np.maximum(values, -700.0)
    powers = np.rint(bounded / math.log(2))
    rest = (bounded - powers * _LN2_HIGH) - powers * _LN2_LOW
    found = np.full_like(rest, _TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        found *= rest
        found += term
    raised: Floats = np.ldexp(found, powers.astype(np.int32))
    return raised
