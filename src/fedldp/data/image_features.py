"""Public functions of one image at a time, not fitted to data: oriented gradients, hard and soft.

Source: Dalal, Triggs 2005, "Histograms of Oriented Gradients for Human Detection", for the soft
cells and directions; the square root is from their "L1-sqrt". If an image moves by a pixel, soft
gradients change only a little.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import numbered_generator
from fedldp.data.examples import Examples

Augmentation = Literal["none", "shift", "shift-flip", "rotate-shift", "rotate-shift-flip"]
"""How images are changed at random whenever they are trained on; see ``training.augmentation``."""


class ExampleMap(Protocol):
    """A public function of one example at a time.

    The features of an example are bit for bit the same, whatever else is in the batch, because
    nothing is fitted on examples. No example is refused, because a refusal would reveal something
    about it.

    Attributes:
        size: the length of a feature vector.
        digest: 64 hexadecimal digits that distinguish the function from all others.
    """

    @property
    def size(self) -> int: ...

    @property
    def digest(self) -> str: ...

    def __call__(self, examples: NDArray[np.float32], /) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        ...


@dataclass(frozen=True, eq=False)
class PublicMap:
    """An ``ExampleMap`` that comes with this package.

    Attributes:
        size: the length of a feature vector.
        digest: see ``ExampleMap``.
        of: returns the features of examples, shape (n, size).
    """

    size: int
    digest: str
    of: Callable[[NDArray[np.float32]], NDArray[np.float32]] = field(repr=False)

    def __call__(self, examples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        return self.of(examples)


def mapped_alone(
    of: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    examples: NDArray[np.float32],
    size: int,
) -> NDArray[np.float32]:
    """Return the features of examples, computed one by one, shape (n, size).

    An example for which ``of`` fails, or returns anything but ``size`` finite numbers, gets zeros:
    an error would reveal something about it.
    """
    found = np.zeros((len(examples), size), np.float32)
    for row, example in zip(found, examples, strict=True):
        try:
            own = of(example)
        except Exception:  # another's code may raise anything
            continue
        if own.shape == row.shape and np.isfinite(own).all():
            row[:] = own
    return found


_MOST = 1_000_000
"""The largest number of features of one example."""


def tried_size(
    of: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    input_shape: tuple[int, ...],
    named: str,
    remedy: str = "",
) -> int:
    """Return the number of features that ``of`` gives, tried on public examples.

    Args:
        of: the function of one example.
        input_shape: the shape of an example.
        named: the setting with its value, for error messages.
        remedy: what to do if it fails, for error messages.

    Raises:
        ConfigError: it fails, or returns anything but finite numbers, always as many.
    """
    drawn = numbered_generator(0, 0).random((3, *input_shape)).astype(np.float32)
    drawn[1] = 0
    try:
        (size,) = of(drawn[0]).shape
        found = np.concatenate([of(each) for each in drawn])
        if found.shape != (3 * size,) or not 1 <= size <= _MOST or not np.isfinite(found).all():
            raise ValueError(f"it returned {found.shape} numbers for 3 examples")
    except Exception as error:  # another's code may raise anything
        raise ConfigError(
            f"{named}: for examples of shape {input_shape}: {type(error).__name__}: "
            f"{first_line(error)}; it must return a vector of finite numbers, always of the same "
            f"length, at most {_MOST:,}{remedy}"
        ) from error
    return int(size)


def digest_of(*parts: object) -> str:
    """Return the digest of a function; ``parts`` distinguish it from all others."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


_KEPT: WeakKeyDictionary[Examples, tuple[ExampleMap, Examples]] = WeakKeyDictionary()
"""Features of examples that are still in use, with the map that made them."""


@dataclass(frozen=True, eq=False)
class MapOnce:
    """Applies a map to examples, and keeps their features as long as the examples exist.

    A run trains and tests on the same examples in every round, and the runs of a comparison share
    examples. The kept features never leave this process, and keeping them does not change any
    result, because a map looks at one example at a time.

    Attributes:
        map: the function; None leaves examples as they are.
    """

    map: ExampleMap | None

    def __call__(self, examples: Examples) -> Examples:
        """Return the examples with their features in place of the original values."""
        if self.map is None:
            return examples
        kept = _KEPT.get(examples)
        if kept is None or kept[0] is not self.map:
            kept = self.map, replace(examples, features=self.map(examples.features))
            _KEPT[examples] = kept
        return kept[1]


def check_images(input_shape: tuple[int, ...], dataset: str = "of the clients") -> None:
    """Refuse examples that are not images.

    Args:
        input_shape: the shape of an example; an image's is (channels, height, width).
        dataset: the setting, if it is known.

    Raises:
        ConfigError: they are not images.
    """
    if len(input_shape) != 3:
        raise ConfigError(
            f"dataset = {dataset}: examples of shape {input_shape} are not images, and the "
            "clients' encoders accept only images; choose a data set of images, or another system"
        )


_PIECE = 1000  # images processed at a time


def oriented_gradients(input_shape: tuple[int, ...], cells: int, orientations: int) -> PublicMap:
    """Return how an image's slope is distributed over positions and directions, with norm 1.

    The image is cut into ``cells`` x ``cells`` cells. A pixel's slope is the difference of its
    neighbours: right minus left, and below minus above. Its length is divided between the two
    nearest of ``orientations`` directions, in proportion. Channels are summed. The mean over all
    sums is subtracted, and the vector is scaled to norm 1. An image without any slope gives zeros.
    So does an image that holds NaN or whose slopes are too large for floats, because a refusal
    would reveal something about the image.

    Args:
        input_shape: (channels, height, width) of an image.
        cells: the number of cells along each side.
        orientations: directions, evenly around the circle.

    Raises:
        ConfigError: the examples are not images, or are too small for this many cells.

    Source: Dalal, Triggs 2005, "Histograms of Oriented Gradients for Human Detection", but without
    the overlapping blocks of that paper.
    """
    check_images(input_shape)
    if min(input_shape[1:]) < cells:
        raise ConfigError(
            f"cells = {cells}: an image of {input_shape[1]}x{input_shape[2]} has fewer pixels "
            f"along a side; give at most {min(input_shape[1:])}"
        )
    size, one = cells**2 * orientations, np.float32(1)
    rows, columns = (
        [(np.arange(side) * cells // side, np.full(side, one))] for side in input_shape[1:]
    )

    def features(images: NDArray[np.float32]) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            sums = slope_sums(images.sum(axis=1), rows, columns, cells, orientations)
            return unit(sums - sums.mean(axis=1, keepdims=True))

    digest = digest_of("oriented-gradients", 1, input_shape, cells, orientations)
    return PublicMap(size, digest, lambda images: in_pieces(images, features, size))


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


CELLS, ORIENTATIONS = 5, 8
SIZE = CELLS**2 * ORIENTATIONS

Floats = NDArray[np.float64]


def in_pieces(
    images: NDArray[np.float32], features: Callable[[NDArray[np.float32]], Floats], size: int
) -> NDArray[np.float32]:
    """Return features of images, shape (n, size), computed for a limited number at a time.

    Args:
        images: shape (n, channels, height, width).
        features: maps images to features, each image separately.
        size: the length of a feature vector.
    """
    found = np.empty((len(images), size), np.float32)
    for start in range(0, len(images), _PIECE):
        piece = slice(start, start + _PIECE)
        found[piece] = features(images[piece])
    return found


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
    """Return rows scaled to norm 1; zeros stay zeros, and rows with NaN become zeros."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))
