"""Gaussian noise against known answers and 400-digit evaluation.

Known answers: independent computations of Balle, Wang 2018, Theorem 8.
"""

from __future__ import annotations

import math
from collections import Counter

import mpmath as mp
import pytest
from accounting_oracles import gaussian
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp.accounting.numerics.gaussian import (
    compose_mu,
    compose_rho,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    zcdp_epsilon,
)

MUS = st.floats(-4, 4).map(lambda exponent: 10.0**exponent)


@pytest.mark.parametrize(
    ("epsilon", "delta", "known"),
    [
        (1.0, 1e-5, 3.73063163481594),
        (5.0, 1e-5, 0.891868264951518),
        (8.0, 1e-5, 0.600229072198952),
        (0.5, 1e-2, 3.14691309860668),
    ],
)
def test_known_sigmas(epsilon: float, delta: float, known: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)
    assert sigma == pytest.approx(known, rel=1e-13)
    assert gaussian(1 / mp.mpf(sigma), epsilon) <= delta
    assert gaussian(1 / mp.mpf(sigma * (1 - 1e-12)), epsilon) > delta


@pytest.mark.parametrize(
    ("delta", "mu"), [(1e-300, 1e-4), (1e-100, 1e-2), (1e-5, 1.0), (0.3, 37.0), (1e-300, 1e4)]
)
def test_epsilon_is_just_above_the_slow_one(mu: float, delta: float) -> None:
    found = gaussian_epsilon(mu, delta)
    assert gaussian(mu, found) <= delta
    if found > 0:
        assert gaussian(mu, found * (1 - 1e-8)) > delta


@settings(max_examples=25)
@given(MUS, st.floats(0, 38))
def test_delta_is_just_above_the_slow_one(mu: float, deviations: float) -> None:
    epsilon = max(0.0, mu * mu / 2 + mu * (deviations - 2))
    slow = gaussian(mu, epsilon)
    fast = gaussian_delta(mu, epsilon)
    assert slow <= fast
    # For a large mu, the rounding of epsilon alone moves delta more than that.
    tolerance = 1e-8 + 1e-13 * mu
    assert fast <= slow * (1 + tolerance) + mp.mpf("1e-319")


def test_no_noise_needed_and_no_pure_guarantee() -> None:
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_epsilon(0.0, 0.0) == 0.0
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(1.0, 1e-305) == math.inf


@settings(max_examples=12)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_mu_composes_by_squares_and_rounds_up(mus: list[float]) -> None:
    exact = mp.sqrt(mp.fsum(mp.mpf(mu) ** 2 for mu in mus))
    found = compose_mu(Counter(mus).items())
    assert exact <= found <= exact * (1 + mp.mpf("1e-15"))


def test_rho() -> None:
    assert compose_rho([(0.125, 1), (0.5, 1)]) == 0.625
    assert mp.mpf(compose_rho([(0.1, 3)])) >= 3 * mp.mpf(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delta", "rho"), [(1e-300, 1e-8), (1e-5, 1e-3), (0.5, 0.5), (1e-300, 100.0), (1e-5, 1e7)]
)
def test_zcdp_is_the_least_over_alpha(rho: float, delta: float) -> None:
    found = zcdp_epsilon(rho, delta)
    # delta(alpha, e) of Canonne, Kamath, Steinke 2020, section 2.3, on a fine grid of alpha
    logs = [mp.mpf(k) / 50 - 15 for k in range(2500)]
    excesses = [mp.exp(log) for log in logs]
    values = [
        (1 + x) * rho + (-mp.log(delta) + (1 + x) * mp.log(x / (1 + x)) - mp.log(x)) / x
        for x in excesses
    ]
    least = max(min(values), 0)
    assert found <= float(least) * (1 + 1e-9) + 1e-12
    assert found >= float(least) * (1 - 1e-3)
