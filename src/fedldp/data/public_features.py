"""Public functions of an example whose result has norm 1 and a constant for the intercept.

No data set is needed for them, unless a file that the user declares public gives the axes. The
common features of all handwriting are measured on random strokes, drawn from a public seed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import numbered_generator
from fedldp.data.folder import PublicFile
from fedldp.data.image_features import (
    CELLS,
    ORIENTATIONS,
    SIZE,
    Floats,
    PublicMap,
    centred_roots,
    digest_of,
    greyscale,
    in_pieces,
    soft_sums,
    unit,
)

if TYPE_CHECKING:
    from torch import Tensor

CONSTANT = 0.3
"""The last feature of every example, for the intercept."""

_SIDE = 20
"""Pixels along each side of a deskewed image."""

_REACH = 2.0
"""The distance from the ink's centre to a deskewed image's edge, in standard deviations of the
ink."""

_LEAST_SPREAD = 1.0
"""The smallest assumed spread of the ink along an axis, in pixels, so that a dot stays small."""

_LONGEST = 2.5
"""How much more one axis may be stretched than the other, so that the digit 1 stays narrow."""

_STROKES, _STROKE_SIDE, _SEED = 4000, 28, 2026


def soft_gradients(input_shape: tuple[int, ...]) -> PublicMap:
    """Return oriented gradients in 5 x 5 soft cells and 8 soft directions, centred by strokes.

    The length of a pixel's slope is divided between the two nearest directions and the two nearest
    cells along each axis. The features are the square roots of the sums, minus the mean of all
    these roots, scaled to norm 1. From these the mean over 4,000 random strokes is subtracted, the
    rest is scaled to norm 1, and the constant 0.3 is appended for the intercept. The features
    depend only on the example itself and on public numbers. An image without a slope counts as an
    empty image, and so does an image that holds NaN or infinity.

    Args:
        input_shape: (channels, height, width) of an image; channels are summed.
    """
    return _gradients("soft-gradients", input_shape, turned=False)


def pose(input_shape: tuple[int, ...]) -> PublicMap:
    """Return ``soft_gradients`` after an image was deskewed and scaled to a fixed size.

    Before its gradients are taken, the image is sheared until its moments show no slant, and scaled
    to a fixed size along both axes. The random strokes are treated in the same way.

    Args:
        input_shape: (channels, height, width) of an image, with bright ink on a dark background.

    Source: LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning Applied to Document
    Recognition", which deskews MNIST by moments.
    """
    return _gradients("pose", input_shape, turned=True)


def _gradients(kind: str, input_shape: tuple[int, ...], *, turned: bool) -> PublicMap:
    drawn = (_STROKES, _STROKE_SIDE, _SEED)
    posed = (_SIDE, _REACH, _LEAST_SPREAD, _LONGEST) if turned else ()

    def features(images: NDArray[np.float32]) -> Floats:
        grey = greyscale(images)
        found = np.full((len(grey), SIZE + 1), CONSTANT)
        roots = centred_roots(soft_sums(upright(grey) if turned else grey))
        found[:, :SIZE] = unit(roots - mean_of_strokes(turned=turned))
        return found

    return PublicMap(
        SIZE + 1,
        digest_of(kind, 1, input_shape, CELLS, ORIENTATIONS, CONSTANT, drawn, posed),
        lambda images: in_pieces(images, features, SIZE + 1),
    )


def upright(images: Floats) -> Floats:
    """Return images without slant and of one size, shape (n, 20, 20).

    Args:
        images: from 0 to 1, shape (n, height, width).
    """
    count, height, width = images.shape
    y, x = np.indices((height, width)).reshape(2, -1).astype(np.float64)
    ink = images.reshape(count, -1)
    total = ink.sum(axis=1)

    def mean(values: Floats, empty: float = 0.0) -> Floats:
        sums = (ink * values).sum(axis=1)
        return np.asarray(np.divide(sums, total, out=np.full(count, empty), where=total > 0))

    middle_y, middle_x = mean(y, (height - 1) / 2), mean(x, (width - 1) / 2)
    down, right = y - middle_y[:, None], x - middle_x[:, None]
    tall, both = mean(down * down), mean(right * down)
    slant = np.divide(both, tall, out=np.zeros(count), where=tall > 1e-9).clip(-1, 1)
    right -= slant[:, None] * down
    tall, wide = (np.sqrt(np.maximum(v, _LEAST_SPREAD)) for v in (tall, mean(right * right)))
    wide = np.maximum(wide, tall / _LONGEST)
    tall = np.maximum(tall, wide / _LONGEST)

    steps = ((np.arange(_SIDE) + 0.5) / _SIDE * 2 - 1) * _REACH
    down = (tall[:, None] * steps)[:, :, None]
    right = (wide[:, None] * steps)[:, None, :] + slant[:, None, None] * down
    return _between(images, middle_y[:, None, None] + down, middle_x[:, None, None] + right)


def _between(images: Floats, y: Floats, x: Floats) -> Floats:
    """Interpolate images bilinearly at positions between pixels; outside an image they are 0."""
    count, height, width = images.shape
    flat = np.pad(images, ((0, 0), (1, 1), (1, 1))).ravel()
    y, x = np.clip(y + 1, 0, height + 1), np.clip(x + 1, 0, width + 1)
    top, left = (np.minimum(at.astype(np.int64), last) for at, last in ((y, height), (x, width)))
    low, far, line = y - top, x - left, width + 2
    place = (np.arange(count)[:, None, None] * (height + 2) + top) * line + left
    above = (1 - far) * flat[place] + far * flat[place + 1]
    below = (1 - far) * flat[place + line] + far * flat[place + line + 1]
    return np.asarray((1 - low) * above + low * below)


@lru_cache(maxsize=2)
def mean_of_strokes(*, turned: bool) -> Floats:
    """Return the mean soft gradients of random strokes, shape (200,).

    Args:
        turned: whether the strokes are deskewed and scaled first, as in ``pose``.
    """
    drawn = upright(strokes()) if turned else strokes()
    found: Floats = centred_roots(soft_sums(drawn)).mean(axis=0)
    found.flags.writeable = False
    return found


def strokes() -> Floats:
    """Return images of random smooth strokes, from 0 to 1, shape (4000, 28, 28).

    Each has one or two cubic Bezier curves with random control points; a second curve begins where
    the first one ends.
    """
    generator = numbered_generator(_SEED, 0)
    points = generator.random((_STROKES, 7, 2)) * 17 + 5.5
    second = generator.random(_STROKES) < 0.5
    images = _drawn(points[:, :4])
    images[second] = np.maximum(images[second], _drawn(points[second, 3:]))
    return images


def _drawn(controls: Floats) -> Floats:
    """Return images of cubic curves with these control points, shape (n, 4, 2)."""
    t = np.linspace(0, 1, 40)
    weights = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    pixels = np.arange(_STROKE_SIDE, dtype=np.float64)
    nearest = np.full((len(controls), _STROKE_SIDE, _STROKE_SIDE), np.inf)
    for shares in weights.T:
        y, x = (sum(s * controls[:, i, axis] for i, s in enumerate(shares)) for axis in (0, 1))
        squared = (pixels - np.asarray(y)[:, None])[:, :, None] ** 2 + (
            pixels - np.asarray(x)[:, None]
        )[:, None, :] ** 2
        np.minimum(nearest, squared, out=nearest)
    return np.asarray(np.clip(2 - np.sqrt(nearest), 0, 1))


def unit_norm(input_shape: tuple[int, ...]) -> PublicMap:
    """Return the example's numbers, scaled to norm 1, and the constant 0.3 for the intercept.

    An example of zeros stays zero, and an example that holds NaN or infinity counts as zeros.
    """
    digest = digest_of("unit-norm", 1, input_shape, CONSTANT)
    return PublicMap(
        math.prod(input_shape) + 1, digest, lambda each: with_constant(finite_rows(each))
    )


def finite_rows(examples: NDArray[np.floating]) -> Floats:
    """Return examples as rows of doubles, shape (n, d); zeros for those with NaN or infinity.

    Each row is contiguous, whatever the examples' memory layout, so a row is summed in the same
    order whether or not there are other rows.
    """
    width = math.prod(examples.shape[1:])
    rows: Floats = examples.reshape(len(examples), width).astype(np.float64, order="C")
    rows[~np.isfinite(rows).all(axis=1)] = 0
    return rows


def with_constant(rows: Floats) -> NDArray[np.float32]:
    """Return rows of norm 1, or zeros, with the constant 0.3 appended to each."""
    found = np.full((len(rows), rows.shape[1] + 1), CONSTANT, np.float32)
    found[:, :-1] = unit(rows)
    return found


def stroke_axes(input_shape: tuple[int, ...], axes: int = 30) -> PublicMap:
    """Return ``pose`` features along the axes of most variance of random strokes, with norm 1.

    The axes are the first principal components of the ``pose`` features of 4,000 random strokes,
    which are drawn from a public seed. The constant 0.3 is appended for the intercept.

    Args:
        input_shape: (channels, height, width) of an image, with bright ink on a dark background.
        axes: the number of axes.
    """
    posed = pose(input_shape)

    def features(images: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = posed(images)[:, :SIZE].astype(np.float64)
        return with_constant(projected(rows, axes_of_strokes()[:, :axes]))

    digest = digest_of("public-axes:strokes", 1, posed.digest, axes, CONSTANT)
    return PublicMap(axes + 1, digest, features)


def file_axes(file: PublicFile, input_shape: tuple[int, ...]) -> PublicMap:
    """Return an example's numbers along a file's axes, with norm 1.

    A .npy file holds the axes, of shape (d, k), for examples of d numbers. The constant 0.3 is
    appended for the intercept. An example that holds NaN or infinity counts as zeros.

    The axes do not show what they were computed from, so the user who names the file declares the
    file public. Every line of a statement then says that it relies on that declaration.

    Raises:
        ConfigError: the file holds no such array.
    """
    given = math.prod(input_shape)
    try:
        axes = np.asarray(np.load(BytesIO(file.content), allow_pickle=False), np.float64)
        if axes.shape != (given, axes.size // given) or not axes.size:
            raise ValueError(f"its array has the shape {axes.shape}")
        if not np.isfinite(axes).all():
            raise ValueError("its array holds NaN or infinity")
    except Exception as error:  # a damaged file can raise almost any exception
        raise ConfigError(
            f"features = public-axes:{file.name}: {first_line(error)}; give a .npy file with axes "
            f"of shape ({given}, k), all finite, for examples of {given} numbers"
        ) from None

    def features(examples: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = finite_rows(examples)
        with np.errstate(over="ignore", invalid="ignore"):
            return with_constant(finite_rows(projected(rows, axes)))

    size = int(axes.shape[1]) + 1
    digest = digest_of("public-axes", 1, input_shape, size, CONSTANT, file.digest)
    return PublicMap(size, digest, features)


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
    """Return the principal axes of the ``pose`` features of random strokes, shape (200, 200).

    The axes, the columns, are in order of decreasing variance. The sign of an axis is arbitrary,
    and sites must agree on it, so the entry with the largest absolute value is made positive.
    """
    images = strokes()[:, None].astype(np.float32)
    found = pose(images.shape[1:])(images)[:, :SIZE].astype(np.float64)
    _, axes = np.linalg.eigh(np.cov(found, rowvar=False))
    axes = axes[:, ::-1]
    longest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[longest, np.arange(len(axes))])
    axes.flags.writeable = False
    return np.asarray(axes)


_FILTER_SIDE, _FILTER_CELLS, _FILTER_SEED = 5, 3, 2026
_ROUNDING = 1e-5


def random_convolutions(input_shape: tuple[int, ...], filters: int = 16) -> PublicMap:
    """Return the positive and negative parts of filter responses in 3 x 3 cells, with norm 1.

    A filter has 5 x 5 normal random numbers for each channel, minus their mean, drawn from a public
    seed. A feature is the mean of a filter's responses of one sign in a cell. The mean of an
    example's own features is subtracted, and the vector is scaled to norm 1. An image to which no
    filter responds gives zeros, and so does an image that holds NaN or infinity, or whose values
    are too large for floats.

    Args:
        input_shape: (channels, height, width) of an image.
        filters: the number of filters; each gives 18 features.

    Source: Saxe, Koh, Chen, Bhand, Suresh, Ng 2011, "On Random Weights and Unsupervised Feature
    Learning", for pooled responses of random filters.
    """
    if min(input_shape[1:]) < _FILTER_SIDE:
        raise ConfigError(
            "features = random-convolutions: images of "
            f"{input_shape[1]}x{input_shape[2]} are smaller than a filter, "
            f"{_FILTER_SIDE}x{_FILTER_SIDE}; choose other features"
        )
    size = 2 * _FILTER_CELLS**2 * filters

    def features(images: NDArray[np.float32]) -> NDArray[np.float32]:
        with np.errstate(over="ignore", invalid="ignore"):
            found = finite_rows(_responses(images, filters, size))
        # The rounding errors of a uniformly grey image do not count as a response.
        largest = np.abs(finite_rows(images)).max(axis=1, initial=0)
        found[np.abs(found).max(axis=1, initial=0) <= _ROUNDING * largest] = 0
        return unit(found).astype(np.float32)

    drawn = (filters, _FILTER_SIDE, _FILTER_SEED)
    digest = digest_of("random-convolutions", 1, input_shape, drawn, _FILTER_CELLS)
    return PublicMap(size, digest, features)


def _responses(images: NDArray[np.float32], count: int, size: int) -> NDArray[np.float32]:
    """Return filter responses minus each image's mean, shape (n, size); may be infinite.

    Images are processed one at a time, because a convolution of several images may sum in another
    order.
    """
    import torch
    from torch.nn import functional

    filters = _filters(count, images.shape[1])
    found = np.empty((len(images), size), np.float32)
    for row, image in zip(found, images, strict=True):
        each = functional.conv2d(torch.tensor(image[None]), filters)
        both = torch.cat([each.relu(), (-each).relu()], 1)
        row[:] = functional.adaptive_avg_pool2d(both, _FILTER_CELLS).flatten().numpy()
    found -= found.mean(1, keepdims=True)
    return found


@lru_cache(maxsize=4)
def _filters(count: int, channels: int) -> Tensor:
    """Return the public filters, shape (count, channels, 5, 5)."""
    import torch

    drawn = numbered_generator(_FILTER_SEED, 0).standard_normal(
        (count, channels, _FILTER_SIDE, _FILTER_SIDE)
    )
    return torch.from_numpy((drawn - drawn.mean((2, 3), keepdims=True)).astype(np.float32))
