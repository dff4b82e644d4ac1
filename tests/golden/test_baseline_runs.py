"""Short runs of PrivUnit FL and CLDP-Fed with recorded numbers, which no refactoring may change."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.testing.clients import Roles, sender_of

# Integers divided by a power of two, so exact in float32 on every machine.
CHANGE = ((np.arange(650) * 37 % 1001 - 500) / np.float32(4096)).astype(np.float32)


def payloads(name: str, **settings: Any) -> list[bytes]:
    """Return the first round's reports of three clients with given changes of the weights."""
    config = fedldp.recipe(name, **settings)
    roles = Roles(config, Problem((1, 8, 8), 10, 1437))
    broadcast = roles.broadcast
    return [
        roles.encode(
            broadcast.weights + CHANGE / np.float32(2**index),
            broadcast,
            sender_of(7, index, seed=config.seed),
        ).payload
        for index in range(3)
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "186b0f0302ce1edc4565c9fba0292129"),
        ({"seed": 1}, "e55725fdc55f0984e9ee584a53ac66f1"),
        ({"alpha": 1.0, "clip": 1.0, "precision": 10}, "9e50728c4c55e071947be33b61046a68"),
    ],
)
def test_the_reports_of_cldp_fed(settings: dict[str, Any], expected: str) -> None:
    together = b"".join(payloads("cldp-fed-digits", **settings))
    assert hashlib.sha256(together).hexdigest()[:32] == expected


def test_the_reports_of_privunit_fl() -> None:
    """Lengths are exact; the last digit of a direction depends on the machine's logarithm."""
    found = payloads("privunit-fl-digits")
    assert [len(payload) for payload in found] == [2601] * 3
    assert [payload[-1] for payload in found] == [3, 3, 1]
    directions = np.array([np.frombuffer(payload, "<f4", 3) for payload in found])
    expected = [
        [-0.0428446, -0.0004288, -0.0536444],
        [0.0035680, -0.0104104, -0.0335292],
        [0.0038461, -0.0124921, -0.0416124],
    ]
    np.testing.assert_allclose(directions, expected, atol=2e-7)
