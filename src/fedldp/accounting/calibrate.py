"""Calibration: the least noise that keeps to a budget. Every answer is on the safe side of it.

The general tool is ``solve.solve_largest``; here are the calibrations that have a closed form, or
need a starting bracket of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from fedldp.accounting.bits import one_bit_l1_epsilon
from fedldp.accounting.check import check_count, check_delta, check_positive, round_up
from fedldp.accounting.compose import LARGEST_EPSILON, two_valued_delta
from fedldp.accounting.gaussian import gaussian_sigma, zcdp_epsilon
from fedldp.accounting.shuffle import LARGEST_EPSILON as LARGEST_SHUFFLED
from fedldp.accounting.shuffle import shuffled_composed_upper
from fedldp.accounting.shuffle_one import shuffled_one_epsilon
from fedldp.accounting.solve import solve_largest

_SLOW = 1e-8  # relative precision where one evaluation takes a good part of a second


def pure_share(target: float, count: int) -> float:
    """Return the largest epsilon that ``count`` mechanisms may each spend purely: target/count.

    Args:
        target: epsilon of all together, positive.
        count: from 1.

    Raises:
        ConfigError: an argument is out of range.

    >>> pure_share(1.0, 4)
    0.25
    """
    check_positive("target", target)
    check_count("count", count, least=1)
    return -round_up(-Fraction(target) / count)


def two_valued_share(target: float, count: int, delta: float) -> float:
    """Return the largest epsilon of each of ``count`` two-valued mechanisms under a common budget.

    Args:
        target: epsilon of all together, positive.
        count: from 1.
        delta: of all together, from 0 to below 1; 0 gives ``pure_share``.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_delta(delta)
    low = pure_share(target, count)
    if delta == 0 or low >= LARGEST_EPSILON:
        return low
    # One evaluation of delta decides, which is much faster than computing the epsilon.
    return _largest(
        lambda epsilon: two_valued_delta(epsilon, count, target), delta, low, LARGEST_EPSILON
    )


def shuffled_share(target: float, num_reports: int, count: int, delta: float) -> float:
    """Return about the largest epsilon of each of ``count`` shuffled two-valued reports.

    Args:
        target: epsilon of all together, against who sees only the shuffler's output; positive.
        num_reports: n, honest reports shuffled together, from 1.
        count: d T, from 1.
        delta: of all together, from 0 to below 1.

    Returns:
        An epsilon, at most 30, whose proven upper bound keeps to the target: that of
        ``shuffled_one_epsilon`` for a count of 1, else of ``shuffled_composed_upper``.

    Raises:
        ConfigError: an argument is out of range.
    """
    low = pure_share(target, count)
    if low >= LARGEST_SHUFFLED:
        return LARGEST_SHUFFLED

    def spent(epsilon: float) -> float:
        if count == 1:
            return shuffled_one_epsilon(epsilon, num_reports, delta)
        return shuffled_composed_upper(epsilon, num_reports, count, delta)

    return _largest(spent, target, low, LARGEST_SHUFFLED, _SLOW)


def gaussian_sigma_for_rounds(epsilon: float, delta: float, num_releases: int) -> float:
    """Return sigma/Delta of each of several Gaussian releases: sqrt(number) times that of one.

    Args:
        epsilon: of all together, positive.
        delta: of all together, from 1e-300 to below 1.
        num_releases: from 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_count("num_releases", num_releases, least=1)
    return gaussian_sigma(epsilon, delta) * math.sqrt(num_releases) * (1 + 4e-16)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho of zCDP that ``zcdp_epsilon`` converts to at most ``epsilon``.

    Args:
        epsilon: positive.
        delta: above 0 and below 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    check_positive("delta", delta)
    return solve_largest(lambda rho: zcdp_epsilon(rho, delta), epsilon, 0.0, epsilon + 1, _SLOW)


def one_bit_l1_share(target: float, num_weights: int, norm: float) -> float:
    """Return the largest epsilon per weight at which a whole one-bit report costs ``target``.

    Args:
        target: pure epsilon of the report, positive.
        num_weights: d, from 1.
        norm: S, bound of the L1 norm of the normalised vector.

    Returns:
        An epsilon of at most 700, with ``one_bit_l1_epsilon`` at most ``target``.

    Raises:
        ConfigError: an argument is out of range.
    """
    low = min(pure_share(target, num_weights), LARGEST_EPSILON)
    return _largest(
        lambda epsilon: one_bit_l1_epsilon(epsilon, num_weights, norm), target, low, LARGEST_EPSILON
    )


def _largest(
    function: Callable[[float], float],
    target: float,
    low: float,
    limit: float,
    precision: float = 1e-14,
) -> float:
    """Return ``solve_largest`` on the first bracket from ``low`` by doubling, up to ``limit``."""
    high = low
    while high < limit and function(high) <= target:
        low, high = high, min(2 * high, limit)
    return solve_largest(function, target, low, high, precision)
