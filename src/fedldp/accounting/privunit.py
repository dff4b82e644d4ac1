"""The epsilon of PrivUnit, stable in high dimension."""

from __future__ import annotations

import math

from scipy.special import betainc, betaln

from fedldp.accounting.check import check_count
from fedldp.errors import ConfigError


def privunit_log_cap(dimension: int, gamma: float) -> float:
    """Return the logarithm of the probability of a cap of the unit sphere, from below.

    The cap {u: <u, x> >= gamma} has probability I_{1-gamma^2}((D-1)/2, 1/2)/2. Where that
    underflows, a lower bound from its power series is used, tight in high dimension. A smaller
    cap means a larger epsilon, so the lower side is safe.

    Args:
        dimension: D, from 2.
        gamma: height of the cap, from 0 to below 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_count("dimension", dimension, least=2)
    if not 0 <= gamma < 1:
        raise ConfigError(f"gamma = {gamma}: give a number from 0 to below 1")
    a = (dimension - 1) / 2
    value = float(betainc(a, 0.5, (1 - gamma) * (1 + gamma)))
    if value > 1e-280:
        return math.log(value / 2) - 1e-13 * (4 - math.log(value)) - 1e-15 * dimension
    # B_x(a, 1/2) = x^a (1-x)^(1/2)/a (1 + t_1 + t_2 + ...), t_(i+1)/t_i = x (a+1/2+i)/(a+1+i): at
    # least that of i = 0 each time.
    log_x = math.log1p(-gamma) + math.log1p(gamma)
    ratio = math.exp(log_x) * (a + 0.5) / (a + 1)
    log_value = a * log_x + math.log(gamma) - math.log(a) - float(betaln(a, 0.5))
    return log_value - math.log(2 * (1 - ratio)) - 1e-12 * (1 - a * log_x)


def privunit_epsilon(dimension: int, cap_probability: float, gamma: float) -> float:
    """Return the pure epsilon of PrivUnit for unit vectors, rounded up.

    ln(p0/(1 - p0)) + ln((1 - cap)/cap): the density is p0/cap in the cap and (1 - p0)/(1 - cap)
    outside. Pure, for any two unit vectors.

    Args:
        dimension: D, from 2; up to 1e6 and more.
        cap_probability: p0, that the report lies in the cap of the vector, from 1/2 to below 1.
        gamma: height of the cap, from 0 to below 1.

    Raises:
        ConfigError: an argument is out of range.

    Source: Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection Against Reconstruction and Its
    Applications in Private Federated Learning", 2018 (PrivUnit2).

    >>> round(privunit_epsilon(64, 0.75, 0.25), 9)
    4.879385615
    """
    if not 0.5 <= cap_probability < 1:
        raise ConfigError(
            f"cap_probability = {cap_probability}: give a probability from 0.5 to below 1"
        )
    log_cap = privunit_log_cap(dimension, gamma)
    towards = math.log(cap_probability) - math.log1p(-cap_probability)
    return (towards + math.log1p(-math.exp(log_cap)) - log_cap) * (1 + 1e-15)
