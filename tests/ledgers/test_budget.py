"""The cost of releases under a budget."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import get_args

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from fedldp.accounting.events import BinaryRandomizedResponse, GaussianReport, InClear, PureReport
from fedldp.accounting.prices import cost
from fedldp.ledgers.budget import BudgetKind


def test_costs_of_releases() -> None:
    bits = BinaryRandomizedResponse(epsilon=0.5, coordinates=100)
    clipped = BinaryRandomizedResponse(epsilon=0.5, coordinates=100, whole=2.0)
    assert cost(bits, "pure") == 50.0
    assert cost(clipped, "pure") == 2.0
    assert cost(bits, "zcdp") == 12.5
    assert cost(clipped, "zcdp") == 2.0
    assert cost(bits, "gdp") == pytest.approx(100 * 0.62389259209850819205**2, rel=1e-11)
    assert cost(clipped, "gdp") == pytest.approx(2.3579614856472497116**2, rel=1e-11)
    assert cost(PureReport(epsilon=1.0), "zcdp") == 0.5
    assert cost(PureReport(epsilon=3.0), "zcdp") == 3.0
    assert cost(BinaryRandomizedResponse(epsilon=3.0, coordinates=4, whole=5.0), "zcdp") == 5.0
    assert cost(GaussianReport(mu=1.0, rho=0.5), "zcdp") == 0.5
    assert cost(BinaryRandomizedResponse(epsilon=1e308, coordinates=100), "pure") == math.inf
    for kind in get_args(BudgetKind):
        assert cost(InClear(what="weights"), kind) == math.inf
        assert cost(BinaryRandomizedResponse(epsilon=1.0, coordinates=0), kind) == 0.0


# -2 Phi^-1(1/(1 + e^eps)) to 60 digits, by mpmath.
MU = {
    1e-300: 1.2533141373155002826e-300,
    1e-12: 1.253314137315500226e-12,
    1e-3: 0.0012533141149018751798,
    0.1: 0.12530901221160758802,
    0.99: 1.2201136813059777293,
    1.0: 1.2320353853449009729,
    5.0: 4.9466784455956585928,
    32.0: 15.240399650510453683,
    700.0: 74.590159265294833914,
}


@pytest.mark.parametrize("epsilon", MU)
def test_mu_of_a_pure_release(epsilon: float) -> None:
    exact = Fraction(MU[epsilon]) ** 2
    found = Fraction(cost(PureReport(epsilon=epsilon), "gdp"))
    assert exact <= found
    assert found <= exact * Fraction(1 + 5e-12) + Fraction(5e-324)


@pytest.mark.parametrize(("epsilon", "mu"), [(1e4, 282.75967974625432741), (1e6, 2828.41556598203)])
def test_mu_of_a_large_epsilon_is_bounded(epsilon: float, mu: float) -> None:
    assert mu**2 <= cost(PureReport(epsilon=epsilon), "gdp") <= 1.001 * mu**2


@given(epsilon=st.floats(1e-3, 50), order=st.floats(1.001, 1e3), other=st.floats(0, 1))
def test_rho_of_a_pure_release_covers_every_order(
    epsilon: float, order: float, other: float
) -> None:
    # Bits whose probabilities of a one have the ratio e^eps, or those of a zero at the other end
    with mp.workdps(50):  # near order 1, this is the logarithm of a number near 1
        q = other / (1 + mp.exp(epsilon))
        p = q * mp.exp(epsilon)
        both = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order) if q else 1
        renyi = mp.log(both) / (order - 1)
        rho = mp.mpf(cost(PureReport(epsilon=epsilon), "zcdp"))
        assert renyi <= rho * order * (1 + mp.mpf(10) ** -12)


@given(epsilon=st.floats(0.01, 20), alpha=st.floats(1e-12, 1 - 1e-12))
def test_the_trade_off_curve_of_a_pure_release_is_above_that_of_mu(
    epsilon: float, alpha: float
) -> None:
    mu = math.sqrt(cost(PureReport(epsilon=epsilon), "gdp"))
    gaussian = ndtr(-ndtri(alpha) - mu)
    pure = max(0.0, 1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha))
    assert gaussian <= pure + 1e-14
