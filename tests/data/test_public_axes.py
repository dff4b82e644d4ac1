"""Public axes from strokes, and from files that the user declares public."""

from __future__ import annotations

import hashlib
from io import BytesIO

import numpy as np
import pytest

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import numbered_generator
from fedldp.data.folder import PublicFile
from fedldp.data.image_features import PublicMap
from fedldp.data.public_features import file_axes

DRAWN = numbered_generator(11, 0)
AXES = DRAWN.standard_normal((6, 3))
ROWS = DRAWN.standard_normal((4, 2, 3)).astype(np.float32)


def npy(array: np.ndarray) -> bytes:
    content = BytesIO()
    np.save(content, array)
    return content.getvalue()


def of(content: bytes) -> PublicMap:
    return file_axes(PublicFile("axes.npy", content, hashlib.sha256(content).hexdigest()), (2, 3))


def expected(rows: np.ndarray, axes: np.ndarray) -> np.ndarray:
    found = rows.reshape(len(rows), 6) @ axes
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return np.column_stack([found, np.full(len(rows), 0.3)])


def test_an_example_is_projected_and_has_norm_one() -> None:
    np.testing.assert_allclose(of(npy(AXES))(ROWS), expected(ROWS, AXES), rtol=1e-6)
    two = of(npy(AXES[:, :2]))
    np.testing.assert_allclose(two(ROWS), expected(ROWS, AXES[:, :2]), rtol=1e-6)
    assert len({of(npy(AXES)).digest, two.digest, of(npy(2 * AXES)).digest}) == 3


def test_bits_depend_on_the_example_alone_and_none_is_refused() -> None:
    mapping = of(npy(AXES))
    odd = ROWS.copy()
    odd[1], odd[2, 0, 0], odd[3] = np.nan, np.inf, 3e38
    found = mapping(odd)
    assert np.isfinite(found).all()
    assert not found[1:3, :-1].any()
    for index in range(4):
        assert mapping(odd[index : index + 1])[0].tobytes() == found[index].tobytes()
    assert np.isfinite(of(npy(1e300 * AXES))(odd)).all()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"nothing", "pickle"),
        (npy(np.array([{}], dtype=object)), "allow_pickle=False"),
        (npy(AXES[:5]), r"shape \(5, 3\); .* for examples of 6 numbers"),
        (npy(AXES[:, :0]), r"shape \(6, 0\)"),
        (npy(AXES[0]), r"shape \(3,\)"),
        (npy(np.full((6, 2), np.nan)), "NaN or infinity"),
    ],
)
def test_a_file_without_such_axes_is_refused(content: bytes, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        of(content)
