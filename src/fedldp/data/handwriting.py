"""Features of handwriting: soft gradients relative to random strokes, with or without deskewing.

No data set is needed: the common features of all handwriting are measured on random strokes, drawn
from a public seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.randomness import numbered_generator
from fedldp.data.image_features import digest_of
from fedldp.data.soft_gradients import (
    CELLS,
    ORIENTATIONS,
    SIZE,
    Floats,
    centred_roots,
    in_pieces,
    soft_sums,
    unit,
)

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


@dataclass(frozen=True)
class SoftGradients:
    """Oriented gradients in 5 x 5 soft cells and 8 soft directions, centred by random strokes.

    The length of a pixel's slope is divided between the two nearest directions and the two nearest
    cells along each axis. The features are the square roots of the sums, minus the mean of all
    these roots, scaled to norm 1. From these the mean over 4,000 random strokes is subtracted, the
    rest is scaled to norm 1, and the constant 0.3 is appended for the intercept. The features
    depend only on the example itself and on public numbers. An image without a slope counts as an
    empty image, and so does an image that holds NaN or infinity.

    Attributes:
        input_shape: (channels, height, width) of an image; channels are summed.
    """

    input_shape: tuple[int, ...]

    kind: ClassVar[str] = "soft-gradients"
    turned: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """The length of a feature vector: 201."""
        return SIZE + 1

    @property
    def digest(self) -> str:
        """See ``ExampleMap``."""
        drawn = (_STROKES, _STROKE_SIDE, _SEED)
        pose = (_SIDE, _REACH, _LEAST_SPREAD, _LONGEST) if self.turned else ()
        return digest_of(self.kind, 1, self.input_shape, CELLS, ORIENTATIONS, CONSTANT, drawn, pose)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of images, shape (n, 201)."""
        mean = mean_of_strokes(turned=self.turned)

        def features(grey: Floats) -> Floats:
            found = np.full((len(grey), SIZE + 1), CONSTANT)
            posed = upright(grey) if self.turned else grey
            found[:, :SIZE] = unit(centred_roots(soft_sums(posed)) - mean)
            return found

        return in_pieces(images, features, SIZE + 1)


@dataclass(frozen=True)
class Pose(SoftGradients):
    """The features of ``SoftGradients``, after an image was deskewed and scaled to a fixed size.

    Before its gradients are taken, the image is sheared until its moments show no slant, and scaled
    to a fixed size along both axes. The random strokes are treated in the same way.

    Attributes:
        input_shape: (channels, height, width) of an image, with bright ink on a dark background.

    Source: LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning Applied to Document
    Recognition", which deskews MNIST by moments.
    """

    kind: ClassVar[str] = "pose"
    turned: ClassVar[bool] = True


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
        turned: whether the strokes are deskewed and scaled first, as in ``Pose``.
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
