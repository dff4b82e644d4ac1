"""Randomised bits cost at least the sum of their worst ratios, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import mpmath as mp
import pytest

from fedldp.core.errors import ConfigError
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits, Variant


@pytest.fixture(autouse=True)
def fifty_digits() -> Iterator[None]:
    with mp.workdps(50):
        yield


@pytest.mark.parametrize(
    ("size", "epsilon", "variant"),
    [(1, 1e-6, "symmetric"), (2, 1.0, "theorem_1"), (3, 1e3, "theorem_2"), (501, 1e9, "theorem_1")],
)
def test_randomised_bits_cost_at_least_the_sum_of_their_worst_ratios(
    variant: Variant, epsilon: float, size: int
) -> None:
    for alpha in (1e-3, 1.0, 10.0, 1e6):
        mechanism = RandomisedBits(epsilon, variant, alpha)
        try:
            laws = mechanism.laws(size)
        except ConfigError:
            continue  # a bit that reveals nothing is refused
        event = mechanism.event(size)
        exact = mp.mpf(0)
        with mp.workdps(60):
            for place in range(size):
                law = laws[place % len(laws)]
                ones = Fraction(law.if_one, law.if_zero)
                zeros = Fraction(2**64 - law.if_one, 2**64 - law.if_zero)
                worst = max(ones, 1 / ones, zeros, 1 / zeros)
                exact += mp.log(mp.mpf(worst.numerator) / worst.denominator)
            printed = sum(mp.mpf(each) * count for each, count in event.groups)
            assert exact <= printed <= exact * (1 + 1e-15)
            assert sum(count for _, count in event.groups) == size
            if variant == "symmetric":
                assert printed <= mp.mpf(epsilon)
