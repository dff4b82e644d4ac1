"""PrivUnit against published constants, numerical integrals and its own definition."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from scipy import stats

from fedldp.accounting.events import PureReport
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.grids import complete
from fedldp.mechanisms.privunit import Cap, PrivUnit, best_cap

CAPS = [
    Cap(64, 0.75, 0.25),
    Cap(2, 0.9, 0.5),
    Cap(3, 0.6, 0.0),
    Cap(10, 0.5, 0.9),
    best_cap(1.0, 651),
    best_cap(0.01, 20),
    best_cap(40.0, 651),
]


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=6, round=1, client=number, purpose="privunit")


def sphere_cosine(dimension: int) -> stats.rv_continuous:
    """Return the cosine of a uniform direction: (1 + t)/2 has a beta distribution."""
    half = (dimension - 1) / 2
    return stats.beta(half, half, loc=-1, scale=2)


def cosine_cdf(cap: Cap) -> Callable[[np.ndarray], np.ndarray]:
    sphere = sphere_cosine(cap.dimension)

    def cdf(t: np.ndarray) -> np.ndarray:
        inside = 1 - sphere.sf(np.maximum(t, cap.gamma)) / sphere.sf(cap.gamma)
        outside = sphere.cdf(np.minimum(t, cap.gamma)) / sphere.cdf(cap.gamma)
        result: np.ndarray = cap.p0 * inside + (1 - cap.p0) * outside
        return result

    return cdf


def test_the_known_values() -> None:
    cap = Cap(64, 0.75, 0.25)
    assert cap.share == pytest.approx(0.0222965743917272, rel=1e-13)
    assert cap.epsilon == pytest.approx(4.87938561496994, rel=1e-13)
    assert cap.mean == pytest.approx(0.218837032931937, rel=1e-13)


@pytest.mark.parametrize("cap", CAPS, ids=repr)
def test_the_moments_are_those_of_the_density(cap: Cap) -> None:
    # With t = cos(angle), the density is sin(angle)^(D - 2), which is smooth for every D.
    nodes, weights = np.polynomial.legendre.leggauss(400)

    def mean(power: int, start: float, stop: float) -> float:
        angles = start + (stop - start) * (nodes + 1) / 2
        density = weights * np.sin(angles) ** (cap.dimension - 2)
        return float((np.cos(angles) ** power * density).sum() / density.sum())

    edge = math.acos(cap.gamma)
    for power, found in ((1, cap.mean), (2, cap.mean_square)):
        expected = cap.p0 * mean(power, 0, edge) + (1 - cap.p0) * mean(power, edge, math.pi)
        assert found == pytest.approx(expected, rel=1e-8)


def p_value(drawn: Cap, claimed: Cap, draws: int = 20_000) -> float:
    generator = stream().generator()
    cosines = [drawn.cosine(generator) for _ in range(draws)]
    return float(stats.kstest(cosines, cosine_cdf(claimed)).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("cap", CAPS, ids=repr)
def test_the_cosine_has_its_distribution(cap: Cap) -> None:
    assert p_value(cap, cap) > 1e-3


# The best cap

DIMENSIONS = [2, 3, 10, 651, 21_841, 10**6]


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0, 1e5])
def test_the_epsilon_is_at_most_the_requested_one_and_close_to_it(
    epsilon: float, dimension: int
) -> None:
    cap = best_cap(epsilon, dimension)
    assert 0 < cap.epsilon <= epsilon
    assert 0 < cap.mean <= 1
    assert cap.mean**2 <= cap.mean_square <= 1
    if cap.mean < 0.999:  # above, floats limit how close gamma and p0 come to 1
        assert cap.epsilon == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_no_other_cap_of_the_same_epsilon_has_a_larger_mean(epsilon: float, dimension: int) -> None:
    best = best_cap(epsilon, dimension)
    for factor in (0.3, 0.9, 0.99, 1.01, 1.1, 2.0):
        gamma = best.gamma * factor
        if gamma < 1:
            share = sphere_cosine(dimension).sf(gamma)
            odds = math.exp(epsilon) * share / (1 - share)
            other = Cap(dimension, odds / (1 + odds), gamma)
            assert other.epsilon == pytest.approx(epsilon, rel=1e-6)
            assert other.mean < best.mean * (1 + 1e-7)


def test_a_share_that_would_underflow() -> None:
    # Independently: 50 digits of mpmath for ln I_(1 - gamma^2)((D - 1)/2, 1/2)/2.
    cap = Cap(10**6, 0.5, 0.1)
    assert cap.share == 0
    assert cap.epsilon == pytest.approx(5030.687109027398, rel=1e-12)


# The report


def test_all_norms_are_equally_private() -> None:
    # V is always drawn around a unit vector with one more dimension.
    mechanism = PrivUnit(1.0, 2.0)
    for values in (np.zeros(4), np.full(4, 0.3), np.full(4, 1.0), np.array([2.0, 0, 0, 0])):
        unit = complete(mechanism.bound(values) / mechanism.clip)
        assert unit.shape == (5,)
        assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(unit[:4] * 2, values)


def test_deployment_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"simulation only; choose k_closest"):
        PrivUnit(1.0, 1.0).encode(np.zeros(3), Stream.fresh())


@pytest.mark.parametrize(
    ("epsilon", "size"), [(1e-3, 1), (1.0, 2), (34.5, 650), (36.0, 2), (41.0, 650)]
)
def test_the_event_is_between_the_exact_epsilon_and_the_budget(epsilon: float, size: int) -> None:
    mechanism = PrivUnit(epsilon, 1.0)
    cap = mechanism.cap(size)
    p0, gamma = mpmath.mpf(cap.p0), mpmath.mpf(cap.gamma)
    with mpmath.workdps(60):
        share = mpmath.betainc(mpmath.mpf(size) / 2, 0.5, 0, 1 - gamma**2, regularized=True) / 2
        exact = mpmath.log(p0 / (1 - p0)) + mpmath.log((1 - share) / share)
        event = mechanism.event(size)
        assert exact <= event.epsilon <= min(epsilon, exact * (1 + 1e-8))
    assert event == PureReport(epsilon=event.epsilon, idealised=True)
