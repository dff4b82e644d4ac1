"""One shuffled coordinate: the sums behind it, the bounds of its search, and large crowds."""

from __future__ import annotations

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from accounting_oracles import Law, invert, shuffled_one, truthful
from scipy.stats import binom

from fedldp.accounting.numerics.losses import SumOfBinomials
from fedldp.accounting.numerics.shuffle import clone_losses, exponent_for
from fedldp.accounting.numerics.shuffle_one import (
    _coins,
    _Pair,
    _worst,
    shuffled_one_epsilon,
    shuffled_one_lower,
)


def sum_law(parts: list[tuple[int, float]]) -> Law:
    law: Law = {0: mp.mpf(1)}
    for count, p in parts:
        for _ in range(count):
            new: Law = {}
            for ones, mass in law.items():
                new[ones] = new.get(ones, 0) + mass * (1 - mp.mpf(p))
                new[ones + 1] = new.get(ones + 1, 0) + mass * mp.mpf(p)
            law = new
    return law


@pytest.mark.parametrize(
    "parts",
    [
        [(0, 0.3), (0, 0.7)],
        [(5, 0.25), (0, 0.75)],
        [(3, 0.01), (40, 0.99)],
        [(9, 0.2), (7, 0.8), (30, 0.5)],
    ],
)
def test_masses_and_tails_of_a_sum_of_binomials(parts: list[tuple[int, float]]) -> None:
    exact = sum_law(parts)
    found = SumOfBinomials([(count, p, 1 - p) for count, p in parts], 700.0)
    size = sum(count for count, _ in parts)
    for at in range(-1, size + 3):
        for value, slow in (
            (found.mass(at), exact.get(at, mp.mpf(0))),
            (found.tail(at), mp.fsum(mass for ones, mass in exact.items() if ones >= at)),
        ):
            assert abs(mp.mpf(value) - slow) <= slow * found.error + found.missing
    assert found.error < 1e-12
    assert found.missing < 1e-90


@pytest.mark.parametrize(("parts", "exponent"), [([(4000, 0.3), (900, 0.7)], 40.0)])
def test_the_missing_mass_of_a_sum_of_binomials_is_within_its_bound(
    parts: list[tuple[int, float]], exponent: float
) -> None:
    found = SumOfBinomials([(count, p, 1 - p) for count, p in parts], exponent)
    masses = [binom.pmf(np.arange(count + 1), count, p) for count, p in parts]
    exact = np.convolve(*masses)
    for at in range(found.first, found.last + 1, 37):
        assert found.mass(at) <= exact[at] * (1 + 1e-9)
        assert exact[at] <= found.mass(at) * (1 + 1e-9) + found.missing
        assert exact[at:].sum() == pytest.approx(found.tail(at), rel=1e-9, abs=found.missing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delta", "epsilon"), [(1e-1, 0.01), (1e-5, 1.0), (1e-12, 4.0), (1e-1, 12.0)]
)
def test_a_block_bounds_every_one_of_its_inputs(epsilon: float, delta: float) -> None:
    n, exponent = 300, exponent_for(delta, 1)
    single = [_Pair(epsilon, k, n - 1 - k, exponent).epsilon(delta) for k in range(n)]
    coins = 0
    for first, last in ((0, 299), (0, 149), (100, 180), (250, 299), (290, 299), (298, 299)):
        some, given_up = _coins(epsilon, first, last, math.log(delta) - 21)
        coins += given_up > 0
        bound = _Pair(epsilon, first, n - 1 - last, exponent, some).epsilon(delta - given_up)
        assert bound >= max(single[first : last + 1]) * (1 - 1e-10)
    assert coins or epsilon > 1  # otherwise few participants send a one


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 6.0])
def test_pairs_with_coins_follow_the_definition(epsilon: float) -> None:
    p = float(truthful(epsilon))
    for high, low, coins in ((0, 0, 3), (4, 2, 5), (1, 7, 0)):
        others = sum_law([(high, p), (low, 1 - p), (coins, 0.5)])
        for at in (0.0, 0.3 * epsilon, 0.9 * epsilon):
            slow = mp.mpf(0)
            for j in range(high + low + coins + 2):
                before, there = others.get(j - 1, mp.mpf(0)), others.get(j, mp.mpf(0))
                first, second = p * before + (1 - p) * there, (1 - p) * before + p * there
                slow += max(first - mp.exp(at) * second, 0)
            fast = _Pair(epsilon, high, low, 92.0, coins).delta(at)
            assert slow * (1 - mp.mpf("1e-12")) <= fast <= slow * (1 + mp.mpf("1e-10")) + 1e-35


@cache
def exact_one(epsilon: float, n: int, delta: float) -> float:
    return invert(lambda e: shuffled_one(truthful(epsilon), n, mp.exp(e)), delta, epsilon)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "epsilon", "delta", "n"),
    [((0.0, 4000), 0.2, 1e-2, 2), ((1e-3, 300), 1.0, 1e-4, 5), ((1e-3, 8), 3.0, 1e-3, 9)],
)
def test_a_search_that_stops_early_encloses_the_truth(
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    epsilon: float,
    delta: float,
    limits: tuple[float, int],
) -> None:
    exact = exact_one(epsilon, n, delta)
    with monkeypatch.context() as patch:
        patch.setattr("fedldp.accounting.numerics.shuffle_one.LARGEST_EXACT", 1)
        patch.setattr("fedldp.accounting.numerics.shuffle_one._MANY", limits)
        _worst.cache_clear()
        found = shuffled_one_epsilon(epsilon, n, delta)
        lower = shuffled_one_lower(epsilon, n, delta)
        _worst.cache_clear()
    assert lower <= exact * (1 + 1e-12)
    assert exact * (1 - 1e-12) <= found
    if limits[1] > 100:
        assert found <= exact * (1.0011)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 100_000), (8.0, 1_000_000)])
def test_larger_crowds_hide_better_and_bounds_stay_close(epsilon: float, n: int) -> None:
    found, lower = shuffled_one_epsilon(epsilon, n, 1e-5), shuffled_one_lower(epsilon, n, 1e-5)
    assert lower <= found <= 1.003 * lower
    assert found <= shuffled_one_epsilon(epsilon, n // 10, 1e-5)
    assert found <= clone_losses(epsilon, n, exponent_for(1e-5, 1)).epsilon(1e-5)


@pytest.mark.parametrize("delta", [1e-120, 1e-299])
def test_a_delta_that_is_too_small_for_the_sums_keeps_the_local_guarantee(delta: float) -> None:
    assert shuffled_one_epsilon(1.0, 500, delta) == 1.0
    assert 0 <= shuffled_one_lower(1.0, 500, delta) <= 1.0
