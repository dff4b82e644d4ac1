"""The Laplace mechanism: pure epsilon in exact arithmetic. Its clip is tested with the Gaussian."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedldp.accounting.events import PureReport
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.discrete import discrete_laplace
from fedldp.mechanisms.laplace import Laplace


@given(epsilon=st.floats(1e-3, 1e4), clip=st.floats(1e-9, 1e9))
@example(epsilon=0.1, clip=0.1)
@example(epsilon=1.0, clip=1.0)
@example(epsilon=1e-3, clip=1.0)
@example(epsilon=1e4, clip=1e9)
def test_the_integers_cost_at_most_epsilon_and_nearly_all_of_it(
    epsilon: float, clip: float
) -> None:
    mechanism = Laplace(clip, epsilon)
    realised = Fraction(mechanism.ball.sensitivity, 1 << mechanism.scale_bits)
    assert realised <= Fraction(epsilon)
    assert mechanism.event(1) == PureReport(epsilon=float(realised))
    assert Fraction(float(realised)) == realised
    assert realised > Fraction(epsilon) - Fraction(2, 1 << mechanism.scale_bits)
    deviation = 2 * clip / epsilon * math.sqrt(2)
    np.testing.assert_allclose(np.sqrt(mechanism.variance(np.zeros(2))), deviation, rtol=1e-6)


@pytest.mark.parametrize(
    ("rounding", "epsilon"),
    [
        ("as it is", 1e-3),
        ("sensitivity too small", 0.1),
        ("as it is", 1.0),
        ("sensitivity too small", 3.0),
        ("as it is", 10.0),
        ("sensitivity too small", 1e4),
    ],
)
def test_every_output_has_a_ratio_of_at_most_e_to_epsilon(epsilon: float, rounding: str) -> None:
    # ln P(y | x)/P(y | x') = (|y - x'| - |y - x|)/t in exact fractions, for the two ends of the
    # interval to which a single coordinate is clipped.
    mechanism = Laplace(1.0, epsilon)
    scale = 1 << mechanism.scale_bits
    if rounding == "as it is":
        low, high = mechanism.ball.clip(np.array([-1e9])), mechanism.ball.clip(np.array([1e9]))
    else:
        low, high = -2 * mechanism.ball.clip(np.array([9.0])), mechanism.ball.clip(np.array([9.0]))
    ends = int(low[0]), int(high[0])
    outputs = {y + offset for y in (*ends, 0, -(1 << 31), (1 << 31) - 1) for offset in (-1, 0, 1)}
    outputs |= set(range(-10 * scale, 10 * scale, scale // 7))
    losses = [Fraction(abs(y - ends[1]) - abs(y - ends[0]), scale) for y in outputs]
    within = max(map(abs, losses)) <= Fraction(epsilon)
    assert within == (rounding == "as it is")


def test_deployment_draws_the_exact_noise() -> None:
    mechanism = Laplace(1.0, 2.0)
    streams = [Stream(bytes(32), simulated=False) for _ in range(2)]
    np.testing.assert_array_equal(
        mechanism.noise(50, streams[0]), discrete_laplace(50, mechanism.scale_bits, streams[1])
    )


def test_a_vector_too_long_for_the_grid_is_refused_before_anything_is_drawn() -> None:
    mechanism = Laplace(1.0, 1e-3)
    longest = 2 * mechanism.ball.radius - 3
    assert mechanism.event(longest).epsilon > 0
    unread: Any = None
    for refused in (
        lambda: mechanism.event(longest + 1),
        lambda: mechanism.encode(np.zeros(longest + 1), unread),
        lambda: mechanism.bound(np.zeros(longest + 1)),
    ):
        with pytest.raises(ConfigError, match=r"too long for this much noise.*larger epsilon"):
            refused()
