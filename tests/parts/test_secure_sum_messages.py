"""Parameters and fixed point of the secure sum."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from secure_sums import make_client, make_setup

from fedldp.errors import ConfigError

N, T, D = 5, 3, 2

# Parameters


@pytest.mark.parametrize(
    "change",
    [{"num_clients": 1, "threshold": 1}, {"threshold": 2}, {"threshold": 6}, {"size": 0},
     {"clip": 0.0}, {"clip": -1.0}, {"clip": math.nan}, {"clip": math.inf}, {"clip": 1e10},
     {"bits": 1}, {"bits": 53}, {"bits": 52, "num_clients": 4097, "threshold": 4000}],
)  # fmt: skip
def test_parameters_out_of_range_are_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refusal:
        replace(make_setup(N, T, D), **change)
    assert re.search("num_clients|threshold|size|clip|bits", str(refusal.value))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("index", [-1, 2**32 - 1])
def test_numbers_that_do_not_fit_are_refused(index: int) -> None:
    with pytest.raises(ConfigError, match=f"index = {index}"):
        make_client(make_setup(N, T, D), index)


def test_a_threshold_of_half_is_refused() -> None:
    # Two halves of the clients could then be told different survivors.
    with pytest.raises(ConfigError, match="more than half"):
        make_setup(4, 2)


# Fixed point


def test_words_of_32_bits_as_long_as_the_sum_fits() -> None:
    assert make_setup(4, 3, bits=30).dtype.itemsize == 4
    assert make_setup(4, 3, bits=31).dtype.itemsize == 8
    assert make_setup(5, 3, bits=30).dtype.itemsize == 8
    assert make_setup(2, 2, bits=31).dtype.itemsize == 4


@given(
    clip=st.floats(1e-9, 1e9),
    bits=st.integers(2, 52),
    ratios=st.lists(st.floats(-3, 3), min_size=1, max_size=5),
)
def test_codes_are_the_nearest_and_clipped(clip: float, bits: int, ratios: list[float]) -> None:
    setup = replace(make_setup(3, 2, len(ratios), bits), clip=clip)
    values: NDArray[np.float64] = np.array(ratios) * clip
    codes = setup.signed(setup.encode(values))
    assert (np.abs(codes) <= setup.largest_code).all()
    half_step = clip / setup.largest_code / 2
    error = np.abs(setup.decode(codes) - np.clip(values, -clip, clip))
    assert (error <= half_step * (1 + 1e-9) + clip * 1e-15).all()
    assert setup.signed(setup.encode(np.full(len(ratios), clip))).tolist() == [
        setup.largest_code
    ] * len(ratios)
    assert setup.signed(setup.encode(-values)).tolist() == (-codes).tolist()
