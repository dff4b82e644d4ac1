"""Vectors of bounded L2 norm as unit vectors of one dimension more."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def clip_norm(values: NDArray[np.floating], clip: float) -> NDArray[np.float64]:
    """Return ``values`` scaled down to the L2 norm ``clip``; once clipped, they stay as they are.

    The norm holds up to rounding: no guarantee may rest on it.
    """
    wide = values.astype(np.float64)
    largest = float(np.abs(wide).max())
    if largest == 0:
        return wide
    direction = wide / largest  # so that no square overflows
    norm = math.sqrt((direction * direction).sum())
    if norm * largest <= clip:
        return wide
    # Scaled by a little more, so that a vector once bounded is left as it is.
    return direction * (clip / norm * (1 - 2.0**-40))


def complete(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a vector of norm 1 at most, shape (d,), with what it lacks of 1, shape (d + 1,)."""
    return np.append(vector, math.sqrt(max(0.0, 1 - float((vector * vector).sum()))))
