"""Random shifts, rotations and mirror images of a batch of images."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedldp.data.image_features import Augmentation

_SHIFT = 0.1
"""The largest shift of an image, as a fraction of its side length."""
_TURN = math.radians(15)
"""The largest angle by which an image is rotated."""


def augmented(images: Tensor, generator: np.random.Generator, how: Augmentation) -> Tensor:
    """Return images, each shifted at random by up to a tenth of its side along both axes.

    New pixels at an edge repeat the edge. Shifts are by whole pixels, unless images are also
    rotated; then a new pixel is interpolated between four old ones, as in the authors' code.

    Args:
        images: shape (n, channels, height, width).
        generator: the source of the shifts.
        how: if it names rotations, each image is also rotated by up to 15 degrees; if it names
            flips, it is also mirrored, left to right, with probability 1/2.
    """
    flips = how.endswith("flip")
    if how.startswith("rotate"):
        return _rotated(images, generator, flips=flips)
    count, channels, height, width = images.shape
    most = max(1, round(_SHIFT * height)), max(1, round(_SHIFT * width))
    down, right = (torch.from_numpy(generator.integers(-m, m, count, endpoint=True)) for m in most)
    rows = (torch.arange(height) + down[:, None]).clamp_(0, height - 1)
    columns = (torch.arange(width) + right[:, None]).clamp_(0, width - 1)
    if flips:
        mirrored = torch.from_numpy(generator.random(count) < 1 / 2)
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    each, channel = torch.arange(count), torch.arange(channels)
    return images[
        each[:, None, None, None],
        channel[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def _rotated(images: Tensor, generator: np.random.Generator, *, flips: bool) -> Tensor:
    """Return images that are shifted, rotated about their centres and, perhaps, mirrored."""
    count, _, height, width = images.shape
    angle = generator.uniform(-_TURN, _TURN, (count, 1, 1))
    down = generator.uniform(-_SHIFT * height, _SHIFT * height, (count, 1, 1))
    right = generator.uniform(-_SHIFT * width, _SHIFT * width, (count, 1, 1))
    side = np.where(generator.random((count, 1, 1)) < 1 / 2, -1, 1) if flips else 1
    middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
    rows = np.arange(height)[:, None] - middle_row + down
    columns = (np.arange(width) - middle_column) * side + right
    old_rows = np.cos(angle) * rows - np.sin(angle) * columns
    old_columns = np.sin(angle) * rows + np.cos(angle) * columns
    # grid_sample counts from -1 at the first pixel's centre to 1 at the last one's.
    places = np.stack((old_columns / middle_column, old_rows / middle_row), -1)
    grid = torch.from_numpy(places.astype(np.float32))
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=True)
