"""What a trusted shuffler adds: guarantees against an adversary who sees only its output.

The unit is one shuffled message (one coordinate's bit, a chunk of bits or a whole report) among the
messages of the ``n`` honest participants of the same round. ``n`` counts only participants whose
reports arrive and who do not collude; the caller subtracts the others. No result exceeds the local
guarantee.

Source: Feldman, McMillan, Talwar, "Hiding Among the Clones: A Simple and Nearly Optimal Analysis of
Privacy Amplification by Shuffling", FOCS 2021 (arXiv 2012.12803), section 3, for the reduction to a
pair of laws ("clone pair"), which is evaluated here numerically. The closed form of the 2023 sequel
for general randomisers is not used, because it has an erratum.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedldp.accounting.numerics.compose import pure_epsilon, two_valued_epsilon
from fedldp.accounting.numerics.losses import (
    Floats,
    Integers,
    Losses,
    log_factorial_rest,
    log_pmf,
    window,
)
from fedldp.accounting.numerics.pld_fft import compose_lower, compose_upper
from fedldp.core import numbers
from fedldp.core.errors import ConfigError

LARGEST_EPSILON = 30.0
"""The largest epsilon of one report: beyond it, a shuffle of fewer than 1e12 reports hides
nothing."""

# The largest number of outcomes of the clone pair that are listed. If there are more, they are
# collected on a grid; if the exponent is too large for the grid, some clones are dropped instead.
_MOST_OUTCOMES = 4_000_000


@lru_cache(maxsize=1024)  # searches for several mechanisms' budgets ask for the same
def clones_epsilon(
    epsilon: float, num_reports: int, delta: float, count: int = 1, *, two_valued: bool = False
) -> float:
    """Return an upper bound on the epsilon of ``count`` shuffled reports at ``delta``.

    It holds for any pure ``epsilon``-DP local randomisers. With probability e^-epsilon, each of the
    other reports is a clone that hides the differing report. So the reports of one shuffle are a
    post-processing of C ~ Bin(n - 1, e^-epsilon), A ~ Bin(C, 1/2), and
    D ~ Bern(e^epsilon/(1 + e^epsilon)), giving (A + D, C - A + 1 - D) against
    (A + 1 - D, C - A + D). For one shuffle, the delta of that pair is summed exactly and rounded
    up. For more, the pair is composed ``count`` times. The numerical excess is a relative 1e-6 or
    less, but up to 1e-4 for an epsilon of 1e-3 and a count of 1e8.

    Messages of bits hide better than general messages: with probability 2/(e^epsilon + 1), each
    other message is, whatever its input, a clone of what the differing message may be
    (docs/privacy, "Chunks"). A message is a two-valued report, or a chunk of independent two-valued
    reports, with the sum of their epsilons as ``epsilon``.

    Args:
        epsilon: the local guarantee of one report or message, above 0 and up to 30.
        num_reports: n, the number of honest reports in one shuffle, at least 1. If n is about 1e5
            or more, a share of 2e-5 of the clones is ignored for speed, which keeps the bound
            valid.
        delta: at least 0 and below 1.
        count: the number of shuffles that the client takes part in, at least 0, such as d T for d
            coordinates, each shuffled separately, over T rounds; adaptive composition is covered.
            The computation takes from 0.1 to 3 s.
        two_valued: whether the reports are known to be messages of bits.

    Returns:
        At most the epsilon of ``count`` reports without a shuffler (``two_valued_epsilon``).

    Raises:
        ConfigError: an argument is out of range.

    Source: Feldman, McMillan, Talwar 2021, section 3 (the numerical bound, not the closed form).
    """
    check_reports(epsilon, num_reports)
    local = two_valued_epsilon(epsilon, count, delta)
    if delta < numbers.SMALLEST_DELTA or count == 0:
        return local
    losses = clone_losses(epsilon, num_reports, exponent_for(delta, count), two_valued=two_valued)
    if count == 1:
        return min(losses.epsilon(delta), local)
    return min(compose_upper([(losses, count)], delta), local)


def shuffled_composed_lower(epsilon: float, num_reports: int, count: int, delta: float) -> float:
    """Return a lower bound on the epsilon of ``count`` shuffled two-valued reports at ``delta``.

    It is the cost of inputs that an adversary may choose: in every coordinate, all other clients
    are at one end, and the differing client is at the same end or at the other. The count of ones,
    which is known to be all that the server learns, is then Bin(n, q) under one input, and
    stochastically larger under the other. One direction is composed exactly up to rounding, which
    is downwards: by a relative 1e-6 or less, but up to 1e-3 for an epsilon of 1e-3 and a count of
    1e8.

    Args:
        epsilon: the epsilon of each report, above 0 and up to 30.
        num_reports: n, the number of honest reports shuffled together, at least 1.
        count: d T, at least 0.
        delta: at least 0 and below 1.

    Returns:
        An epsilon of at least 0; for delta = 0 the pure sum, which is attained.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_reports(epsilon, num_reports)
    numbers.check_count("count", count)
    numbers.check_delta(delta)
    if count == 0:
        return 0.0
    if delta == 0:
        return math.nextafter(pure_epsilon({epsilon: count}), 0.0)
    exponent = exponent_for(max(delta, numbers.SMALLEST_DELTA), count)
    # Either direction of the pair gives a bound; this direction gave the larger one in all cases
    # tried.
    return compose_lower([(end_losses(epsilon, num_reports, exponent, flipped=True), count)], delta)


