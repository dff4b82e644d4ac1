"""The private sign, and the sign of a noisy vector: known figures, exact ratio, estimates."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from exact import exp_bounds
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp.accounting.guarantees import guarantees_of
from fedldp.accounting.prices import cost
from fedldp.algorithms.calibration import PerRun
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.personalized.mechanism_gaussian_sign import GaussianSign
from fedldp.papers.personalized.mechanism_sign import (
    Sign,
    paper_sigma,
    sign_epsilon_per_coordinate,
)

mp.mp.dps = 40
FULL = 2**64


def slow_epsilon(clip: float, sigma: float) -> mp.mpf:
    ratio = mp.mpf(clip) / mp.mpf(sigma)
    return mp.log(mp.ncdf(ratio) / mp.ncdf(-ratio))


def thresholds(mechanism: Sign, values: list[float]) -> list[int]:
    return mechanism.bits.thresholds(mechanism._curve(np.array(values)))


def test_known_figures() -> None:
    # MNIST, non-IID: eps 5, delta 1e-5, Delta_2 8, c 4; d 650 and 10 rounds.
    sigma = paper_sigma(5.0, 1e-5, 8.0)
    assert sigma == pytest.approx(7.75168842016862, rel=1e-14)
    mechanism = Sign(4.0, sigma)
    event = mechanism.event(650)
    assert event.epsilon == pytest.approx(0.833424791950697, rel=1e-13)
    assert event.epsilon == pytest.approx(float(slow_epsilon(4.0, sigma)), rel=1e-13)
    assert cost(event, "pure") == pytest.approx(541.726, abs=5e-4)
    assert event.whole is None


@settings(max_examples=25)
@given(st.floats(-12, 1.5).map(lambda exponent: 10.0**exponent))
def test_the_sign_against_forty_digits(ratio: float) -> None:
    slow = slow_epsilon(ratio, 1.0)
    found = sign_epsilon_per_coordinate(ratio, 1.0)
    assert slow <= found <= slow * (1 + mp.mpf("1e-13"))


@pytest.mark.parametrize("sigma", [0.8, 7.75168842016862, 1e4])
def test_no_lower_bound_is_above_what_two_inputs_reach(sigma: float) -> None:
    mechanism = Sign(4.0, sigma)
    high, low = thresholds(mechanism, [4.0, -4.0])
    reached = 3 * max(mp.log(mp.mpf(high) / low), mp.log(mp.mpf(FULL - low) / (FULL - high)))
    pure, composed = guarantees_of(Counter([mechanism.event(3)]), "client-round", 1e-5)
    assert pure.epsilon is not None
    assert pure.lower is None or pure.lower <= reached
    assert reached <= pure.epsilon
    assert (pure.lower is None) == (composed.lower is None)


sigmas = st.floats(math.log10(0.14), 6).map(lambda x: 10.0**x)


@pytest.mark.slow
@settings(max_examples=50)
@given(sigmas, st.floats(-6, 6).map(lambda x: 10.0**x), st.lists(st.floats(-2, 2), min_size=2))
def test_the_integers_stay_within_epsilon_and_close_to_phi(
    sigma: float, clip: float, values: list[float]
) -> None:
    mechanism = Sign(clip, sigma * clip)
    bound = exp_bounds(Fraction(mechanism.event(1).epsilon))[1]
    scaled = [clip * v for v in values]
    ones = thresholds(mechanism, [clip, -clip, math.inf, -math.inf, *scaled])
    assert max(ones) <= bound * min(ones)
    assert FULL - min(ones) <= bound * (FULL - max(ones))
    assert mechanism.event(1).epsilon <= mechanism.epsilon_per_weight
    slow = slow_epsilon(clip, sigma * clip)
    assert (
        float(slow * (1 - mp.mpf("1e-6")))
        <= mechanism.event(1).epsilon
        <= slow * (1 + mp.mpf("1e-12"))
    )
    for value, one in zip(scaled, ones[4:], strict=True):
        clipped = min(max(value, -clip), clip)
        exact = mp.ncdf(mp.mpf(clipped) / mp.mpf(sigma * clip))
        assert abs(mp.mpf(one) / FULL - exact) < 1e-14


# The sign of a noisy vector


SIZE = 20_003


def stream(number: int, simulated: bool) -> Stream:
    return Stream(bytes([number]) * 32, simulated=simulated)


@pytest.mark.parametrize("simulated", [True, False])
def test_the_report_is_the_sign_of_the_gaussian_report(simulated: bool) -> None:
    values = np.linspace(-0.02, 0.02, SIZE)
    sign, whole = GaussianSign(1.0, 0.01), Gaussian(1.0, 0.01)
    noisy = np.frombuffer(whole.encode(values, stream(3, simulated)), "<i4")
    payload = sign.encode(values, stream(3, simulated))
    assert 8 * len(payload) == -(-sign.payload_bits(SIZE) // 8) * 8
    bits = np.unpackbits(np.frombuffer(payload, np.uint8), count=SIZE)
    assert (bits == (noisy >= 0)).all()
    assert sign.event(SIZE) == whole.event(SIZE)
    assert sign.summing(SIZE, 10) is None


def test_a_bit_estimates_its_stated_expectation() -> None:
    sign = GaussianSign(1.0, 0.02)
    values = np.full(SIZE, 0.005)
    aggregate = sign.aggregate(SIZE)
    for number in range(20):
        aggregate.add(sign.encode(values, stream(number, simulated=True)))
    found, expected = aggregate.mean().mean(), sign.expected(values)[0]
    # Gaussian.clip scales the vector down: its norm is 0.7.
    assert abs(expected - 0.005) < 2e-4
    assert abs(found - expected) < 5 * np.sqrt(sign.variance(values)[0] / SIZE / 20)


def test_signs_are_calibrated_as_the_noise_itself() -> None:
    common = PerRun(epsilon=2.0, delta=1e-5, clip=1.5, rounds=12)
    signs = replace(common, kind=GaussianSign).gaussian(0)
    assert isinstance(signs, GaussianSign)
    assert (signs.clip, signs.sigma) == (1.5, common.sigma(0))
