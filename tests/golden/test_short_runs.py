"""Short runs with recorded numbers, which no refactoring may change.

Reports for given weights are exact, so they hash to the same value on every machine; tests/gate has
the bytes of whole runs.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.wire import Report
from fedldp.testing.clients import Roles, sender_of

# Integers divided by a thousand, the same float32 on every machine; they exceed the range at both
# ends.
WEIGHTS = ((np.arange(650) * 37 % 1001 - 500) / np.float32(1000)).astype(np.float32)


def first_round(name: str, **settings: Any) -> list[Report]:
    """Return the first round's reports of three clients with given trained weights."""
    config = fedldp.recipe(name, num_clients=3, **settings)
    roles = Roles(config.with_schedule(draws_of_seed(config.seed)), Problem((1, 8, 8), 10, 1437))
    return [
        roles.encode(
            WEIGHTS / np.float32(index + 1),
            roles.broadcast,
            sender_of(7, index, seed=config.seed),
        )
        for index in range(3)
    ]


def digest(reports: list[Report]) -> str:
    return hashlib.sha256(b"".join(report.payload for report in reports)).hexdigest()[:32]


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("quickstart", {"range_radius": 0.2}, "2132230fcb5e71b8329ddac2e94ed3c2"),
        ("quickstart", {"range_radius": 0.2, "seed": 1}, "a105adbbd7ab7a34153e6e14588284b3"),
        (
            "quickstart",
            {"range_radius": 0.2, "epsilon": [0.1, 4.0, 32.0]},
            "2dd76c2c1d0d60e527a6615f5c611e7c",
        ),
        ("fedavg-quickstart", {}, "350df5cff8ff7ee112530cd77f50f1e1"),
    ],
)
def test_the_reports_for_given_weights(name: str, settings: dict[str, Any], expected: str) -> None:
    assert digest(first_round(name, **settings)) == expected


def test_the_first_report_in_full() -> None:
    report = first_round("quickstart", range_radius=0.2, chunk=10)[0]
    assert (report.round, report.size, report.chunk) == (1, 650, 10)
    assert (report.weight, report.epsilon) == (None, None)
    assert len(report.payload) == 82
    assert report.payload[:16].hex() == "01047f58f27c9a00376cc203dde466ff"
