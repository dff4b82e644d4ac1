"""The losses of the clone pair for many participants, whose outcomes are too many to list.

An outcome (a, b) of the pair matters only through y = (a - b)/(a + b). Let B be its probability
under a fair coin for every report, and g = tanh(epsilon/2); then its probability is (1 + g y) B
under P and (1 - g y) B under Q. So outcomes are collected on a grid of y: each is divided between
the two grid points around it by linear interpolation. That preserves B and the mean of y, hence P
and Q. It also spreads y. Because delta is the B-mean of a convex function of y, the pair on the
grid gives an upper bound on the delta of the listed pair, with an excess of second order in the
step.

Both signs of y are equally likely under B, so only y >= 0 is computed. Rounding that moves y away
from 0 is also safe: the sum of a convex function at y and at -y grows with |y|.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedldp.accounting.numerics.binomial import (
    Floats,
    Integers,
    log_factorial_rest,
    log_pmf,
    window,
)
from fedldp.accounting.numerics.losses import Losses

_POINTS = 1 << 17  # points on the grid, for y >= 0
_MOST_OUTCOMES = 3_000_000  # the largest number of outcomes; beyond it, some clones are dropped
_AT_ONCE = 1 << 18
_EXPONENTS = 10.0  # exponents are rounded up to multiples of this, so rounds and runs share a table
_OUTWARDS = 1 + 2.0**-49


def binned_clone_losses(
    epsilon: float, others: int, clone: float, own: float, exponent: float
) -> Losses:
    """Return an upper bound on the losses of the clone pair; see ``shuffle.clone_losses``.

    Args:
        epsilon: the local guarantee.
        others: n - 1.
        clone: the probability that one of the others is a clone.
        own: 1 - clone.
        exponent: outcomes with probability below about e^-exponent are left out; up to 600.
    """
    return _binned(epsilon, others, clone, own, math.ceil(exponent / _EXPONENTS) * _EXPONENTS)


@lru_cache(maxsize=4)
def _binned(epsilon: float, others: int, clone: float, own: float, exponent: float) -> Losses:
    low, high = window(others, clone, exponent)
    left, right = window(high + 1, 0.5, exponent)
    reach = (right - left + 1) // 2 + 1
    clones = np.arange(low, high + 1)
    # Rounding the number of clones down drops some clones, so the pair only gets easier to tell
    # apart.
    group = -(-len(clones) * (reach + 1) // _MOST_OUTCOMES)
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
