"""Powers computed in stages, against exact sums and against a single grid.

The exact answers come from ``two_valued_epsilon``, which has its own tests, or from sums over all
counts of three outcomes.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import gammaln

from fedldp.accounting.numerics import pld_fft
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.losses import Losses, two_valued_losses
from fedldp.accounting.numerics.pld_fft import compose_lower, compose_upper
from fedldp.accounting.numerics.shuffle import clone_losses, end_losses, exponent_for


# Near the ends of a stage, and counts without divisors: primes, or next to a power.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("delta", "epsilon", "count"),
    [(1e-5, 1.0, 2), (0.1, 0.1, 32), (1e-5, 10.0, 33), (0.1, 0.1, 1025), (0.1, 1.0, 1_000_003)],
)
def test_stages_enclose_the_exact_answer(epsilon: float, count: int, delta: float) -> None:
    exact = two_valued_epsilon(epsilon, count, delta)
    parts = [(two_valued_losses(epsilon, 1), count)]
    lower, upper = compose_lower(parts, delta), compose_upper(parts, delta)
    assert lower <= exact * (1 + 1e-13)
    assert upper >= exact * (1 - 1e-13)
    assert lower == pytest.approx(exact, rel=1e-5)
    assert upper == pytest.approx(exact, rel=1e-5)


def three_outcomes(
    log_masses: NDArray[np.float64], losses: NDArray[np.float64], count: int, delta: float
) -> float:
    """Return epsilon by enumerating all counts of outcomes, in the order of their losses."""
    first, second = np.meshgrid(np.arange(count + 1), np.arange(count + 1))
    first, second = (numbers[first + second <= count] for numbers in (first, second))
    numbers = np.stack([first, second, count - first - second])
    ways = gammaln(count + 1) - gammaln(numbers + 1).sum(axis=0)
    sums, log_p = losses @ numbers, ways + log_masses @ numbers
    order = np.argsort(-sums)
    p_sets = np.exp(np.logaddexp.accumulate(log_p[order]))
    log_q_sets = np.logaddexp.accumulate((log_p - sums)[order])
    above = p_sets > delta
    return max(0.0, float(np.max(np.log(p_sets[above] - delta) - log_q_sets[above], initial=0.0)))


@pytest.mark.slow
@settings(max_examples=6)
@given(
    st.tuples(*[st.floats(-9, 0)] * 3),
    st.tuples(*[st.floats(-1, 1)] * 3),
    st.floats(-2, 1).map(lambda exponent: 10.0**exponent),
    st.integers(2, 300),
    st.floats(-8, -1).map(lambda exponent: 10.0**exponent),
)
def test_any_counts_of_three_outcomes(
    log_p: tuple[float, ...], gaps: tuple[float, ...], scale: float, count: int, delta: float
) -> None:
    log_q = np.array(log_p) - scale * np.array(gaps)
    log_masses = np.array(log_p) - np.logaddexp.reduce(log_p)
    losses = log_masses - log_q + np.logaddexp.reduce(log_q)
    assume(np.ptp(losses) > 1e-3 * scale)
    exact = three_outcomes(log_masses, losses, count, delta)
    parts = [(Losses(losses, log_masses, np.full(3, 1e-15)), count)]
    tolerance = 1e-10 * max(1.0, count * float(np.abs(losses).max()))
    assert compose_lower(parts, delta) <= exact + tolerance
    assert compose_upper(parts, delta) >= exact - tolerance


@pytest.mark.parametrize("count", [700])
def test_stages_agree_with_a_single_grid(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    delta = 1e-5
    exponent = exponent_for(delta, count)
    for losses in (clone_losses(1.0, 30, exponent), end_losses(1.0, 30, exponent, flipped=True)):
        staged = compose_lower([(losses, count)], delta), compose_upper([(losses, count)], delta)
        with monkeypatch.context() as patch:
            patch.setattr(pld_fft, "_MOST_USES", count)
            single = (
                compose_lower([(losses, count)], delta),
                compose_upper([(losses, count)], delta),
            )
        assert max(staged[0], single[0]) <= min(staged[1], single[1])
        assert staged[1] == pytest.approx(staged[0], rel=1e-6)
        assert single[1] == pytest.approx(single[0], rel=1e-6)


def test_errors_that_are_too_large_leave_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(two_valued_losses(1.0, 1), 2000)]
    monkeypatch.setattr(pld_fft, "_ROUNDING", 1e-4)
    assert compose_upper(parts, 1e-5) == math.inf
    assert compose_lower(parts, 1e-5) == 0.0
