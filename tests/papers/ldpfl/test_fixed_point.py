"""Fixed-point codes against a slow oracle in exact arithmetic, and their refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.core.errors import PrivacyError
from fedldp.papers.ldpfl.bits import FixedPoint, Rounding

digits = st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(any)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)


def by_hand(value: float, whole: int, fraction: int, rounding: Rounding) -> str:
    """Return the code of one number as text (a sign, then digits), in exact arithmetic."""
    rounded = math.floor if rounding == "down" else round  # round: halfway to an even number
    units = min(rounded(abs(Fraction(value)) * 2**fraction), 2 ** (whole + fraction) - 1)
    sign = "1" if math.copysign(1.0, value) < 0 else "0"
    return sign + format(units, f"0{whole + fraction}b")


numbers = floats | st.integers(-200, 200).map(lambda halves: halves / 2**4)


@given(st.lists(numbers, min_size=1, max_size=8), digits, st.sampled_from(["down", "nearest"]))
def test_codes_are_those_of_exact_arithmetic(
    values: list[float], places: tuple[int, int], rounding: Rounding
) -> None:
    bits = FixedPoint(*places, rounding=rounding).encode(np.array([values], np.float32))
    expected = "".join(by_hand(value, *places, rounding) for value in values)
    assert "".join(map(str, bits[0])) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_numbers_are_refused(value: float) -> None:
    with pytest.raises(PrivacyError):
        FixedPoint(4, 5).encode(np.array([[1.0, value]]))
