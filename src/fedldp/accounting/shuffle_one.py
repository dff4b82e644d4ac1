"""One shuffled two-valued report, exactly.

The server learns the number of ones N = Bin(k, p) + Bin(n - 1 - k, 1 - p) + Bern(p or 1 - p), where
k of the others are at the high end and the rest at the low end: these are the worst inputs, as
delta is convex in each participant's probability. The guarantee is the worst k, and is computed
so, not guessed: a block of values of k is bounded, by data processing, by the same mechanism in
which the participants whose end differs within the block are left out; a best-first search splits
the block with the largest bound until that is a single k. So the result is the maximum over all
k and both directions (exchanging the ends turns k into n - 1 - k and one direction into the other).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fedldp.accounting.binomial import Floats, log_pmf, window
from fedldp.accounting.check import (
    SMALLEST_DELTA,
    check_at_least,
    check_delta,
    check_not_negative,
)
from fedldp.accounting.shuffle import check_reports, clone_losses, exponent_for
from fedldp.accounting.solve import solve
from fedldp.errors import ConfigError

LARGEST_EXACT = 10_000
"""Participants up to which the search over k is made; beyond, the clone pair bounds it above."""


def shuffled_one_delta(epsilon: float, num_reports: int, at_epsilon: float) -> float:
    """Return the delta at ``at_epsilon`` of one shuffled two-valued report.

    Exact up to 10,000 participants but for rounding up (by about 1e-13 of the probability of the
    outcomes that make up delta, plus 1e-39); beyond, an upper bound.

    Args:
        epsilon: of the report without the shuffler, above 0 and up to 30.
        num_reports: n, honest reports shuffled together, from 1.
        at_epsilon: at least 0.

    Raises:
        ConfigError: an argument is out of range.

    >>> import math, fractions
    >>> round(shuffled_one_delta(math.log(3), 4, math.log(3 / 2)) * 512, 9)
    81.0
    """
    check_reports(epsilon, num_reports)
    check_not_negative("at_epsilon", at_epsilon)
    if at_epsilon >= epsilon:
        return 0.0
    if num_reports > LARGEST_EXACT:
        return clone_losses(epsilon, num_reports).delta(at_epsilon)
    return _maximum(
        num_reports, lambda high, low: _Pair(epsilon, high, low, 92.0).delta(at_epsilon)
    )[0]


def shuffled_one_epsilon(epsilon: float, num_reports: int, delta: float) -> float:
    """Return the smallest epsilon at ``delta`` of one shuffled two-valued report.

    Exact up to 10,000 participants but for rounding up; beyond, an upper bound. At 10,000 it takes
    from 0.1 to 3 s.

    Args:
        epsilon: of the report without the shuffler, above 0 and up to 30.
        num_reports: n, honest reports shuffled together, from 1.
        delta: from 0 to below 1.

    Returns:
        At most ``epsilon``, and that for delta = 0.

    Raises:
        ConfigError: an argument is out of range.

    >>> round(shuffled_one_epsilon(1.0, 100, 1e-5), 11)
    0.40781789471
    """
    check_reports(epsilon, num_reports)
    check_delta(delta)
    if delta < SMALLEST_DELTA:
        return epsilon
    if num_reports > LARGEST_EXACT:
        losses = clone_losses(epsilon, num_reports, exponent_for(delta, 1))
        return min(losses.epsilon(delta), epsilon)
    return _worst(epsilon, num_reports, delta)[0]


def shuffled_one_lower(epsilon: float, num_reports: int, delta: float) -> float:
    """Return an epsilon that one shuffled two-valued report certainly costs at ``delta``.

    That of ``shuffled_one_epsilon``, with all rounding down; by 1e-13 or so.

    Args:
        epsilon: of the report without the shuffler, above 0 and up to 30.
        num_reports: n, honest reports shuffled together, from 1 to 10,000.
        delta: from 1e-300 to below 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_reports(epsilon, num_reports)
    check_delta(delta)
    check_at_least("delta", delta, SMALLEST_DELTA)
    if num_reports > LARGEST_EXACT:
        raise ConfigError(f"num_reports = {num_reports}: give at most {LARGEST_EXACT}")
    reached, high = _worst(epsilon, num_reports, delta)
    pair = _Pair(epsilon, high, num_reports - 1 - high, exponent_for(delta, 1))
    return min(pair.lower(delta, reached), reached)


