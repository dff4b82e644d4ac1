"""Closed forms of randomised bits against known answers and 40-digit evaluation.

Known answers: independent computations of the published formulas named beside them.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from accounting_oracles import one_line
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp.accounting.bits import (
    bit_losses,
    bits_epsilon,
    ldpfl_epsilon,
    one_bit_l1_epsilon,
    sign_epsilon,
    sign_epsilon_per_coordinate,
    sign_sigma,
)
from fedldp.accounting.compose import two_valued_epsilon
from fedldp.accounting.gaussian import gaussian_epsilon
from fedldp.accounting.privunit import privunit_epsilon, privunit_log_cap
from fedldp.errors import ConfigError

PROBABILITIES = st.floats(1e-9, 1 - 1e-9)


def slow_losses(p: float, q: float) -> tuple[mp.mpf, mp.mpf]:
    p, q = mp.mpf(p), mp.mpf(q)
    forth = mp.log(p / q), mp.log((1 - p) / (1 - q))
    return max(forth), max(-forth[0], -forth[1])


@settings(max_examples=200)
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
    # LDPFL's S1 and S2 from their probabilities: what one bit of Theorem 2 costs at most
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


@settings(max_examples=100)
@given(st.floats(-12, 1.5).map(lambda exponent: 10.0**exponent))
def test_the_sign_against_forty_digits(ratio: float) -> None:
    slow = mp.log(mp.ncdf(mp.mpf(ratio)) / mp.ncdf(-mp.mpf(ratio)))
    found = sign_epsilon_per_coordinate(ratio, 1.0)
    assert slow <= found <= slow * (1 + mp.mpf("1e-13"))


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 20.0, 600.0])
def test_sigma_of_the_sign_keeps_to_its_epsilon(epsilon: float) -> None:
    sigma = sign_sigma(3.0, epsilon)
    found = sign_epsilon_per_coordinate(3.0, sigma)
    assert found <= epsilon
    assert found == pytest.approx(epsilon, rel=1e-7)


def test_the_sign_takes_the_smaller_route() -> None:
    as_bits = two_valued_epsilon(sign_epsilon_per_coordinate(1.0, 5.0), 100, 1e-5)
    assert sign_epsilon(1.0, 5.0, 100, 1e-5) == as_bits
    assert sign_epsilon(1.0, 5.0, 100, 1e-5, mu=100.0) == as_bits
    assert sign_epsilon(1.0, 5.0, 100, 1e-5, mu=0.1) == gaussian_epsilon(0.1, 1e-5) < as_bits


@pytest.mark.parametrize(("epsilon", "known"), [(0.5, 0.525848466023870), (1.0, 1.082231664218287)])
def test_known_answers_of_the_one_bit_bound(epsilon: float, known: float) -> None:
    assert one_bit_l1_epsilon(epsilon, 100, 1.0) == pytest.approx(known, rel=1e-14)
    assert one_bit_l1_epsilon(epsilon, 100, 3.0) == pytest.approx(3 * known, rel=1e-14)


def test_the_one_bit_bound_is_at_most_pure() -> None:
    assert one_bit_l1_epsilon(1.0, 2, 1e9) == 2.0
    assert one_bit_l1_epsilon(1.0, 2, 0.0) == 0.0
    assert one_bit_l1_epsilon(600.0, 2, 1.0) == pytest.approx(601 - math.log(2), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_one_bit_bound_holds_for_random_vectors(epsilon: float) -> None:
    # Outcomes of all bits of d = 4, for pairs of vectors of L1 norm at most S, enumerated
    rng = np.random.default_rng(0)
    norm, a = 1.3, math.tanh(epsilon / 2)
    bound = one_bit_l1_epsilon(epsilon, 4, norm)
    worst = 0.0
    corners = [np.eye(4)[0] * s for s in (-1.0, 1.0)]
    vectors = corners + [v * norm / np.abs(v).sum() for v in rng.normal(size=(40, 4))]
    vectors = [np.clip(v, -1, 1) for v in vectors]
    for x, y in itertools.product(vectors, repeat=2):
        for signs in itertools.product((-1, 1), repeat=4):
            loss = np.log1p(a * np.array(signs) * x) - np.log1p(a * np.array(signs) * y)
            worst = max(worst, loss.sum())
    assert 0.4 * bound < worst <= bound


def test_known_answer_of_privunit() -> None:
    # Bhowmick et al. 2018: D 64, gamma 0.25, p0 0.75
    cap = math.exp(privunit_log_cap(64, 0.25))
    assert cap == pytest.approx(0.0222965743917272, rel=1e-11)
    assert privunit_epsilon(64, 0.75, 0.25) == pytest.approx(4.87938561496994, rel=1e-12)


@pytest.mark.parametrize(
    ("dimension", "gamma"),
    [(2, 0.3), (3, 0.9), (64, 0.25), (64, 0.99), (10**4, 0.02), (10**4, 0.4), (10**6, 0.01)],
)
def test_the_cap_against_an_integral(dimension: int, gamma: float) -> None:
    # The angle from a fixed direction has a density proportional to sin(angle)^(D-2).
    angle = mp.acos(mp.mpf(gamma))
    steps = [angle * (1 - mp.mpf(2) ** -k) for k in range(25)]
    part = mp.quad(lambda t: mp.sin(t) ** (dimension - 2), [*steps, angle])
    exact = mp.log(part / mp.beta(mp.mpf(1) / 2, (mp.mpf(dimension) - 1) / 2))
    found = privunit_log_cap(dimension, gamma)
    assert found <= exact
    assert found == pytest.approx(float(exact), rel=1e-8)


def test_the_cap_of_a_huge_dimension() -> None:
    # -ln of the cap is about D gamma^2/2 and grows with both.
    found = privunit_log_cap(10**6, 0.1)
    assert found == pytest.approx(-0.5 * (10**6 - 1) * -math.log1p(-0.01), rel=0.01)
    assert privunit_epsilon(10**6, 0.9, 0.1) > privunit_epsilon(10**6, 0.9, 0.05) > 1200


def test_bad_arguments_are_refused() -> None:
    for call, named in [
        (lambda: bit_losses(1.0, 0.5), "one_to_one = 1.0"),
        (lambda: bit_losses(0.5, 0.0), "zero_to_one = 0.0"),
        (lambda: bits_epsilon([0.5], [0.5, 0.5]), "one_to_one has 1"),
        (lambda: ldpfl_epsilon(0.0, 0.5, 10, alternating=True), "alpha = 0.0"),
        (lambda: ldpfl_epsilon(1.0, 0.5, 0, alternating=True), "num_bits = 0"),
        (lambda: sign_epsilon_per_coordinate(-1.0, 1.0), "clip = -1.0"),
        (lambda: sign_sigma(1.0, 701.0), "epsilon_per_coordinate = 701.0"),
        (lambda: sign_epsilon(1.0, 1.0, 1, 1.0), "delta = 1.0"),
        (lambda: one_bit_l1_epsilon(1.0, 4, -1.0), "norm = -1.0"),
        (lambda: privunit_epsilon(1, 0.75, 0.25), "dimension = 1"),
        (lambda: privunit_epsilon(64, 0.4, 0.25), "cap_probability = 0.4"),
        (lambda: privunit_epsilon(64, 0.75, 1.0), "gamma = 1.0"),
    ]:
        with pytest.raises(ConfigError) as error:
            call()
        one_line(error, named, "give")
