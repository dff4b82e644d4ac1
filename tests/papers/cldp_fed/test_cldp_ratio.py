"""Condensed privacy costs its worst ratio, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from fedldp.papers.cldp_fed.mechanism import table


@pytest.fixture(autouse=True)
def fifty_digits() -> Iterator[None]:
    with mp.workdps(50):
        yield


def exceeds(ratio: Fraction, epsilon: float) -> bool:
    with mp.workdps(60):
        return bool(mp.log(mp.mpf(ratio.numerator) / ratio.denominator) > epsilon)


@pytest.mark.parametrize(
    ("alpha", "end"),
    [
        (1e-6, 1),
        (1e-3, 2),
        (0.1, 3),
        (1.0, 9),
        (5.0, 20),
        (40.0, 2),
        (80.0, 3),
        (300.0, 9),
        (1e3, 20),
    ],
)
def test_condensed_privacy_costs_the_worst_ratio_over_all_pairs_of_inputs(
    alpha: float, end: int
) -> None:
    law = table(alpha, end)
    sums = law.up_to(np.arange(2 * end + 1)).tolist()
    weights = [law.peak] + [b - a for a, b in itertools.pairwise(sums)]
    numbers = range(-end, end + 1)
    totals = {v: sum(weights[abs(v - u)] for u in numbers) for v in numbers}
    worst = Fraction(1)
    for report in numbers:
        seen = [Fraction(weights[abs(v - report)], totals[v]) for v in numbers]
        worst = max(worst, max(seen) / min(seen))
    assert not exceeds(worst, law.epsilon)
    assert exceeds(worst, law.epsilon * (1 - 2e-9)), "the statement's lower bound is too large"
    with mp.workdps(60):  # the condensed guarantee for neighbouring numbers
        neighbours = max(
            Fraction(weights[abs(v - u)] * totals[v + 1], weights[abs(v + 1 - u)] * totals[v])
            for u in numbers
            for v in numbers[:-1]
        )
        assert not exceeds(neighbours, alpha)
