"""Two-valued composition against known answers and term-by-term sums; powers in stages; solutions.

Known answers: independent computations of Kairouz, Oh, Viswanath 2015, Theorem 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from accounting_oracles import invert, mixed, two_valued
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp.accounting.numerics import pld_fft
from fedldp.accounting.numerics.compose import (
    pure_epsilon,
    revealing_epsilon,
    two_valued_epsilon,
)
from fedldp.accounting.numerics.losses import log_pmf, two_valued_losses, window
from fedldp.accounting.numerics.pld_fft import compose_lower, compose_upper
from fedldp.accounting.numerics.shuffle import clone_losses, end_losses, exponent_for
from fedldp.accounting.numerics.solve import solve

EPSILONS = st.floats(1e-4, 20)
COUNTS = st.integers(1, 300)
DELTAS = st.floats(-60, -0.1).map(lambda exponent: 10.0**exponent)


@pytest.mark.parametrize(
    ("count", "known"), [(2, 1.999981288883292), (100, 79.8413223649645), (21840, 10647.8103421534)]
)
def test_known_epsilons_meet_delta_in_the_slow_sum(count: int, known: float) -> None:
    found = two_valued_epsilon(1.0, count, 1e-5)
    assert found == pytest.approx(known, rel=1e-12)
    assert two_valued(1.0, count, found) <= 1e-5
    assert two_valued(1.0, count, found * (1 - 1e-12)) > 1e-5


@pytest.mark.parametrize(
    ("part", "count", "epsilon"),
    [(0.0, 1, 1e-4), (0.3, 2, 0.01), (0.999, 15, 1.0), (0.0, 400, 20.0)],
)
def test_delta_is_just_above_the_slow_sum(epsilon: float, count: int, part: float) -> None:
    at = part * count * epsilon
    slow = two_valued(epsilon, count, at)
    fast = two_valued_losses(epsilon, count).delta(at)
    assert slow <= fast <= slow * (1 + 1e-9) + mp.mpf("2e-320")


def test_binomial_errors_are_bounded() -> None:
    for count in (1, 16, 1000, 10**8):
        for epsilon in (1e-4, 1.0, 20.0):
            p, q = truthful_floats(epsilon)
            exact_p = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
            hits = np.unique(np.linspace(*window(count, p, 740.0), 9).astype(np.int64))
            values, errors = log_pmf(count, p, q, hits)
            for j, value, error in zip(hits.tolist(), values, errors, strict=True):
                exact = mp.log(mp.binomial(count, j)) if count < 10**4 else _log_choose(count, j)
                exact += j * mp.log(exact_p) + (count - j) * mp.log(1 - exact_p)
                assert abs(exact - mp.mpf(float(value))) <= error


def truthful_floats(epsilon: float) -> tuple[float, float]:
    return 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))


def _log_choose(n: int, k: int) -> mp.mpf:
    return mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)


def of_two_valued(counts: dict[float, int], delta: float) -> float:
    return revealing_epsilon({(epsilon, 1.0): n for epsilon, n in counts.items()}, delta)


def test_delta_zero_and_too_small_give_the_pure_sum() -> None:
    assert two_valued_epsilon(0.5, 8, 0.0) == 4.0
    assert two_valued_epsilon(0.5, 8, 1e-310) == 4.0
    assert of_two_valued({0.5: 8, 1.0: 2}, 0.0) == 6.0


def test_the_pure_sum_rounds_up() -> None:
    assert mp.mpf(pure_epsilon({0.1: 3})) >= 3 * mp.mpf(0.1)
    assert pure_epsilon({0.1: 3}) == pytest.approx(0.3, rel=1e-15)


@settings(max_examples=10)
@given(EPSILONS, COUNTS, DELTAS)
def test_epsilon_inverts_delta(epsilon: float, count: int, delta: float) -> None:
    found = two_valued_epsilon(epsilon, count, delta)
    assert found <= pure_epsilon({epsilon: count})
    if found < pure_epsilon({epsilon: count}):
        assert two_valued_losses(epsilon, count).delta(found) <= delta
    if found > 0:
        assert two_valued(epsilon, count, found * (1 - 1e-9)) > delta * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delta", "counts"),
    [(1e-8, {1.0: 3, 0.5: 4}), (1e-2, {2.0: 1, 0.1: 6, 0.7: 3}), (0.3, {20.0: 2, 1e-4: 5})],
)
def test_few_outcomes_are_exact(counts: dict[float, int], delta: float) -> None:
    exact = invert(lambda e: mixed(counts, e), delta, pure_epsilon(counts))
    found = of_two_valued(counts, delta)
    assert exact <= found * (1 + 1e-15)
    assert found == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("delta", "count"), [(1e-5, 200), (1e-12, 10_000), (1e-5, 10**7)])
def test_the_grid_is_tight_on_a_count_split_in_two(count: int, delta: float) -> None:
    half = two_valued_losses(1.0, count // 2)
    exact = two_valued_epsilon(1.0, count, delta)
    upper = compose_upper([(half, 2)], delta)
    lower = compose_lower([(half, 2)], delta)
    assert lower <= exact <= upper
    assert upper == pytest.approx(exact, rel=1e-6)
    assert lower == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("delta", "counts"),
    [
        (1e-100, {1.0: 1000, 0.5: 1000, 0.1: 1000}),
        (1e-5, {20.0: 10**5, 1e-4: 10**7}),
        (1e-100, {1.0: 10**7, 0.5: 10**7, 0.1: 10**7}),
    ],
)
def test_the_bounds_of_mixed_epsilons_are_close(counts: dict[float, int], delta: float) -> None:
    parts = [(two_valued_losses(epsilon, count), 1) for epsilon, count in counts.items()]
    upper = of_two_valued(counts, delta)
    lower = compose_lower(parts, delta)
    assert lower <= upper <= lower * (1 + 1e-5)


# Powers in stages, and solutions that meet their target


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
