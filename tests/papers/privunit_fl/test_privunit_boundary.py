"""What PrivUnit's direction and length reveal together."""

from __future__ import annotations

import numpy as np
import pytest

from fedldp.accounting.events import (
    PureReport,
)
from fedldp.core.randomness import Stream
from fedldp.papers.privunit_fl.mechanism import PrivUnitScalar

# NbAFL and feature priority


# DP-SGD


# Central DP


# PrivUnit FL


@pytest.mark.parametrize(
    ("share", "epsilon"), [(0.01, 1e-3), (0.1, 0.5), (0.9, 32.0), (0.01, 500.0), (0.1, 5000.0)]
)
def test_direction_and_length_together_stay_within_the_budget(epsilon: float, share: float) -> None:
    for size in (1, 2, 650, 100_000):
        mechanism = PrivUnitScalar(epsilon, 1.0, share)
        event = mechanism.event(size)
        assert isinstance(event, PureReport)
        assert event.idealised
        spent = mechanism.cap(size).epsilon + mechanism.length.realised_epsilon
        assert spent <= event.epsilon <= epsilon


def test_a_zero_update_is_sent_like_any_other() -> None:
    mechanism = PrivUnitScalar(4.0, 1.0)
    stream = Stream.simulation(seed=0, round=1, client=0, purpose="mechanism")
    sizes = set()
    for values in (np.zeros(50), np.full(50, 5e-324), np.full(50, 1e308), np.eye(50)[0]):
        for _ in range(200):
            payload = mechanism.encode(values, stream)
            sizes.add(len(payload))
            direction = np.frombuffer(payload, "<f4", 50).astype(np.float64)
            assert np.linalg.norm(direction) == pytest.approx(1, abs=1e-5)
    assert sizes == {50 * 4 + 1}


# The recipes
