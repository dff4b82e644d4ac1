"""Composition of two-valued mechanisms: what d coordinates over T rounds cost together.

Take a pure epsilon-DP mechanism with two outcomes. Under any adaptive composition it is no worse
than randomised response that is truthful with probability p = e^epsilon/(1 + e^epsilon), and the
two-point randomiser attains this worst case. So the composition below is exact, not merely a bound.
The unit of protection is whatever the ``count`` covers: with d coordinates, count = d protects a
client's round, and count = T_u d protects its run of T_u rounds.

Source: Kairouz, Oh, Viswanath, "The Composition Theorem for Differential Privacy", ICML 2015,
Theorem 3.3; with different epsilons, Murtagh, Vadhan, "The Complexity of Computing the Optimal
Composition of Differential Privacy", TCC 2016.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from fedldp.accounting.numerics.losses import Losses, product, revealing_losses, two_valued_losses
from fedldp.accounting.numerics.pld_fft import compose_lower, compose_upper
from fedldp.accounting.numerics.solve import solve
from fedldp.core import numbers
from fedldp.core.errors import ConfigError

LARGEST_EPSILON = 700.0
"""The largest epsilon of one mechanism: beyond it, e^-epsilon is not a normal number."""

RevealingCounts = Mapping[tuple[float, float], int]
"""The number of mechanisms with each pair (epsilon, revealing probability)."""

# Up to this many joint outcomes, different epsilons are composed exactly.
_EXACT_OUTCOMES = 1 << 18


def pure_epsilon(counts: Mapping[float, int]) -> float:
    """Return the sum of epsilon times count: pure composition, rounded up.

    Args:
        counts: the number of mechanisms with each epsilon.

    Raises:
        ConfigError: an epsilon is not positive and finite, or a count is not a nonnegative integer.

    >>> pure_epsilon({1.0: 21840, 0.5: 2})
    21841.0
    """
    total = Fraction(0)
    for epsilon, count in counts.items():
        numbers.check_positive("epsilon", epsilon)
        numbers.check_count("count", count)
        total += Fraction(epsilon) * count
    return numbers.round_up(total)


def two_valued_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Return the smallest epsilon of ``count`` two-valued ``epsilon``-mechanisms at ``delta``.

    It is never above the pure count * epsilon, which is the result for delta = 0 (and, as a valid
    bound, for a delta below 1e-300). It is rounded up, by about a relative 1e-13.

    Args:
        epsilon: the epsilon of each mechanism, above 0 and up to 700.
        count: the number of mechanisms, at least 0; a count of 1e8 takes about a second.
        delta: at least 0 and below 1.

    Raises:
        ConfigError: an argument is out of range.

    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.3.

    >>> round(two_valued_epsilon(1.0, 100, 1e-5), 9)
    79.841322365
    """
    return _two_valued({epsilon: count}, delta)


def revealing_epsilon(counts: RevealingCounts, delta: float) -> float:
    """Return an epsilon at ``delta`` of pure mechanisms that may reveal nothing.

    Each mechanism is pure epsilon, and for any two inputs, the outcomes that are not equally likely
    under both have a probability of at most r, its revealing probability. So it is a
    post-processing of a two-valued ``epsilon``-mechanism that withholds its answer with probability
    1 - r. Composing the latter gives an upper bound, exact for such mechanisms up to about a
    relative 1e-6.

    With r = 1 these are two-valued mechanisms. With only one epsilon, or few joint outcomes, the
    result is then as exact as ``two_valued_epsilon``. Otherwise the composition of each epsilon is
    exact, and the losses are added on a grid, to which they are rounded pessimistically.

    The counts must not depend on the mechanisms' outputs. A budget that depends on them needs a
    filter (Rogers, Roth, Ullman, Vadhan, "Privacy Odometers and Filters", 2016; Whitehouse, Ramdas,
    Rogers, Wu, "Fully-Adaptive Composition in Differential Privacy", 2023) or the pure sum.

    Args:
        counts: the number of mechanisms with each pair of epsilon and revealing probability, such
            as all mechanisms of one client over its rounds.
        delta: at least 0 and below 1.

    Returns:
        An epsilon, never above that of two-valued mechanisms, nor above the pure sum.

    Raises:
        ConfigError: an argument is out of range.

    Source: for r = 1, the optimum is from Murtagh, Vadhan 2016. Computing it is #P-complete for
    arbitrary epsilons (Theorem 1.7), hence the bound.

    >>> round(revealing_epsilon({(1.0, 1.0): 100}, 1e-5), 9)
    79.841322365
    >>> round(revealing_epsilon({(1.0, 0.5): 100}, 1e-5), 6)
    49.977521
    """
    two_valued = _two_valued(_all_revealing(counts), delta)
    if delta < numbers.SMALLEST_DELTA or all(revealing == 1 for _, revealing in counts):
        return two_valued
    parts = _parts(counts)
    if math.prod(len(part.values) ** min(n, 32) for part, n in parts) <= _EXACT_OUTCOMES:
        return _solve(product([part for part, n in parts for _ in range(n)]), delta, two_valued)
    return min(compose_upper(parts, delta), two_valued)


def revealing_lower(counts: RevealingCounts, delta: float) -> float:
    """Return a lower bound on ``revealing_epsilon``, for mechanisms that attain their bounds.

    Args:
        counts: as for ``revealing_epsilon``, at least one mechanism in all.
        delta: at least 1e-300 and below 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    numbers.check_delta(delta)
    numbers.check_at_least("delta", delta, numbers.SMALLEST_DELTA)
    return compose_lower(_parts(counts), delta)


def _all_revealing(counts: RevealingCounts) -> dict[float, int]:
    merged: Counter[float] = Counter()
    for (epsilon, revealing), count in counts.items():
        if not 0 < revealing <= 1:
            raise ConfigError(f"telling = {revealing}: give a probability above 0 and up to 1")
        merged[epsilon] += count
    return dict(merged)


def _parts(counts: RevealingCounts) -> list[tuple[Losses, int]]:
    return [
        (two_valued_losses(epsilon, count), 1)
        if revealing == 1
        else (revealing_losses(epsilon, revealing), count)
        for (epsilon, revealing), count in counts.items()
        if count > 0
    ]


def _two_valued(counts: Mapping[float, int], delta: float) -> float:
    numbers.check_delta(delta)
    pure = pure_epsilon(counts)
    for epsilon in counts:
        if epsilon > LARGEST_EPSILON:
            raise ConfigError(
                f"epsilon = {epsilon}: give at most {LARGEST_EPSILON:g} per mechanism"
            )
    present = {epsilon: count for epsilon, count in counts.items() if count > 0}
    if delta < numbers.SMALLEST_DELTA or not present:
        return pure
    parts = [two_valued_losses(epsilon, count) for epsilon, count in present.items()]
    if len(parts) == 1:
        return _solve(parts[0], delta, pure)
    if math.prod(len(part.values) for part in parts) <= _EXACT_OUTCOMES:
        return _solve(product(parts), delta, pure)
    return min(compose_upper([(part, 1) for part in parts], delta), pure)


def _solve(losses: Losses, delta: float, pure: float) -> float:
    # Because of unlisted outcomes, the computed delta never falls to 0. If its least value exceeds
    # the given delta, use the pure sum.
    if losses.delta(pure) > delta:
        return pure
    return solve(losses.delta, delta, start=pure, end=0.0)
