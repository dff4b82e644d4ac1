"""Two-point reports: the distribution of their bits, and the counts that decode them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedldp.core.errors import RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.packing import count_ones
from fedldp.mechanisms.two_point import TwoPoint


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=3, round=1, client=number, purpose="two point")


def bits_of(payload: bytes, count: int) -> list[int]:
    return np.unpackbits(np.frombuffer(payload, np.uint8), count=count).tolist()


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
