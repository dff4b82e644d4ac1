"""The two-point randomiser against exact arithmetic, published constants and its own definition."""

from __future__ import annotations

import decimal
import hashlib
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exact import exact_threshold, exp_bounds
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedldp.core.errors import RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.packing import count_ones
from fedldp.mechanisms.two_point import TwoPoint

FULL = 2**64
SMALLEST_TESTED = 1e-6


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=3, round=1, client=number, purpose="two point")


# Constants computed elsewhere


@pytest.mark.parametrize(
    ("epsilon", "threshold"),
    [(1.0, 4961093570831980854), (20.0, 38021573292)],  # by mpmath, with 60 digits
)
def test_known_integer_thresholds(epsilon: float, threshold: int) -> None:
    assert TwoPoint(epsilon).threshold_min == threshold
    assert exact_threshold(epsilon, 64) == threshold


def test_known_report_of_one_weight() -> None:
    # Sun, Qian, Chen 2021, eq. 2 and Lemma 2 with c = 0, r = 0.075, eps = 1, w = 0.03.
    mechanism, radius = TwoPoint(1.0), 0.075
    x = np.array([0.03]) / radius
    assert mechanism.thresholds(x)[0] / 2**64 == pytest.approx(0.59242343145200195, rel=1e-15)
    assert radius * mechanism.scale == pytest.approx(0.16229650603039896, rel=1e-15)
    variance = radius**2 * mechanism.variance(x)[0]
    assert variance == pytest.approx(0.025440155869675327, rel=1e-14)


# The guarantee


epsilons = st.floats(math.log(SMALLEST_TESTED), math.log(32.0)).map(math.exp)


@settings(max_examples=75)
@given(epsilon=epsilons)
@example(epsilon=32.0)
@example(epsilon=1e-6)
def test_the_smallest_threshold_is_the_exact_ceiling(epsilon: float) -> None:
    assert TwoPoint(epsilon).threshold_min == exact_threshold(epsilon, 64)


@pytest.mark.parametrize(
    ("rounding", "precision"),
    [(decimal.ROUND_DOWN, 3), (decimal.ROUND_UP, 9), (decimal.ROUND_DOWN, 28)],
)
def test_the_threshold_does_not_depend_on_the_callers_decimal_context(
    precision: int, rounding: str
) -> None:
    for epsilon in (0.3, 1.0, 7.7, 32.0):
        with decimal.localcontext() as context:
            context.prec = precision
            context.rounding = rounding
            found = TwoPoint(epsilon).threshold_min
        assert found == exact_threshold(epsilon, 64)


@settings(max_examples=75)
@given(epsilon=epsilons)
@example(epsilon=32.0)
def test_the_realised_epsilon_is_right_and_no_larger(epsilon: float) -> None:
    mechanism = TwoPoint(epsilon)
    low = mechanism.threshold_min
    with decimal.localcontext(prec=60):
        exact = (Decimal(FULL - low) / low).ln()
    assert exact <= Decimal(epsilon)
    assert mechanism.realised_epsilon <= epsilon
    assert mechanism.realised_epsilon == pytest.approx(float(exact), rel=1e-12)


EDGES = [1.0, -1.0, 0.0, -0.0, 5e-324, -5e-324, 1e-45, -1e-45, 2.3e-308, 1.7e308, -1.7e308, 3.4e38,
         1.0 + 2**-52, 1.0 - 2**-53, -1.0 + 2**-53, 1.0 - 2**-24, -1.0 - 2**-23]  # fmt: skip
inputs = st.lists(
    st.sampled_from(EDGES) | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1, 1),
    min_size=2,
    max_size=12,
)


@settings(max_examples=75)
@given(epsilon=epsilons, values=inputs, single=st.booleans())
@example(epsilon=32.0, values=EDGES, single=False)
@example(epsilon=32.0, values=EDGES, single=True)
@example(epsilon=1e-12, values=EDGES, single=False)
@example(epsilon=1.0, values=[-1.0, 1.0], single=True)
def test_no_two_inputs_are_distinguished_by_more_than_epsilon(
    epsilon: float, values: list[float], single: bool
) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values, np.float32 if single else np.float64)
    array = array[np.isfinite(array)]
    ones = TwoPoint(epsilon).thresholds(array)
    assert all(isinstance(one, int) and 0 < one < FULL for one in ones)
    if ones:
        bound = exp_bounds(Fraction(epsilon))[0]  # below e^eps, so the test is on the safe side
        assert max(ones) <= bound * min(ones)
        assert FULL - min(ones) <= bound * (FULL - max(ones))


