"""Short runs of NbAFL and feature priority with recorded numbers.

Noise is computed with logarithms, whose last digit depends on the machine, so reports for given
weights are compared after rounding.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.papers.priority.importance import variance_importance
from fedldp.papers.priority.parts import first_layer_of
from fedldp.papers.priority.preset import priority
from fedldp.protocol.roles import Update
from fedldp.protocol.wire import Broadcast
from fedldp.testing.clients import Roles, sender_of

DIGITS = Problem((1, 8, 8), 10, 1437)


def digest(name: str, **settings: Any) -> str:
    """Return a digest of three clients' noisy reports for given weights in round 2."""
    config = fedldp.recipe(name, num_clients=3, **settings)
    roles = Roles(config, DIGITS)
    size = roles.layout.size
    start = roles.broadcast
    # Integers divided by a power of two, so exact in float32 on every machine.
    weights = ((np.arange(size) * 37 % 1001 - 500) / np.float32(16384)).astype(np.float32)
    public = {name: np.arange(values.size) * 7 % 64 / 64 for name, values in start.public.items()}
    broadcast = Broadcast(round=2, weights=weights, public=public)
    steps = (np.arange(size) % 19 - 9) / np.float32(2048)

    def update(index: int) -> Any:
        after = weights + np.float32(index + 1) * steps
        if not isinstance(config, priority):
            return after
        pair = map(first_layer_of(config, DIGITS).weights, (weights, after))
        importance = variance_importance(*pair)
        return Update(rows=after[None], aux={"importance": importance[None]})

    sums = [
        np.frombuffer(
            roles.encode(
                update(index), broadcast, sender_of(9, index, seed=config.seed, round=2)
            ).payload,
            "<i4",
        )
        for index in range(3)
    ]
    rounded = np.round(np.concatenate(sums) / 4096).astype("<i4")
    return hashlib.sha256(rounded.tobytes()).hexdigest()[:32]


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("nbafl-digits", {}, "69d679c86ac884d297b2a45babda898a"),
        ("nbafl-digits", {"send": "update", "seed": 1}, "407be39deba1a67815530bc4b7b1ccb5"),
        ("priority-digits", {}, "c3fec5724362a4577f1353bf0e9b73e3"),
        (
            "priority-digits",
            {"noisier": "most", "model": "mlp"},
            "5495d240b802ab565cdd5a37cdd65167",
        ),
        ("priority-public-digits", {}, "dbece32c608a3ab48cf76d366bbbcbe4"),
    ],
)
def test_the_reports_for_given_weights(name: str, settings: dict[str, Any], expected: str) -> None:
    assert digest(name, **settings) == expected
