"""k-ary randomised response and unary encoding: exact ratios, and estimates by enumeration."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from exact import exp_bounds
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted

from fedldp.accounting.events import PureCoordinates
from fedldp.mechanisms import MechanismSettings
from fedldp.mechanisms.k_rr import KRR
from fedldp.papers.ldpfl.bits import FULL
from fedldp.papers.ldpfl.mechanism_unary import Unary

Law = dict[tuple[int, ...], Fraction]
mp.mp.dps = 40
EPSILONS = st.floats(-6, math.log10(32)).map(lambda x: min(32.0, 10.0**x))

SMALL = [
    KRR(1.0, 2),
    KRR(2.0, 3),
    KRR(0.01, 4),
    KRR(32.0, 3),
    Unary(1.0, 3),
    Unary(1.0, 3, "symmetric"),
    Unary(0.01, 2),
    Unary(0.01, 2, "symmetric"),
    Unary(32.0, 4),
    Unary(32.0, 4, "symmetric"),
]


def law_of(mechanism: KRR | Unary, category: int) -> Law:
    """Return the probability of every report of a category, from the sampler's integers."""
    if isinstance(mechanism, KRR):
        window = mechanism.window
        weights = {y: window.high if y == category else window.low for y in range(window.cells)}
        return {(y,): Fraction(weight, window.total) for y, weight in weights.items()}
    ones = [
        Fraction(mechanism.law.if_one if i == category else mechanism.law.if_zero, FULL)
        for i in range(mechanism.categories)
    ]
    law: Law = {(): Fraction(1)}
    for p in ones:
        law = {(*bits, y): mass * (p if y else 1 - p) for bits, mass in law.items() for y in (0, 1)}
    return law


# The guarantee, from the integers


@pytest.mark.parametrize("mechanism", SMALL, ids=repr)
def test_no_two_categories_are_distinguished_by_more_than_epsilon(mechanism: KRR | Unary) -> None:
    laws = [law_of(mechanism, i) for i in range(mechanism.categories)]
    assert all(sum(law.values()) == 1 for law in laws)
    largest = max(a[y] / b[y] for a in laws for b in laws for y in a)
    assert largest <= exp_bounds(Fraction(mechanism.realised_epsilon))[1]
    assert largest > exp_bounds(Fraction(mechanism.realised_epsilon * (1 - 1e-15)))[0]
    assert mechanism.realised_epsilon <= mechanism.epsilon
    assert mechanism.realised_epsilon == pytest.approx(mechanism.epsilon, rel=1e-6)


@settings(max_examples=50)
@given(EPSILONS, st.integers(2, 65_536))
def test_the_integers_stay_within_every_budget(epsilon: float, k: int) -> None:
    bound = exp_bounds(Fraction(epsilon))[0]
    window = KRR(epsilon, k).window
    assert 0 < window.low < window.high <= bound * window.low
    assert window.total < 2**64
    for variant in ("symmetric", "optimised"):
        law = Unary(epsilon, k, variant).law
        odds = Fraction(law.if_one, law.if_zero) * Fraction(FULL - law.if_zero, FULL - law.if_one)
        assert 1 < odds <= bound
    assert KRR(epsilon, k).realised_epsilon <= epsilon
    assert KRR(epsilon, k).realised_epsilon == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize("mechanism", SMALL, ids=repr)
def test_the_event_covers_every_coordinate(mechanism: KRR | Unary) -> None:
    event = mechanism.event(77)
    groups = ((mechanism.realised_epsilon, 77),)
    assert event == PureCoordinates(groups=groups, telling=mechanism.revealing_probability)


@pytest.mark.parametrize("mechanism", SMALL, ids=repr)
def test_reports_that_distinguish_two_categories_have_the_events_probability(
    mechanism: KRR | Unary,
) -> None:
    laws = [law_of(mechanism, i) for i in range(mechanism.categories)]
    for first, second in itertools.permutations(laws, 2):
        differ = [y for y in first if first[y] != second[y]]
        assert sum(first[y] for y in differ) == sum(second[y] for y in differ)
        exact = sum(first[y] for y in differ)
        assert (
            exact <= Fraction(mechanism.revealing_probability) <= exact * (1 + Fraction(1, 2**52))
        )
        ratios = {first[y] / second[y] for y in differ}
        assert len(ratios) == 2  # e^epsilon and its inverse
        assert math.prod(ratios) == 1


# Labels


def test_words_are_counted_for_categories() -> None:
    # The first words belong to the true category, the next ones to each other category.
    mechanism = KRR(2.0, 3)
    window = mechanism.window
    second = window.high + window.low
    words = [0, window.high - 1, window.high, second - 1, second, window.total - 1]
    script = Scripted((np.uint64, words))
    found = mechanism.randomise(np.full(6, 1), script)  # type: ignore[arg-type]
    assert found.tolist() == [1, 1, 0, 0, 2, 2]


# Vectors


@pytest.mark.parametrize(("epsilon", "cls"), [(0.1, KRR), (2.0, Unary), (5.0, Unary)])
def test_settings_give_the_budget_of_a_weight_and_the_best_levels(cls: Any, epsilon: float) -> None:
    chosen = cls.from_settings(MechanismSettings(epsilon=epsilon, delta=0, clip=math.nan, size=9))
    assert chosen.epsilon == epsilon
    grid = np.linspace(0, 1, 101)
    worst = chosen.variance(grid).max()
    assert all(worst <= other.variance(grid).max() for other in cls.candidates(epsilon))
    assert (chosen.categories > 2) == (epsilon > 0.1 or cls is Unary)
