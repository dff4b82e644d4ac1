"""Ranges, and refusals of values that no randomiser can protect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.core.bounding import LARGEST, SMALLEST_RADIUS, Ranges, check_releasable
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.protocol.wire import Sensitive

SIZES = (6, 1, 3)


def weights(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.05, 0.3, sum(SIZES)).astype(np.float32)


# check_releasable


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3), (2, 1, 4)])
def test_finite_floats_of_any_shape_may_be_released(
    dtype: type[np.floating], shape: tuple[int, ...]
) -> None:
    check_releasable(np.zeros(shape, dtype))
    check_releasable(np.full(shape, np.finfo(dtype).max))
    check_releasable(np.full(shape, np.finfo(dtype).smallest_subnormal))


@given(size=st.integers(1, 40), place=st.data(), bad=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_bad_value_anywhere_is_refused(size: int, place: st.DataObject, bad: float) -> None:
    values = np.zeros(size)
    values[place.draw(st.integers(0, size - 1))] = bad
    with pytest.raises(PrivacyError, match="nothing was released"):
        check_releasable(values)


# Refusals of ranges


@given(center=st.floats(-LARGEST, LARGEST), radius=st.floats(SMALLEST_RADIUS, LARGEST))
def test_an_accepted_range_has_ends_and_a_middle_in_float32(center: float, radius: float) -> None:
    try:
        Ranges.fixed(center, radius, (1,))
    except ConfigError:
        return
    low, middle, high = np.float32([center - radius, center, center + radius])
    assert low < middle < high


# Fixed and adaptive ranges


@pytest.mark.parametrize("margin", [0.5, 1.0, 1.5])
def test_adaptive_ranges_are_the_middle_and_half_width_of_each_tensor(margin: float) -> None:
    values = np.float32([-1.0, 3.0, 0.0, 1.0, 2.0, 2.5, 0.25, -4.0, -2.0, -3.0])
    # The middle tensor has one weight, so its radius is 0 and the floor, or ``first``, applies.
    for first, radius in ((0.0, 0.01), (0.5, 0.5)):
        ranges = Ranges.of_public(values, SIZES, floor=0.01, margin=margin, first=first)
        assert ranges.centers.tolist() == [1.0, 0.25, -3.0]
        assert ranges.radii.tolist() == [2.0 * margin, radius, 1.0 * margin]
        assert ranges.sizes == SIZES


@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=10, max_size=10),
    floor=st.floats(1e-2, 10.0),
    margin=st.floats(1.0, 3.0),
)
def test_adaptive_ranges_contain_all_weights_and_respect_the_floor(
    values: list[float], floor: float, margin: float
) -> None:
    array = np.float32(values)
    ranges = Ranges.of_public(array, SIZES, floor=floor, margin=margin)
    assert (ranges.radii >= floor).all()
    assert (np.abs(ranges.normalise(array)) <= 1 + 1e-4).all()


def test_adaptive_ranges_accept_public_weights_only() -> None:
    for private in (Sensitive(weights()), weights().tolist(), None):
        with pytest.raises(PrivacyError, match="public"):
            Ranges.of_public(private, SIZES, floor=0.1, margin=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_adaptive_ranges_of_diverged_weights_are_refused(bad: float) -> None:
    values = weights()
    values[4] = bad
    with pytest.raises(ConfigError), np.errstate(invalid="ignore"):
        Ranges.of_public(values, SIZES, floor=0.1, margin=1.0)


# Normalise and restore


def test_normalise_against_plain_numbers() -> None:
    ranges = Ranges.fixed([0.5, -1.0, 2.0], [0.5, 2.0, 0.25], SIZES)
    values = weights()
    centers, radii = np.repeat([0.5, -1.0, 2.0], SIZES), np.repeat([0.5, 2.0, 0.25], SIZES)
    found = ranges.normalise(values)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (values - centers) / radii, rtol=1e-6, atol=1e-6)
    estimate = np.random.default_rng(0).normal(size=10)
    np.testing.assert_allclose(ranges.restore(estimate), centers + radii * estimate, rtol=1e-6)


@pytest.mark.parametrize("shape", [(9,), (11,), (0,), (10, 1), ()])
def test_weights_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(PrivacyError, match="10 weights"):
        Ranges.fixed(0.0, 0.1, SIZES).normalise(np.zeros(shape, np.float32))


# Boxes


@pytest.mark.parametrize("center", [0.0, -0.0, 0.3, [0.0, 0.0, 0.0], [0.1, 0.0, -2.0]])
@pytest.mark.parametrize("radius", [0.1, [0.1, 0.2, 3.0]])
def test_rows_are_normalised_as_single_ones_and_tensor_by_tensor(center: Any, radius: Any) -> None:
    sizes = (3, 1, 5)
    ranges = Ranges.fixed(center, radius, sizes)
    values = np.random.default_rng(0).normal(0, 1, (4, 9)).astype(np.float32)
    values[1, 4], values[2, 0] = 3e38, np.inf  # one overflows, one is refused later
    out = np.empty_like(values)
    assert ranges.normalise(values, out=out) is out
    starts = [0, 3, 4, 9]
    for row, x in zip(values, out, strict=True):
        np.testing.assert_array_equal(ranges.normalise(row), x)
        for tensor in range(3):
            piece = slice(starts[tensor], starts[tensor + 1])
            with np.errstate(over="ignore"):
                plain = row[piece] - np.float32(ranges.centers[tensor])
                plain = plain * np.float32(1.0 / ranges.radii[tensor])
            within = np.isfinite(plain) | ~np.isfinite(row[piece])
            np.testing.assert_array_equal(x[piece][within], plain[within])
            assert np.isfinite(x[piece][~within]).all()
    assert np.isinf(out[2, 0])
