"""What a shuffler of whole reports adds, if a report is one category drawn by subset response.

A report is one of M categories: each of the k in the client's top set has weight H, and every other
category has weight L. So with probability gamma = M L/(k H + (M - k) L) it is uniform over all M,
whatever the client's input. It is then part of a blanket that hides the other reports. The top set
of a report may depend on a seed that is sent with it. A category is then a pair of seed and number,
and k of every M pairs are in the top set.

The guarantee is computed for one pair of laws: the adversary is given the n - 1 other reports
except those of the blanket, and the differing client has one of two disjoint top sets A and B. The
page docs/privacy/shuffling.md proves this, and why disjoint sets are the worst.

Source: Balle, Bell, Gascon, Nissim, "The Privacy Blanket of the Shuffle Model", CRYPTO 2019
(arXiv 1903.02837), for the blanket. Two results are ours: the pair for these randomisers can be
summed exactly, and disjoint sets are the worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.losses import (
    Floats,
    Integers,
    Losses,
    log_factorial_rest,
    log_pmf,
    window,
)
from fedldp.accounting.numerics.pld_fft import compose_upper
from fedldp.accounting.numerics.shuffle import LARGEST_EPSILON, exponent_for, log_ratio
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import check_count, check_delta, log_up

LARGEST_CROWD = 100_000
"""The largest number of reports that are counted; ignoring the rest keeps a bound valid."""

SMALLEST_DELTA = 1e-200
"""Below this delta, only what holds without the shuffler is stated."""

_POINTS = 1 << 17  # points on the grid of losses, from 0 to the largest loss
_MOST_OUTCOMES = 1 << 24  # the largest number of outcomes on the grid
_AT_ONCE = 1 << 20
_FEWEST_CELLS = 4  # the smallest number of cells for the count of reports outside both top sets
_EXPONENTS = 10.0  # exponents are rounded up to multiples of this, so rounds and runs share a table
_UP = 1 + 2e-15


@dataclass(frozen=True, kw_only=True)
class Subset:
    """Subset response: k of M categories have weight H, the others weight L.

    k-ary randomised response has k = 1.

    Attributes:
        high: H, one of the two integer weights by which a category is actually drawn.
        low: L, from 1 to below H.
        closest: k, at least 1.
        categories: M.

    Raises:
        ConfigError: a number is out of range, or k is above M/2: then no two sets of k are
            disjoint, and another pair would be the worst.
    """

    high: int
    low: int
    closest: int
    categories: int

    def __post_init__(self) -> None:
        for name in ("high", "low", "closest"):
            check_count(name, getattr(self, name), least=1)
        check_count("categories", self.categories, least=2)
        if self.high <= self.low:
            raise ConfigError(
                f"high = {self.high}: give more than low = {self.low}, the weight of the categories"
                " that are not preferred"
            )
        if 2 * self.closest > self.categories:
            raise ConfigError(
                f"closest = {self.closest}: give at most {self.categories // 2}, half of the "
                f"{self.categories} categories"
            )

    @property
    def total(self) -> int:
        """The sum of all weights."""
        return self.closest * self.high + (self.categories - self.closest) * self.low

    @cached_property
    def epsilon(self) -> float:
        """The pure epsilon of one report, ln(H/L), rounded up."""
        return log_up(Fraction(self.high, self.low))


def blanket_epsilon(subset: Subset, num_reports: int, delta: float, count: int = 1) -> float:
    """Return an upper bound on the epsilon of ``count`` shuffled reports at ``delta``.

    Args:
        subset: how each of the reports is drawn, the same for all of one shuffle.
        num_reports: n, the number of honest reports in one shuffle, at least 1. Reports beyond
            100,000 are ignored, which keeps the bound valid.
        delta: at least 0 and below 1. Below 1e-200 the shuffler adds nothing to this bound.
        count: the number of shuffles that the client takes part in, at least 1; adaptive
            composition is covered.

    Returns:
        At most the epsilon of ``count`` reports without a shuffler (``two_valued_epsilon``). In all
        cases tried, it exceeds the pair's epsilon by at most a relative 1e-4.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_count("num_reports", num_reports, least=1)
    check_count("count", count, least=1)
    check_delta(delta)
    local = two_valued_epsilon(subset.epsilon, count, delta)
    if delta < SMALLEST_DELTA or subset.epsilon > LARGEST_EPSILON:
        return local
    exponent = math.ceil(exponent_for(delta, count) / _EXPONENTS) * _EXPONENTS
    losses = blanket_losses(subset, min(num_reports, LARGEST_CROWD), exponent)
    found = losses.epsilon(delta) if count == 1 else compose_upper([(losses, count)], delta)
    return min(found, local)


