"""One shuffled two-valued report: its exact guarantee, or close bounds on it.

The server learns the number of ones N = Bin(k, p) + Bin(n - 1 - k, 1 - p) + Bern(p or 1 - p), with
k of the others at the high end and the rest at the low end. These are the worst inputs, because
delta is convex in each participant's probability. The guarantee is for the worst k, and that k is
searched for, not guessed. By data processing, a block of values of k is bounded by a mechanism that
is no more private than any of them: it leaves out the participants whose end differs within the
block, except for those who send a fair coin regardless of their end. A best-first search splits the
block with the largest bound until that block is a single k. So the result is the maximum over all k
and both directions (exchanging the ends turns k into n - 1 - k and one direction into the other).
With many participants the search stops once the largest bound is close to a value that some k
attains; every bound is valid.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

from fedldp.accounting.numerics.losses import SumOfBinomials, window
from fedldp.accounting.numerics.shuffle import check_reports, clone_losses, exponent_for
from fedldp.accounting.numerics.solve import solve
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import (
    SMALLEST_DELTA,
    check_at_least,
    check_delta,
)

LARGEST_EXACT = 10_000
"""The largest number of participants for which the search over k runs to the end."""

LARGEST_SEARCHED = 1_000_000
"""The largest number of participants for which k is searched. Beyond it, the clone pair gives an
upper bound."""

# When a search ends, for up to LARGEST_EXACT participants and for more: once the largest bound is
# above a value that some k attains by at most this relative amount, or after this number of bounds.
# For up to LARGEST_EXACT participants, the second limit matters only if epsilon is below 0.1.
_FEW, _MANY = (0.0, 4000), (1e-3, 1000)

# The logarithm of the share of delta that is given up for a block, in case fewer participants send
# coins than counted.
_LOG_SHARE_GIVEN_UP = -21.0

_STEPS = 8  # attempts to move an epsilon so that rounding is harmless; two or three suffice


def shuffled_one_epsilon(epsilon: float, num_reports: int, delta: float) -> float:
    """Return the smallest epsilon at ``delta`` of one shuffled two-valued report.

    It is exact up to 10,000 participants, apart from rounding up. Up to 1,000,000, it is too large
    by a relative 1e-3, or 1e-2 in the worst case tried. Beyond that, it is the upper bound of the
    clone pair. It takes a few seconds at most.

    Args:
        epsilon: the epsilon of the report without the shuffler, above 0 and up to 30.
        num_reports: n, the number of honest reports shuffled together, at least 1.
        delta: at least 0 and below 1.

    Returns:
        At most ``epsilon``; exactly ``epsilon`` for delta = 0.

    Raises:
        ConfigError: an argument is out of range.

    >>> round(shuffled_one_epsilon(1.0, 100, 1e-5), 10)
    0.4078178947
    """
    check_reports(epsilon, num_reports)
    check_delta(delta)
    if delta < SMALLEST_DELTA:
        return epsilon
    if num_reports > LARGEST_SEARCHED:
        losses = clone_losses(epsilon, num_reports, exponent_for(delta, 1))
        return min(losses.epsilon(delta), epsilon)
    return _worst(epsilon, num_reports, delta)[0]


def shuffled_one_lower(epsilon: float, num_reports: int, delta: float) -> float:
    """Return a lower bound on the epsilon of one shuffled two-valued report at ``delta``.

    It is the epsilon of the worst k found by ``shuffled_one_epsilon``, rounded down throughout.

    Args:
        epsilon: the epsilon of the report without the shuffler, above 0 and up to 30.
        num_reports: n, the number of honest reports shuffled together, from 1 to 1,000,000.
        delta: at least 1e-300 and below 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_reports(epsilon, num_reports)
    check_delta(delta)
    check_at_least("delta", delta, SMALLEST_DELTA)
    if num_reports > LARGEST_SEARCHED:
        raise ConfigError(f"num_reports = {num_reports}: give at most {LARGEST_SEARCHED}")
    reached, high = _worst(epsilon, num_reports, delta)
    pair = _Pair(epsilon, high, num_reports - 1 - high, exponent_for(delta, 1))
    return min(pair.lower(delta), reached)


@lru_cache(maxsize=256)
def _worst(epsilon: float, num_reports: int, delta: float) -> tuple[float, int]:
    """Return the epsilon of the worst k, rounded up, and the worst k that was found."""
    exponent, log_given_up = exponent_for(delta, 1), math.log(delta) + _LOG_SHARE_GIVEN_UP

    def bound(first: int, last: int) -> float:
        coins, given_up = _coins(epsilon, first, last, log_given_up)
        pair = _Pair(epsilon, first, num_reports - 1 - last, exponent, coins)
        return pair.epsilon(delta - given_up)

    return _maximum(num_reports, bound)


def _coins(epsilon: float, first: int, last: int, log_given_up: float) -> tuple[int, float]:
    """Return how many coins stand for a block of k, and the share of delta that is given up.

    The participants whose end differs within the block, from ``first`` to ``last``, send a fair
    coin with probability 2 q, whatever their end. A ``_Pair`` of these coins and of those at the
    same end throughout is no more private than any k of the block. With probability at most the
    share that is given up, there are fewer coins.
    """
    if last == first:
        return 0, 0.0
    coins, _ = window(last - first, 2 / (1 + math.exp(epsilon)), -log_given_up)
    return coins, math.exp(log_given_up) if coins else 0.0