def clone_losses(
    epsilon: float, num_reports: int, exponent: float = 92.0, *, two_valued: bool = True
) -> Losses:
    """Return the losses of (A + D, C - A + 1 - D), D ~ Bern(p), against D ~ Bern(1 - p).

    C ~ Bin(num_reports - 1, c), A ~ Bin(C, 1/2), p = e^epsilon/(1 + e^epsilon). Here c is the
    probability that another report is a clone: 2/(e^epsilon + 1) if reports have two values, and
    e^-epsilon for any randomiser. Exchanging the inputs exchanges the two outputs, so one direction
    stands for both.

    Args:
        epsilon: the local guarantee.
        num_reports: n.
        exponent: outcomes with probability below about e^-exponent are left out.
        two_valued: whether reports are known to have two values.
    """
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    clone, own = (
        (2 * q, math.tanh(epsilon / 2))
        if two_valued
        else (math.exp(-epsilon), -math.expm1(-epsilon))
    )
    others = num_reports - 1
    low, high = window(others, clone, exponent)
    clones = np.arange(low, high + 1)
    log_clones, clone_errors = log_pmf(others, clone, own, clones)
    left, right = window(high + 1, 0.5, exponent)
    width = right - left
    if len(clones) * (width + 1) > _MOST_OUTCOMES and exponent <= 590:
        exponent = math.ceil(exponent / _EXPONENTS) * _EXPONENTS
        return binned_clone_losses(epsilon, others, clone, own, exponent)
    # Rounding the number of clones down drops some clones, so the pair only gets easier to tell
    # apart.
    group = -(-len(clones) * (width + 1) // _MOST_OUTCOMES)
    starts = np.arange(0, len(clones), group)
    totals = clones[starts] + 1  # a + b
    log_rows = np.logaddexp.reduceat(log_clones, starts)
    row_errors = np.maximum.reduceat(clone_errors, starts) + group * 4e-16

    reach = (width + 1) // 2 + 1
    first = totals[:, None] // 2 + np.arange(-reach, reach + 1)
    total = np.broadcast_to(totals[:, None], first.shape)
    possible = (first >= 0) & (first <= total)
    a, n = first[possible], total[possible]
    rows = np.broadcast_to(np.arange(len(totals))[:, None], first.shape)[possible]
    log_a, a_errors = log_pmf(n, 0.5, 0.5, a)
    towards = p * a + q * (n - a)
    away = q * a + p * (n - a)
    return Losses(
        values=log_ratio(towards, away, math.tanh(epsilon / 2) * (2 * a - n).astype(np.float64)),
        log_masses=log_rows[rows] + log_a + np.log(2 * towards / n),
        errors=row_errors[rows] + a_errors + 4e-15,
        missing=8 * math.exp(-exponent),
    )


def end_losses(epsilon: float, num_reports: int, exponent: float, flipped: bool) -> Losses:
    """Return the losses of the count of ones if all others are at the low end.

    With q = 1/(1 + e^epsilon), the count is Bin(n, q) if the client is at the low end too. If the
    client is at the high end, the mass at j is multiplied by (p e^epsilon j + q (n - j))/(p n).

    Args:
        epsilon: the epsilon of each report.
        num_reports: n.
        exponent: outcomes with probability below about e^-exponent are left out.
        flipped: False for high against low, True for low against high.
    """
    n = num_reports
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    low, high = window(n, q, exponent)
    ones = np.arange(low, high + 1)
    log_masses, errors = log_pmf(n, q, p, ones)
    towards = p * math.exp(epsilon) * ones + q * (n - ones)
    # p e^epsilon - q = (p^2 - q^2)/q = (p - q)/q, and q - p = -(p - q).
    values = log_ratio(towards, np.full(len(ones), p * n), math.tanh(epsilon / 2) * (ones / q - n))
    errors = errors + 4e-15
    if flipped:
        return Losses(-values, log_masses, errors)
    return Losses(values, log_masses + values, errors)


def exponent_for(delta: float, count: int) -> float:
    """Return the exponent past which outcomes do not matter at ``delta`` in ``count`` releases."""
    return math.log(count) - math.log(delta) + 45.0


def check_reports(epsilon: float, num_reports: int) -> None:
    """Raise ConfigError unless the arguments common to the shuffling functions are in range."""
    numbers.check_positive("epsilon", epsilon)
    if epsilon > LARGEST_EPSILON:
        raise ConfigError(f"epsilon = {epsilon}: give at most {LARGEST_EPSILON:g} per report")
    numbers.check_count("num_reports", num_reports, least=1)


_POINTS = 1 << 17  # points on the grid, for y >= 0
_MOST_BINNED = 3_000_000  # the largest number of outcomes; beyond it, some clones are dropped
_AT_ONCE = 1 << 18
_EXPONENTS = 10.0  # exponents are rounded up to multiples of this, so rounds and runs share a table
_OUTWARDS = 1 + 2.0**-49


@lru_cache(maxsize=4)
def binned_clone_losses(
    epsilon: float, others: int, clone: float, own: float, exponent: float
) -> Losses:
    """Return an upper bound on the losses of a clone pair with too many outcomes to list.

    An outcome (a, b) of the pair matters only through y = (a - b)/(a + b). Let B be its probability
    under a fair coin for every report, and g = tanh(epsilon/2); then its probability is (1 + g y) B
    under P and (1 - g y) B under Q. So outcomes are collected on a grid of y: each is divided
    between the two grid points around it by linear interpolation. That preserves B and the mean of
    y, hence P and Q. It also spreads y. Because delta is the B-mean of a convex function of y, the
    pair on the grid gives an upper bound on the delta of the listed pair, with an excess of second
    order in the step.

    Both signs of y are equally likely under B, so only y >= 0 is computed. Rounding that moves y
    away from 0 is also safe: the sum of a convex function at y and at -y grows with |y|.

    Args:
        epsilon: the local guarantee.
        others: n - 1.
        clone: the probability that one of the others is a clone.
        own: 1 - clone.
        exponent: outcomes with probability below about e^-exponent are left out; up to 600.
    """
    low, high = window(others, clone, exponent)
    left, right = window(high + 1, 0.5, exponent)
    reach = (right - left + 1) // 2 + 1
    clones = np.arange(low, high + 1)
    # Rounding the number of clones down drops some clones, so the pair only gets easier to tell
    # apart.
    group = -(-len(clones) * (reach + 1) // _MOST_BINNED)
    log_clones, errors = log_pmf(others, clone, own, clones)
    starts = np.arange(0, len(clones), group)
    totals = clones[starts] + 1  # a + b
    rows = _log_sums(log_clones + errors, starts) + group * 2e-16
    step = min(1.0, (2 * reach + 2) / int(totals[0])) / _POINTS
    of_coins = _of_coins(totals, rows, reach, step)
    y = np.arange(of_coins.size, dtype=np.float64) * step
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    towards, away = p * (1 + y) + q * (1 - y), q * (1 + y) + p * (1 - y)
    values = log_ratio(towards, away, math.tanh(epsilon / 2) * (2 * y))
    masses = np.concatenate([(of_coins * away)[:0:-1], of_coins * towards])
    masses[of_coins.size - 1] *= 2  # y = 0 is on both sides
    there = masses > 0
    return Losses(
        values=np.concatenate([-values[:0:-1], values])[there],
        log_masses=np.log(masses[there]),
        errors=np.full(int(there.sum()), 1e-14),
        missing=9 * math.exp(-exponent),
    )


def _of_coins(totals: Integers, rows: Floats, reach: int, step: float) -> Floats:
    """Return B at the grid points from 0 upwards, rounded up; at 0, half of B.

    Args:
        totals: a + b, ascending, shape (k,).
        rows: logarithms of their probabilities, shape (k,).
        reach: the largest distance of a from the middle.
        step: the step of the grid of y.
    """
    # ln C(n, a) = G(n) - R(a) - R(n - a) with a table of R, which is small near the middle.
    first, last = int(totals[0]) // 2 - reach, (int(totals[-1]) + 1) // 2 + reach
    center = max((first + last) // 2, 1)
    rest, rounding = log_factorial_rest(np.arange(first, last + 1), center)
    upper, lower = (totals + 1) // 2 - first, totals // 2 - first
    middle, errors = log_pmf(totals, 0.5, 0.5, totals // 2)
    rows = rows + middle + errors + 1e-15
    rows += rest[upper] + rounding[upper] + rest[lower] + rounding[lower]
    ascending = np.lib.stride_tricks.sliding_window_view(rest - rounding, reach + 1)
    descending = np.lib.stride_tricks.sliding_window_view((rest - rounding)[::-1], reach + 1)
    twice = 2.0 * np.arange(reach + 1)
    found = np.zeros(_POINTS + 2)
    size = max(1, _AT_ONCE // (reach + 1))
    for start in range(0, len(totals), size):
        part = slice(start, start + size)
        masses = np.exp(
            rows[part, None] - ascending[upper[part]] - descending[len(rest) - 1 - lower[part]]
        )
        odd = totals[part, None] % 2
        masses[odd[:, 0] == 0, 0] /= 2
        places = (twice + odd) * (_OUTWARDS / (totals[part, None] * step))
        np.minimum(places, _POINTS, out=places)  # only impossible outcomes lie beyond
        below = places.astype(np.int64)
        places -= below
        above = masses * places
        masses *= 1 - places
        found += np.bincount(below.ravel(), masses.ravel(), found.size)
        found[1:] += np.bincount(below.ravel(), above.ravel(), found.size)[:-1]
    return found[:-1] * (1 + 2.0**-52 * (2 * size + 2 * len(totals) // size))


def _log_sums(log_masses: Floats, starts: Integers) -> Floats:
    """Return the logarithms of the sums of the masses from each start to the next, rounded up."""
    largest = np.maximum.reduceat(log_masses, starts)
    sizes = np.diff(starts, append=len(log_masses))
    sums = np.add.reduceat(np.exp(log_masses - np.repeat(largest, sizes)), starts)
    found = largest + np.log(sums)
    return np.asarray(found + 4e-16 * (4 + np.abs(found)))


def log_ratio(first: Floats, second: Floats, difference: Floats) -> Floats:
    """Return ln(first/second) to full relative precision, given a precise first - second."""
    change = difference / second
    near = np.abs(change) < 0.5
    return np.where(near, np.log1p(np.where(near, change, 0.0)), np.log(first / second))
