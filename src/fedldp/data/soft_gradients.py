"""Oriented gradients in soft cells: if an image moves by a pixel, they change only a little.

Source: Dalal, Triggs 2005, "Histograms of Oriented Gradients for Human Detection", for the soft
cells and directions; the square root is from their "L1-sqrt".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedldp.data.oriented_gradients import slope_sums

CELLS, ORIENTATIONS = 5, 8
SIZE = CELLS**2 * ORIENTATIONS

Floats = NDArray[np.float64]


def in_pieces(
    images: NDArray[np.float32], features: Callable[[Floats], Floats], size: int
) -> NDArray[np.float32]:
    """Return features of images, shape (n, size), computed for a limited number at a time.

    Args:
        images: shape (n, channels, height, width).
        features: maps images from ``greyscale`` to features, each image separately.
        size: the length of a feature vector.
    """
    found = np.empty((len(images), size), np.float32)
    for start in range(0, len(images), _PIECE):
        piece = slice(start, start + _PIECE)
        found[piece] = features(greyscale(images[piece]))
    return found


_PIECE = 1000  # images processed at a time


def greyscale(images: NDArray[np.float32]) -> Floats:
    """Sum each image's channels, and scale it to 0 to 1 by its own minimum and maximum.

    An image that is uniform, or holds NaN or infinity, gives zeros. Shape (n, h, w).
    """
    found: Floats = images.astype(np.float64).sum(axis=1)
    rows = found.reshape(len(images), -1)
    rows[~np.isfinite(rows).all(axis=1)] = 0
    rows -= rows.min(axis=1, keepdims=True)
    largest = rows.max(axis=1, keepdims=True)
    np.divide(rows, largest, out=rows, where=largest > 0)
    return rows.reshape(found.shape)


def soft_sums(images: Floats) -> Floats:
    """Return the total slope for each direction, row and column of cells, shape (n, 200).

    Args:
        images: shape (n, height, width).
    """
    rows, columns = (_cells(side) for side in images.shape[1:])
    return slope_sums(images, rows, columns, CELLS, ORIENTATIONS)


def _cells(side: int) -> tuple[tuple[NDArray[np.int64], Floats], ...]:
    """Return the two nearest cells of each pixel along a side, with the share of each."""
    place = np.clip((np.arange(side) + 0.5) * CELLS / side - 0.5, 0, CELLS - 1)
    first = np.minimum(np.floor(place).astype(np.int64), CELLS - 2)
    part = place - first
    return (first, 1 - part), (first + 1, part)


def centred_roots(sums: Floats) -> Floats:
    """Return the square roots of sums, minus each row's own mean; each row has norm 1 or 0."""
    roots = np.sqrt(sums)
    return unit(roots - roots.mean(axis=1, keepdims=True))


def unit(rows: Floats) -> Floats:
    """Return rows scaled to norm 1; zeros stay zeros."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))
