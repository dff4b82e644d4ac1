"""No epsilon is too small: each is checked against a slow computation from the definitions.

The oracles share no code with the functions under test or with each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import mpmath as mp
import pytest

from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.accounting.numerics.pld_fft import compose_upper
from fedldp.accounting.numerics.shuffle import (
    clone_losses,
    clones_epsilon,
    exponent_for,
    shuffled_composed_lower,
    shuffled_composed_upper,
)
from fedldp.accounting.numerics.shuffle_one import shuffled_one_epsilon

SIZE = 650
Law = dict[Any, Any]


@pytest.fixture(autouse=True)
def fifty_digits() -> Iterator[None]:
    with mp.workdps(50):
        yield


def smallest_epsilon(p_law: Law, q_law: Law, delta: float) -> Any:
    """max over sets S of ln((P(S) - delta)/Q(S)), by Neyman and Pearson."""
    best = p_set = q_set = mp.mpf(0)
    for outcome in sorted(p_law, key=lambda o: -p_law[o] / q_law[o]):
        p_set += p_law[outcome]
        q_set += q_law[outcome]
        if p_set > delta:
            best = max(best, mp.log((p_set - delta) / q_set))
    return best


def add(first: Law, second: Law) -> Law:
    law: Law = {}
    for (a, x), (b, y) in itertools.product(first.items(), second.items()):
        law[a + b] = law.get(a + b, mp.mpf(0)) + x * y
    return law


def binomial(n: int, p: Any) -> Law:
    return {k: mp.binomial(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}


def one_exact(epsilon: float, n: int, delta: float) -> Any:
    """Return the epsilon of one shuffled two-valued report, over all inputs and both directions."""
    p = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    best = mp.mpf(0)
    for high in range(n):
        others = add(binomial(high, p), binomial(n - 1 - high, 1 - p))
        one, zero = add(others, {1: p, 0: 1 - p}), add(others, {1: 1 - p, 0: p})
        best = max(best, smallest_epsilon(one, zero, delta), smallest_epsilon(zero, one, delta))
    return best


def clone_pair(epsilon: float, n: int, *, two_valued: bool) -> tuple[Law, Law]:
    e = mp.exp(mp.mpf(epsilon))
    p, clone = e / (1 + e), 2 / (e + 1) if two_valued else 1 / e
    laws: tuple[Law, Law] = ({}, {})
    for c, mass_c in binomial(n - 1, clone).items():
        for a, mass_a in binomial(c, mp.mpf(1) / 2).items():
            for d in (0, 1):
                key = (a + d, c - a + 1 - d)
                for law, truth in zip(laws, (p, 1 - p), strict=True):
                    mass = mass_c * mass_a * (truth if d else 1 - truth)
                    law[key] = law.get(key, mp.mpf(0)) + mass
    return laws


def composed_exact(pair: tuple[Law, Law], count: int, delta: float) -> Any:
    losses: Law = {}
    for o, mass in pair[0].items():
        key = mp.nstr(mp.log(mass / pair[1][o]), 30)
        losses[key] = losses.get(key, mp.mpf(0)) + mass
    one = {mp.mpf(key): mass for key, mass in losses.items()}
    total: Law = {mp.mpf(0): mp.mpf(1)}
    for _ in range(count):
        total = add(total, one)
    return smallest_epsilon(total, {o: m * mp.exp(-o) for o, m in total.items()}, delta)


def two_valued_delta(epsilon: float, count: int, at: float) -> Any:
    e, p = mp.mpf(epsilon), 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return sum(
        mp.binomial(count, j) * p**j * (1 - p) ** (count - j) * -mp.expm1(at - (2 * j - count) * e)
        for j in range(count + 1)
        if (2 * j - count) * e > at
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("delta", [0.99, 1e-2, 1e-5, 1e-12])
@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 1.0, 8.0, 20.0, 30.0])
def test_one_shuffled_report_by_enumeration(epsilon: float, delta: float) -> None:
    for n in (1, 2, 3, 5):
        assert mp.mpf(shuffled_one_epsilon(epsilon, n, delta)) >= one_exact(epsilon, n, delta)
        for two_valued in (True, False):
            pair = clone_pair(epsilon, n, two_valued=two_valued)
            found = (
                shuffled_composed_upper(epsilon, n, 1, delta)
                if two_valued
                else clones_epsilon(epsilon, n, delta)
            )
            exact = smallest_epsilon(*pair, delta)
            assert mp.mpf(found) >= min(exact, mp.mpf(epsilon))
            # The clone pair bounds the true value from above.
            assert exact >= one_exact(epsilon, n, delta) * (1 - mp.mpf(10) ** -25)


@pytest.mark.parametrize(
    ("epsilon", "n", "count", "delta"),
    [(1e-4, 2, 4, 1e-5), (1.0, 3, 3, 1e-2), (1.0, 2, 4, 1e-12), (10.0, 3, 3, 1e-5)],
)
def test_composed_shuffled_reports_by_enumeration(
    epsilon: float, n: int, count: int, delta: float
) -> None:
    exact = composed_exact(clone_pair(epsilon, n, two_valued=True), count, delta)
    assert mp.mpf(shuffled_composed_upper(epsilon, n, count, delta)) >= exact
    raw = compose_upper([(clone_losses(epsilon, n, exponent_for(delta, count)), count)], delta)
    assert mp.mpf(raw) >= exact
    assert mp.mpf(shuffled_composed_lower(epsilon, n, count, delta)) <= exact


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_fourier_composition_of_a_crowd_of_one_is_no_smaller_than_the_exact(epsilon: float) -> None:
    exact = two_valued_epsilon(epsilon, SIZE, 1e-5)
    assert two_valued_delta(epsilon, SIZE, exact) <= 1e-5
    raw = compose_upper([(clone_losses(epsilon, 1, exponent_for(1e-5, SIZE)), SIZE)], 1e-5)
    assert raw >= exact * (1 - 1e-12)


def test_gaussian_epsilon_is_enough() -> None:
    with mp.workdps(80):
        for mu, delta in itertools.product(
            [1e-6, 1e-3, 0.27, 1.0, 30.0, 1e4], [0.99, 1e-2, 1e-5, 1e-12, 1e-299]
        ):
            e, m = mp.mpf(gaussian_epsilon(mu, delta)), mp.mpf(mu)
            exact = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
            assert exact <= mp.mpf(delta)