@pytest.mark.parametrize(
    ("epsilon", "bias"), [(1e-12, 1e-3), (1e-6, 1e-9), (1.0, 1e-9), (32.0, 1e-9)]
)
def test_the_estimate_is_unbiased_by_its_thresholds(epsilon: float, bias: float) -> None:
    # K (2 T/2^64 - 1) is the expectation of a report. With few steps between the thresholds,
    # rounding them down moves it.
    mechanism = TwoPoint(epsilon)
    values = np.linspace(-1, 1, 41)
    found = [
        float(Fraction(2 * one - 2**64, 2**64 - 2 * mechanism.threshold_min))
        for one in mechanism.thresholds(values)
    ]
    np.testing.assert_allclose(found, values, atol=bias)


# The encoder is the definition U < T


class Scripted:
    """A stream with given high words, and with given low words that are counted."""

    def __init__(self, high: list[int], low: list[int]) -> None:
        self.high: Iterator[int] = iter(high)
        self.low: Iterator[int] = iter(low)
        self.low_words_drawn = 0

    def fill(self, buffer: np.ndarray, count: int) -> None:
        buffer[:count] = self.integers(count // 4, np.int32).view(np.uint8)

    def integers(self, count: int, dtype: Any) -> np.ndarray:
        if dtype is np.int32:
            return np.array([next(self.high) for _ in range(count)], np.int32)
        assert dtype is np.uint32
        self.low_words_drawn += count
        return np.array([next(self.low) for _ in range(count)], np.uint32)


def bits_of(payload: bytes, count: int) -> list[int]:
    return np.unpackbits(np.frombuffer(payload, np.uint8), count=count).tolist()


def around(threshold: int) -> list[tuple[int, int]]:
    """Return (high word, low word) of uniform integers below, at and above a threshold."""
    # A quick threshold is off by at most a few hundred high words; see ``Quick``.
    steps = [0, 1, 2, *(k << 32 for k in (1, 2, 127, 128, 129, 130, 131, 257, 258, 259))]
    near = [threshold + sign * step for step in steps for sign in (-1, 1)]
    pairs = [divmod(u, 2**32) for u in (*near, 0, FULL - 1) if 0 <= u < FULL]
    return [*pairs, (threshold >> 32, 0), (threshold >> 32, 2**32 - 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 10.0, 20.0, 32.0])
def test_the_encoder_compares_as_defined_even_in_ties(
    epsilon: float, dtype: type[np.floating]
) -> None:
    mechanism = TwoPoint(epsilon)
    candidates = np.concatenate([EDGES, np.random.default_rng(5).uniform(-1, 1, 200)])
    with np.errstate(over="ignore"):
        candidates = candidates.astype(dtype)
    candidates = candidates[np.isfinite(candidates)]
    values, words, lows, expected = [], [], [], []
    for value, threshold in zip(candidates, mechanism.thresholds(candidates), strict=True):
        for high, low in around(threshold):
            uniform = high * 2**32 + low
            values.append(value)
            words.append(high - 2**31)
            expected.append(int(uniform < threshold))
            if high == threshold >> 32:
                lows.append(low)
    script = Scripted(words, lows)
    payload = mechanism.encode(np.array(values, dtype), script)  # type: ignore[arg-type]
    assert bits_of(payload, len(values)) == expected
    assert 0 < sum(expected) < len(expected)
    assert script.low_words_drawn == len(lows) > 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_quick_threshold_is_never_below_and_within_its_margin(dtype: Any) -> None:
    ends = np.array([1.0, -1.0, 0.0], dtype)
    values = np.concatenate([ends, np.nextafter(ends, dtype(0)), np.array([5e-324, -5e-324], dtype),
                             np.linspace(-1, 1, 999, dtype=dtype)])  # fmt: skip
    budgets = [1e-12, 1e-6, 1e-3, 0.5, 1.0, 7.0, 10.0, *np.linspace(14, 32, 37).tolist()]
    for epsilon in budgets:
        comparison = TwoPoint(epsilon).comparison
        factor, lowest, highest, raised, margin = comparison.quick(dtype is np.float32)
        for value in values:
            quick = int(np.clip(value, lowest, highest) * factor)
            exact = comparison.offset(value) >> 32
            assert -(2**31) <= quick < 2**31
            assert exact <= quick + int(raised) <= exact + margin


# Recorded before encoding used rows and quick thresholds
DIGEST = "7459ab9692fb04e22eab2f97711763bbf9277d7249c3d34a513895f9e3f538f2"


def test_the_bits_of_a_stream_are_the_recorded_ones() -> None:
    found = hashlib.sha256()
    for epsilon in (1e-12, 1e-3, 1.0, 8.0, 16.5, 20, 32):
        for dtype in (np.float32, np.float64):
            for number, size in enumerate((1, 9, 650, 21_840, 65_537, 131_077)):
                values = np.random.default_rng(size).uniform(-1.3, 1.3, size)
                values[:6] = [1.0, -1.0, 0.0, -0.0, 3e38, -1e-45][:size]
                values[size // 2 : size // 2 + size // 8] *= 1e-9
                draws = stream(number)
                found.update(TwoPoint(epsilon).encode(values.astype(dtype), draws))
                found.update(draws.bytes(8).tobytes())
    assert found.hexdigest() == DIGEST


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "size"), [(np.float32, 9), (np.float64, 650), (np.float32, 70_001)]
)
def test_ties_in_rows_are_resolved_each_from_its_own_stream(dtype: Any, size: int) -> None:
    # All in one block, or one or two in each of several blocks
    mechanism, rows = TwoPoint(1.0), 11 if size < 2**16 else 3
    high = mechanism.thresholds(np.zeros(1))[0] >> 32

    def scripts() -> list[Scripted]:
        draws = np.random.default_rng(size)
        words = draws.integers(high - 2**31 - 2, high - 2**31 + 3, (rows, size))
        lows = draws.integers(0, 2**32, (rows, size))
        return [Scripted(w, low) for w, low in zip(words.tolist(), lows.tolist(), strict=True)]

    values = np.random.default_rng(0).uniform(-1e-9, 1e-9, (rows, size)).astype(dtype)
    many, single = scripts(), scripts()
    found = mechanism.encode_many(values, many)  # type: ignore[arg-type]
    for row, payload, draws, same in zip(values, found, single, many, strict=True):
        assert payload.tobytes() == mechanism.encode(row, draws)  # type: ignore[arg-type]
        assert draws.low_words_drawn == same.low_words_drawn
    assert sum(draws.low_words_drawn for draws in many) > 0


