"""Binomial probabilities with error bounds: accurate far in the tails, and for 1e8 draws."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
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

    X ~ Bin(count, p). By Bernstein's inequality, P(X - mean >= t) <= exp(-t^2/(2 (v + t/3))) with
    v the variance, so it is rigorous; the bounds are rounded outwards.
    """
    variance = count * p * (1 - p)
    reach = exponent / 3 + math.sqrt((exponent / 3) ** 2 + 2 * exponent * variance)
    low, high = math.floor(count * p - reach), math.ceil(count * p + reach)
    return max(low, 0), min(high, count)


def log_pmf(
    count: int | Integers, p: float, q: float, successes: Integers
) -> tuple[Floats, Floats]:
    """Return ln P(Bin(count, p) = successes), and a bound on the error of each.

    Args:
        count: of draws, below 2^53; broadcasts with ``successes``.
        p: probability of success, above 0 and below 1.
        q: 1 - p, passed too because it may be known more accurately than 1 - p can be computed.
        successes: from 0 to ``count``.

    Returns:
        The natural logarithms and their absolute errors (relative errors of the probabilities).

    Source: the saddle-point expansion of C. Loader, "Fast and Accurate Computation of Binomial
    Probabilities" (2000). The error bound adds the roundings of its terms: those of the
    Stirling series and the deviances, and that of p and q, which grows with the distance from
    the mean.
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
