"""Sums of people's vectors of integers: their grid, and whose rows are whose."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedldp.data.examples import Examples

Floats = NDArray[np.float64]

NORM = 1 << 30
"""The largest L2 norm of one person's vector, in grid steps."""

MOST_PEOPLE = 1 << 22
"""Sums of up to this many vectors are exact in float64; a client's larger sum is clipped."""

_LARGEST = NORM * MOST_PEOPLE


def whose_rows(examples: Examples) -> NDArray[np.int64]:
    """Return, for each row, the index of its person among the client's people, shape (n,)."""
    if examples.people is None:
        return np.arange(len(examples))
    return np.unique(examples.people, return_inverse=True)[1].astype(np.int64)


def summed_shares(
    cells: NDArray[np.int64], people: NDArray[np.int64], number: int, norm: int
) -> NDArray[np.int64]:
    """Return the sum over people of ``norm`` times the share of a person's rows in each cell.

    Shares are rounded down to whole numbers, so a person's numbers are at least 0 and add up to at
    most ``norm``, which therefore bounds their L2 norm, too.

    Args:
        cells: the cell of each row, shape (n,); any other number counts as the nearest cell.
        people: the index of each row's person, shape (n,).
        number: the number of cells, at least 1.
        norm: at most 2^31.

    Returns:
        shape (number,); exact for up to ``MOST_PEOPLE`` people, and at least 2^52 in a cell where a
        sum is not exact.
    """
    pairs, rows = np.unique(people * number + cells.clip(0, number - 1), return_counts=True)
    whose, places = np.divmod(pairs, number)
    given = rows * norm // np.bincount(people)[whose]
    return np.bincount(places, given, number).astype(np.int64)


def cut(total: NDArray[np.int64]) -> Floats:
    """Return a sum of vectors as floats, clipped to 2^52 in each number.

    Clipping moves no two sums further apart.
    """
    return total.clip(-_LARGEST, _LARGEST).astype(np.float64)