@pytest.mark.slow
def test_low_words_follow_the_high_words_of_their_block() -> None:
    # A tie early in a vector of many blocks must not shift the high words of its own block.
    mechanism = TwoPoint(1.0)
    values = np.zeros(200_000)
    high = mechanism.thresholds(np.zeros(1))[0] >> 32
    words = [high - 2**31 - 1] * values.size  # all ones
    ties = [0, 5, 32_768, 65_536, 131_072, 199_999]
    for tie in ties:
        words[tie] = high - 2**31
    script = Scripted(words, [2**32 - 1] * len(ties))  # and zeros at the ties
    found = bits_of(mechanism.encode(values, script), values.size)  # type: ignore[arg-type]
    assert np.flatnonzero(np.array(found) == 0).tolist() == ties
    assert script.low_words_drawn == len(ties)


# The distribution


def test_coordinates_are_drawn_independently() -> None:
    size = 400_000
    bits = np.array(bits_of(TwoPoint(1.0).encode(np.zeros(size), stream(2)), size)) * 2 - 1
    for lag in (1, 2, 7, 8, 31, 32, 64, 32_768, 65_536):
        correlation = (bits[:-lag] * bits[lag:]).sum() / math.sqrt(size - lag)
        assert abs(correlation) < 6


# Counts


def decode(payloads: list[bytes], scales: list[float], size: int) -> np.ndarray:
    """Return the mean with a plain oracle: every bit decoded to +-K."""
    rows = [
        scale * (2.0 * np.array(bits_of(payload, size)) - 1)
        for payload, scale in zip(payloads, scales, strict=True)
    ]
    return np.mean(rows, axis=0)


def reports(mechanism: TwoPoint, count: int, size: int, first: int = 0) -> list[bytes]:
    values = np.linspace(-1, 1, size)
    return [mechanism.encode(values, stream(first + number)) for number in range(count)]


