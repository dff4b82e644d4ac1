"""The Gaussian and the Laplace mechanism: their clip in integers, and their exact guarantees."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, stats
from scripted import deployed

from fedldp.accounting.events import PureReport
from fedldp.core.bounding import LARGEST_GRID_RADIUS, GridBall
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.discrete import discrete_gaussian, discrete_laplace
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.grids import GridNoise
from fedldp.mechanisms.laplace import Laplace

BOTH: list[GridNoise] = [*Gaussian.examples(), *Laplace.examples()]
both = pytest.mark.parametrize("mechanism", BOTH, ids=repr)


# The clip to both norms


def norm_to_its_order(indices: np.ndarray, order: int) -> int:
    return sum(abs(int(index)) ** order for index in indices)


vectors = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 40),
    elements=st.one_of(
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 3e38, -3e38, 1e-45]),
        st.floats(-1, 1, width=32),
        st.floats(-10, 10, width=32),
    ),
    fill=st.sampled_from([0.0, 0.5, 1.0, 3e38]),
)


@settings(max_examples=37)
@given(
    first=vectors,
    second=vectors,
    order=st.sampled_from([1, 2]),
    radius=st.sampled_from([40, 100, 12345, 1 << 20, LARGEST_GRID_RADIUS]),
    step=st.sampled_from([1e-9, 2.0**-22, 0.1, 1.0, 1e6]),
)
def test_any_two_inputs_are_within_the_sensitivity(
    first: np.ndarray, second: np.ndarray, order: Any, radius: int, step: float
) -> None:
    ball = GridBall(order, radius, step)
    size = max(first.size, second.size)
    clipped = [ball.clip(np.resize(values, size)) for values in (first, second)]
    for indices in clipped:
        assert norm_to_its_order(indices, order) <= radius**order
        np.testing.assert_array_equal(ball.clip(indices * step), indices)
    difference = norm_to_its_order(clipped[0] - clipped[1], order)
    assert difference <= ball.sensitivity**order


@pytest.mark.parametrize(
    ("excess", "radius", "size", "order"),
    [
        (3.0, 60_000, 1, 1),
        (1e5, 123_457, 2, 2),
        (1e290, LARGEST_GRID_RADIUS, 3, 2),
        (3.0, 123_457, 100, 1),
        (1e5, LARGEST_GRID_RADIUS, 1000, 1),
        (1e290, 60_000, 100_000, 2),
    ],
)
def test_long_vectors_keep_their_direction_and_nearly_all_the_radius(
    order: Any, size: int, radius: int, excess: float
) -> None:
    ball = GridBall(order, radius, 0.01)
    direction = np.random.default_rng(size).normal(size=size)
    direction /= np.linalg.norm(direction, order)
    indices = ball.clip(direction * excess * radius * ball.step)
    norm = norm_to_its_order(indices, order) ** (1 / order)
    largest_rounding = size ** (1 / order) / 2
    assert radius - 2 * largest_rounding - 2 <= norm <= radius
    # A single coordinate keeps the whole radius.
    room = radius if size == 1 else radius - largest_rounding - 1
    np.testing.assert_allclose(indices, direction * room, rtol=1e-9, atol=0.5 + 1e-6)


@pytest.mark.parametrize("order", [1, 2])
def test_vectors_in_the_ball_are_rounded_to_nearest(order: Any) -> None:
    ball = GridBall(order, 10_000, 0.25)
    values = np.random.default_rng(0).uniform(-2, 2, 900)
    np.testing.assert_array_equal(ball.clip(values), np.rint(values / 0.25))
    boundary = np.zeros(3)
    boundary[1] = -2500.0
    assert ball.clip(boundary).tolist() == [0, -10_000, 0]


def test_equal_coordinates_that_all_round_up() -> None:
    # Each of 4001 coordinates is 0.9998 steps: together they round to one step too many.
    ball = GridBall(1, 4000, 1.0)
    indices = ball.clip(np.full(4001, 4000 / 4001))
    assert norm_to_its_order(indices, 1) <= 4000


def test_a_wrong_clip_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    ball = GridBall(2, 1000, 1.0)
    monkeypatch.setattr(GridBall, "_room", lambda self, size: 1001.0)
    with pytest.raises(PrivacyError):
        ball.clip(np.array([5000.0, 5000.0]))


@pytest.mark.parametrize("order", [1, 2])
def test_the_check_of_the_norm_is_exact_at_its_limit(order: Any) -> None:
    # Sums that float64 would round to a wrong integer: radius^2 is 2^52.
    ball = GridBall(order, LARGEST_GRID_RADIUS, 1.0)
    exact = np.zeros(3)
    exact[0] = LARGEST_GRID_RADIUS
    assert ball._hold(exact)
    exact[1] = 1.0
    assert not ball._hold(exact)
    rng = np.random.default_rng(0)
    for _ in range(200):
        steps = rng.integers(-(1 << 20), 1 << 20, 4096).astype(float)
        total = norm_to_its_order(steps, order)
        largest = math.isqrt(total - 1) if order == 2 else total - 1
        if largest < LARGEST_GRID_RADIUS:
            assert not GridBall(order, largest, 1.0)._hold(steps)
            assert GridBall(order, largest + 1, 1.0)._hold(steps)
    assert not ball._hold(np.full(100_000, 1e15))


# Payloads of both mechanisms


@both
@pytest.mark.parametrize("make", [deployed, lambda: Stream(bytes(32), simulated=True)])
def test_a_report_is_the_clipped_vector_plus_independent_noise(
    mechanism: GridNoise, make: Callable[[], Stream]
) -> None:
    values = np.random.default_rng(0).normal(size=300)
    values *= 3 * mechanism.clip / np.linalg.norm(values, mechanism.order)
    for scale in (0.0, 0.1, 1.0, 1e20):
        payload = np.frombuffer(mechanism.encode(values * scale, make()), "<i4")
        noise = payload - mechanism.ball.clip(values * scale)
        np.testing.assert_array_equal(noise, mechanism.noise(300, make()))


@pytest.mark.parametrize(
    ("mechanism", "sampler"),
    [(Gaussian(1.0, 2.0), discrete_gaussian), (Laplace(1.0, 2.0), discrete_laplace)],
)
def test_deployment_draws_the_exact_noise(mechanism: GridNoise, sampler: Any) -> None:
    expected = sampler(50, mechanism.scale_bits, deployed(3))
    np.testing.assert_array_equal(mechanism.noise(50, deployed(3)), expected)


def test_a_vector_too_long_for_the_grid_is_refused_before_anything_is_drawn() -> None:
    gaussian, laplace = Gaussian(1.0, 1e4), Laplace(1.0, 1e-3)
    longest = 2 * laplace.ball.radius - 3
    assert laplace.event(longest).epsilon > 0
    assert gaussian.event(gaussian.ball.radius).mu > 0
    too_long, unread = np.zeros(longest + 1), cast("Any", None)
    for refused in (
        lambda: gaussian.event(4 * gaussian.ball.radius**2),
        lambda: laplace.event(longest + 1),
        lambda: laplace.encode(too_long, unread),
        lambda: laplace.bound(too_long),
    ):
        with pytest.raises(ConfigError, match=r"too long for this much noise.*larger epsilon"):
            refused()


@both
def test_noise_beyond_32_bits_is_cut(mechanism: GridNoise, monkeypatch: pytest.MonkeyPatch) -> None:
    far = np.array([1 << 40, -(1 << 40)])
    monkeypatch.setattr(type(mechanism), "noise", lambda self, size, stream: far)
    payload = mechanism.encode(np.zeros(2), deployed())
    assert np.frombuffer(payload, "<i4").tolist() == [2**31 - 1, -(2**31)]


@both
def test_the_clip_and_the_grid_fit_into_the_payload(mechanism: GridNoise) -> None:
    ball = mechanism.ball
    assert 12 <= mechanism.scale_bits <= 22
    assert 0 < ball.radius <= LARGEST_GRID_RADIUS
    assert ball.radius + (256 << mechanism.scale_bits) < 1 << 31
    assert ball.radius * ball.step <= mechanism.clip * (1 + 1e-15)
    assert ball.radius * ball.step >= mechanism.clip * (1 - 1e-5) - ball.step


# The Gaussian itself


@given(clip=st.floats(1e-6, 1e6), ratio=st.floats(-4, 4).map(lambda exponent: 10.0**exponent))
@example(clip=0.1, ratio=3.0)
@example(clip=1.0, ratio=0.5)
@example(clip=1.0, ratio=1e-4)
@example(clip=1.0, ratio=1e4)
def test_events_are_on_the_safe_side_of_exact_arithmetic(clip: float, ratio: float) -> None:
    sigma = min(max(clip * ratio, clip / 1e4), clip * 1e4)
    mechanism = Gaussian(clip, sigma)
    event = mechanism.event(1)
    steps = Fraction(1 << mechanism.scale_bits)
    difference = Fraction(2 * mechanism.ball.radius)
    assert Fraction(event.rho) >= difference**2 / (2 * steps**2)
    assert Fraction(event.mu) ** 2 >= difference**2 / (steps**2 - 16)
    claimed = 2 * Fraction(clip) / Fraction(sigma)
    assert Fraction(event.mu) <= claimed * (1 + Fraction(1, 1 << 51))
    assert Fraction(event.mu) >= claimed * (1 - Fraction(1, 100_000)) - 4 / steps


# Its guarantee, from the discrete probabilities themselves


def analytic_delta(mu: float, epsilon: float) -> float:
    """Balle and Wang 2018, Theorem 8."""
    upper = stats.norm.cdf(mu / 2 - epsilon / mu)
    return float(upper - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Canonne, Kamath, Steinke 2020, Corollary 13."""

    def log_delta(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        log_moment = (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha)
        return log_moment - math.log(alpha - 1)

    best = optimize.minimize_scalar(log_delta, bounds=(-12, 12), method="bounded")
    return math.exp(min(best.fun, 0.0))


def discrete_delta(shift: tuple[int, ...], scale: int, epsilon: float) -> float:
    """Sum max(P - e^epsilon Q, 0) over the grid, one axis for each entry of ``shift``."""
    axis = np.arange(-12 * scale - max(shift), 12 * scale + max(shift) + 1)
    normaliser = np.exp(-((axis / scale) ** 2) / 2).sum()
    p, q = np.ones(()), np.ones(())
    for distance in shift:
        p = np.multiply.outer(p, np.exp(-((axis / scale) ** 2) / 2) / normaliser)
        q = np.multiply.outer(q, np.exp(-(((axis - distance) / scale) ** 2) / 2) / normaliser)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


SHIFTS = [((4,), 16), ((64,), 16), ((100,), 32), ((3000,), 4096), ((3, 4), 8), ((12, 5), 16)]


@pytest.mark.parametrize(("shift", "scale"), SHIFTS)
def test_the_discrete_noise_satisfies_both_guarantees(shift: tuple[int, ...], scale: int) -> None:
    squared = sum(distance**2 for distance in shift)
    rho = squared / (2 * scale**2)
    mu = math.sqrt(squared) / (scale - 16 / scale)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0):
        delta = discrete_delta(shift, scale, epsilon)
        assert delta <= zcdp_delta(rho, epsilon) * (1 + 1e-9)
        assert delta <= analytic_delta(mu, epsilon) + 1e-13
        # The check can fail: nine tenths of the distance would not pass.
        if delta > 1e-9:
            assert delta > analytic_delta(0.9 * mu * (1 - 16 / scale**2), epsilon)


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
