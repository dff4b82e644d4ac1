"""Powers taken in stages: against exact sums, and against a single grid.

The exact answers are those of ``two_valued_epsilon``, which are tested on their own.
"""

from __future__ import annotations

import math

import pytest

from fedldp.accounting import losses_grid
from fedldp.accounting.compose import two_valued_epsilon, two_valued_epsilon_mixed
from fedldp.accounting.losses import two_valued_losses
from fedldp.accounting.losses_grid import compose_lower, compose_upper
from fedldp.accounting.shuffle import clone_losses, end_losses, exponent_for


# About the ends of a stage, and numbers without divisors: prime, or next to a power.
@pytest.mark.parametrize("count", [2, 32, 33, 1025, 40_009, 1_000_003])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_stages_enclose_the_exact_answer(epsilon: float, count: int, delta: float) -> None:
    exact = two_valued_epsilon(epsilon, count, delta)
    parts = [(two_valued_losses(epsilon, 1), count)]
    lower, upper = compose_lower(parts, delta), compose_upper(parts, delta)
    assert lower <= exact * (1 + 1e-13)
    assert upper >= exact * (1 - 1e-13)
    assert lower == pytest.approx(exact, rel=1e-5)
    assert upper == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("delta", [1e-5, 1e-60])
def test_parts_of_different_counts_enclose_the_exact_answer(delta: float) -> None:
    counts = {1.0: 701, 0.5: 300, 0.1: 5000, 3.0: 3}
    parts = [(two_valued_losses(epsilon, 1), count) for epsilon, count in counts.items()]
    # Each epsilon's bits exactly composed, and their sums on a single grid.
    wholes = [(two_valued_losses(epsilon, count), 1) for epsilon, count in counts.items()]
    assert compose_lower(parts, delta) <= two_valued_epsilon_mixed(counts, delta)
    assert compose_lower(wholes, delta) <= compose_upper(parts, delta)
    assert compose_upper(parts, delta) == pytest.approx(compose_lower(parts, delta), rel=1e-5)


@pytest.mark.parametrize("count", [700, 3000])
def test_stages_agree_with_a_single_grid(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    delta = 1e-5
    exponent = exponent_for(delta, count)
    for losses in (clone_losses(1.0, 30, exponent), end_losses(1.0, 30, exponent, flipped=True)):
        staged = compose_lower([(losses, count)], delta), compose_upper([(losses, count)], delta)
        with monkeypatch.context() as patch:
            patch.setattr(losses_grid, "_MOST_USES", count)
            single = (
                compose_lower([(losses, count)], delta),
                compose_upper([(losses, count)], delta),
            )
        assert max(staged[0], single[0]) <= min(staged[1], single[1])
        assert staged[1] == pytest.approx(staged[0], rel=1e-6)
        assert single[1] == pytest.approx(single[0], rel=1e-6)


def test_errors_that_are_too_large_leave_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(two_valued_losses(1.0, 1), 2000)]
    monkeypatch.setattr(losses_grid, "_ROUNDING", 1e-4)
    assert compose_upper(parts, 1e-5) == math.inf
    assert compose_lower(parts, 1e-5) == 0.0


def test_a_larger_rounding_error_only_loosens(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(clone_losses(1.0, 30, exponent_for(1e-5, 2000)), 2000)]
    lower, upper = compose_lower(parts, 1e-5), compose_upper(parts, 1e-5)
    monkeypatch.setattr(losses_grid, "_ROUNDING", 2.0**-34)
    assert compose_lower(parts, 1e-5) < lower
    assert compose_upper(parts, 1e-5) > upper
