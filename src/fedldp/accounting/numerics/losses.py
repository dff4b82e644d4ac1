"""Privacy losses of one mechanism: finite pairs of laws P and Q, listed outcome by outcome.

The exact answers here are for one release; ``pld_fft`` composes many. Binomial probabilities have
error bounds, and are accurate far in the tails and for 1e8 draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedldp.core.numbers import exp_below, log_up, round_up

Floats = NDArray[np.float64]

# Losses are computed to within a few units in the last place; this margin rounds each of them up.
_LOSS_ROUNDING = 2.0**-50


@dataclass(frozen=True, eq=False)
class Losses:
    """The outcomes of a mechanism under two neighbouring inputs with laws P and Q.

    Attributes:
        values: privacy losses ln(P/Q), shape (k,).
        log_masses: ln P, shape (k,).
        errors: bounds on the errors of ``log_masses``, shape (k,).
        missing: a bound on the P-mass of the unlisted outcomes.
    """

    values: Floats
    log_masses: Floats
    errors: Floats
    missing: float = 0.0

    def delta(self, at_epsilon: float) -> float:
        """Return an upper bound, tight up to rounding, on the sum of (P - e^e Q)+.

        Every mass, loss and sum is rounded up, and the unlisted mass is added.
        """
        gaps = self.values - at_epsilon + _LOSS_ROUNDING * np.abs(self.values)
        above = gaps > 0
        masses = np.exp(self.log_masses[above] + self.errors[above])
        total = float(np.sum(masses * -np.expm1(-gaps[above])))
        return min(1.0, total * (1 + 1e-14) + self.missing)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on the smallest e >= 0 with delta(e) <= delta.

        By the Neyman-Pearson lemma, that smallest e is the largest ln((P(S) - delta)/Q(S)) over the
        sets S of all outcomes with losses above a threshold. All computations round up.
        """
        left = delta - self.missing
        largest = float(self.values.max())
        limit = largest + _LOSS_ROUNDING * abs(largest)
        if left <= 0:
            return max(limit, 0.0) if self.missing == 0 else math.inf
        order = np.argsort(-self.values, kind="stable")
        values = self.values[order]
        masses = np.exp(self.log_masses[order] + self.errors[order])
        rounding = 1 + len(values) * 2.0**-51  # error of a running sum of positive terms
        p_sets = np.cumsum(masses) * rounding
        # Relative to the largest loss, so that e^-loss neither overflows nor underflows.
        shrink = np.exp(np.maximum(values - largest, -700.0))
        q_sets = np.cumsum(masses / shrink)
        exceeding = p_sets > left
        ratios = np.log((p_sets[exceeding] - left) / q_sets[exceeding] * rounding) + largest
        if not len(ratios):
            return 0.0
        return min(max(float(ratios.max()) + _LOSS_ROUNDING * abs(largest), 0.0), limit)


def two_valued_losses(epsilon: float, count: int) -> Losses:
    """Return the losses of ``count`` two-valued ``epsilon``-mechanisms.

    If j of them are truthful, the loss is (2j - count) epsilon. Under P, j ~ Bin(count, p) with
    p = e^epsilon/(1 + e^epsilon). Values of j with probability below 2e-321 are left out.
    """
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    low, high = window(count, p, exponent=740.0)
    truthful = np.arange(low, high + 1)
    log_masses, errors = log_pmf(count, p, q, truthful)
    missing = 0.0 if (low, high) == (0, count) else 1e-320
    values = np.asarray((2.0 * truthful - count) * epsilon, np.float64)
    return Losses(values, log_masses, errors, missing)


def revealing_losses(epsilon: float, revealing: float) -> Losses:
    """Return the losses of one two-valued ``epsilon``-mechanism that may withhold its answer.

    It answers with probability ``revealing``, below 1; otherwise nothing is seen, with a loss of 0.
    """
    values = np.array([epsilon, 0.0, -epsilon])
    of_truth = -math.log1p(math.exp(-epsilon))
    log_masses = math.log(revealing) + np.array([of_truth, 0.0, of_truth - epsilon])
    log_masses[1] = math.log1p(-revealing)
    return Losses(values, log_masses, 1e-15 * (1 + np.abs(log_masses)))


