"""The piecewise mechanism against exact integer probabilities and the paper's continuous limit."""

from __future__ import annotations

import decimal
import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted

from fedldp.accounting.events import PureReport
from fedldp.core.randomness import Stream
from fedldp.mechanisms.piecewise import CELLS, Piecewise, Window, num_sent, window

EPSILONS = [1e-6, 0.01, 1.0, 2.5, 5.0, 10.0, 22.0, 30.0, 1e6]


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=5, round=1, client=number, purpose="piecewise")


def is_private(cell: Window, epsilon: float) -> bool:
    """Return whether no cell's probabilities for two starts have a ratio above e^epsilon."""
    with_room = Context(prec=80).exp(Decimal(epsilon)) * (1 - Decimal("1e-70"))
    return cell.low > 0 and cell.high <= cell.low * with_room


# The distribution


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_ratio_is_at_most_e_to_the_epsilon_and_close_to_it(epsilon: float) -> None:
    cell = window(epsilon, 1)
    largest = min(epsilon, 32.0)
    assert cell.low < cell.high
    assert is_private(cell, largest)
    assert math.log1p((cell.high - cell.low) / cell.low) == pytest.approx(largest, rel=1e-8)
    assert 1 <= cell.width <= CELLS // 2
    assert 2**64 * 0.9999 < cell.total < 2**64


@settings(max_examples=25)
@given(st.floats(1e-6, 1e4), st.integers(1, 1000))
def test_the_ratio_is_right_for_any_share(epsilon: float, sent: int) -> None:
    cell = window(epsilon, sent)
    share = Fraction(epsilon) / sent
    assert is_private(cell, float(share) * (1 + 1e-15))
    assert cell.total < 2**64


def test_the_weights_do_not_depend_on_the_programs_decimal_context() -> None:
    with decimal.localcontext(prec=5, rounding=decimal.ROUND_UP):
        rough = window.__wrapped__(2.0, 1)
    assert rough == window(2.0, 1)


@pytest.mark.parametrize("start", [0, 1, 777, CELLS - 3])
def test_every_word_belongs_to_one_cell_and_each_cell_has_its_weight(start: int) -> None:
    small = Window(width=3, high=5, low=2)
    words = np.arange(small.total)
    cells = small.draw(np.full(small.total, start, np.uint64), Scripted((np.uint64, words)))  # type: ignore[arg-type]
    expected = np.full(CELLS, small.low)
    expected[start : start + small.width] = small.high
    np.testing.assert_array_equal(np.bincount(cells.astype(int)), expected)


def test_words_beyond_the_total_are_drawn_again() -> None:
    cell = window(1.0, 1)
    words = Scripted(
        *((np.uint64, drawn) for drawn in ([0, cell.total, 2**64 - 1], [cell.total, 0], [0]))
    )
    assert cell.draw(np.zeros(3, np.uint64), words).tolist() == [0, 0, 0]  # type: ignore[arg-type]
    assert not words.requests


@settings(max_examples=30)
@given(st.floats(-1, 1), st.floats(1e-3, 40))
def test_cells_surround_the_value_and_never_leave_the_grid(value: float, epsilon: float) -> None:
    cell = window(epsilon, 1)
    starts = cell.starts(np.full(1000, value), stream()).astype(float)
    exact = (value + 1) / 2 * (CELLS - cell.width)
    assert starts.min() >= 0
    assert starts.max() <= CELLS - cell.width
    assert np.abs(starts - exact).max() <= 1 + 1e-9
    assert abs(starts.mean() - exact) < 0.12


def moments(cell: Window, value: float) -> tuple[Fraction, Fraction]:
    """Return the exact mean and mean square of the estimate of ``value``, from all cells."""
    exact = (Fraction(value) + 1) / 2 * (CELLS - cell.width)
    part = exact - math.floor(exact)
    centred = [2 * y - (CELLS - 1) for y in range(CELLS)]
    scale = Fraction((CELLS - cell.width) * cell.width * (cell.high - cell.low), cell.total)
    sums = [sum(centred), sum(y * y for y in centred)]
    mean = square = Fraction(0)
    for start, share in ((math.floor(exact), 1 - part), (math.floor(exact) + 1, part)):
        inside = centred[start : start + cell.width] if share else []
        first = cell.low * sums[0] + (cell.high - cell.low) * sum(inside)
        second = cell.low * sums[1] + (cell.high - cell.low) * sum(y * y for y in inside)
        mean += share * Fraction(first, cell.total) / scale
        square += share * Fraction(second, cell.total) / scale**2
    return mean, square


@pytest.mark.parametrize(("value", "epsilon"), [(-1.0, 0.01), (0.0, 1.0), (0.3, 10.0), (1.0, 30.0)])
def test_the_estimate_is_unbiased_and_its_variance_exact(epsilon: float, value: float) -> None:
    mean, square = moments(window(epsilon, 1), value)
    assert mean == Fraction(value)
    found = Piecewise(epsilon).variance(np.array([value]))[0]
    exact = square - mean**2
    assert found == pytest.approx(float(exact), rel=1e-9, abs=1e-15 * float(square))


# The report


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.9, 5.0, 17.0, 100.0, 1e5])
def test_the_number_sent_has_the_least_variance(epsilon: float) -> None:
    size = 60
    worst = [
        window(epsilon, k).mean_square(np.ones(1))[0] * size / k - 1 for k in range(1, size + 1)
    ]
    k = num_sent(epsilon, size)
    assert worst[k - 1] == pytest.approx(min(worst), rel=1e-12)
    assert k in (max(1, min(size, math.floor(epsilon / 2.5))), math.floor(epsilon / 2.5) + 1)


def test_positions_are_distinct_uniform_and_do_not_depend_on_the_values() -> None:
    mechanism, size = Piecewise(10.0), 12
    k = mechanism.num_sent(size)
    assert k == 4
    counts = np.zeros(size)
    for number in range(1500):
        payload = mechanism.encode(np.full(size, (number % 3) - 1.0), stream(number))
        positions = np.frombuffer(payload, "<u4", k)
        assert payload[: 4 * k] == mechanism.encode(np.zeros(size), stream(number))[: 4 * k]
        assert (np.diff(positions.astype(int)) > 0).all()
        counts[positions] += 1
    assert np.abs(counts - 500).max() < 5 * math.sqrt(1500 * (1 / 3) * (2 / 3))


@pytest.mark.parametrize(("size", "epsilon"), [(1, 1e-6), (5, 1.0), (1000, 7.3), (1, 1e4)])
def test_the_event_is_at_most_epsilon(epsilon: float, size: int) -> None:
    event = Piecewise(epsilon).event(size)
    cell, sent = Piecewise(epsilon).window(size), num_sent(epsilon, size)
    ratio = Context(prec=60).divide(Decimal(cell.high), Decimal(cell.low))
    exact = sent * ratio.ln(Context(prec=60))
    assert exact <= Decimal(event.epsilon) <= Decimal(epsilon)
    assert event == PureReport(epsilon=event.epsilon)
    assert event.epsilon == pytest.approx(min(epsilon, 32 * size), rel=1e-8)
