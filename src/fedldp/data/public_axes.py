"""Projection onto public axes, from random strokes or from a file that the user declares public."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.data.handwriting import CONSTANT, Pose, strokes
from fedldp.data.image_features import digest_of
from fedldp.data.public_files import PublicFile
from fedldp.data.soft_gradients import SIZE, Floats
from fedldp.data.unit_norm import finite_rows, with_constant


@dataclass(frozen=True)
class StrokeAxes:
    """``Pose`` features along the axes of most variance of random strokes, with norm 1.

    The axes are the first principal components of the ``Pose`` features of 4,000 random strokes,
    which are drawn from a public seed. The constant 0.3 is appended for the intercept.

    Attributes:
        input_shape: (channels, height, width) of an image, with bright ink on a dark background.
        axes: the number of axes.
    """

    input_shape: tuple[int, ...]
    axes: int = 30

    most: ClassVar[int] = SIZE

    @property
    def size(self) -> int:
        """The length of a feature vector."""
        return self.axes + 1

    @property
    def digest(self) -> str:
        """See ``ExampleMap``."""
        pose = Pose(self.input_shape).digest
        return digest_of("public-axes:strokes", 1, pose, self.axes, CONSTANT)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of images, shape (n, size)."""
        pose = Pose(self.input_shape)(images)[:, :SIZE]
        along = projected(pose.astype(np.float64), axes_of_strokes()[:, : self.axes])
        return with_constant(along)


@dataclass(frozen=True)
class FileAxes:
    """An example's numbers minus a public centre, projected onto a file's axes, with norm 1.

    A .npy file holds the axes, of shape (d, k), for examples of d numbers. A .safetensors file
    holds them as "axes", and may hold a "centre" of shape (d,). The constant 0.3 is appended for
    the intercept. An example that holds NaN or infinity counts as the centre.

    The axes do not show what they were computed from, so the user who names the file declares the
    file public. Every line of a statement then says that it relies on that declaration.

    Attributes:
        file: the file.
        input_shape: the shape of an example.
        axes: how many of the first axes are used; None for all.

    Raises:
        ConfigError: the file holds no such array, or fewer axes.
    """

    file: PublicFile
    input_shape: tuple[int, ...]
    axes: int | None = None
    _axes: Floats = field(init=False, repr=False, compare=False)
    _centre: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given, named = math.prod(self.input_shape), f"features = public-axes:{self.file.name}"
        axes, centre = _arrays(self.file, named)
        if axes.ndim != 2 or len(axes) != given or centre.shape not in ((), (given,)):
            raise ConfigError(
                f"{named}: its axes have the shape {axes.shape}, and its centre has "
                f"{centre.shape}; an example has {given} numbers: give axes of shape ({given}, k), "
                f"and a centre of ({given},) or none"
            )
        wanted = axes.shape[1] if self.axes is None else self.axes
        if not 1 <= wanted <= axes.shape[1]:
            raise ConfigError(
                f"features_dim = {wanted} and {named}: it holds {axes.shape[1]} axes; give at most "
                "that many"
            )
        if not (np.isfinite(axes).all() and np.isfinite(centre).all()):
            raise ConfigError(f"{named}: it holds NaN or infinity; give finite numbers")
        object.__setattr__(self, "_axes", axes[:, :wanted])
        object.__setattr__(self, "_centre", centre)

    @property
    def size(self) -> int:
        """The length of a feature vector."""
        return int(self._axes.shape[1]) + 1

    @property
    def digest(self) -> str:
        """The digest of the file's bytes; see ``ExampleMap``."""
        parts = (self.input_shape, self.size, CONSTANT, self.file.digest)
        return digest_of("public-axes", 1, *parts)

    def __call__(self, examples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        flat = examples.reshape(len(examples), len(self._axes))
        rows = finite_rows(flat - self._centre)
        with np.errstate(over="ignore", invalid="ignore"):
            return with_constant(finite_rows(projected(rows, self._axes)))


_PIECE = 1000  # examples processed at a time


def projected(rows: Floats, axes: Floats) -> Floats:
    """Return the inner products of rows with axes, shape (n, k).

    Each row is summed in a fixed order; a matrix product of several rows may use another order.

    Args:
        rows: shape (n, d).
        axes: shape (d, k).
    """
    found = np.zeros((len(rows), axes.shape[1]))
    for start in range(0, len(rows), _PIECE):
        piece = rows[start : start + _PIECE]
        for number, axis in zip(piece.T, axes, strict=True):
            found[start : start + _PIECE] += number[:, None] * axis
    return found


@lru_cache(maxsize=1)
def axes_of_strokes() -> Floats:
    """Return the principal axes of the ``Pose`` features of random strokes, shape (200, 200).

    The axes, the columns, are in order of decreasing variance. The sign of an axis is arbitrary,
    and sites must agree on it, so the entry with the largest absolute value is made positive.
    """
    images = strokes()[:, None].astype(np.float32)
    found = Pose(images.shape[1:])(images)[:, :SIZE].astype(np.float64)
    _, axes = np.linalg.eigh(np.cov(found, rowvar=False))
    axes = axes[:, ::-1]
    longest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[longest, np.arange(len(axes))])
    axes.flags.writeable = False
    return np.asarray(axes)


_NO_CENTRE = np.zeros(())


def _arrays(file: PublicFile, named: str) -> tuple[Floats, Floats]:
    """Return the axes and the centre of a file; a missing centre is 0."""
    try:
        if file.name.lower().endswith(".npy"):
            axes, centre = np.load(BytesIO(file.content), allow_pickle=False), _NO_CENTRE
        else:
            from safetensors.numpy import load

            held = load(file.content)
            axes, centre = held["axes"], held.get("centre", _NO_CENTRE)
        return np.asarray(axes, np.float64), np.asarray(centre, np.float64)
    except Exception:  # a damaged file can raise almost any exception
        raise ConfigError(
            f'{named}: it holds no axes; give a .npy array, or a .safetensors file with "axes" '
            'and, if need be, "centre"'
        ) from None
