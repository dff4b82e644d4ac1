"""Theorem 2 of Sun, Qian, Chen 2021 on the error of a mean, against its proof and simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedldp.mechanisms.two_point import TwoPoint


def log_of_equation_9(error: float, epsilon: float, radius: float, n: int) -> float:
    """Return the logarithm of the right side of the paper's eq. 9, last line but one."""
    scale = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    linear = 4 * error * radius * math.exp(epsilon) / (3 * (math.exp(epsilon) - 1))
    return math.log(2) - n * error**2 / (2 * radius**2 * scale**2 + linear)


@pytest.mark.parametrize(
    ("radius", "n", "failure", "epsilon"),
    [(0.075, 100, 0.05, 0.1), (1.0, 2, 1e-6, 1.0), (0.075, 100, 0.05, 4.0), (1.0, 2, 1e-6, 10.0)],
)
def test_the_error_bound_solves_equation_9(
    epsilon: float, radius: float, n: int, failure: float
) -> None:
    error = TwoPoint(epsilon).error_bound(radius, n, failure)
    assert log_of_equation_9(error, epsilon, radius, n) == pytest.approx(math.log(failure))


def test_the_variance_of_a_mean_is_that_of_lemma_3_and_corollary_1() -> None:
    """eps 1, r 0.075, n 100; and ranges of two radii, with weights anywhere in them."""
    scale = (math.e + 1) / (math.e - 1)
    mechanism = TwoPoint(1.0)
    low, high = mechanism.mean_variance([0.075] * 100)
    assert high == pytest.approx(0.075**2 * scale**2 / 100)
    assert low == pytest.approx(0.075**2 * scale**2 / 100 - 0.075**2 / 100)
    radii = np.array([0.5, 2.0] * 4)
    low, high = mechanism.mean_variance(radii.tolist())
    for place, expected in ((0.0, high), (1.0, low), (-1.0, low)):
        exact = (radii**2 * mechanism.variance(np.full(8, place))).sum() / 64
        assert exact == pytest.approx(expected)
    between = (radii**2 * mechanism.variance(np.linspace(-1, 1, 8))).sum() / 64
    assert low < between < high
