"""Closed forms of randomised bits against known answers and 40-digit evaluation.

Known answers: independent computations of the published formulas named next to them.
"""

from __future__ import annotations

import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import some

from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.core.errors import ConfigError
from fedldp.papers.ldpfl.numerics import bit_losses, bits_epsilon, ldpfl_epsilon
from fedldp.papers.personalized.numerics import (
    sign_epsilon,
    sign_epsilon_per_coordinate,
    sign_sigma,
)

PROBABILITIES = st.floats(1e-9, 1 - 1e-9)


def slow_losses(p: float, q: float) -> tuple[mp.mpf, mp.mpf]:
    p, q = mp.mpf(p), mp.mpf(q)
    forth = mp.log(p / q), mp.log((1 - p) / (1 - q))
    return max(forth), max(-forth[0], -forth[1])


@settings(max_examples=some(200))
@given(PROBABILITIES, PROBABILITIES)
def test_losses_of_a_bit(p: float, q: float) -> None:
    for fast, slow in zip(bit_losses(p, q), slow_losses(p, q), strict=True):
        assert slow <= fast + mp.mpf(1e-16)
        assert fast == pytest.approx(float(slow), rel=1e-9, abs=1e-15)


def test_close_probabilities_keep_their_digits() -> None:
    p, q = 0.3, 0.3 + 1e-12
    assert max(bit_losses(p, q)) == pytest.approx(float(max(slow_losses(p, q))), rel=1e-12)


def test_unary_encodings() -> None:
    # UE and OUE of Wang, Blocki, Li, Jha 2017 at epsilon 1: two one-hot inputs differ in two bits
    p = 0.62245933120185456
    assert sum(bit_losses(p, 1 - p)) == pytest.approx(1.0, rel=1e-14)
    q = 0.26894142136999512
    to_zero, to_one = bit_losses(0.5, q)
    assert to_zero + to_one == pytest.approx(1.0, rel=1e-14)


def ldpfl_probabilities(
    alpha: float, epsilon: float, bits: int, alternating: bool
) -> tuple[list[mp.mpf], list[mp.mpf]]:
    alpha, x = mp.mpf(alpha), 2 * mp.mpf(epsilon) / bits
    q = 1 / (1 + alpha * mp.exp(x))
    if alternating:
        ends = [alpha / (1 + alpha), 1 / (1 + alpha**3)]
        return [ends[i % 2] for i in range(bits)], [q] * bits
    return [1 / (1 + alpha)] * bits, [q] * bits


@pytest.mark.parametrize(
    ("alternating", "known"), [(True, 34884.836349495786), (False, 0.90909494436566567)]
)
def test_known_answers_of_ldpfl(alternating: bool, known: float) -> None:
    # LDPFL, Theorems 2 and 1: alpha 10, epsilon 0.5, 10,240 bits
    found = ldpfl_epsilon(10.0, 0.5, 10_240, alternating=alternating)
    assert found == pytest.approx(known, rel=1e-14)
    ps, qs = ldpfl_probabilities(10.0, 0.5, 10_240, alternating)
    slow = mp.fsum(max(slow_losses(p, q)) for p, q in zip(ps, qs, strict=True))
    assert slow <= found <= slow * (1 + mp.mpf("1e-14"))


@pytest.mark.parametrize(("bit", "known"), [(0, 2.3026738717972064), (1, 4.510770727713689)])
def test_known_answers_of_one_bit_of_ldpfl(bit: int, known: float) -> None:
    # LDPFL's S1 and S2 from their probabilities: the largest cost of one bit under Theorem 2
    ps, qs = ldpfl_probabilities(10.0, 0.5, 10_240, alternating=True)
    found = bits_epsilon([float(ps[bit])], [float(qs[bit])])
    assert found == pytest.approx(known, rel=1e-14)


@pytest.mark.parametrize("bits", [1, 2, 7])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_ldpfl_agrees_with_the_sum_over_its_bits(alpha: float, bits: int) -> None:
    for alternating in (True, False):
        ps, qs = ldpfl_probabilities(alpha, 0.5, bits, alternating)
        slow = bits_epsilon([float(p) for p in ps], [float(q) for q in qs])
        found = ldpfl_epsilon(alpha, 0.5, bits, alternating=alternating)
        assert found == pytest.approx(slow, rel=1e-13)


def test_the_sign() -> None:
    # dp-sign at epsilon 5, delta 1e-5, Delta_2 8 and clip 4
    sigma = 8 / 5 * math.sqrt(2 * math.log(1.25 / 1e-5))
    assert sigma == pytest.approx(7.75168842016862, rel=1e-14)
    assert sign_epsilon_per_coordinate(4.0, sigma) == pytest.approx(0.833424791950697, rel=1e-13)


def test_a_run_of_the_sign() -> None:
    # Its 650 weights for one round and for ten
    sigma = 7.75168842016862
    assert sign_epsilon(4.0, sigma, 650, 1e-5) == pytest.approx(293.841, abs=5e-4)
    assert sign_epsilon(4.0, sigma, 6500, 1e-5) == pytest.approx(2395.72, abs=5e-3)
    assert sign_epsilon(4.0, sigma, 650, 0.0) == pytest.approx(541.726, abs=5e-4)


@settings(max_examples=some(100))
@given(st.floats(-12, 1.5).map(lambda exponent: 10.0**exponent))
def test_the_sign_against_forty_digits(ratio: float) -> None:
    slow = mp.log(mp.ncdf(mp.mpf(ratio)) / mp.ncdf(-mp.mpf(ratio)))
    found = sign_epsilon_per_coordinate(ratio, 1.0)
    assert slow <= found <= slow * (1 + mp.mpf("1e-13"))


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 20.0, 600.0])
def test_sigma_of_the_sign_stays_within_its_epsilon(epsilon: float) -> None:
    sigma = sign_sigma(3.0, epsilon)
    found = sign_epsilon_per_coordinate(3.0, sigma)
    assert found <= epsilon
    assert found == pytest.approx(epsilon, rel=1e-7)


def test_the_sign_takes_the_smaller_route() -> None:
    as_bits = two_valued_epsilon(sign_epsilon_per_coordinate(1.0, 5.0), 100, 1e-5)
    assert sign_epsilon(1.0, 5.0, 100, 1e-5) == as_bits
    assert sign_epsilon(1.0, 5.0, 100, 1e-5, mu=100.0) == as_bits
    assert sign_epsilon(1.0, 5.0, 100, 1e-5, mu=0.1) == gaussian_epsilon(0.1, 1e-5) < as_bits


def test_bad_arguments_are_refused() -> None:
    for call, named in [
        (lambda: bit_losses(1.0, 0.5), "one_to_one = 1.0"),
        (lambda: bit_losses(0.5, 0.0), "zero_to_one = 0.0"),
        (lambda: bits_epsilon([0.5], [0.5, 0.5]), "one_to_one has 1"),
        (lambda: ldpfl_epsilon(0.0, 0.5, 10, alternating=True), "alpha = 0.0"),
        (lambda: ldpfl_epsilon(1.0, 0.5, 0, alternating=True), "num_bits = 0"),
    ]:
        with pytest.raises(ConfigError, match=named):
            call()
