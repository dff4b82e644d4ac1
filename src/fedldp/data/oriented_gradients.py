"""Histograms of oriented gradients: features of an image that no data set was needed for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.data.images import check_images

_PIECE = 1000  # images at a time


@dataclass(frozen=True)
class OrientedGradients:
    """How much of an image's slope lies where and points which way, as a vector of norm 1.

    The image is cut into ``cells`` x ``cells`` cells. A pixel's slope is the difference of its
    neighbours, right less left and below less above; its length goes to the two nearest of
    ``orientations`` directions, in proportion. Channels are added up. The mean over all sums is
    taken off, and the vector scaled to norm 1. An image without any slope gives zeros, and so does
    one that has a NaN or whose slopes are too large for floats: a refusal would tell of it.

    Attributes:
        input_shape: (channels, height, width) of an image.
        cells: along each side.
        orientations: directions, evenly around the circle.

    Raises:
        ConfigError: the examples are no images, or too small for so many cells.

    Source: Dalal, Triggs 2005, "Histograms of Oriented Gradients for Human Detection", without
    their overlapping blocks.
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

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of images, shape (n, size); their norm is 1 up to rounding, or 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = [self._sums(images[i : i + _PIECE]) for i in range(0, len(images), _PIECE)]
            centred = np.concatenate([np.empty((0, self.size)), *pieces])
            centred -= centred.mean(axis=1, keepdims=True)
            norms = np.linalg.norm(centred, axis=1, keepdims=True)
        features = np.zeros_like(centred)
        np.divide(centred, norms, out=features, where=norms > 0)  # which NaN is not
        return features.astype(np.float32)

    def _sums(self, images: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the sums of images, by direction, row and column of the cell, shape (n, size)."""
        padded = np.pad(images.sum(axis=1), ((0, 0), (1, 1), (1, 1)), mode="edge")
        right = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
        down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
        length = np.hypot(right, down)
        turns = np.arctan2(down, right) / np.float32(2 * math.pi) * self.orientations
        first = np.floor(turns)
        part = turns - first
        rows, columns = (np.arange(side) * self.cells // side for side in self.input_shape[1:])
        cell = rows[:, None] * self.cells + columns
        sums = np.zeros(len(images) * self.size)
        for offset, share in ((0, 1 - part), (1, part)):
            direction = (first.astype(np.int64) + offset) % self.orientations
            image = np.arange(len(images))[:, None, None]
            place = (image * self.orientations + direction) * self.cells**2 + cell
            sums += np.bincount(place.ravel(), (length * share).ravel(), sums.size)
        return sums.reshape(len(images), self.size)
