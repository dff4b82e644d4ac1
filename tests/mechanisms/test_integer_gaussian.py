"""Noise on integers on a coarser grid: the cost of the grid, and sufficient noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedldp.accounting.events import GaussianShare
from fedldp.accounting.numerics.gaussian import compose_mu, gaussian_epsilon, shares_mu
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian_share import largest_mu
from fedldp.mechanisms.integer_gaussian import IntegerGaussian, integer_gaussian

KEY = bytes(range(32))


@given(
    one=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=6),
    change=st.lists(st.integers(-1000, 1000), min_size=6, max_size=6),
    step=st.integers(1, 500),
)
@example(one=[249] * 6, change=[1] * 6, step=500)  # every coordinate crosses the middle of a step
@settings(max_examples=75)
def test_two_vectors_are_as_close_on_the_coarser_grid_as_the_event_says(
    one: list[int], change: list[int], step: int
) -> None:
    values = np.array(one, float)
    other = values + np.array(change[: len(one)], float)
    distance = math.isqrt(sum(each * each for each in change[: len(one)])) + 1
    mechanism = IntegerGaussian(distance, step, 8, 64)
    gap = (mechanism.bound(values) - mechanism.bound(other)) / step
    event = mechanism.event(len(one))
    assert sum(int(each) ** 2 for each in gap) <= event.squared_distance


@pytest.mark.parametrize(
    ("size", "shares", "epsilon"), [(10, 1, 0.1), (3930, 9, 1.0), (1 << 17, 9, 8.0)]
)
def test_the_noise_is_enough_and_hardly_more(epsilon: float, shares: int, size: int) -> None:
    rounds = 100
    mu = largest_mu(epsilon, 1e-5) / math.sqrt(rounds)
    found = integer_gaussian(size, mu, distance=1 << 31, shares=shares, vectors=60_000)
    event = found.event(size)
    reached = shares_mu(event.squared_distance, event.variance, shares)
    assert gaussian_epsilon(compose_mu({reached: rounds}), 1e-5) <= epsilon
    assert reached > 0.99 * mu
    # The part of the cost that is left for the vectors after that of the grid.
    signal = 2**31 / found.step / math.sqrt(shares * event.variance)
    assert signal > 0.95 * mu


def test_a_modulus_holds_all_vectors_and_the_noise() -> None:
    found = integer_gaussian(4, 0.1, distance=2000, shares=3, vectors=50)
    stream = Stream(KEY, simulated=False)
    vectors = np.full((3, 4), 1000.0 * 50 / 3)
    vectors[:, 1] *= -1
    total = found.aggregate(4)
    for vector in vectors:
        total.add(found.encode(vector, stream))
    tolerance = 6 * math.sqrt(3) * found.step * 2**found.scale_bits / 3
    np.testing.assert_allclose(total.mean(), vectors.mean(axis=0), atol=tolerance)


@pytest.mark.parametrize("bits", [8, 24, 40, 64])
def test_words_are_integers_modulo_the_modulus(bits: int) -> None:
    mechanism = IntegerGaussian(10, 1, 3, bits)
    values = np.array([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))], np.int64)
    payload = mechanism.pack(values)
    assert len(payload) == 5 * bits // 8
    assert mechanism.unpack(payload).tolist() == [int(each) % 2**bits for each in values]


def test_noise_in_deployment_has_the_distribution_of_the_event() -> None:
    mechanism = IntegerGaussian(10, 1, 4, 24)
    stream = Stream(KEY, simulated=False)
    words = mechanism.unpack(mechanism.encode(np.zeros(20_000), stream)).astype(np.int64)
    noise = (words + 2**23) % 2**24 - 2**23
    event = mechanism.event(1)
    assert isinstance(event, GaussianShare)
    assert abs(noise.mean()) < 5 * 16 / math.sqrt(20_000)
    assert abs(noise.var() / event.variance - 1) < 5 * math.sqrt(2 / 20_000)