@lru_cache(maxsize=8)
def blanket_losses(subset: Subset, n: int, exponent: float) -> Losses:
    """Return an upper bound on the losses of one shuffled report, as a pair of laws on a grid.

    Among n reports, let N_A, N_B and N_rest be the numbers of blanket reports in A, in B and in
    neither. Their laws are binomial, with probabilities of k/M, k/M and 1 - 2 k/M times gamma. Let
    d = N_A - N_B, s = N_rest + (H + L)/(2 L) (N_A + N_B), and g = (H - L)/(2 L). The P-mass of an
    outcome is then (s + g d)/n times its probability, and its Q-mass is (s - g d)/n times the same
    probability. Exchanging A and B exchanges P and Q, so one direction stands for both.

    Thus n delta is the mean of (s (1 - z) + g d (1 + z))+ for z = e^epsilon. That expression is
    convex in s and in d, so spreading s without moving its mean can only increase delta. If the
    number of reports in neither set has too many values, s is spread over every h-th of these
    values. Dividing a loss between the two grid points around it, preserving P-mass and Q-mass, can
    also only increase delta.

    Args:
        subset: the law of each report.
        n: the number of reports, at most 100,000.
        exponent: outcomes with probability below about e^-exponent are left out; up to 700.

    >>> seven_to_one = Subset(high=7, low=1, closest=1, categories=4)
    >>> round(blanket_losses(seven_to_one, 22, 92.0).delta(math.log(4)), 6)
    0.003339
    """
    table = _Table(subset, n, exponent)
    step = table.largest_loss() / _POINTS
    found = np.zeros(_POINTS + 2)
    for losses, masses in table.outcomes():
        places = losses * (_UP / step)
        np.minimum(places, _POINTS, out=places)
        below = places.astype(np.int64)
        places -= below
        share = np.expm1(-step * places) / math.expm1(-step)
        above = masses * share
        masses -= above
        found += np.bincount(below, masses, found.size)
        found[1:] += np.bincount(below, above, found.size)[:-1]
    grid = np.arange(found.size) * step
    found[0] *= 2  # the loss 0 is on both sides
    values = np.concatenate([-grid[:0:-1], grid])
    masses = np.concatenate([(found * np.exp(-grid))[:0:-1], found])
    there = masses > 0
    return Losses(
        values=values[there],
        log_masses=np.log(masses[there]),
        errors=np.full(int(there.sum()), 4e-14 + 2.0**-51 * table.most_added),
        missing=8 * math.exp(-exponent) + 1e-290,
    )


