"""Histograms of oriented gradients against a slow oracle, and what they must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedldp.data.image_features import oriented_gradients

RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.random((5, 2, 9, 7)).astype(np.float32)


def by_hand(image: np.ndarray, cells: int, orientations: int) -> np.ndarray:
    """Return the features of one image of shape (channels, height, width), pixel by pixel."""
    grey = image.astype(np.float64).sum(axis=0)
    height, width = grey.shape
    sums = np.zeros((orientations, cells, cells))

    def pixel(row: int, column: int) -> float:
        return float(grey[min(max(row, 0), height - 1), min(max(column, 0), width - 1)])

    for row in range(height):
        for column in range(width):
            right = pixel(row, column + 1) - pixel(row, column - 1)
            down = pixel(row + 1, column) - pixel(row - 1, column)
            turns = math.atan2(down, right) / (2 * math.pi) * orientations
            first, part = math.floor(turns), turns - math.floor(turns)
            cell = (row * cells // height, column * cells // width)
            sums[(first % orientations, *cell)] += math.hypot(right, down) * (1 - part)
            sums[((first + 1) % orientations, *cell)] += math.hypot(right, down) * part
    centred = (sums - sums.mean()).reshape(-1)
    return centred / np.linalg.norm(centred)


@pytest.mark.parametrize(("cells", "orientations"), [(1, 2), (3, 8), (4, 5), (7, 3)])
def test_histograms_agree_with_a_slow_oracle(cells: int, orientations: int) -> None:
    encoder = oriented_gradients((2, 9, 7), cells, orientations)
    found = encoder(IMAGES)
    assert found.shape == (5, encoder.size)
    assert found.dtype == np.float32
    for row, image in zip(found, IMAGES, strict=True):
        np.testing.assert_allclose(row, by_hand(image, cells, orientations), atol=1e-5)


def test_the_norm_is_one_unless_the_image_has_no_slope() -> None:
    flat = np.full((1, 2, 9, 7), 0.3, np.float32)
    found = oriented_gradients((2, 9, 7), 3, 8)(np.concatenate([IMAGES, flat]))
    np.testing.assert_allclose(np.linalg.norm(found[:-1], axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(found[-1], 0)


@pytest.mark.parametrize(
    ("place", "value"), [((0, 0, 0), math.nan), ((1, 4, 3), math.inf), ((0, 8, 6), -math.inf)]
)
def test_an_image_that_is_not_finite_gives_zeros_and_affects_no_other(
    value: float, place: tuple[int, int, int]
) -> None:
    """A refusal would reveal such an image."""
    encoder = oriented_gradients((2, 9, 7), 3, 8)
    images = IMAGES.copy()
    images[(2, *place)] = value
    found, others = encoder(images), [0, 1, 3, 4]
    np.testing.assert_array_equal(found[2], 0)
    np.testing.assert_array_equal(found[others], encoder(IMAGES)[others])


def test_images_do_not_depend_on_each_other() -> None:
    encoder = oriented_gradients((1, 8, 8), 4, 8)
    many = RANDOM.random((2_300, 1, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(encoder(many)[1_999:2_001], encoder(many[1_999:2_001]))
    assert encoder(many[:0]).shape == (0, 128)
