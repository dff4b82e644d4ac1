"""The nearest of a few public directions: its law given the seed, its moments, and refusals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedldp.core.errors import RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import MechanismSettings
from fedldp.mechanisms.nearest_direction import (
    MOST_DIRECTIONS,
    NearestDirection,
    _direction,
    _moment,
)


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=6, round=1, client=number, purpose="directions")


def test_the_seed_does_not_depend_on_the_values() -> None:
    mechanism = NearestDirection(2.0, 1.0)
    values = np.random.default_rng(0).normal(size=(20, 9))
    seeds = {mechanism.encode(row, stream())[:-1] for row in values}
    assert len(seeds) == 1
    assert len({mechanism.encode(values[0], stream(n))[:-1] for n in range(20)}) == 20


def test_the_category_is_the_nearest_with_the_probability_of_its_event() -> None:
    mechanism = NearestDirection(2.0, 1.0)
    assert mechanism.choice.directions == 2
    values, kept, reports = np.array([0.3, -0.8, 0.1]), 0, 1000
    unit = np.append(values, math.sqrt(1 - (values**2).sum()))
    for number in range(reports):
        payload = mechanism.encode(values, stream(number))
        along = [float(_direction(payload[:-1], i, 4) @ unit) for i in range(2)]
        nearest = max(range(2), key=lambda i: abs(along[i]))
        kept += payload[-1] == 2 * nearest + (along[nearest] < 0)
    expected = math.exp(2) / (math.exp(2) + 3)
    assert stats.binomtest(kept, reports, expected).pvalue > 1e-6


@pytest.mark.parametrize(
    ("count", "mean"), [(1, math.sqrt(2 / math.pi)), (2, 2 / math.sqrt(math.pi))]
)
def test_the_moments_agree_with_closed_forms(count: int, mean: float) -> None:
    assert _moment(count, 1) == pytest.approx(mean, rel=1e-12)


def test_no_other_number_of_directions_is_better() -> None:
    from fedldp.mechanisms.k_rr import KRR
    from fedldp.mechanisms.nearest_direction import DirectionChoice

    chosen = NearestDirection(4.0, 1.0).choice
    for count in range(1, MOST_DIRECTIONS + 1):
        other = DirectionChoice(count, KRR(4.0, 2 * count))
        noise = [float(c.mean_square(np.zeros(1))[0]) / c.scale**2 for c in (chosen, other)]
        assert noise[0] <= noise[1]


def test_a_report_has_seventeen_bytes_at_any_size() -> None:
    mechanism = NearestDirection.from_settings(
        MechanismSettings(epsilon=1.0, delta=1e-5, clip=2.0, size=9)
    )
    assert mechanism == NearestDirection(1.0, 2.0)
    for size in (1, 5000):
        assert len(mechanism.encode(np.ones(size), stream())) == 17


def test_an_unknown_direction_is_refused() -> None:
    mechanism = NearestDirection(1.0, 1.0)
    aggregate = mechanism.aggregate(5)
    with pytest.raises(RunError, match="unknown direction"):
        aggregate.add(bytes(16) + bytes([2 * mechanism.choice.directions]))


# All of the random words


class Words:
    """A stream that returns given 64-bit words."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def integers(self, count: int, dtype: Any) -> NDArray[Any]:
        return np.array([self.words.pop(0) for _ in range(count)], dtype)


@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 2.0, 4.0, 8.0, 32.0, 1e9])
def test_each_category_has_the_words_of_its_guarantee(epsilon: float) -> None:
    mechanism = NearestDirection(epsilon, 1.0)
    window, categories = mechanism.choice.blur.window, 2 * mechanism.choice.directions
    starts = [0, *range(window.high, window.total + 1, window.low)]
    assert starts[-1] == window.total < 1 << 64
    assert len(starts) == categories + 1
    for category in (0, 1, categories - 1):
        weights: Counter[int] = Counter()
        for start, stop in itertools.pairwise(starts):
            drawn = {
                int(window.draw(np.array([category], np.uint64), Words(word))[0])  # type: ignore[arg-type]
                for word in (start, (start + stop) // 2, stop - 1)
            }
            assert len(drawn) == 1
            weights[drawn.pop()] += stop - start
        expected = dict.fromkeys(range(categories), window.low) | {category: window.high}
        assert weights == expected
    again = window.draw(np.array([1], np.uint64), Words(window.total, 2**64 - 1, 0))  # type: ignore[arg-type]
    assert again.tolist() == [1]
    with mpmath.workdps(50):
        exact = mpmath.log(mpmath.mpf(window.high) / window.low)
        assert exact <= mechanism.event(7).epsilon <= min(epsilon, 32.0)
    assert math.isfinite(mechanism.choice.scale)