@pytest.mark.parametrize("pattern", ["blocks", "interleaved"])
def test_reports_of_several_budgets_are_decoded_each_with_its_own(pattern: str) -> None:
    size, budgets = 40, [TwoPoint(0.2), TwoPoint(1.0), TwoPoint(8.0)]
    chosen = [budgets[n % 3 if pattern == "interleaved" else n // 300] for n in range(900)]
    payloads = [m.encode(np.linspace(-1, 1, size), stream(n)) for n, m in enumerate(chosen)]
    counts = budgets[0].aggregate(size)
    for mechanism, payload in zip(chosen, payloads, strict=True):
        counts.use_scale(mechanism.scale)
        counts.add(payload)
    expected = decode(payloads, [m.scale for m in chosen], size)
    np.testing.assert_allclose(counts.mean(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 15, 16, 59, 61, 124, 127, 252, 253, 1000])
@pytest.mark.parametrize("size", [8, 13, 250])
def test_ones_are_counted_as_if_one_by_one(rows: int, size: int) -> None:
    generator = np.random.default_rng(rows)
    payloads = generator.integers(0, 256, (rows, -(-size // 8)), dtype=np.uint8)
    expected = np.zeros(size, np.int64)
    for payload in payloads:
        expected += bits_of(payload.tobytes(), size)
    payloads.flags.writeable = False
    found = count_ones(payloads, size)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(count_ones(payloads[::-1], size), expected)
    np.testing.assert_array_equal(count_ones(np.asfortranarray(payloads), size), expected)


@pytest.mark.parametrize(("fill", "size"), [(0, 65_535), (255, 65_537), (None, 200_003)])
def test_ones_of_long_reports_are_counted_in_pieces(size: int, fill: int | None) -> None:
    shape = (300, -(-size // 8))
    payloads = np.full(shape, fill or 0, np.uint8)
    if fill is None:
        payloads = np.random.default_rng(size).integers(0, 256, shape, dtype=np.uint8)
    expected = np.zeros(size, np.int64)
    for payload in payloads:
        expected += np.unpackbits(payload, count=size)
    np.testing.assert_array_equal(count_ones(payloads, size), expected)
    mechanism = TwoPoint(1.0)
    one_by_one, many = mechanism.aggregate(size), mechanism.aggregate(size)
    for payload in payloads:
        one_by_one.add(payload.tobytes())
    many.add_many(payloads[:100])
    many.add_counts(expected - count_ones(payloads[:100], size), 200)
    np.testing.assert_array_equal(one_by_one.mean(), mechanism.scale * (2 * expected - 300) / 300)
    np.testing.assert_array_equal(many.mean(), one_by_one.mean())
    assert many.reports == one_by_one.reports == 300


@pytest.mark.parametrize(
    "payloads",
    [np.zeros((2, 1), np.uint8), np.zeros((2, 3), np.uint8), np.zeros(2, np.uint8),
     np.zeros((1, 2, 2), np.uint8), np.zeros((2, 2), np.int64), np.zeros((2, 2), np.bool_)],
)  # fmt: skip
def test_malformed_rows_are_refused_and_leave_no_trace(payloads: Any) -> None:
    counts = TwoPoint(1.0).aggregate(9)
    counts.add(b"\xff\x80")
    with pytest.raises(RunError, match="9 coordinates"):
        counts.add_many(payloads)
    assert counts.mean().tolist() == [counts.mean()[0]] * 9
    assert counts.reports == 1


@pytest.mark.parametrize(
    ("ones", "number"),
    [([0, 1, 3], 2), ([-1, 0, 0], 2), ([0, 0], 2), ([0, 0, 0, 0], 2), ([0.0, 0.0, 0.0], 2),
     ([[0, 0, 0]], 2), ([0, 0, 0], -1)],
)  # fmt: skip
def test_impossible_counts_are_refused_and_leave_no_trace(ones: Any, number: int) -> None:
    counts = TwoPoint(1.0).aggregate(3)
    with pytest.raises(RunError, match="give"):
        counts.add_counts(np.array(ones), number)
    with pytest.raises(RunError, match="no report"):
        counts.mean()


def test_padding_bits_do_not_count() -> None:
    clean, dirty = TwoPoint(1.0).aggregate(3), TwoPoint(1.0).aggregate(3)
    clean.add(b"\xa0")
    dirty.add(b"\xbf")
    np.testing.assert_array_equal(clean.mean(), dirty.mean())
