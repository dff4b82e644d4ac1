"""Closed forms for randomised bits and randomised signs, and bounds for whole vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.numerics.selftest import check
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import (
    check_count,
    check_positive,
)

# A relative margin that covers the few rounding errors of each closed form.
_ROUNDING = 2.0**-49


def bit_losses(one_to_one: float, zero_to_one: float) -> tuple[float, float]:
    """Return the losses of a randomised bit: if 1 becomes 0, and if 0 becomes 1.

    With p = P(1 -> 1) and q = P(0 -> 1), each loss is the largest ln of the ratio of an outcome's
    probabilities: (max(ln(p/q), ln((1-p)/(1-q))), max(ln(q/p), ln((1-q)/(1-p)))), rounded up. Both
    are 0 if p = q.

    Args:
        one_to_one: p, above 0 and below 1.
        zero_to_one: q, above 0 and below 1.

    Raises:
        ConfigError: a probability is out of range.
    """
    for name, value in (("one_to_one", one_to_one), ("zero_to_one", zero_to_one)):
        if not 0 < value < 1:
            raise ConfigError(
                f"{name} = {value}: give a probability above 0 and below 1; "
                "an outcome that is certain for one input protects nothing"
            )
    # log1p of the relative difference keeps the digits of two close probabilities.
    of_one = _log_ratio(one_to_one, zero_to_one)
    of_zero = _log_ratio_of_complements(one_to_one, zero_to_one)
    return _up(max(of_one, of_zero)), _up(max(-of_one, -of_zero))


def bits_epsilon(
    one_to_one: Sequence[float] | NDArray[np.float64],
    zero_to_one: Sequence[float] | NDArray[np.float64],
) -> float:
    """Return the pure epsilon of independent randomised bits, all of which may change.

    It is the sum, over the bits, of the larger of the two losses in ``bit_losses``.

    Args:
        one_to_one: P(1 -> 1) of each bit, length l.
        zero_to_one: P(0 -> 1) of each bit, length l.

    Raises:
        ConfigError: the lengths differ, or a probability is not above 0 and below 1.

    >>> round(bits_epsilon([0.75], [0.25]), 12)  # ln 3
    1.098612288668
    """
    if len(one_to_one) != len(zero_to_one):
        raise ConfigError(
            f"one_to_one has {len(one_to_one)} and zero_to_one {len(zero_to_one)} values: "
            "give one of each per bit"
        )
    pairs = zip(one_to_one, zero_to_one, strict=True)
    return _up(math.fsum(max(bit_losses(float(p), float(q))) for p, q in pairs))


def ldpfl_epsilon(alpha: float, epsilon: float, num_bits: int, *, alternating: bool) -> float:
    """Return the pure epsilon, for one record's features, of LDPFL's randomised bits.

    It is the epsilon that the paper's probabilities prove, not the ``epsilon`` that the paper
    claims. With x = 2 epsilon/num_bits, P(0 -> 0) = alpha e^x/(1 + alpha e^x) everywhere. P(1 -> 1)
    is 1/(1 + alpha) in Theorem 1; in Theorem 2 it alternates between alpha/(1 + alpha) and 1/(1 +
    alpha^3). The result is computed from log-odds, so that no digits are lost if P(1 -> 1) is close
    to P(0 -> 1).

    Args:
        alpha: the privacy budget coefficient, positive.
        epsilon: the budget claimed by the paper, positive.
        num_bits: length of the code, positive.
        alternating: True for Theorem 2, False for Theorem 1.

    Raises:
        ConfigError: an argument is out of range.

    Source: Chamikara et al., LDPFL, Theorems 1 and 2 (eq. 13), for the probabilities; the loss of
    a bit comes from ``bit_losses``.
    """
    check_positive("alpha", alpha)
    check_positive("epsilon", epsilon)
    check_count("num_bits", num_bits, least=1)
    log_alpha, x = math.log(alpha), 2 * epsilon / num_bits
    zero_odds = -log_alpha - x
    if not alternating:
        return _up(num_bits * _logistic_loss(zero_odds, x))
    odd = num_bits // 2
    first = _logistic_loss(zero_odds, 2 * log_alpha + x)
    second = _logistic_loss(zero_odds, -2 * log_alpha + x)
    return _up((num_bits - odd) * first + odd * second)


def _log_ratio(p: float, q: float) -> float:
    return math.log1p((p - q) / q) if 0.5 < p / q < 2 else math.log(p / q)


def _log_ratio_of_complements(p: float, q: float) -> float:
    if 0.5 < (1 - p) / (1 - q) < 2:
        return math.log1p((q - p) / (1 - q))
    return math.log1p(-p) - math.log1p(-q)


def _logistic_loss(zero_odds: float, gap: float) -> float:
    """Return the larger of a bit's two privacy losses.

    Args:
        zero_odds: the log-odds of P(0 -> 1).
        gap: the log-odds of P(1 -> 1) minus ``zero_odds``, given separately to keep the digits of a
            small gap.
    """

    def log_ratio(sign: float) -> float:
        # ln of s(sign (zero + gap))/s(sign zero), with s(t) = 1/(1 + e^-t)
        complement = 1 / (1 + math.exp(sign * zero_odds))
        return -math.log1p(complement * math.expm1(-sign * gap))

    return max(abs(log_ratio(1.0)), abs(log_ratio(-1.0)))


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


check("ldpfl_epsilon", ldpfl_epsilon(10.0, 0.5, 10240, alternating=True), 34884.836349495786, 1e-10)
