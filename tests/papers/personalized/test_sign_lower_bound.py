"""The lower bound of signs is reached by two inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from fedldp.accounting.guarantees import local_guarantees
from fedldp.mechanisms import BitMechanism
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.papers.personalized.mechanism_sign import Sign


def reached(randomiser: TwoPoint, ends: Sequence[NDArray[np.floating]]) -> Any:
    """Return the exact pure epsilon of the reports of two vectors."""
    total, full = mpmath.mpf(0), 1 << randomiser.integer_bits
    for a, b in zip(*(randomiser.thresholds(end) for end in ends), strict=True):
        ones, zeros = mpmath.mpf(a) / b, mpmath.mpf(full - a) / (full - b)
        total += max(abs(mpmath.log(ones)), abs(mpmath.log(zeros)))
    return total


def assert_lower_is_reached(mechanism: BitMechanism, size: int, epsilon: Any) -> None:
    pure, composed = local_guarantees(Counter([mechanism.event(size)]), "client-round", 1e-5)
    assert pure.epsilon is not None
    assert pure.epsilon >= epsilon
    assert pure.lower is None or pure.lower <= epsilon
    assert (pure.lower is None) == (composed.lower is None)


@pytest.mark.parametrize("sigma", [0.8, 3.3, 7.75168842016862, 1e4])
def test_both_ends_of_signs_are_reached(sigma: float) -> None:
    mechanism = Sign(4.0, sigma)
    ends = [mechanism.expected(np.full(3, end)) / 4 for end in (5.0, -5.0)]
    assert np.abs(ends).tolist() == [[1.0] * 3] * 2
    with mpmath.workdps(50):
        assert_lower_is_reached(mechanism, 3, reached(mechanism.bits, ends))