def profile_losses(points: Sequence[tuple[float, float]], error: float) -> Losses:
    """Return the losses of a pair that dominates all pairs of laws with a privacy profile.

    For x = e^epsilon, let h(x) be the largest delta of any two inputs, in either order. It is
    convex in x and does not increase; and for x below 1, it is at most 1 - x + x h(1/x), by
    exchanging the inputs. So it is below the lower convex hull of (0, 1), of the points (x, delta),
    and of the points (1/x, 1 - (1 - delta)/x). The hull is the profile of a pair (P, Q): at each
    corner x, Q has the mass by which the slope changes, P has x times that mass, and the hull's
    last value is P's mass where Q has none. Composing such pairs bounds the adaptive composition of
    the releases.

    Args:
        points: pairs (epsilon, delta), with ascending epsilons of at least 0 and up to 700, and
            deltas below 1 that do not increase.
        error: a bound on the errors of the deltas, which is added to them.

    Source: Zhu, Dong, Wang 2022, "Optimal Accounting of Differential Privacy via Characteristic
    Function", Proposition 9 and Theorem 10.
    """
    rounded = {  # of epsilons that are rounded to one x, the last has the least delta, at most x
        1 / exp_below(Fraction(-epsilon)): min(Fraction(delta) + Fraction(error), Fraction(1))
        for epsilon, delta in points
    }
    above = [*rounded.items()]
    corners: list[tuple[Fraction, Fraction]] = [(Fraction(0), Fraction(1))]
    for x, h in [*((1 / x, 1 - (1 - h) / x) for x, h in reversed(above)), *above]:
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) >= _slope(corners[-1], (x, h)):
            corners.pop()
        corners.append((x, h))
    slopes = [*(_slope(*pair) for pair in pairwise(corners)), Fraction(0)]
    masses = [  # exact numbers, which cancel nothing
        (x, x * (after - before))
        for (x, _), (before, after) in zip(corners[1:], pairwise(slopes), strict=True)
        if after > before
    ]
    values, log_masses = (np.array([*map(_log, each)]) for each in zip(*masses, strict=True))
    return Losses(values, log_masses, 1e-15 * (1 + np.abs(log_masses)), round_up(corners[-1][1]))


def _slope(one: tuple[Fraction, Fraction], other: tuple[Fraction, Fraction]) -> Fraction:
    return (other[1] - one[1]) / (other[0] - one[0])


def _log(exact: Fraction) -> float:
    return log_up(exact) if exact >= 1 else -log_up(1 / exact)


def product(parts: Sequence[Losses]) -> Losses:
    """Return the losses of all ``parts`` together, outcome by outcome."""
    values, log_masses, errors, missing = np.zeros(1), np.zeros(1), np.zeros(1), 0.0
    for part in parts:
        values = np.add.outer(values, part.values).reshape(-1)
        log_masses = np.add.outer(log_masses, part.log_masses).reshape(-1)
        errors = np.add.outer(errors, part.errors).reshape(-1)
        missing += part.missing
    return Losses(values, log_masses, errors + 1e-15 * len(parts), missing)


Integers = NDArray[np.int64]

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_LOG_LEAST = -230.0  # the smallest log-mass kept in a summand
_SMALL = 16
_STIRLING = np.array(
    [0.0]
    + [
        math.log(math.factorial(n)) - (n + 0.5) * math.log(n) + n - _HALF_LOG_TWO_PI
        for n in range(1, _SMALL)
    ]
)


def window(count: int, p: float, exponent: float) -> tuple[int, int]:
    """Return (low, high) with P(X < low) and P(X > high) both at most exp(-exponent).

    X ~ Bin(count, p). The bounds are rigorous by Bernstein's inequality,
    P(X - mean >= t) <= exp(-t^2/(2 (v + t/3))) with v the variance, and rounded outwards.
    """
    variance = count * p * (1 - p)
    reach = exponent / 3 + math.sqrt((exponent / 3) ** 2 + 2 * exponent * variance)
    low, high = math.floor(count * p - reach), math.ceil(count * p + reach)
    return max(low, 0), min(high, count)


def log_pmf(
    count: int | Integers, p: float, q: float, successes: Integers
) -> tuple[Floats, Floats]:
    """Return ln P(Bin(count, p) = successes), and a bound on the error of each value.

    Args:
        count: the number of draws, below 2^53; broadcasts with ``successes``.
        p: the probability of success, above 0 and below 1.
        q: 1 - p, passed separately because it may be known more accurately than 1 - p can be
            computed.
        successes: from 0 to ``count``.

    Returns:
        The natural logarithms and their absolute errors (relative errors of the probabilities).

    Source: the saddle-point expansion of C. Loader, "Fast and Accurate Computation of Binomial
    Probabilities" (2000). The error bound adds up the rounding errors of the Stirling series, of
    the deviances, and of p and q; the last grows with the distance from the mean.
    """
    total, hits = np.broadcast_arrays(np.asarray(count, np.float64), successes.astype(np.float64))
    misses = total - hits
    inside = (hits > 0) & (misses > 0)
    a, b, n = np.where(inside, hits, 1.0), np.where(inside, misses, 1.0), total
    n_inside = np.where(inside, n, 2.0)
    log_values = (
        _stirling_error(n_inside)
        - _stirling_error(a)
        - _stirling_error(b)
        - _deviance(a, n_inside * p)
        - _deviance(b, n_inside * q)
        + 0.5 * np.log(n_inside / a / b)
        - _HALF_LOG_TWO_PI
    )
    log_p = math.log(p) if p < 0.5 else math.log1p(-q)
    log_q = math.log(q) if q < 0.5 else math.log1p(-p)
    log_values = np.where(inside, log_values, hits * log_p + misses * log_q)
    errors = 6e-16 * (20 + 5 * np.abs(log_values) + np.abs(hits - n * p))
    return log_values, errors


