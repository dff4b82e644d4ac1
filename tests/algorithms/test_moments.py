"""The published moments accountant, against the paper's example and high-precision integrals."""

from __future__ import annotations

import math

import mpmath
import pytest

from fedldp.algorithms.presets.central_dp import LARGEST_ORDER, moments_epsilon


def by_integrals(s: float, q: float, releases: int, delta: float) -> float:
    """Abadi et al. 2016, section 3.2: the moments as integrals over one coordinate.

    The integrand is a sum of Gaussians of deviation s, centred between 0 and the order plus one.
    For each of them, an equidistant sum in steps of s/2 misses the integral by a share of
    2 exp(-8 pi^2), below 1e-33.
    """
    steps = math.ceil(2 * (12 * s + LARGEST_ORDER + 1) / s)
    with mpmath.workdps(30):
        points = [mpmath.mpf(s) / 2 * k for k in range(-steps, steps + 1)]
        near, moved = ([mpmath.npdf(z, mean, s) for z in points] for mean in (0, 1))
        mixed = [(1 - q) * a + q * b for a, b in zip(near, moved, strict=True)]
        ratios = [a / b for a, b in zip(mixed, near, strict=True)]
        moments = [
            s / 2 * mpmath.fdot((a, r**order) for a, r in zip(mixed, ratios, strict=True))
            for order in range(1, LARGEST_ORDER + 1)
        ]
        return float(
            min(
                (releases * mpmath.log(moment) - mpmath.log(delta)) / order
                for order, moment in enumerate(moments, start=1)
            )
        )


def test_the_papers_example() -> None:
    """Abadi et al. 2016, section 3.2: q 0.01, sigma 4, delta 1e-5, 10,000 steps give 1.26."""
    assert moments_epsilon(4.0, 0.01, 10_000, 1e-5) == pytest.approx(1.26, abs=0.005)


@pytest.mark.parametrize(
    ("s", "q", "releases", "delta"), [(1.0, 0.3, 14, 1e-3), (2.0, 0.05, 100, 1e-5)]
)
def test_the_closed_form_against_integrals(s: float, q: float, releases: int, delta: float) -> None:
    expected = by_integrals(s, q, releases, delta)
    assert moments_epsilon(s, q, releases, delta) == pytest.approx(expected, rel=1e-9)


def test_without_sampling_the_moments_are_those_of_the_plain_gaussian() -> None:
    """At rate 1 the moment of order l is l (l + 1)/(2 s^2)."""
    expected = min(3 * (order + 1) / 8 + math.log(1e5) / order for order in range(1, 33))
    assert moments_epsilon(2.0, 1.0, 3, 1e-5) == pytest.approx(expected, rel=1e-12)
