"""Clipped integers, and a server's exact noise on their sum: the claim, and ways to break it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.accounting.events import InClear
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import CLIPPED_UPDATES
from fedldp.core.randomness import Stream
from fedldp.mechanisms.codes import BoundedSteps
from fedldp.mechanisms.discrete import discrete_gaussian
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.summing import INTEGER, Summing
from fedldp.protocol.wire import Report

STEPS = BoundedSteps(Gaussian(0.5, 2.0))
SIZE, MOST = 40, 5


def secret(number: int = 0) -> Stream:
    return Stream.derived(bytes([number]) * 32, "server", "run", "1", "noise")


def words(values: np.ndarray) -> np.ndarray:
    payload = STEPS.encode(values, secret())
    return np.frombuffer(payload, INTEGER).astype(np.int64)


@given(st.integers(0, 2**32), st.floats(1e-12, 1e30), st.floats(1e-12, 1e30))
def test_replacing_a_client_moves_a_sum_by_at_most_the_sensitivity(
    seed: int, one: float, other: float
) -> None:
    """Checked in exact integers, including rounding, for vectors of any length and direction."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=SIZE)
    first, second = words(direction * one), words(-direction * other)
    squared = sum((int(a) - int(b)) ** 2 for a, b in zip(first, second, strict=True))
    assert squared <= STEPS.ball.sensitivity**2
    for each in (first, second):
        assert sum(int(a) ** 2 for a in each) <= STEPS.ball.radius**2


def test_the_radius_is_the_clip_in_steps_rounded_down() -> None:
    exact = Fraction(0.5) / Fraction(2.0) * STEPS.noise.proven_scale
    assert exact - 1 < STEPS.ball.radius <= exact
    event = STEPS.noised(SIZE)
    assert event == STEPS.noise.event(SIZE)
    mu = Fraction(2 * STEPS.ball.radius) / (
        (1 << STEPS.noise.scale_bits) - Fraction(16, 1 << STEPS.noise.scale_bits)
    )
    assert mu <= Fraction(event.mu) < mu * (1 + Fraction(1, 10**12))


def test_a_single_report_is_in_clear_and_draws_nothing() -> None:
    event = STEPS.event(SIZE)
    assert isinstance(event, InClear)
    assert CLIPPED_UPDATES in event.sent
    values = np.full(SIZE, 1e-3)
    assert STEPS.encode(values, secret(1)) == STEPS.encode(values, secret(2))
    with pytest.raises(ConfigError, match="too long"):
        BoundedSteps(Gaussian(1.0, 1e4)).event(1 << 20)


def test_the_servers_noise_is_the_exact_sampler_of_its_secret_stream() -> None:
    total = np.arange(SIZE, dtype=np.int64)
    found = STEPS.noisy(total, secret())
    expected = total + discrete_gaussian(SIZE, STEPS.noise.scale_bits, secret())
    np.testing.assert_array_equal(found, expected)


def summed(totals: np.ndarray) -> np.ndarray:
    """Return what a server reads from a secure sum with the total words ``totals``."""
    summing: Summing = STEPS.summing(SIZE, MOST)
    modulus = 1 << summing.bits
    raised = np.array([int(each) % modulus for each in totals], np.uint64)
    found = summing.total(1, raised, MOST)
    assert isinstance(found, Report)
    assert found.weight == MOST
    return np.frombuffer(found.payload, INTEGER).astype(np.int64)


def test_noise_hides_neighbours_even_if_others_make_the_sum_wrap() -> None:
    """A lying site may push a sum to the end of the modulus, and an honest site beyond it.

    Neighbouring sums then read as numbers nearly a modulus apart. With the noise added in the same
    modulus, they are neighbours around the ring: both carry the same noise.
    """
    half = 1 << 63
    below, above = ([end] * SIZE for end in (half - 1, half))
    read = [summed(np.array(each, object)) for each in (below, above)]
    assert int(read[0][0]) - int(read[1][0]) == 2 * half - 1
    noisy = [STEPS.noisy(each, secret()) for each in read]
    apart = {int(b) - int(a) for a, b in zip(*noisy, strict=True)}
    assert apart <= {1, 1 - 2 * half}
    assert {each < 0 for each in noisy[0].tolist()} == {True, False}  # in both directions