def log_factorial_rest(numbers: Integers, center: int) -> tuple[Floats, Floats]:
    """Return R(a) = ln a! - (a - m) ln m - ln m! for the center m, and a bound on its error.

    For a + b = n, ln C(n, a) is -R(a) - R(b) up to a term that depends on n alone. Near m, R is
    small: about (a - m)^2/(2 m).

    Args:
        numbers: any integers; R is infinite for negative numbers (an impossible outcome).
        center: m, at least 1.
    """
    a, m = np.maximum(numbers, 1).astype(np.float64), np.full(1, float(center))
    ratio = (a - m) / m
    found = _deviance(a, m) + 0.5 * np.log1p(ratio) + _stirling_error(a) - _stirling_error(m)
    # ln 0! = 0
    of_none = center - _HALF_LOG_TWO_PI - 0.5 * math.log(center) - float(_stirling_error(m)[0])
    found = np.where(numbers > 0, found, np.where(numbers == 0, of_none, np.inf))
    errors = 6e-16 * (20 + 5 * np.where(numbers < 0, 0.0, np.abs(found)) + np.abs(a - m))
    return found, errors


def _stirling_error(n: Floats) -> Floats:
    """Return ln n! - (n + 1/2) ln n + n - ln(2 pi)/2 for integers n >= 1."""
    inverse = 1 / (n * n)
    series = 1 / 1260 - inverse * (1 / 1680 - inverse * (1 / 1188 - inverse * 691 / 360360))
    large = (1 / 12 - inverse * (1 / 360 - inverse * series)) / n
    return np.where(n < _SMALL, _STIRLING[np.minimum(n, _SMALL - 1).astype(np.int64)], large)


def _deviance(x: Floats, mean: Floats) -> Floats:
    """Return x ln(x/mean) + mean - x, without cancellation where x is close to the mean."""
    difference = x - mean
    ratio = difference / mean
    far = mean * ((1 + ratio) * np.log1p(ratio) - ratio)
    v = difference / (x + mean)
    square = v * v
    series = np.zeros_like(v)
    for k in range(8, 0, -1):
        series = square * (series + 1 / (2 * k + 1))
    return np.where(np.abs(ratio) < 0.1, difference * v + 2 * x * v * series, far)


class SumOfBinomials:
    """The law of a sum of independent binomials, evaluated at single points in O(deviation) time.

    The law omits the values outside the windows of its parts, and is otherwise exact up to
    rounding.

    Attributes:
        first: the smallest sum.
        last: the largest sum.
        error: a bound on the relative error of every mass and tail of the law.
        missing: a bound on the probability of the values that the law omits.
    """

    def __init__(self, parts: Sequence[tuple[int, float, float]], exponent: float) -> None:
        """Compute the law.

        Args:
            parts: (count, p, q) of each binomial, as for ``log_pmf``; at least two.
            exponent: values of a part with probability below about e^-exponent are left out.
        """
        self.error, self.missing, self.first = 2.0**-48, 2 * len(parts) * math.exp(-exponent), 0
        arrays: list[Floats] = []
        for count, p, q in parts:
            low, high = window(count, p, exponent)
            log_masses, errors = log_pmf(count, p, q, np.arange(low, high + 1))
            kept = np.flatnonzero(log_masses > _LOG_LEAST)  # one range; products stay normal
            self.missing += (high - low) * math.exp(_LOG_LEAST + 1)
            log_masses, errors = log_masses[kept], errors[kept]
            arrays.append(np.exp(log_masses))
            self.first += low + int(kept[0])
            self.error += float(errors.max()) + 2.0**-50 * len(kept)
        arrays.sort(key=len)
        while len(arrays) > 2:  # convolving the shortest arrays first is cheapest
            arrays[:2] = [np.convolve(arrays[0], arrays[1])]
        # The convolution of these two arrays is never computed as a whole; one is reversed.
        self._one, turned = arrays[0], np.ascontiguousarray(arrays[1][::-1])
        self._other, self._other_sums = turned, np.cumsum(turned)
        self._one_sums = np.cumsum(self._one[::-1])[::-1]
        self.last = self.first + len(self._one) + len(turned) - 2

    def mass(self, at: int) -> float:
        """Return the probability of ``at``."""
        return self._sum(at, self._other)

    def tail(self, at: int) -> float:
        """Return the probability of at least ``at``."""
        # Where the value of one part is so large that any value of the other part suffices, the
        # other part's whole mass counts.
        enough = max(at - self.first, 0)
        sure = float(self._one_sums[enough]) if enough < len(self._one) else 0.0
        return sure * float(self._other_sums[-1]) + self._sum(at, self._other_sums, skip=1)

    def _sum(self, at: int, turned: Floats, skip: int = 0) -> float:
        """Return sum over i of one[i] other[at - first - i], for indices of other from ``skip``."""
        total, size = at - self.first, len(turned)
        start, stop = max(0, total - size + 1), min(len(self._one), total - skip + 1)
        if start >= stop:
            return 0.0
        shift = size - 1 - total
        return float(np.dot(self._one[start:stop], turned[shift + start : shift + stop]))
