"""Shuffling against known answers, exact fractions and sums over all outcomes.

Known answers: independent computations; the hand-worked ones are exact fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from accounting_oracles import (
    clone_pair,
    composed,
    hockey_stick,
    invert,
    shuffled_one,
    shuffled_pair,
    sum_of_bits,
    truthful,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from fedldp.accounting.numerics import shuffle as clones
from fedldp.accounting.numerics.compose import pure_epsilon, two_valued_epsilon
from fedldp.accounting.numerics.losses import Losses, SumOfBinomials, log_factorial_rest
from fedldp.accounting.numerics.shuffle import (
    binned_clone_losses,
    clone_losses,
    clones_epsilon,
    end_losses,
    exponent_for,
    shuffled_composed_lower,
)
from fedldp.accounting.numerics.shuffle_one import (
    _coins,
    _Pair,
    _worst,
    shuffled_one_epsilon,
    shuffled_one_lower,
)

EPSILONS = st.floats(0.01, 8)
DELTAS = st.floats(-12, -1).map(lambda exponent: 10.0**exponent)


@pytest.mark.parametrize(
    ("epsilon", "n", "delta", "known"),
    [
        (1.0, 100, 1e-5, 0.407817894709581),
        (1.0, 1000, 1e-6, 0.126614480960878),
        (4.0, 200, 1e-5, 3.99962280614197),
        (1.0, 10, 1e-2, 0.739493097912261),
    ],
)
def test_known_epsilons_of_one_report(epsilon: float, n: int, delta: float, known: float) -> None:
    assert shuffled_one_epsilon(epsilon, n, delta) == pytest.approx(known, rel=1e-10)


def worst_delta(epsilon: float, n: int, at: float) -> float:
    """Return the delta of one report for the worst inputs of the others."""
    return max(_Pair(epsilon, high, n - 1 - high, 92.0).delta(at) for high in range(n))


@pytest.mark.parametrize(
    ("ratio", "n"),
    [(Fraction(11, 10), 1), (Fraction(5, 2), 3), (Fraction(3, 2), 9)],
)
def test_the_worst_inputs_of_few_reports(n: int, ratio: Fraction) -> None:
    exact = shuffled_one(Fraction(3, 4), n, ratio)
    fast = worst_delta(math.log(3), n, math.log(ratio))
    assert exact * (1 - Fraction(1, 10**14)) <= fast <= float(exact) * (1 + 1e-11) + 1e-35


@pytest.mark.parametrize(("epsilon", "n"), [(0.5, 60), (2.0, 41), (4.0, 30)])
def test_the_search_over_inputs_is_exhaustive(epsilon: float, n: int) -> None:
    every = [_Pair(epsilon, high, n - 1 - high, 60.0).epsilon(1e-6) for high in range(n)]
    assert shuffled_one_epsilon(epsilon, n, 1e-6) == pytest.approx(max(every), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "count", "lower", "upper", "relative"),
    [
        (1.0, 1_000, 19.07265, 24.32550, 1e-6),
        (1.0, 21_840, 185.09765, 252.80219, 2e-6),
        (0.1, 21_840, 6.931551, 7.135616, 2e-6),
        (1.0, 218_400, 1405.4, 1991.9, 1e-4),
    ],
)
def test_known_compositions(
    epsilon: float, count: int, lower: float, upper: float, relative: float
) -> None:
    found = shuffled_composed_lower(epsilon, 100, count, 1e-5)
    assert found == pytest.approx(lower, rel=relative)
    assert clones_epsilon(epsilon, 100, 1e-5, count, two_valued=True) == pytest.approx(
        upper, rel=relative
    )


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "n", "count"), [(1e-4, 1, 3), (1e-2, 2, 3), (1e-2, 4, 2)])
def test_small_compositions_enclose_all_outcomes(n: int, count: int, delta: float) -> None:
    p = truthful(1.0)
    high = float(pure_epsilon({1.0: count}))
    clones = clone_pair(p, n, 2 / (mp.exp(1) + 1))
    exact = invert(lambda e: composed(clones, count, e), delta, high)
    upper = clones_epsilon(1.0, n, delta, count, two_valued=True)
    assert exact * (1 - 1e-14) <= upper <= exact * (1 + 1e-3)
    first, second = shuffled_pair(p, 0, n - 1)
    exact = max(
        invert(lambda e: composed((first, second), count, e), delta, high),
        invert(lambda e: composed((second, first), count, e), delta, high),
    )
    lower = shuffled_composed_lower(1.0, n, count, delta)
    assert exact * (1 - 1e-3) <= lower <= exact * (1 + 1e-14)


@pytest.mark.parametrize(
    ("epsilon", "n", "two_valued"),
    [(1.0, 1, True), (1e-3, 6, True), (20.0, 6, True), (1.0, 7, False), (4.0, 2, False)],
)
def test_the_clone_pair_against_all_its_outcomes(epsilon: float, n: int, two_valued: bool) -> None:
    clone = 2 / (mp.exp(epsilon) + 1) if two_valued else mp.exp(-epsilon)
    pair = clone_pair(truthful(epsilon), n, clone)
    losses = clone_losses(epsilon, n, two_valued=two_valued)
    for at in (0.0, 0.3 * epsilon, 0.9 * epsilon):
        slow = hockey_stick(*pair, mp.exp(mp.mpf(at)))
        assert slow <= losses.delta(at) <= slow * (1 + mp.mpf("1e-11"))


@pytest.mark.parametrize(
    ("epsilon", "delta", "n"), [(1e-4, 1e-5, 1), (1.0, 0.3, 2), (20.0, 1e-300, 2)]
)
def test_few_participants_get_no_more_than_the_local_guarantee(
    n: int, epsilon: float, delta: float
) -> None:
    assert shuffled_one_epsilon(epsilon, n, delta) <= epsilon
    assert clones_epsilon(epsilon, n, delta) <= epsilon
    upper = clones_epsilon(epsilon, n, delta, 5, two_valued=True)
    assert shuffled_composed_lower(epsilon, n, 5, delta) <= upper
    assert upper <= two_valued_epsilon(epsilon, 5, delta)


def test_delta_zero_and_no_reports() -> None:
    assert clones_epsilon(1.0, 50, 0.0) == shuffled_one_epsilon(1.0, 50, 0.0) == 1.0
    assert clones_epsilon(1.0, 50, 0.0, 7, two_valued=True) == 7.0
    assert shuffled_composed_lower(1.0, 50, 7, 0.0) == pytest.approx(7.0)
    assert clones_epsilon(1.0, 50, 1e-5, 0, two_valued=True) == 0.0
    assert shuffled_composed_lower(1.0, 50, 0, 1e-5) == 0.0


@pytest.mark.slow
@settings(max_examples=15)
@given(EPSILONS, st.integers(1, 80), DELTAS, st.integers(1, 60), st.floats(1, 1.5))
def test_one_report_is_monotone(
    epsilon: float, n: int, delta: float, more: int, factor: float
) -> None:
    found = shuffled_one_epsilon(epsilon, n, delta)
    tolerance = 1 + 1e-9
    assert worst_delta(epsilon, n, found) <= delta * tolerance + 1e-12
    assert shuffled_one_epsilon(epsilon, n + more, delta) <= found * tolerance
    assert found <= shuffled_one_epsilon(epsilon * factor, n, delta) * tolerance
    assert found <= clones_epsilon(epsilon, n, delta) * tolerance <= epsilon * tolerance
    assert clones_epsilon(epsilon, n + more, delta) <= clones_epsilon(epsilon, n, delta) * tolerance


@pytest.mark.parametrize("epsilon", [1e-3, 2.0, 20.0])
def test_end_losses_follow_the_definition(epsilon: float) -> None:
    first, second = shuffled_pair(truthful(epsilon), 0, 8)
    for flipped, (p, q) in ((False, (first, second)), (True, (second, first))):
        losses = end_losses(epsilon, 9, 740.0, flipped)
        exact = [float(mp.log(p[j] / q[j])) for j in range(10)]
        np.testing.assert_allclose(losses.values, exact, rtol=1e-13, atol=1e-14)
        masses = [float(mp.log(p[j])) for j in range(10)]
        np.testing.assert_allclose(losses.log_masses, masses, rtol=1e-13, atol=1e-14)


def test_a_tiny_delta_leaves_the_pure_epsilon_of_one_report() -> None:
    """Alone, delta(e) = p (1 - e^(e - eps0)): the largest loss must be rounded up too."""
    epsilon, delta = 2.2689978826147112, 4.375e-17
    bound = clones_epsilon(epsilon, 1, delta, 1, two_valued=True)
    with mp.workdps(60):
        truth = 1 / (1 + mp.exp(-mp.mpf(epsilon))) * -mp.expm1(mp.mpf(bound) - mp.mpf(epsilon))
        assert truth <= delta


def test_no_digits_are_lost_at_a_tiny_epsilon() -> None:
    """Checked in 60 digits; subtracting two numbers near one half would lose most digits."""
    of_clones = clone_losses(2.4294826176028067e-12, 6, two_valued=False)
    assert of_clones.delta(2.186534355842526e-12) >= 3.796066e-15
    assert clone_losses(7.7e-9, 2, two_valued=False).delta(0.0) >= 1.92500001482e-09
    assert (
        clones_epsilon(5.582225596311789e-06, 2, 3.81e-48, 1, two_valued=True) >= 5.582225596311e-06
    )


# One shuffled coordinate: the sums behind it, the bounds of its search, and large crowds


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
    exact = sum_of_bits([mp.mpf(p) for count, p in parts for _ in range(count)])
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


def test_the_missing_mass_of_a_sum_of_binomials_is_within_its_bound() -> None:
    parts = [(4000, 0.3), (900, 0.7)]
    found = SumOfBinomials([(count, p, 1 - p) for count, p in parts], 40.0)
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
        others = sum_of_bits([mp.mpf(p)] * high + [1 - mp.mpf(p)] * low + [mp.mpf(0.5)] * coins)
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


# The clone pair for many participants, on a grid


def binned(epsilon: float, n: int, exponent: float, *, two_valued: bool = True) -> Losses:
    q = 1 / (1 + math.exp(epsilon))
    clone, own = (
        (2 * q, math.tanh(epsilon / 2))
        if two_valued
        else (math.exp(-epsilon), -math.expm1(-epsilon))
    )
    return binned_clone_losses(epsilon, n - 1, clone, own, exponent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "n", "exponent", "two_valued"),
    [
        (0.01, 2000, 90.0, False),
        (4.0, 10_000, 70.0, False),
        (6.0, 500, 80.0, True),
        (1.0, 1, 70.0, True),
        (2.0, 9, 70.0, False),
        (30.0, 50, 70.0, True),
        (2.0, 1500, 550.0, True),
    ],
)
def test_the_grid_is_just_above_the_listed_outcomes(
    epsilon: float, n: int, exponent: float, two_valued: bool
) -> None:
    listed = clone_losses(epsilon, n, exponent, two_valued=two_valued)
    found = binned(epsilon, n, exponent, two_valued=two_valued)
    # If the probability of no clones matters, the grid is coarse compared with the bulk of
    # outcomes.
    near = 1e-5 if n * math.exp(-epsilon) > 100 else 2e-2
    for share in (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.7):
        at = share * epsilon
        exact, delta = listed.delta(at), found.delta(at)
        if exact > 1e3 * listed.missing and exact > 1e-250:
            assert exact * (1 - 3e-12) <= delta <= exact * (1 + near), (at, exact, delta)
    for delta in (1e-3, 1e-8):
        assert listed.delta(found.epsilon(delta)) <= delta * (1 + 1e-11)
        assert found.epsilon(delta) <= listed.epsilon(delta) * (1 + near) + 1e-15


def test_fewer_rows_stay_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    full = binned(1.0, 8000, 80.0).epsilon(1e-6)
    monkeypatch.setattr(clones, "_MOST_BINNED", 20_000)
    clones.binned_clone_losses.cache_clear()
    fewer = binned(1.0, 8000, 80.0).epsilon(1e-6)
    clones.binned_clone_losses.cache_clear()
    assert full < fewer < full * 1.02


@pytest.mark.parametrize("center", [1, 10, 30_000, 100_000, 300_000])
def test_the_remainder_of_factorials_in_forty_digits(center: int) -> None:
    shares = (center * np.linspace(0.05, 0.5, 19)).astype(
        np.int64
    )  # _deviance changes its method at 0.1
    steps = np.concatenate([[0, 1, 2, 40, 3_599, 9000], shares])
    numbers = np.unique(np.clip(center + np.concatenate([-steps, steps]), 0, None))
    found, errors = log_factorial_rest(numbers, center)
    with mp.workdps(40):
        for a, value, error in zip(numbers.tolist(), found, errors, strict=True):
            exact = mp.loggamma(a + 1) - (a - center) * mp.log(center) - mp.loggamma(center + 1)
            assert abs(exact - mp.mpf(float(value))) <= error
    assert log_factorial_rest(np.array([-1]), center)[0] == np.inf
