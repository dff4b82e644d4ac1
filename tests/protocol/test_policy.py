"""A policy: a client answers only its run, its rounds, its model, and numbers that cannot
overflow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedldp.core.bounding import LARGEST_WEIGHT, Ranges
from fedldp.protocol.client_runtime import Policy
from fedldp.protocol.wire import Broadcast, Layout, Reason, RoundRequest

LAYOUT = Layout(("first", "second"), ((2, 3), (4,)))
POLICY = Policy(run="run", rounds=5, phases=2, layout=LAYOUT)
ABOVE = float(np.nextafter(np.float32(LARGEST_WEIGHT), np.float32(np.inf)))


def asked(run: str = "run", phase: int = 0, round: int = 1, **parts: Any) -> RoundRequest:
    given = {"weights": np.full(10, 0.5, np.float32), **parts}
    return RoundRequest(run=run, phase=phase, broadcast=Broadcast(round=round, **given))


def with_weight(value: float) -> NDArray[np.float32]:
    weights = np.zeros(10, np.float32)
    weights[7] = value
    return weights


REFUSED = {
    Reason.WRONG_ROUND: [
        *(asked(round=round) for round in (-1, 0, 6, 2**62)),
        *(asked(phase=phase) for phase in (-1, 2, 2**31)),
    ],
    Reason.OUT_OF_RANGE: [
        *(asked(weights=np.zeros(shape, np.float32)) for shape in ((9,), (11,), (2, 5))),
        *(asked(weights=with_weight(x)) for x in (ABOVE, -ABOVE, 3e38, np.inf, -np.inf, np.nan)),
        *(asked(ranges=Ranges.fixed(0.0, 1.0, sizes)) for sizes in ((4, 6), (10,), (6, 3, 1))),
        *(
            asked(public={"fine": np.ones(2), "encoder": np.array([[0, 0], [0, value]], dtype)})
            for value in (ABOVE, -ABOVE, np.inf, -np.inf, np.nan)
            for dtype in (np.float32, np.float64)
        ),
    ],
    None: [
        *(asked(round=round, phase=phase) for phase, round in ((0, 1), (1, 2), (0, 5))),
        *(asked(weights=with_weight(x)) for x in (LARGEST_WEIGHT, -LARGEST_WEIGHT, -0.0, 1e-45)),
        asked(ranges=Ranges.fixed(0.0, 1.0, LAYOUT.sizes)),
        asked(public={"encoder": np.full(3, LARGEST_WEIGHT), "more": np.full(3, -LARGEST_WEIGHT)}),
        asked(public={"nothing": np.zeros(0), "one": np.array(5.0), "big": np.array([10**9])}),
        asked(public={"flags": np.array([True, False]), "bytes": np.full(3, 255, np.uint8)}),
    ],
}


@pytest.mark.parametrize("reason", REFUSED, ids=str)
def test_requests_outside_the_terms_are_refused_and_others_pass(reason: Reason | None) -> None:
    for request in REFUSED[reason]:
        assert POLICY.refuses(request) is reason, request


def test_only_a_phase_without_training_may_lack_weights() -> None:
    for weights, refused in [((0,), None), ((10,), None), ((9,), Reason.OUT_OF_RANGE)]:
        told = replace(asked(weights=np.zeros(weights, np.float32)), phase=1)
        assert POLICY.refuses(told) is refused
        assert replace(POLICY, trains_in=1).refuses(told) is (
            None if weights == (10,) else Reason.OUT_OF_RANGE
        )


def test_policies_with_equal_terms_are_equal() -> None:
    """The runtimes of a simulation share a policy, so they read a request once."""
    same = Policy(run="run", rounds=5, phases=2, layout=Layout(LAYOUT.names, LAYOUT.shapes))
    assert hash(same) == hash(POLICY)
    assert same == POLICY
    assert replace(POLICY, rounds=6) != POLICY
