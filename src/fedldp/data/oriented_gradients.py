"""Histograms of oriented gradients: features of an image that need no data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.data.image_features import digest_of
from fedldp.data.images import check_images

_PIECE = 1000  # images processed at a time


@dataclass(frozen=True)
class OrientedGradients:
    """How an image's slope is distributed over positions and directions, as a vector of norm 1.

    The image is cut into ``cells`` x ``cells`` cells. A pixel's slope is the difference of its
    neighbours: right minus left, and below minus above. Its length is divided between the two
    nearest of ``orientations`` directions, in proportion. Channels are summed. The mean over all
    sums is subtracted, and the vector is scaled to norm 1. An image without any slope gives zeros.
    So does an image that holds NaN or whose slopes are too large for floats, because a refusal
    would reveal something about the image.

    Attributes:
        input_shape: (channels, height, width) of an image.
        cells: the number of cells along each side.
        orientations: directions, evenly around the circle.

    Raises:
        ConfigError: the examples are not images, or are too small for this many cells.

    Source: Dalal, Triggs 2005, "Histograms of Oriented Gradients for Human Detection", but without
    the overlapping blocks of that paper.
    """

    input_shape: tuple[int, ...]
    cells: int
    orientations: int

    def __post_init__(self) -> None:
        check_images(self.input_shape)
        if min(self.input_shape[1:]) < self.cells:
            raise ConfigError(
                f"cells = {self.cells}: an image of {self.input_shape[1]}x{self.input_shape[2]} "
                f"has fewer pixels along a side; give at most {min(self.input_shape[1:])}"
            )

    @property
    def size(self) -> int:
        """The length of a feature vector."""
        return self.cells**2 * self.orientations

    @property
    def digest(self) -> str:
        """See ``ExampleMap``."""
        return digest_of("oriented-gradients", 1, self.input_shape, self.cells, self.orientations)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of images, shape (n, size); their norm is 1 up to rounding, or 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = [self._sums(images[i : i + _PIECE]) for i in range(0, len(images), _PIECE)]
            centred = np.concatenate([np.empty((0, self.size)), *pieces])
            centred -= centred.mean(axis=1, keepdims=True)
            norms = np.linalg.norm(centred, axis=1, keepdims=True)
        features = np.zeros_like(centred)
        np.divide(centred, norms, out=features, where=norms > 0)  # norms > 0 is false for NaN
        return features.astype(np.float32)

    def _sums(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the sums of images, by direction, row and column of the cell, shape (n, size)."""
        one = np.float32(1)
        rows, columns = (
            [(np.arange(side) * self.cells // side, np.full(side, one))]
            for side in self.input_shape[1:]
        )
        return slope_sums(images.sum(axis=1), rows, columns, self.cells, self.orientations)


Shares = Sequence[tuple[NDArray[np.int64], NDArray[Any]]]
"""For each pixel along a side: its cells, and the share of its slope that each gets."""


def slope_sums(
    images: NDArray[Any], rows: Shares, columns: Shares, cells: int, orientations: int
) -> NDArray[np.float64]:
    """Return the total slope for each direction, row and column of cells.

    Args:
        images: shape (n, height, width).
        rows: the cells of a pixel's row.
        columns: the cells of a pixel's column.
        cells: the number of cells along each side.
        orientations: directions, evenly around the circle.

    Returns:
        Shape (n, orientations x cells x cells).
    """
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    right = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    length = np.hypot(right, down)
    turns = np.arctan2(down, right) / (2 * math.pi) * orientations
    first = np.floor(turns)
    part = turns - first
    image = np.arange(len(images))[:, None, None]
    sums = np.zeros(len(images) * orientations * cells**2)
    for turn, of_turn in ((0, 1 - part), (1, part)):
        direction = (first.astype(np.int64) + turn) % orientations
        begin, slope = (image * orientations + direction) * cells**2, length * of_turn
        for row, of_row in rows:
            for column, of_column in columns:
                place = begin + (row[:, None] * cells + column)
                share = slope * (of_row[:, None] * of_column)
                sums += np.bincount(place.ravel(), share.ravel(), sums.size)
    return sums.reshape(len(images), -1)
