"""The nearest of a few public directions: its law given the seed, and its moments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedldp.core.randomness import Stream
from fedldp.mechanisms.nearest_direction import (
    MOST_DIRECTIONS,
    NearestDirection,
    _direction,
    _moment,
)


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=6, round=1, client=number, purpose="directions")


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
