"""An independent oracle for e^x: two rational bounds, computed with integers alone."""

from __future__ import annotations

import math
from fractions import Fraction

PRECISION = 400


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds below and above e^x for 0 <= x <= 64, at most a relative 2^-300 apart.

    With y = x / 2^7 < 1, e^y is summed from its Taylor series in fixed point, once rounded down and
    once up; the remainder of the series is less than its last term. The sum is then squared seven
    times.
    """
    one = 1 << PRECISION
    y = x / 128
    low_y = (y.numerator << PRECISION) // y.denominator
    low_sum = low_term = high_sum = high_term = one
    for n in range(1, 200):
        low_term = low_term * low_y // (n * one)
        high_term = -(-high_term * (low_y + 1) // (n * one))
        low_sum += low_term
        high_sum += high_term
    high_sum += high_term
    for _ in range(7):
        low_sum = low_sum * low_sum // one
        high_sum = -(-high_sum * high_sum // one)
    assert high_sum - low_sum < low_sum >> 300
    return Fraction(low_sum, one), Fraction(high_sum, one)


def exact_threshold(epsilon: float, bits: int) -> int:
    """Return ceil(2^bits / (1 + e^epsilon)), or fail if the bounds do not determine it."""
    low, high = exp_bounds(Fraction(epsilon))
    below, above = (math.ceil(Fraction(2**bits) / (1 + e)) for e in (high, low))
    assert below == above
    return below
