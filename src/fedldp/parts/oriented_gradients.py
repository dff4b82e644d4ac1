"""Histograms of oriented gradients: features of an image that no data set was needed for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.errors import ConfigError


@dataclass(frozen=True)
class OrientedGradients:
    """How much of an image's slope lies where and points which way, as a vector of norm 1.

    The image is cut into ``cells`` x ``cells`` cells. A pixel's slope is the difference of its
    neighbours, right less left and below less above; its length goes to the two nearest of
    ``orientations`` directions, in proportion. Channels are added up. The mean over all sums is
    taken off, and the vector scaled to norm 1; an image without any slope gives zeros.

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
        if len(self.input_shape) != 3:
            raise ConfigError(
                f"dataset: examples of shape {self.input_shape} are no images, and have no "
                "gradients; choose a data set of images"
            )
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
        sums = self._cells(images.sum(axis=1))
        centred = sums.reshape(len(images), self.size)
        centred -= centred.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(centred, axis=1, keepdims=True)
        features = np.zeros_like(centred)
        np.divide(centred, norms, out=features, where=norms > 0)
        return features

    def _cells(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the sums of images of shape (n, height, width), by direction, row and column."""
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
        right = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
        down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
        length = np.hypot(right, down)
        turns = np.arctan2(down, right) / np.float32(2 * math.pi) * self.orientations
        first = np.floor(turns)
        part = turns - first
        rows, columns = (np.arange(self.cells) * side // self.cells for side in images.shape[1:])
        sums = np.empty((len(images), self.orientations, self.cells, self.cells), np.float32)
        for direction in range(self.orientations):
            share = np.where(first % self.orientations == direction, 1 - part, 0)
            share += np.where((first + 1) % self.orientations == direction, part, 0)
            by_row = np.add.reduceat(length * share, rows, axis=1)
            sums[:, direction] = np.add.reduceat(by_row, columns, axis=2)
        return sums
