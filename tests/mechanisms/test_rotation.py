"""The public random rotation, against its matrix."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from fedldp.mechanisms.rotation import Rotation, padded_size

SIZES = [1, 2, 3, 31, 64, 650, 1025]


def unit_rows(count: int, size: int) -> np.ndarray:
    rows = np.random.default_rng(size).normal(size=(count, size))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("size", SIZES)
def test_the_rotation_is_hadamards_matrix_after_signs(size: int) -> None:
    rotation, rows = Rotation(size, 3), unit_rows(4, size)
    padded = padded_size(size)
    assert rotation.padded == padded >= size > padded // 2
    found = rotation.forward(rows)
    signs = np.sign(rotation.forward(np.eye(size))[:, 0])  # H's first column is all ones
    expected = (rows * signs) @ hadamard(padded)[:size] / np.sqrt(padded)
    np.testing.assert_allclose(found, expected, atol=1e-11)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-11)


@pytest.mark.parametrize("size", SIZES)
def test_the_rotation_is_undone(size: int) -> None:
    rotation, rows = Rotation(size, 8), unit_rows(3, size)
    for row, turned in zip(rows, rotation.forward(rows), strict=True):
        np.testing.assert_allclose(rotation.back(turned), row, atol=1e-11)


def test_a_vector_in_a_batch_gives_the_same_bits_as_alone() -> None:
    rotation, rows = Rotation(650, 1), unit_rows(37, 650)
    together = rotation.forward(rows)
    for row, found in zip(rows, together, strict=True):
        np.testing.assert_array_equal(rotation.forward(row[None])[0], found)


def test_each_round_has_its_own_public_rotation() -> None:
    row = unit_rows(1, 650)
    one, again, other = (Rotation(650, number).forward(row) for number in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert abs(float((one * other).sum())) < 0.3
