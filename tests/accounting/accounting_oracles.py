"""Slow, independent implementations of the accounting, directly from the definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

mp.mp.dps = 40

Floats = NDArray[np.float64]
Law = dict[Any, Any]
"""Probabilities (fractions or mpf) by outcome."""


def truthful(epsilon: Any) -> Any:
    return 1 / (1 + mp.exp(-mp.mpf(epsilon)))


def two_valued(epsilon: Any, count: int, at_epsilon: Any) -> Any:
    """delta of Kairouz, Oh, Viswanath 2015, Theorem 3.3, term by term."""
    epsilon, at = mp.mpf(epsilon), mp.mpf(at_epsilon)
    p = truthful(epsilon)
    first = max(0, math.floor((count + float(at / epsilon)) / 2) - 1)
    total = mp.mpf(0)
    for j in range(first, count + 1):
        gap = (2 * j - count) * epsilon - at
        if gap > 0:
            mass = mp.binomial(count, j) * p**j * (1 - p) ** (count - j)
            total += mass * -mp.expm1(-gap)
            if j > count * p and mass < total * mp.mpf(10) ** -30:
                break
    return total


def mixed(counts: Mapping[float, int], at_epsilon: Any) -> Any:
    """delta of two-valued mechanisms with different epsilons, over all numbers of truths."""
    total = mp.mpf(0)
    for truths in itertools.product(*(range(m + 1) for m in counts.values())):
        loss, mass = -mp.mpf(at_epsilon), mp.mpf(1)
        for (epsilon, m), j in zip(counts.items(), truths, strict=True):
            p = truthful(epsilon)
            loss += (2 * j - m) * mp.mpf(epsilon)
            mass *= mp.binomial(m, j) * p**j * (1 - p) ** (m - j)
        if loss > 0:
            total += mass * -mp.expm1(-loss)
    return total


def hockey_stick(first: Law, second: Law, ratio: Any) -> Any:
    """Sum of (first - ratio second)+."""
    return sum(max(mass - ratio * second.get(outcome, 0), 0) for outcome, mass in first.items())


def sum_of_bits(chances: list[Any]) -> Law:
    """The law of the number of ones among independent bits, added one bit at a time."""
    exact = bool(chances) and isinstance(chances[0], Fraction)
    law: Law = {0: Fraction(1) if exact else mp.mpf(1)}
    for chance in chances:
        new: Law = {}
        for ones, mass in law.items():
            new[ones] = new.get(ones, 0) + mass * (1 - chance)
            new[ones + 1] = new.get(ones + 1, 0) + mass * chance
        law = new
    return law


def shuffled_pair(p: Any, high: int, low: int) -> tuple[Law, Law]:
    """Laws of the number of ones with the client at the high end and at the low end."""
    others = [p] * high + [1 - p] * low
    return sum_of_bits([*others, p]), sum_of_bits([*others, 1 - p])


def shuffled_one(p: Any, n: int, ratio: Any) -> Any:
    """The largest delta over all inputs of the others and both directions."""
    worst = []
    for high in range(n):
        pair = shuffled_pair(p, high, n - 1 - high)
        worst += [hockey_stick(*pair, ratio), hockey_stick(pair[1], pair[0], ratio)]
    return max(worst)


def clone_pair(p: Any, n: int, clone: Any) -> tuple[Law, Law]:
    """Laws of (A + D, C - A + 1 - D) for D ~ Bern(p) and for Bern(1 - p)."""
    laws: tuple[Law, Law] = ({}, {})
    for law, chance in zip(laws, (p, 1 - p), strict=True):
        for c in range(n):
            for a in range(c + 1):
                mass = mp.binomial(n - 1, c) * clone**c * (1 - clone) ** (n - 1 - c)
                mass *= mp.binomial(c, a) / mp.mpf(2) ** c
                for d, weight in ((1, chance), (0, 1 - chance)):
                    outcome = (a + d, c - a + 1 - d)
                    law[outcome] = law.get(outcome, 0) + mass * weight
    return laws


def composed(pair: tuple[Law, Law], count: int, at_epsilon: Any) -> Any:
    """delta of ``count`` independent uses, over all sequences up to order."""
    outcomes = list(pair[0])
    total = mp.mpf(0)
    for chosen in itertools.combinations_with_replacement(outcomes, count):
        ways = mp.factorial(count)
        for outcome in set(chosen):
            ways /= mp.factorial(chosen.count(outcome))
        first = mp.fprod(pair[0][outcome] for outcome in chosen)
        second = mp.fprod(pair[1][outcome] for outcome in chosen)
        total += ways * max(first - mp.exp(mp.mpf(at_epsilon)) * second, 0)
    return total


def gaussian(mu: Any, at_epsilon: Any) -> Any:
    """delta of Balle, Wang 2018, Theorem 8, in 400 digits."""
    with mp.workdps(400):
        mu, e = mp.mpf(mu), mp.mpf(at_epsilon)
        near, far = e / mu - mu / 2, e / mu + mu / 2
        return (mp.erfc(near / mp.sqrt(2)) - mp.exp(e) * mp.erfc(far / mp.sqrt(2))) / 2


def invert(delta: Callable[[Any], Any], target: float, high: float) -> float:
    """The epsilon at which a decreasing function of epsilon equals ``target``, by bisection."""
    low, up = mp.mpf(0), mp.mpf(high)
    for _ in range(70):
        middle = (low + up) / 2
        if delta(middle) > target:
            low = middle
        else:
            up = middle
    return float(up)


def sampled_delta(noise: Any, rate: Any, others: int, at_epsilon: Any) -> Any:
    """delta of P = (1-q) N(others) + q N(1) against Q = (1-q) N(others) + q N(-1), deviation s.

    P/Q increases, so exactly the outcomes beyond one point count; bisection finds it.
    """
    s, q, e = mp.mpf(noise), mp.mpf(rate), mp.mpf(at_epsilon)

    def tail(mean: int, y: Any) -> Any:
        above = mp.erfc((y - others) / s / mp.sqrt(2)), mp.erfc((y - mean) / s / mp.sqrt(2))
        return ((1 - q) * above[0] + q * above[1]) / 2

    def excess(y: Any) -> Any:  # of P over e^e Q, relative to the density of N(others)
        ratios = [mp.exp((m - others) * (2 * y - m - others) / (2 * s * s)) for m in (1, -1)]
        return (1 - q + q * ratios[0]) - mp.exp(e) * (1 - q + q * ratios[1])

    low, high = mp.mpf(0), mp.mpf(1)
    while excess(high) < 0:
        high *= 2
    for _ in range(150):
        middle = (low + high) / 2
        if excess(middle) < 0:
            low = middle
        else:
            high = middle
    return tail(1, high) - mp.exp(e) * tail(-1, high)


def clone_arrays(epsilon: float, n: int, clone: float) -> tuple[Floats, Floats]:
    """Laws of the clone pair for many participants, with all outcomes that matter at 1e-25."""
    p = 1 / (1 + math.exp(-epsilon))
    ones, zeros = (array.reshape(-1) for array in np.indices((n + 1, n + 1)))
    inside = (ones + zeros >= 1) & (ones + zeros <= n)
    ones, total = ones[inside], (ones + zeros)[inside]
    clones = binom.pmf(total - 1, n - 1, clone)
    with_one = clones * binom.pmf(ones - 1, total - 1, 0.5)
    with_zero = clones * binom.pmf(ones, total - 1, 0.5)
    first, second = p * with_one + (1 - p) * with_zero, (1 - p) * with_one + p * with_zero
    kept = (first > 1e-30) & (second > 1e-30)
    return first[kept], second[kept]


def contour_delta(first: Floats, second: Floats, count: int, at_epsilon: float) -> float:
    """delta of ``count`` independent uses of a pair, by an integral in the complex plane.

    (1 - e^-t)+ is the inverse Laplace transform of 1/(s (s + 1)), so delta is the integral of
    E[e^(s L)]^count e^(-s e)/(s (s + 1)) over a vertical line, by the trapezoidal rule.
    """
    losses = np.log(first / second)

    def log_moment(s: Any) -> Any:
        return np.log(np.sum(first * np.exp(s * losses)))

    def exponent(c: float) -> float:
        return float(count * log_moment(c) - c * at_epsilon - math.log(c * (c + 1)))

    c = min(
        np.geomspace(1e-2, 50, 200), key=exponent
    )  # a saddle point, where cancellation is small
    tilted = first * np.exp(c * losses - log_moment(c))
    deviation = math.sqrt(count * (np.dot(tilted, losses**2) - np.dot(tilted, losses) ** 2))
    step = 2 * math.pi / max(60 / c, 25 * deviation)
    terms, k = [], 0
    while True:
        s = c + 1j * k * step
        term = np.exp(count * log_moment(s) - s * at_epsilon - exponent(c)) / (s * (s + 1))
        terms.append(term.real * (0.5 if k == 0 else 1.0))
        if k > 20 and max(map(abs, terms[-10:])) < 1e-13 * abs(sum(terms)):
            return step / math.pi * sum(terms) * math.exp(exponent(c))
        k += 1


def lattice_delta(epsilon: float, telling: float, count: int, at_epsilon: float) -> float:
    """delta of ``count`` two-valued mechanisms that sometimes reveal nothing, from the sum's law.

    Every loss is -epsilon, 0 or epsilon, so the law of the sum is the ``count``-th power of a
    polynomial.
    """
    p = 1 / (1 + math.exp(-epsilon))
    one = np.array([telling * (1 - p), 1 - telling, telling * p])
    law = np.ones(1)
    for bit in bin(count)[2:]:
        law = np.convolve(law, law)
        if bit == "1":
            law = np.convolve(law, one)
    losses = epsilon * np.arange(-count, count + 1)
    above = losses > at_epsilon
    return float(np.sum(law[above] * -np.expm1(at_epsilon - losses[above])))
