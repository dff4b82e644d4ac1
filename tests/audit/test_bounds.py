"""The bounds are exact: their coverage is computed by summing over all outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedldp.audit.bounds import (
    epsilon_lower,
    probability_at_least,
    probability_at_most,
    smallest_found,
)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (7, 10), (10, 10), (61, 10**7)])
def test_the_bounds_are_those_of_clopper_and_pearson(hits: int, trials: int) -> None:
    low, high = (f(hits, trials, 0.001) for f in (probability_at_least, probability_at_most))
    # By definition, at the bound, the observed outcome or a larger (smaller) one has probability
    # alpha.
    if hits:
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(0.001, rel=1e-6)
        assert stats.binom.sf(hits - 1, trials, low) <= 0.001
    if hits < trials:
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(0.001, rel=1e-6)
        assert stats.binom.cdf(hits, trials, high) <= 0.001
    interval = stats.binomtest(hits, trials).proportion_ci(0.998, method="exact")
    assert (low, high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-300)


def failure(p: float, q: float, n: int, m: int, delta: float, confidence: float) -> float:
    """Return the exact probability that the bound exceeds what the event proves."""
    truth = max(0.0, math.log((p - delta) / q)) if p > delta else 0.0
    total = 0.0
    for hits in range(n + 1):
        for false_hits in range(m + 1):
            lower = epsilon_lower(hits, n, false_hits, m, delta=delta, confidence=confidence)
            if lower > truth:
                total += stats.binom.pmf(hits, n, p) * stats.binom.pmf(false_hits, m, q)
    return total


@pytest.mark.parametrize(
    ("p", "q", "delta"),
    [(0.731, 0.269, 0.0), (0.3, 0.02, 0.05), (0.5, 0.5, 0.05), (0.999, 0.3, 0.0)],
)
def test_a_bound_is_too_large_no_more_often_than_it_says(p: float, q: float, delta: float) -> None:
    for confidence in (0.5, 0.9):
        assert failure(p, q, 15, 11, delta, confidence) <= 1 - confidence


def test_a_bound_grows_with_the_evidence_and_falls_with_delta_and_confidence() -> None:
    def bound(hits: int, others: int, delta: float = 0.0, confidence: float = 0.99) -> float:
        return epsilon_lower(hits, 1000, others, 1000, delta=delta, confidence=confidence)

    assert bound(900, 10) > bound(800, 10) > bound(800, 20) > 0
    assert bound(800, 20, delta=0.1) < bound(800, 20)
    assert bound(800, 20, confidence=0.999) < bound(800, 20)
    assert bound(500, 500) == bound(0, 0) == bound(300, 0, delta=0.5) == 0
    assert np.isfinite(bound(1000, 0))


@pytest.mark.parametrize(("false_hits", "delta"), [(0, 0.0), (3, 0.05), (100, 0.05)])
def test_the_smallest_detectable_epsilon_is_just_detected(false_hits: int, delta: float) -> None:
    def lower(hits: int) -> float:
        return epsilon_lower(hits, 2000, false_hits, 2000, delta=delta, confidence=0.999)

    found = smallest_found(1.0, false_hits, 2000, delta=delta, confidence=0.999)
    assert found is not None
    hits = round((math.exp(found) * max(false_hits, 0.5) / 2000 + delta) * 2000)
    assert lower(hits - 1) <= 1.0 < lower(hits) <= found
