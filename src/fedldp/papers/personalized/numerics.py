"""Closed forms for randomised signs, and bounds for whole vectors."""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtri

from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.accounting.numerics.selftest import check
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import check_count, check_delta, check_positive

# A relative margin that covers the few rounding errors of each closed form.
_ROUNDING = 2.0**-49


def sign_epsilon_per_coordinate(clip: float, sigma: float) -> float:
    """Return the pure epsilon of a randomised sign: +1 with probability Phi(x/sigma), |x| <= clip.

    It is ln(Phi(clip/sigma)/Phi(-clip/sigma)), rounded up.

    Args:
        clip: the bound of the coordinate, positive.
        sigma: standard deviation, positive.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_positive("clip", clip)
    check_positive("sigma", sigma)
    ratio = clip / sigma
    if ratio < 1:
        # ln((1 + t)/(1 - t)), t = 2 Phi(ratio) - 1, keeps the digits that a difference of
        # logarithms would lose.
        return _up(2 * math.atanh(math.erf(ratio / math.sqrt(2))))
    return _up(float(log_ndtr(ratio) - log_ndtr(-ratio)))


def sign_sigma(clip: float, epsilon_per_coordinate: float) -> float:
    """Return the sigma for which a randomised sign costs ``epsilon_per_coordinate``.

    Args:
        clip: the bound of the coordinate, positive.
        epsilon_per_coordinate: above 0 and up to 700.

    Returns:
        clip/Phi^-1(e^eps/(1 + e^eps)), rounded up.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_positive("clip", clip)
    check_positive("epsilon_per_coordinate", epsilon_per_coordinate)
    if epsilon_per_coordinate > 700:
        raise ConfigError(f"epsilon_per_coordinate = {epsilon_per_coordinate}: give at most 700")
    smaller = 1 / (1 + math.exp(epsilon_per_coordinate))
    # For a tiny epsilon, 1/2 - smaller has lost its digits; slightly more noise makes up for that.
    sigma = clip / -float(ndtri(smaller)) * (1 + 1e-10)
    while sign_epsilon_per_coordinate(clip, sigma) > epsilon_per_coordinate:
        sigma *= 1 + 1e-8
    return sigma


def sign_epsilon(
    clip: float, sigma: float, count: int, delta: float, *, mu: float | None = None
) -> float:
    """Return the epsilon at ``delta`` of ``count`` randomised signs.

    Each sign is a two-valued mechanism, and the composition of such mechanisms is exact. If the
    vectors are also clipped in L2 norm, the signs are a post-processing of the Gaussian mechanism
    with ``mu`` over all rounds, and the smaller of the two epsilons holds.

    Args:
        clip: the bound of each coordinate, positive.
        sigma: standard deviation, positive.
        count: coordinates times rounds, at least 0.
        delta: at least 0 and below 1.
        mu: the mu of the noise of all rounds (``compose_mu``); None without an L2 clip.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_delta(delta)
    check_count("count", count)
    as_bits = two_valued_epsilon(sign_epsilon_per_coordinate(clip, sigma), count, delta)
    return as_bits if mu is None else min(as_bits, gaussian_epsilon(mu, delta))


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


check("sign_epsilon", sign_epsilon_per_coordinate(4, 7.75168842016862), 0.833424791950697, 1e-10)
