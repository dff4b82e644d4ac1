"""Random convolutions against a slow oracle, and on images without contrast."""

from __future__ import annotations

import numpy as np

from fedldp.core.randomness import numbered_generator
from fedldp.data.public_features import random_convolutions

IMAGES = numbered_generator(7, 0).random((2, 2, 10, 13)).astype(np.float32)


def slow(image: np.ndarray, filters: int) -> np.ndarray:
    """Return the features, computed window by window."""
    channels, height, width = image.shape
    drawn = numbered_generator(2026, 0).standard_normal((filters, channels, 5, 5))
    drawn -= drawn.mean((2, 3), keepdims=True)
    rows, columns = height - 4, width - 4
    found = np.array(
        [
            [[(image[:, y : y + 5, x : x + 5] * each).sum() for x in range(columns)]
             for y in range(rows)]
            for each in drawn
        ]
    )  # fmt: skip
    down, across = (
        [slice(cell * side // 3, -(-(cell + 1) * side // 3)) for cell in range(3)]
        for side in (rows, columns)
    )
    cells = [
        [both[:, r, c].mean((1, 2)) for r in down for c in across]
        for both in (np.maximum(found, 0), np.maximum(-found, 0))
    ]
    flat = np.array(cells).transpose(0, 2, 1).ravel()
    flat -= flat.mean()
    return np.asarray(flat / np.linalg.norm(flat))


def test_features_agree_with_a_slow_oracle_in_each_cell() -> None:
    found = random_convolutions((2, 10, 13), filters=3)(IMAGES)
    np.testing.assert_allclose(found, [slow(image, 3) for image in IMAGES], atol=1e-6)
