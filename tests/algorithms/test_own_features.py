"""A user's own features get one example at a time, and add an assumption to every line."""

from __future__ import annotations

from typing import Any

import numpy as np
import own_features
import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import OwnFeatures
from fedldp.core.errors import ConfigError
from fedldp.simulation.plan import problem_of

SHORT: dict[str, Any] = {"rounds": 1, "num_clients": 10, "num_examples": 200, "local_epochs": 1}


def small(**changes: Any) -> RunConfig:
    settings = {**SHORT, "model": "logistic", "features": "own_features:rows", **changes}
    return fedldp.recipe("quickstart", **settings)


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


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("missing", "AttributeError"),
        ("nothing", "it is not a function"),
        ("broken", "ValueError: no features today"),
        ("matrix", "it must return a vector of finite numbers"),
        ("counted", "its result must depend on the example alone"),
        ("running", "its result must depend on the example alone"),
        ("Needy", "it cannot be created without arguments: TypeError"),
    ],
)
def test_bad_features_are_refused_before_a_run(name: str, match: str) -> None:
    made = small(features=f"own_features:{name}")
    with pytest.raises(ConfigError, match=rf"^features = own_features:{name}: .*{match}"):
        made.layout(problem_of(made, None))
