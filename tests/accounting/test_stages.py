"""Powers computed in stages, and solutions that meet their target."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from fedldp.accounting.numerics import pld_fft
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.losses import two_valued_losses
from fedldp.accounting.numerics.pld_fft import compose_lower, compose_upper
from fedldp.accounting.numerics.shuffle import clone_losses, end_losses, exponent_for
from fedldp.accounting.numerics.solve import solve


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
@pytest.mark.slow
@pytest.mark.parametrize(("delta", "epsilon"), [(0.1, 10.0), (1e-5, 14.0)])
def test_a_likely_largest_sum_leaves_room_for_moved_losses(epsilon: float, delta: float) -> None:
    exact = two_valued_epsilon(epsilon, 3000, delta)
    upper = compose_upper([(two_valued_losses(epsilon, 1), 3000)], delta)
    assert exact * (1 - 1e-13) <= upper <= exact * (1 + 1e-7)


@pytest.mark.slow
def test_stages_agree_with_a_single_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    exponent = exponent_for(1e-5, 700)
    for losses in (clone_losses(1.0, 30, exponent), end_losses(1.0, 30, exponent, flipped=True)):
        parts = [(losses, 700)]
        staged = compose_lower(parts, 1e-5), compose_upper(parts, 1e-5)
        with monkeypatch.context() as patch:
            patch.setattr(pld_fft, "_MOST_USES", 700)
            single = compose_lower(parts, 1e-5), compose_upper(parts, 1e-5)
        assert max(staged[0], single[0]) <= min(staged[1], single[1])
        assert staged[1] == pytest.approx(staged[0], rel=1e-6)
        assert single[1] == pytest.approx(single[0], rel=1e-6)


def test_errors_that_are_too_large_leave_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(two_valued_losses(1.0, 1), 2000)]
    monkeypatch.setattr(pld_fft, "_ROUNDING", 1e-4)
    assert compose_upper(parts, 1e-5) == math.inf
    assert compose_lower(parts, 1e-5) == 0.0


# Solutions


Function = Callable[[float], float]

SMOOTH: list[tuple[Function, float, float, float]] = [
    (lambda x: x * x, 2.0, 1.0, 3.0),
    (lambda x: 1 / x, 0.5, 8.0, 1.0),
    (math.expm1, 1e-3, 1e-4, 1.0),
    (lambda x: x**5 + x, 7.0, 1.0, 3.2),
    (math.sqrt, 1.7, 1.0, 10.0),
]
ROUGH: list[tuple[Function, float, float, float]] = [
    (lambda x: math.inf if x > 3 else x, 2.5, 1.0, 10.0),
    (lambda x: math.inf if x > 3 else x, 5.0, 1.0, 10.0),
    (lambda x: math.floor(x * 10) / 10, 0.75, 0.0, 1.0),
    (lambda x: 0.0 if x < 0.7 else 1e300, 1.0, 0.0, 1.0),
    (math.expm1, 1e-3, 0.0, 50.0),
]


@pytest.mark.parametrize("precision", [1e-4, 1e-10])
@pytest.mark.parametrize("case", SMOOTH + ROUGH)
def test_the_solution_meets_its_target_as_closely_as_requested(
    case: tuple[Function, float, float, float], precision: float
) -> None:
    function, target, start, end = case
    found = solve(function, target, start, end, precision)
    assert function(found) <= target
    beyond = found + math.copysign(2 * precision * abs(found), end - start)
    assert function(beyond) > target
    assert function(solve(function, target, start, end)) <= target


def test_an_end_that_meets_the_target_is_taken() -> None:
    assert solve(lambda x: x, 3.0, 0.0, 2.0, 1e-10) == 2.0
