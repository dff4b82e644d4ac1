"""The L1-clipped two-point randomiser, and the error of a mean of two-point reports."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.mechanisms import MechanismSettings
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.mechanisms.two_point_l1 import TwoPointL1, whole_report_epsilon


def inputs(size: int, clip: float) -> list[np.ndarray]:
    """Return a grid over the cube, and vectors right at, above and below the L1 norm ``clip``."""
    grid = [np.array(x) for x in itertools.product(np.linspace(-1, 1, 9), repeat=size)]
    tie = np.array([1e-30, -1e-30, clip])[:size]
    edges = [x * clip / np.abs(x).sum() for x in (*grid, tie) if np.abs(x).sum() > 0]
    near = [x * (1 + sign * 2.0**-52) for x in edges for sign in (1, -1)]
    return grid + edges + near


def log_ratio(mechanism: TwoPointL1, points: list[np.ndarray], bound: bool = True) -> Decimal:
    """Return ln of the largest ratio of any output's exact probabilities over ``points``."""
    full = 1 << mechanism.integer_bits
    thresholds = {
        tuple(mechanism.bits.thresholds(mechanism.bound(x) if bound else x)) for x in points
    }
    worst = Fraction(1)
    for output in itertools.product((0, 1), repeat=points[0].size):
        probabilities = [
            math.prod(t if bit else full - t for t, bit in zip(ts, output, strict=True))
            for ts in thresholds
        ]
        worst = max(worst, Fraction(max(probabilities), min(probabilities)))
    context = Context(prec=60)
    return context.ln(context.divide(Decimal(worst.numerator), Decimal(worst.denominator)))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("clip", [0.3, 1.5])
@pytest.mark.parametrize("size", [1, 3])
def test_no_output_is_likelier_than_the_bound_allows(
    epsilon: float, clip: float, size: int
) -> None:
    mechanism = TwoPointL1(epsilon, clip)
    bound = whole_report_epsilon(epsilon, clip, size)
    assert log_ratio(mechanism, inputs(size, clip)) <= Decimal(bound)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "epsilon", "size"),
    [
        (np.float32, 0.01, 1),
        (np.float64, 1.0, 10),
        (np.float32, 32.0, 1000),
        (np.float32, 1.0, 100_000),
    ],
)
def test_thresholds_stay_within_the_clip_despite_rounding(
    size: int, epsilon: float, dtype: type[np.floating]
) -> None:
    clip = 0.7
    mechanism = TwoPointL1(epsilon, clip)
    middle = 1 << 63
    half = middle - mechanism.bits.threshold_min
    rng = np.random.default_rng(size)
    for values in (np.full(size, 1.0), -np.full(size, 1.0), rng.standard_cauchy(size)):
        thresholds = mechanism.bits.thresholds(mechanism.bound(values.astype(dtype)))
        # sum |y| <= a clip, exactly, for the realised a, which is below the nominal one.
        assert sum(abs(t - middle) for t in thresholds) <= Fraction(clip) * half


@settings(max_examples=15)
@given(st.floats(1e-6, 32), st.floats(1e-3, 1e4), st.integers(1, 10**6))
def test_the_bound_is_rounded_up(epsilon: float, clip: float, size: int) -> None:
    context = Context(prec=50)
    power = context.exp(Decimal(epsilon))
    per_norm = (power - 1) / (power + 1) + context.ln((power + 1) / 2)
    exact = min(size * Decimal(epsilon), Decimal(clip) * per_norm)
    found = Decimal(whole_report_epsilon(epsilon, clip, size))
    assert exact <= found <= exact * (1 + Decimal("1e-14"))


@settings(max_examples=15)
@given(st.floats(1e-3, 1e5), st.floats(1e-2, 1e3), st.integers(1, 10**5))
def test_settings_give_the_largest_epsilon_per_weight(epsilon: float, clip: float, d: int) -> None:
    mechanism = TwoPointL1.from_settings(
        MechanismSettings(epsilon=epsilon, delta=0, clip=clip, size=d)
    )
    event = mechanism.event(d)
    assert (event.whole or d * event.epsilon) <= epsilon
    more = mechanism.epsilon_per_weight * (1 + 1e-12)
    assert more > 32 or whole_report_epsilon(more, clip, d) > epsilon


def test_the_event() -> None:
    bound = whole_report_epsilon(1.0, 2.0, 10)
    assert TwoPointL1(1.0, 2.0).event(10) == BinaryRandomizedResponse(
        epsilon=1, coordinates=10, whole=bound
    )
    assert TwoPointL1(1.0, 20.0).event(10) == BinaryRandomizedResponse(epsilon=1, coordinates=10)


def test_long_vectors_are_scaled_to_the_norm_and_short_ones_stay() -> None:
    mechanism = TwoPointL1(1.0, 2.0)
    np.testing.assert_array_equal(mechanism.bound(np.array([0.5, -0.5])), [0.5, -0.5])
    np.testing.assert_allclose(
        mechanism.bound(np.array([4.0, -0.5, 0.5, 1.0, 1.0])), np.array([2, -1, 1, 2, 2]) / 4
    )


def log_of_equation_9(error: float, epsilon: float, radius: float, n: int) -> float:
    """Return the logarithm of the right side of the paper's eq. 9, last line but one."""
    scale = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    linear = 4 * error * radius * math.exp(epsilon) / (3 * (math.exp(epsilon) - 1))
    return math.log(2) - n * error**2 / (2 * radius**2 * scale**2 + linear)


@pytest.mark.parametrize(
    ("radius", "n", "failure", "epsilon"),
    [(0.075, 100, 0.05, 0.1), (1.0, 2, 1e-6, 1.0), (0.075, 100, 0.05, 4.0), (1.0, 2, 1e-6, 10.0)],
)
def test_the_error_bound_solves_equation_9(
    epsilon: float, radius: float, n: int, failure: float
) -> None:
    error = TwoPoint(epsilon).error_bound(radius, n, failure)
    assert log_of_equation_9(error, epsilon, radius, n) == pytest.approx(math.log(failure))


def test_the_variance_of_a_mean_is_that_of_lemma_3_and_corollary_1() -> None:
    """eps 1, r 0.075, n 100; and ranges of two radii, with weights anywhere in them."""
    scale = (math.e + 1) / (math.e - 1)
    mechanism = TwoPoint(1.0)
    low, high = mechanism.mean_variance([0.075] * 100)
    assert high == pytest.approx(0.075**2 * scale**2 / 100)
    assert low == pytest.approx(0.075**2 * scale**2 / 100 - 0.075**2 / 100)
    radii = np.array([0.5, 2.0] * 4)
    low, high = mechanism.mean_variance(radii.tolist())
    for place, expected in ((0.0, high), (1.0, low), (-1.0, low)):
        exact = (radii**2 * mechanism.variance(np.full(8, place))).sum() / 64
        assert exact == pytest.approx(expected)
    between = (radii**2 * mechanism.variance(np.linspace(-1, 1, 8))).sum() / 64
    assert low < between < high
