"""Soft gradients and poses: by hand, against a slow oracle, and what they must not depend on."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from fedldp.core.randomness import numbered_generator
from fedldp.data.image_features import PublicMap, centred_roots, soft_sums
from fedldp.data.public_features import mean_of_strokes, pose, soft_gradients, upright

IMAGES = numbered_generator(9, 0).random((3, 9, 7))


def blob(slant: float = 0.0, size: float = 1.0, right: int = 0, side: int = 28) -> np.ndarray:
    """Return an image of an upright ellipse, sheared, enlarged and moved."""
    y, x = np.indices((side, side)) - (side - 1) / 2
    x = x - right - slant * y
    return np.asarray(np.exp(-((x / (1.5 * size)) ** 2) - (y / (3 * size)) ** 2))


def slow(image: np.ndarray) -> np.ndarray:
    """Return the soft sums, computed pixel by pixel."""
    (height, width), sums = image.shape, np.zeros((8, 5, 5))
    for row, column in product(range(height), range(width)):
        down = image[min(row + 1, height - 1), column] - image[max(row - 1, 0), column]
        right = image[row, min(column + 1, width - 1)] - image[row, max(column - 1, 0)]
        turn = math.atan2(down, right) / (2 * math.pi) * 8 % 8
        places = [(row + 0.5) * 5 / height - 0.5, (column + 0.5) * 5 / width - 0.5]
        places = [min(max(place, 0), 4) for place in places]
        for way, one, other in product(range(8), range(5), range(5)):
            near = min(abs(way - turn), 8 - abs(way - turn))
            shares = [near, abs(one - places[0]), abs(other - places[1])]
            share = math.prod(max(0.0, 1 - each) for each in shares)
            sums[way, one, other] += share * math.hypot(down, right)
    return sums.ravel()


def test_soft_sums_agree_with_a_slow_oracle() -> None:
    for image, found in zip(IMAGES, soft_sums(IMAGES), strict=True):
        np.testing.assert_allclose(found, slow(image), atol=1e-12)


def test_roots_are_centred_and_of_norm_1() -> None:
    (found,) = centred_roots(np.array([[0.0, 4.0, 9.0, 1.0]]))
    np.testing.assert_allclose(found, np.array([-1.5, 0.5, 1.5, -0.5]) / math.sqrt(5))
    assert not centred_roots(np.ones((1, 200))).any()


@pytest.mark.parametrize("slant", [-0.7, -0.2, 0.4])
def test_upright_removes_the_slant(slant: float) -> None:
    images = np.array([blob(), blob(slant)])
    straight, turned = upright(images)
    assert np.corrcoef(turned.ravel(), straight.ravel())[0, 1] > 0.99
    assert np.corrcoef(images.reshape(2, -1))[0, 1] < 0.985


def test_a_dot_is_not_enlarged_and_an_empty_image_stays_empty() -> None:
    dot = np.zeros((2, 28, 28))
    dot[0, 9, 9] = 1
    found = upright(dot)
    assert found[0].sum() == pytest.approx(25, rel=0.05)  # a pixel is 5 x 5 of the pose's
    assert not found[1].any()


@pytest.mark.slow
@pytest.mark.parametrize(("features", "turned"), [(soft_gradients, False), (pose, True)])
def test_features_have_norm_1_and_the_constant(
    features: Callable[[tuple[int, ...]], PublicMap], turned: bool
) -> None:
    images = np.array([blob(0.3), np.zeros((28, 28))], np.float32)[:, None]
    found = features((1, 28, 28))(images)
    np.testing.assert_allclose(np.linalg.norm(found[:, :200], axis=1), 1, rtol=1e-6)
    assert (found[:, 200] == np.float32(0.3)).all()
    mean = mean_of_strokes(turned=turned)
    np.testing.assert_allclose(found[1, :200], -mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-8)
