"""The closed form for LDPFL's randomised bits."""

from __future__ import annotations

import math

from fedldp.accounting.numerics.selftest import check
from fedldp.core.numbers import (
    check_count,
    check_positive,
)

# A relative margin that covers the few rounding errors of each closed form.
_ROUNDING = 2.0**-49


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

    Source: Chamikara et al., LDPFL, Theorems 1 and 2 (eq. 13), for the probabilities.
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
