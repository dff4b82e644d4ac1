"""Short runs of central DP with recorded numbers, which no refactoring may change."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Report
from fedldp.testing.clients import Roles

# Integers divided by a power of two, so exact in float32 on every machine.
CHANGE = ((np.arange(650) * 37 % 1001 - 500) / np.float32(4096)).astype(np.float32)


@pytest.mark.parametrize(
    ("clip", "expected"),
    [(None, "9dc94086b29dae4d116cd1e7bab07d53"), (0.5, "6392ca2b54e57333e0751e351f1bbfab")],
)
def test_the_clipped_noisy_sum_of_given_updates(clip: float | None, expected: str) -> None:
    config = fedldp.recipe("central-dp-digits", clip=clip, num_clients=3, clients_per_round=3)
    roles = Roles(config, Problem((1, 8, 8), 10, 1437))
    reports = [
        Report(round=3, size=650, payload=(CHANGE * k).astype("<f4").tobytes(), chunk=650)
        for k in (1, 2, 4)
    ]
    start = State(round=3, weights=np.zeros(650, np.float32))
    weights = roles.aggregate(reports, start)[0].weights
    # The noise is computed with logarithms, whose last digit depends on the machine.
    rounded = np.round(weights * 1e4).astype("<i4")
    assert hashlib.sha256(rounded.tobytes()).hexdigest()[:32] == expected
