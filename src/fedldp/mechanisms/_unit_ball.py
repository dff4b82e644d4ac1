"""Vectors of bounded L2 norm as unit vectors with one more dimension."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def complete(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Extend a vector of norm at most 1, shape (d,), to a unit vector, shape (d + 1,)."""
    return np.append(vector, math.sqrt(max(0.0, 1 - float((vector * vector).sum()))))
