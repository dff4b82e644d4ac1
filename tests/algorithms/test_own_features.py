"""A user's own features get one example at a time, and add an assumption to every line."""

from __future__ import annotations

import numpy as np
import own_features

from fedldp.algorithms.features import OwnFeatures


def test_a_function_is_given_one_example_at_a_time() -> None:
    images = np.random.default_rng(0).random((5, 2, 4, 3)).astype(np.float32)
    given = images.copy()
    mapping = OwnFeatures("own_features:rows", (2, 4, 3))
    own_features.calls.clear()
    found = mapping(images)
    assert own_features.calls == [(2, 4, 3)] * 5
    np.testing.assert_allclose(found, 2 * images.mean(axis=(1, 3)), rtol=1e-6)
    assert mapping(images[3:4]).tobytes() == found[3:4].tobytes()
    assert images.tobytes() == given.tobytes()


def test_no_example_is_refused_by_a_users_features() -> None:
    images = np.array([0, 9, -9, 1], np.float32).reshape(4, 1, 1, 1)
    found = OwnFeatures("own_features:brittle", (1, 1, 1))(images)
    assert found.tolist() == [[1, 0], [0, 0], [0, 0], [1, 1]]
