"""Fixed-point codes of the values that a secure sum adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.codes import BoundedSteps, ClippedCodes
from fedldp.mechanisms.integer_gaussian import Integers
from fedldp.mechanisms.words import UnprotectedIntegers


@given(bits=st.integers(2, 52), clients=st.integers(2, 5000))
def test_a_sum_of_the_largest_codes_fits_exactly(bits: int, clients: int) -> None:
    codes = ClippedCodes(clip=1.0, bits=bits)
    if clients > 1 << 64 - bits:
        with pytest.raises(ConfigError, match="does not fit into 64 bits; give at most"):
            codes.sum_bits(clients)
    else:
        assert clients * codes.largest < 1 << (codes.sum_bits(clients) - 1)


@given(
    clip=st.floats(1e-9, 1e9),
    bits=st.integers(2, 52),
    ratios=st.lists(st.floats(-3, 3), min_size=1, max_size=5),
)
def test_codes_are_rounded_to_nearest_and_clipped(
    clip: float, bits: int, ratios: list[float]
) -> None:
    coding = ClippedCodes(clip=clip, bits=bits)
    values: NDArray[np.float64] = np.array(ratios) * clip
    codes = coding.integers(values)
    assert (np.abs(codes) <= coding.largest).all()
    half_step = clip / coding.largest / 2
    error = np.abs(coding.mean_of(codes, 1) - np.clip(values, -clip, clip))
    assert (error <= half_step * (1 + 1e-9) + clip * 1e-15).all()
    assert coding.integers(np.full(len(ratios), clip)).tolist() == [coding.largest] * len(ratios)
    assert coding.integers(-values).tolist() == (-codes).tolist()


@pytest.mark.parametrize("kind", [ClippedCodes, BoundedSteps, Integers])
@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0, np.nan]),
        np.array([np.inf, 0.0]),
        np.array([-np.inf], np.float32),
        np.zeros(0),
        np.array([1, 2]),
        np.array(1.0),
    ],
)
def test_whatever_cannot_be_sent_has_no_value_that_is_sent(
    kind: type[UnprotectedIntegers], values: NDArray[Any]
) -> None:
    for mechanism in kind.examples():
        assert isinstance(mechanism, UnprotectedIntegers)
        with pytest.raises(PrivacyError, match=r"cannot release|NaN or infinity"):
            mechanism.encode(values, Stream.fresh())
        with pytest.raises(PrivacyError, match=r"cannot release|NaN or infinity"):
            mechanism.bound(values)