@lru_cache(maxsize=256)
def _worst(epsilon: float, num_reports: int, delta: float) -> tuple[float, int]:
    """Return the epsilon of the worst k, rounded up, and that k."""
    exponent = exponent_for(delta, 1)
    return _maximum(
        num_reports, lambda high, low: _Pair(epsilon, high, low, exponent).epsilon(delta)
    )


class _Pair:
    """The number of ones with the differing client at the high end (P), and at the low end (Q).

    Args:
        epsilon: of each report.
        high: of the other participants, those at the high end.
        low: those at the low end.
        exponent: counts of probability below about e^-exponent are left out.
    """

    def __init__(self, epsilon: float, high: int, low: int, exponent: float) -> None:
        p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
        others, errors = np.ones(1), np.zeros(1)
        for count, of_one, of_zero in ((high, p, q), (low, q, p)):
            ends = window(count, of_one, exponent)
            log_masses, bounds = log_pmf(count, of_one, of_zero, np.arange(ends[0], ends[1] + 1))
            masses = np.exp(log_masses)
            errors = np.convolve(errors, masses) + np.convolve(others, masses * bounds)
            others = np.convolve(others, masses)
        self._p_masses = _plus_one(others, p, q)
        self._q_masses = _plus_one(others, q, p)
        self._epsilon = epsilon
        errors = 1.01 * errors + 2e-16 * len(others) * others
        self._p_errors = _plus_one(errors, p, q)
        self._q_errors = _plus_one(errors, q, p)
        self._missing = 4 * math.exp(-exponent)

    def delta(self, at_epsilon: float) -> float:
        """Return sum (P - e^e Q)+, rounded up."""
        scaled = self._q_masses * math.exp(at_epsilon)
        more = self._p_masses > scaled
        errors = self._p_errors[more] + self._q_errors[more] * math.exp(at_epsilon)
        return float(np.sum(self._p_masses[more] - scaled[more] + errors)) + self._missing

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon with at most ``delta``, rounded up; at most the local one."""
        if self.delta(self._epsilon) > delta:
            return self._epsilon
        return solve(self.delta, delta, start=self._epsilon, end=0.0)

    def lower(self, delta: float, near: float) -> float:
        """Return ln((P(S) - delta)/Q(S)), rounded down, of the counts S with losses from ``near``.

        Any set gives a lower bound of epsilon; that of the true epsilon gives epsilon itself.
        """
        more = self._p_masses > self._q_masses * (math.exp(near) * (1 - 1e-9))
        p_set = float(np.sum(self._p_masses[more] - self._p_errors[more])) * (1 - 1e-14)
        q_set = float(np.sum(self._q_masses[more] + self._q_errors[more])) * (1 + 1e-14)
        left, right = (p_set - delta) * (1 - 1e-15), q_set + self._missing
        return max(math.log(left / right) - 1e-15, 0.0) if left > 0 else 0.0


def _plus_one(others: Floats, of_one: float, of_zero: float) -> Floats:
    return np.convolve(others, np.array([of_zero, of_one]))


def _maximum(num_reports: int, value: Callable[[int, int], float]) -> tuple[float, int]:
    """Return the largest value(k, n - 1 - k) over k from 0 to n - 1, and its k.

    Args:
        num_reports: n.
        value: of (others at the high end, others at the low end); falls as either grows.
    """
    others = num_reports - 1
    blocks = [(-value(0, 0), 0, others)]
    while True:
        bound, first, last = heapq.heappop(blocks)
        if first == last:
            return -bound, first
        middle = (first + last) // 2
        for start, stop in ((first, middle), (middle + 1, last)):
            heapq.heappush(blocks, (-value(start, others - stop), start, stop))
