"""Gaussian reports on one grid: each keeps its claim, and no client's deviation is needed to add
them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.discrete import discrete_gaussian
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.gaussian_summand import GaussianSummand, common_unit, summand
from fedldp.mechanisms.summing import INTEGER

SIZE = 30
UNIT = common_unit(2.0)
MECHANISMS = [summand(1.0, sigma, UNIT) for sigma in (2.0, 3.7, 60.0)]


def secret(number: int = 0) -> Stream:
    return Stream.derived(bytes([number]) * 32, "mechanism")


def words(mechanism: GaussianSummand, values: np.ndarray, stream: Stream) -> np.ndarray:
    return np.frombuffer(mechanism.encode(values, stream), INTEGER).astype(np.int64)


def whole_steps(mechanism: GaussianSummand, values: np.ndarray, stream: Stream) -> np.ndarray:
    """Return a report on its own grid without the fractions of steps, which only its client can
    do."""
    return (words(mechanism, values, stream) + mechanism.units // 2) // mechanism.units


@pytest.mark.parametrize("mechanism", [*MECHANISMS, *GaussianSummand.examples()], ids=repr)
def test_the_report_is_the_gaussians_times_a_public_number(mechanism: GaussianSummand) -> None:
    """Equal up to fractions of a step, so the guarantee is exactly that of the Gaussian."""
    alone = Gaussian(mechanism.clip, mechanism.sigma)
    values = np.random.default_rng(0).normal(size=SIZE)
    for stream in (secret, lambda: Stream.simulation(seed=1, round=1, client=0, purpose="x")):
        report = np.frombuffer(alone.encode(values, stream()), "<i4").astype(np.int64)
        np.testing.assert_array_equal(whole_steps(mechanism, values, stream()), report)
    assert mechanism.event(SIZE) == alone.event(SIZE)
    steps = whole_steps(mechanism, values, secret())
    noise = discrete_gaussian(SIZE, mechanism.scale_bits, secret())
    np.testing.assert_array_equal(steps - noise, mechanism.ball.clip(values))
    exact = Fraction(mechanism.sigma) / (1 << mechanism.scale_bits)
    assert (
        mechanism.units * Fraction(mechanism.unit) == exact
    )  # the step of the client's grid, in units


@given(st.floats(1e-3, 1e3), st.floats(1, 1e4), st.floats(1e-2, 10))
def test_the_noise_is_never_less_than_requested(least: float, times: float, clip: float) -> None:
    sigma = least * times
    if not clip / 1e4 <= sigma <= clip * 9e3:
        return
    found = summand(clip, sigma, common_unit(least))
    assert sigma <= found.sigma <= sigma * (1 + 2.0**-10)
    assert found.units * Fraction(found.unit) > 0


def test_a_sum_is_read_with_the_unit_alone() -> None:
    rng = np.random.default_rng(1)
    values = [rng.normal(size=SIZE) / 10 for _ in MECHANISMS]
    found = MECHANISMS[0].aggregate(SIZE)  # any client's aggregate works
    summing = MECHANISMS[2].summing(SIZE, 3)
    exact = np.zeros(SIZE)
    for number, (mechanism, value) in enumerate(zip(MECHANISMS, values, strict=True)):
        found.add(mechanism.encode(value, secret(number)))
        exact += whole_steps(mechanism, value, secret(number)) * mechanism.ball.step
    assert summing.bits == 64
    half = sum(mechanism.ball.step for mechanism in MECHANISMS) / 2  # half a step of each client
    np.testing.assert_allclose(found.mean(), exact / 3, rtol=0, atol=half / 3)


def test_a_sum_does_not_reveal_the_clients_common_deviation() -> None:
    """Neither a common step of all clients nor a common divisor of some steps divides the sum.

    The fractions of steps are uniform, so remainders modulo any number look random.
    """
    size, one = 4000, MECHANISMS[1]
    total = sum(words(one, np.zeros(size), secret(number)) for number in range(3))
    assert np.gcd.reduce(total) == 1
    for number in (2, one.units, one.units - 1):
        parts = min(number, 8)
        counts = np.bincount(total % number * parts // number, minlength=parts)
        expected = np.bincount(np.arange(number) * parts // number) * size / number
        assert (
            (counts - expected) ** 2 / expected
        ).sum() < 40  # 7 degrees of freedom: probability 1e-6


def test_noise_that_leaves_no_room_is_refused() -> None:
    assert MECHANISMS[2].fits(1000)
    assert not MECHANISMS[2].fits(1 << 30)
    for mechanism in MECHANISMS:
        widest = mechanism.ball.radius + (64 << mechanism.scale_bits)
        assert 1000 * widest * mechanism.units < 1 << 63


@pytest.mark.parametrize("unit", [UNIT * 3, UNIT * 2.0**20, -UNIT, 0.3, UNIT * 1.5])
def test_a_bad_unit_is_refused(unit: float) -> None:
    with pytest.raises(ConfigError, match="unit = "):
        GaussianSummand(1.0, MECHANISMS[1].sigma, unit)
