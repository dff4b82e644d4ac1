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


def ranges(sizes: tuple[int, ...] = LAYOUT.sizes) -> Ranges:
    return Ranges.fixed(0.0, 1.0, sizes)


@pytest.mark.parametrize(("phase", "round"), [(0, 1), (1, 2), (0, 5)])
def test_agreed_requests_pass(round: int, phase: int) -> None:
    assert POLICY.refuses(asked(round=round, phase=phase)) is None


@pytest.mark.parametrize("round", [-1, 0, 6, 2**62])
def test_rounds_that_the_run_does_not_have_are_refused(round: int) -> None:
    assert POLICY.refuses(asked(round=round)) is Reason.WRONG_ROUND


@pytest.mark.parametrize("phase", [-1, 2, 2**31])
def test_phases_that_a_round_does_not_have_are_refused(phase: int) -> None:
    assert POLICY.refuses(asked(phase=phase)) is Reason.WRONG_ROUND


@pytest.mark.parametrize("shape", [(9,), (11,), (0,), (2, 5), (10, 1)])
def test_weights_of_another_model_are_refused(shape: tuple[int, ...]) -> None:
    told = asked(weights=np.zeros(shape, np.float32))
    assert POLICY.refuses(told) is Reason.OUT_OF_RANGE


def test_only_a_phase_without_training_may_lack_weights() -> None:
    for weights, refused in [((0,), None), ((10,), None), ((9,), Reason.OUT_OF_RANGE)]:
        told = replace(asked(weights=np.zeros(weights, np.float32)), phase=1)
        assert POLICY.refuses(told) is refused
        assert replace(POLICY, trains_in=1).refuses(told) is (
            None if weights == (10,) else Reason.OUT_OF_RANGE
        )


@pytest.mark.parametrize("value", [ABOVE, -ABOVE, 3e38, -3e38, np.inf, -np.inf, np.nan])
def test_weights_beyond_the_limit_are_refused(value: float) -> None:
    assert POLICY.refuses(asked(weights=with_weight(value))) is Reason.OUT_OF_RANGE


@pytest.mark.parametrize("value", [LARGEST_WEIGHT, -LARGEST_WEIGHT, 0.0, -0.0, 1e-45])
def test_weights_up_to_the_limit_pass(value: float) -> None:
    assert POLICY.refuses(asked(weights=with_weight(value))) is None


def test_ranges_of_another_model_are_refused() -> None:
    assert POLICY.refuses(asked(ranges=ranges())) is None
    for sizes in ((4, 6), (10,), (6, 3, 1)):
        assert POLICY.refuses(asked(ranges=ranges(sizes))) is Reason.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (ABOVE, np.float32),
        (-ABOVE, np.float64),
        (3e38, np.float64),
        (np.inf, np.float32),
        (-np.inf, np.float32),
        (np.nan, np.float64),
    ],
)
def test_public_arrays_have_the_same_limit(value: float, dtype: type[np.floating]) -> None:
    for place in ((0, 0), (1, 2)):
        array = np.zeros((2, 3), dtype)
        array[place] = value
        for public in ({"encoder": array}, {"fine": np.ones(2), "encoder": array}):
            assert POLICY.refuses(asked(public=public)) is Reason.OUT_OF_RANGE


@pytest.mark.parametrize(
    "array",
    [
        np.full(3, LARGEST_WEIGHT),
        np.full(3, -LARGEST_WEIGHT, np.float32),
        np.zeros(0),
        np.array(5.0),
        np.array([10**9, -(10**9)]),
        np.array([True, False]),
        np.full(3, 255, np.uint8),
    ],
)
def test_other_public_arrays_pass(array: NDArray[Any]) -> None:
    assert POLICY.refuses(asked(public={"encoder": array})) is None


def test_policies_with_equal_terms_are_equal() -> None:
    """The runtimes of a simulation share a policy, so they read a request once."""
    same = Policy(run="run", rounds=5, phases=2, layout=Layout(LAYOUT.names, LAYOUT.shapes))
    assert hash(same) == hash(POLICY)
    assert same == POLICY
    assert replace(POLICY, rounds=6) != POLICY
