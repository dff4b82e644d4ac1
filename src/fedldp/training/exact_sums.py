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


def cut(total: NDArray[np.int64]) -> Floats:
    """Return a sum of vectors as floats, clipped to 2^52 in each number.

    Clipping moves no two sums further apart.
    """
    return total.clip(-_LARGEST, _LARGEST).astype(np.float64)
