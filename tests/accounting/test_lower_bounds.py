"""No line's lower bound on epsilon is above the true epsilon.

The oracles are slow and exact, and share no code with the functions under test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from accounting_oracles import shuffled_pair
from numpy.typing import NDArray

from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.accounting.guarantees import guarantees_of, shuffled_guarantees
from fedldp.mechanisms import BitMechanism
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.mechanisms.two_point_l1 import TwoPointL1


def exact_epsilon(p_law: Iterable[Any], q_law: Iterable[Any], delta: float) -> Any:
    """Return the largest ln((P(S) - delta)/Q(S)) over sets S of outcomes likeliest under P."""
    best = p_set = q_set = mpmath.mpf(0)
    for p, q in sorted(zip(p_law, q_law, strict=True), key=lambda pair: -pair[0] / pair[1]):
        p_set, q_set = p_set + p, q_set + q
        if p_set > delta:
            best = max(best, mpmath.log((p_set - delta) / q_set))
    return best


def exact_shuffled(epsilon: float, num_reports: int, delta: float) -> Any:
    p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
    found = mpmath.mpf(0)
    for high in range(num_reports):
        laws = shuffled_pair(p, high, num_reports - 1 - high)
        found = max(found, exact_epsilon(*(law.values() for law in laws), delta))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "crowd", "delta"),
    [(1e-4, 30, 1e-6), (1e-12, 5, 1e-15), (1.0, 20, 1e-5), (3.0, 12, 1e-40), (1e-3, 10, 1e-9)],
)
def test_a_shuffled_weights_lower_bound_is_below_the_truth(
    epsilon: float, crowd: int, delta: float
) -> None:
    event = BinaryRandomizedResponse(epsilon=epsilon, coordinates=1)
    line = shuffled_guarantees(event, 1, anonymity_set=crowd, chunk=1, delta=delta)[0]
    with mpmath.workdps(50):
        exact = exact_shuffled(epsilon, crowd, delta)
        assert line.unit == "weight"
        assert line.lower is not None
        assert line.epsilon is not None
        assert line.lower <= exact
        assert line.epsilon >= exact * (1 - mpmath.mpf(10) ** -40)
        if epsilon >= 1e-4:
            assert line.lower >= exact * (1 - mpmath.mpf("1e-8"))


def reached(randomiser: TwoPoint, ends: Sequence[NDArray[np.floating]]) -> Any:
    """Return the exact pure epsilon of the reports of two vectors."""
    total, full = mpmath.mpf(0), 1 << randomiser.integer_bits
    for a, b in zip(*(randomiser.thresholds(end) for end in ends), strict=True):
        ones, zeros = mpmath.mpf(a) / b, mpmath.mpf(full - a) / (full - b)
        total += max(abs(mpmath.log(ones)), abs(mpmath.log(zeros)))
    return total


def assert_lower_is_reached(mechanism: BitMechanism, size: int, epsilon: Any) -> None:
    pure, composed = guarantees_of(Counter([mechanism.event(size)]), "client-round", 1e-5)
    assert pure.epsilon is not None
    assert pure.epsilon >= epsilon
    assert pure.lower is None or pure.lower <= epsilon
    assert (pure.lower is None) == (composed.lower is None)


@pytest.mark.parametrize(
    ("epsilon", "dtype"),
    [
        (1e-6, np.float32),
        (0.1, np.float32),
        (0.5, np.float64),
        (14.0, np.float64),
        (16.0, np.float32),
        (17.25, np.float32),
        (31.8, np.float64),
    ],
)
def test_both_ends_of_two_points_are_reached(epsilon: float, dtype: Any) -> None:
    mechanism = TwoPoint(epsilon)
    low, high = mechanism.thresholds(np.array([-1, 1], dtype))
    assert low == mechanism.threshold_min
    assert high == (1 << 64) - mechanism.threshold_min
    with mpmath.workdps(50):
        ends = np.ones(5, dtype), -np.ones(5, dtype)
        assert_lower_is_reached(mechanism, 5, reached(mechanism, ends))


@pytest.mark.parametrize(
    ("clip", "epsilon"), [(10.0, 1e-3), (10.0 * (1 + 1e-6), 1.0), (11.0, 8.0), (1000.0, 1.0)]
)
def test_a_clip_that_hardly_binds_is_not_treated_as_none(clip: float, epsilon: float) -> None:
    mechanism = TwoPointL1(epsilon, clip)
    ends = [mechanism.bound(end * np.ones(10)) for end in (1, -1)]
    with mpmath.workdps(50):
        assert_lower_is_reached(mechanism, 10, reached(mechanism.bits, ends))
