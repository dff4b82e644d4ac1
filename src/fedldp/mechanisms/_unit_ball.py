"""Vectors of bounded L2 norm as unit vectors of one dimension more."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def complete(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a vector of norm 1 at most, shape (d,), with what it lacks of 1, shape (d + 1,)."""
    return np.append(vector, math.sqrt(max(0.0, 1 - float((vector * vector).sum()))))
