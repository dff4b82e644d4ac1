"""Powers computed in stages, against exact sums and against a single grid.

The exact answers come from ``two_valued_epsilon``, which has its own tests, or from sums over all
counts of three outcomes.
"""

from __future__ import annotations

import math

import pytest

from fedldp.accounting.numerics import pld_fft
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.losses import two_valued_losses
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


# The largest sum is so likely that the window ends there. Every stage moves losses a little beyond
# it, and without room for all these moves the upper bound would be infinite.
@pytest.mark.parametrize(("delta", "epsilon"), [(0.1, 10.0), (1e-5, 14.0)])
def test_a_likely_largest_sum_leaves_room_for_moved_losses(epsilon: float, delta: float) -> None:
    exact = two_valued_epsilon(epsilon, 3000, delta)
    upper = compose_upper([(two_valued_losses(epsilon, 1), 3000)], delta)
    assert exact * (1 - 1e-13) <= upper <= exact * (1 + 1e-7)


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