class _Table:
    """The outcomes of one shuffled report, grouped by how many blanket reports are in a top set.

    The windows cover the n - 1 others, and one more for the client's own report. The outcomes
    outside them have a P-probability of at most 6 e^-exponent.
    """

    def __init__(self, subset: Subset, n: int, exponent: float) -> None:
        pair = 2 * subset.closest * subset.low  # weight of a blanket report in either set
        rest = (subset.categories - 2 * subset.closest) * subset.low
        revealed = subset.closest * (subset.high - subset.low)
        p, q = pair / subset.total, (rest + revealed) / subset.total
        low, high = window(n - 1, p, exponent)
        self._n = n
        self._twice_g = (subset.high - subset.low) / subset.low
        self._in_pair = np.arange(low, high + 2)
        log_pair, errors = log_pmf(n, p, q, self._in_pair)
        self._log_pair = log_pair + errors
        self._rest = np.zeros(1)
        self._law = np.ones((len(self._in_pair), 1))
        left, right = window(int(self._in_pair[-1]), 0.5, exponent)
        self._reach = (right - left + 1) // 2 + 1
        if rest:
            self._set_rest(rest / (rest + revealed), revealed / (rest + revealed), exponent)
        self.most_added = self._law.shape[1] * (self._reach + 1) + len(self._in_pair)

    def _set_rest(self, p: float, q: float, exponent: float) -> None:
        """Compute the law of blanket reports in neither set, given the number in the two sets."""
        left = self._n - self._in_pair
        low, _ = window(max(int(left[-1]) - 1, 0), p, exponent)
        _, high = window(int(left[0]) - 1, p, exponent)
        counts = np.arange(low, high + 2)
        cells = max(_FEWEST_CELLS, _MOST_OUTCOMES // (len(left) * (self._reach + 1)))
        width = -(-(len(counts) - 1) // cells)
        cells = -(-len(counts) // width)
        step = max(1, _AT_ONCE // len(counts))
        laws = [
            _spread(_laws(left[at : at + step], p, q, counts), cells, width)
            for at in range(0, len(left), step)
        ]
        self._law = np.concatenate(laws)
        self._rest = low + width * np.arange(self._law.shape[1], dtype=np.float64)

    def largest_loss(self) -> float:
        """Return an upper bound on the loss of every outcome."""
        most = np.minimum(self._in_pair, 2 * self._reach + 1)
        return float(self._loss(self._in_pair, most, self._rest[0]).max()) * _UP

    def _loss(self, in_pair: Integers | int, difference: Integers, rest: Floats | float) -> Floats:
        """Return ln of (s + g d)/(s - g d), at least 0; it is 0 where there are no reports."""
        total = np.maximum(in_pair + np.asarray(rest, np.float64), 1)
        more: Floats = self._twice_g * difference.astype(np.float64)
        smaller: Floats = total + self._twice_g * ((in_pair - difference) / 2)
        return log_ratio(smaller + more, smaller, more)

    def outcomes(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield nonnegative losses and their P-masses, for each number of reports in a top set."""
        counts = self._in_pair.tolist()
        for count, log_pair, law in zip(counts, self._log_pair, self._law, strict=True):
            difference = np.arange(count % 2, min(count, 2 * self._reach + 1) + 1, 2)
            log_coins, errors = log_pmf(count, 0.5, 0.5, (count + difference) // 2)
            chance = np.exp(log_pair + log_coins + errors)
            total = self._rest + count
            here = (total + self._twice_g * ((count + difference[:, None]) / 2)) / self._n
            losses = self._loss(count, difference[:, None], self._rest)
            masses = chance[:, None] * law * here
            if not count % 2:
                masses[0] /= 2
            yield losses.reshape(-1), masses.reshape(-1)


def _laws(draws: Integers, p: float, q: float, counts: Integers) -> Floats:
    """Return P(Bin(draws, p) = counts), rounded up, shape (draws, counts).

    A row is computed from one of its points and from ln C(n, a) = const - R(a) - R'(n - a), with
    tables of R and R', which are small near their centres; see ``log_factorial_rest``.

    Args:
        draws: descending by 1.
        p: the probability of a success.
        q: 1 - p.
        counts: ascending by 1; in each row, at least one of them is at most ``draws``.
    """
    middle = int(draws[len(draws) // 2])
    hits = max(1, round(p * middle))
    misses = max(1, middle - hits)
    of_hits, errors = log_factorial_rest(counts, hits)
    first = int(draws[0] - counts[0])
    of_misses, more = log_factorial_rest(
        np.arange(first, first - len(draws) - len(counts) + 1, -1), misses
    )
    near = np.clip(np.rint(p * draws).astype(np.int64), counts[0], np.minimum(counts[-1], draws))
    log_near, near_errors = log_pmf(draws, p, q, near)
    slope = math.log(p * misses / (q * hits))
    rows = log_near + near_errors + of_hits[near - counts[0]] + errors[near - counts[0]]
    at = first - (draws - near)
    rows += of_misses[at] + more[at] - near * slope
    rows += 1e-13 + 4e-15 * (len(counts) + abs(slope) * int(counts[-1]))  # rounding of the slope
    columns = counts * slope - of_hits + errors
    tables = np.lib.stride_tricks.sliding_window_view(more - of_misses, len(counts))
    return np.asarray(np.exp(tables[: len(draws)] + columns + rows[:, None]))


def _spread(laws: Floats, cells: int, width: int) -> Floats:
    """Divide the mass of each number of a row between the two nearest multiples of ``width``."""
    if width == 1:
        return laws
    padded = np.zeros((len(laws), cells * width))
    padded[:, : laws.shape[1]] = laws
    pieces, up = padded.reshape(len(laws), cells, width), np.arange(width) / width
    found = np.zeros((len(laws), cells + 1))
    found[:, :-1] = pieces @ (1 - up)
    found[:, 1:] += pieces @ up
    return found