class _Pair:
    """The laws of the number of ones if the differing client is at the high end (P) or low end (Q).

    For the other participants, let f(j) be the probability of j ones, and G(j) the probability of
    at least j. Then P(j) - e^e Q(j) = (p - e^e q) f(j - 1) - (e^e p - q) f(j), with q = 1 - p.
    Because f is log-concave, this difference is above 0 from some j on. Summing it from there gives
    delta(e) = max over j of (p - e^e q) f(j - 1) - (e^e - 1) G(j).

    Args:
        epsilon: the epsilon of each report.
        high: the number of other participants at the high end.
        low: the number of other participants at the low end.
        exponent: counts with probability below about e^-exponent are left out.
        coins: the number of additional participants, who each send a fair coin.
    """

    def __init__(
        self, epsilon: float, high: int, low: int, exponent: float, coins: int = 0
    ) -> None:
        p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
        parts = [(high, p, q), (low, q, p), *([(coins, 0.5, 0.5)] if coins else [])]
        self._others = SumOfBinomials(parts, exponent)
        self._epsilon, self._p, self._q = epsilon, p, q
        self._gain = math.tanh(epsilon / 2)  # p - q
        self._noise = 4 * self._others.error  # more than the error of a quotient of masses

    def delta(self, at_epsilon: float) -> float:
        """Return sum (P - e^e Q)+, rounded up, for an epsilon of at most a report's epsilon."""
        at = at_epsilon
        for _ in range(_STEPS):
            first = self._q * math.exp(at) * math.expm1(self._epsilon - at)  # p - e^e q
            second = self._q * math.expm1(self._epsilon + at)  # e^e p - q
            j, certain = self._threshold(first, second)
            if certain:
                gained = first * self._others.mass(j - 1)
                lost = math.expm1(at) * self._others.tail(j)
                error = self._noise * (gained + abs(lost))
                return max(gained - lost + error, 0.0) + self._others.missing
            # A smaller e has a larger delta. This one lowers ln(second/first) by at least 8 times
            # the noise.
            at -= 8 * self._noise * self._gain
        return 1.0

    def _threshold(self, first: float, second: float) -> tuple[int, bool]:
        """Return the first j with first f(j - 1) >= second f(j), and whether rounding is harmless.

        f(j - 1)/f(j) rises with j, so j is certain if rounding affects the comparison neither at j
        nor at j - 1.
        """
        f, wide = self._others.mass, 1 + self._noise
        j = self._first(lambda j: first * f(j - 1) >= second * f(j))
        here = first * f(j - 1) >= second * f(j) * wide
        return j, here and first * f(j - 2) * wide <= second * f(j - 1)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon meeting ``delta``, rounded up; at most the local epsilon."""
        j = self._best(delta)
        base = self._q * self._others.mass(j - 1) + self._others.tail(j)  # Q(N >= j), the slope
        if base > 0:
            found = math.log1p(max((self._gain * self._others.mass(j - 1) - delta) / base, 0.0))
            for _ in range(_STEPS):
                if found >= self._epsilon:
                    break
                excess = self.delta(found) - delta
                if excess <= 0:
                    return found
                found = found * (1 + 2.0**-51) + 2 * excess / base
        if self.delta(self._epsilon) > delta:
            return self._epsilon
        return solve(self.delta, delta, start=self._epsilon, end=0.0)

    def lower(self, delta: float) -> float:
        """Return ln((P(N >= j) - delta)/Q(N >= j)) for some j, rounded down; any j is valid."""
        j, others = self._best(delta), self._others
        mass, tail = others.mass(j - 1), others.tail(j)
        gain = self._gain * mass * (1 - self._noise) - delta
        base = (self._q * mass + tail) * (1 + self._noise) + 2 * others.missing
        return math.log1p(gain / base) * (1 - 1e-15) if gain > 0 else 0.0

    def _best(self, delta: float) -> int:
        """Return approximately the j with the largest (P(N >= j) - delta)/Q(N >= j).

        j is better than j + 1 if P(N = j)/Q(N = j) exceeds this ratio at j + 1. Once that is true
        for some j, it is true for all larger j.
        """
        f, p, q, gain = self._others.mass, self._p, self._q, self._gain

        def better(j: int) -> bool:
            before, there = f(j - 1), f(j)
            rest = q * there + self._others.tail(j + 1)
            return gain * (before - there) * rest > (gain * there - delta) * (
                q * before + p * there
            )

        return self._first(better)

    def _first(self, holds: Callable[[int], bool]) -> int:
        """Return the first j for which ``holds`` is true, if it is also true for all larger j."""
        counts = range(self._others.first, self._others.last + 1)
        return self._others.first + bisect_left(counts, True, key=holds)


def _maximum(num_reports: int, bound: Callable[[int, int], float]) -> tuple[float, int]:
    """Return the largest value over k from 0 to n - 1, or a bound on it, and roughly the best k.

    Args:
        num_reports: n.
        bound: returns a bound for all k from its first argument to its second; exact for a single
            k.
    """
    others = num_reports - 1
    close, most = _FEW if num_reports <= LARGEST_EXACT else _MANY
    blocks = [(-bound(0, others), 0, others)]
    reached, best, used = bound(others, others), others, 2  # among the best in all cases tried
    while True:
        largest, first, last = heapq.heappop(blocks)
        if first == last:
            return -largest, first
        middle = (first + last) // 2
        if used > most:
            reached, best = max((reached, best), (bound(middle, middle), middle))
        if used > most or (close and -largest <= reached * (1 + close)):
            return -largest, best
        for start, stop in ((first, middle), (middle + 1, last)):
            heapq.heappush(blocks, (-bound(start, stop), start, stop))
        used += 2
