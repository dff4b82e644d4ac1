"""Gaussian noise: exact guarantees of the continuous Gaussian, and zCDP of the discrete one.

A release with noise N(0, S) is as private as a test of N(0, 1) against N(mu, 1), with mu the
largest ||S^(-1/2) v|| over the differences v of neighbouring inputs. Many releases, even adaptive
ones, are as private as one release whose mu is the root of the sum of squares. The results hold for
real arithmetic: noise in floating point is a simulation, and a deployment adds the discrete
Gaussian.

Source: Balle, Wang, "Improving the Gaussian Mechanism for Differential Privacy: Analytical
Calibration and Optimal Denoising", ICML 2018, Theorem 8 (delta) and Algorithm 1; Dong, Roth, Su,
"Gaussian Differential Privacy", 2022, for composition; Canonne, Kamath, Steinke, "The Discrete
Gaussian for Differential Privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from fedldp.accounting.numerics.solve import minimise, solve
from fedldp.core import numbers
from fedldp.core.deferred import special
from fedldp.core.errors import ConfigError

SMALLEST_SHARE = 64
"""The smallest variance of a client's share of Gaussian noise: a deviation of 8 steps."""

_ROUNDING = 2.0**-50
_ROUNDING_VARIANCE = 16


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the delta at ``epsilon`` of a test of N(0, 1) against N(mu, 1).

    It is Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu), rounded up: by at most a relative 1e-8 for mu
    from 1e-4 to 1e4, plus 1e-320.

    Args:
        mu: sensitivity in standard deviations, at least 0.
        epsilon: at least 0.

    Raises:
        ConfigError: an argument is out of range.

    Source: Balle, Wang 2018, Theorem 8.

    >>> round(gaussian_delta(1.0, 1.0), 8)
    0.12693674
    """
    numbers.check_at_least("mu", mu, 0)
    numbers.check_at_least("epsilon", epsilon, 0)
    if mu == 0:
        return 0.0
    # Delta decreases in epsilon, so it is safe to lower epsilon by all rounding errors below.
    lowered = epsilon - _ROUNDING * (epsilon + mu * mu / 2)
    near, far = lowered / mu - mu / 2, lowered / mu + mu / 2
    # e^e phi(far) = phi(near), so neither factor overflows; tails are ratios to the density.
    density = math.exp(-0.5 * near * near) / math.sqrt(2 * math.pi)
    if near > -1:
        tail = _tail_ratio(near)
        value = density * (tail - _tail_ratio(far) + 4e-15 * tail)
    else:
        value = float(special.ndtr(-near)) * (1 + 1e-15) - density * _tail_ratio(far) * (1 - 1e-15)
    return min(1.0, max(value, 0.0) * (1 + 1e-14) + 1e-320)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at ``delta`` of a test of N(0, 1) against N(mu, 1).

    It is rounded up, by at most a relative 1e-8. It is infinite for delta = 0 unless mu = 0, since
    the Gaussian has no pure guarantee, and for a delta below 1e-300, where nothing is computed.

    Args:
        mu: sensitivity in standard deviations, at least 0.
        delta: at least 0 and below 1.

    Raises:
        ConfigError: an argument is out of range.

    Source: Balle, Wang 2018, Theorem 8, inverted.

    >>> round(gaussian_epsilon(1.0, 1e-5), 9)
    4.377178096
    """
    numbers.check_at_least("mu", mu, 0)
    numbers.check_delta(delta)
    if mu == 0:
        return 0.0
    if delta < numbers.SMALLEST_DELTA:
        return math.inf
    # delta(e) <= Phi(mu/2 - e/mu) <= exp(-(e/mu - mu/2)^2/2)
    bound = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    high = bound * (1 + 1e-9)
    return solve(lambda epsilon: gaussian_delta(mu, epsilon), delta, start=high, end=0.0)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the smallest noise per unit of sensitivity that gives (epsilon, delta)-DP.

    Args:
        epsilon: above 0.
        delta: at least 1e-300 and below 1.

    Returns:
        sigma/Delta, rounded up; the noise's standard deviation is this times the sensitivity.

    Raises:
        ConfigError: an argument is out of range.

    Source: Balle, Wang 2018, Algorithm 1 (analytic calibration), by bisection.

    >>> round(gaussian_sigma(1.0, 1e-5), 9)
    3.730631635
    """
    numbers.check_positive("epsilon", epsilon)
    numbers.check_delta(delta)
    if delta < numbers.SMALLEST_DELTA:
        raise ConfigError(
            f"delta = {delta}: give at least {numbers.SMALLEST_DELTA:g} for Gaussian noise"
        )
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2
    low = high / 2
    while gaussian_delta(low, epsilon) > delta:
        low /= 2
    mu = solve(lambda mu: gaussian_delta(mu, epsilon), delta, start=low, end=high)
    return math.nextafter(1 / mu, math.inf)


def compose_mu(mus: Iterable[tuple[float, int]]) -> float:
    """Return the mu of all releases together: the root of the sum of squares, rounded up.

    Args:
        mus: pairs of a mu and the number of its releases, at least 0; adaptive composition is
            covered.

    Raises:
        ConfigError: a mu is negative or not finite.

    Source: Dong, Roth, Su 2022, Corollary 3.3.

    >>> compose_mu([(3.0, 1), (4.0, 1)]) >= 5.0
    True
    """
    total = Fraction(0)
    for mu, count in mus:
        numbers.check_at_least("mu", mu, 0)
        total += count * Fraction(mu) ** 2
    return _root_up(total)


def shares_mu(squared_distance: int, variance: int, shares: int) -> float:
    """Return the mu of a sum of integer vectors and ``shares`` independent discrete Gaussians.

    It is sqrt(squared_distance/(shares variance - 16)), rounded up. The sum is as private as a test
    of N(0, 1) against N(mu, 1), up to 1e-100 more in epsilon and a factor of 1 + 1e-100 in delta,
    for all rounds together.

    Proof, for one coordinate; V is the variance of a share, at least 64. Let f_j(y) be the sum of
    exp(-(y_1^2 + ... + y_j^2)/(2 V)) over the integers with y_1 + ... + y_j = y: up to a constant,
    the law of j shares. Suppose it is exp(-y^2/(2 j V)) up to a constant and a factor. Then
    f_(j+1)(y) is, up to these, the sum over integers a of exp(-a^2/(2 j V) - (y - a)^2/(2 V)),
    which is exp(-y^2/(2 (j + 1) V)) times the sum of exp(-(a - t)^2/(2 v)), t = y j/(j + 1), v = V
    j/(j + 1). By Poisson summation the latter sum is sqrt(2 pi v) (1 + 2 sum over m >= 1 of exp(-2
    pi^2 v m^2) cos(2 pi m t)). So it changes with y only by a factor within 1 +- 2.1 exp(-pi^2 V),
    for v >= V/2: within 1 +- 1e-273. So k shares are the discrete Gaussian of variance k V up to k
    - 1 such factors (and as many for the normaliser). That Gaussian is, within 1 +- 1e-136, N(0, k
    V - 16) rounded to integers with a discrete Gaussian of variance 16:
    ``docs/privacy/randomisers.md``, statement 3. For up to 2^26 coordinates, 10^6 shares and
    10^5 rounds, all factors together are within 1 +- 1e-110. Reducing by any modulus is
    post-processing.

    Args:
        squared_distance: the largest squared L2 distance that replacing one vector can cause.
        variance: the variance of one share in every coordinate, in squared steps, at least 64.
        shares: the number of shares in the sum that the adversary does not know, at least 1.

    Source: Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
    Learning with Secure Aggregation", ICML 2021, Theorem 1, whose bound is for zCDP; Peikert, "An
    Efficient and Parallel Gaussian Sampler for Lattices", CRYPTO 2010, for the rounding.

    >>> round(shares_mu(100 * 100, 2**20, 100), 6)
    0.009766
    """
    numbers.check_count("squared_distance", squared_distance)
    numbers.check_count("variance", variance, SMALLEST_SHARE)
    numbers.check_count("shares", shares, 1)
    squared = Fraction(squared_distance, shares * variance - _ROUNDING_VARIANCE)
    return _root_up(squared)


def _root_up(square: Fraction) -> float:
    root = math.sqrt(numbers.round_up(square))
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)


def compose_rho(rhos: Iterable[tuple[float, int]]) -> float:
    """Return the rho of all releases together, even adaptive ones: their sum, rounded up.

    Args:
        rhos: pairs of a rho and the number of its releases.

    Raises:
        ConfigError: a rho is negative or not finite.

    Source: Bun, Steinke, "Concentrated Differential Privacy", TCC 2016, Lemma 1.7.
    """
    total = Fraction(0)
    for rho, count in rhos:
        numbers.check_at_least("rho", rho, 0)
        total += count * Fraction(rho)
    return numbers.round_up(total)


def pure_rho(epsilon: Fraction) -> Fraction:
    """Return the zCDP rho of any pure ``epsilon`` mechanism, exact: min(epsilon^2/2, epsilon).

    The first term is Bun, Steinke 2016, Proposition 1.4. For the second: no outcome is more than
    e^epsilon times as likely under P as under Q, so E_P[(P/Q)^(alpha - 1)] is at most
    e^(epsilon (alpha - 1)). The Renyi divergence of order alpha is the logarithm of that mean over
    alpha - 1. So it is at most epsilon, and thus below epsilon alpha, for every alpha > 1.
    """
    return min(epsilon**2 / 2, epsilon)


# A relative margin, far above the errors of the two scipy functions up to the epsilon below.
_ROUNDING_OF_MU = 1e-12
_LARGEST_COMPUTED = 700.0


def pure_squared_mu(epsilon: float) -> Fraction:
    """Return an upper bound on mu^2, for GDP, of any pure ``epsilon`` mechanism.

    No trade-off curve of an epsilon-DP mechanism lies below that of randomised response, which has
    straight lines from (0, 1) over (q, q) to (1, 0), q = 1/(1 + e^epsilon). With mu = -2 Phi^-1(q),
    the curve of N(0, 1) against N(mu, 1), which is convex, meets it in these three points, as it
    goes through (Phi(-mu/2), Phi(-mu/2)). So it lies below the chords. mu^2 is additive.

    Source: Dong, Roth, Su 2022.
    """
    if epsilon > _LARGEST_COMPUTED:
        # With h = mu/2, 1/(1 + e^eps) = Phi(-h) <= exp(-h^2/2)/2, so 4 h^2 <= 8 eps.
        return 8 * Fraction(epsilon)
    # Near 1/2 the inverse loses digits of the probability's distance from 1/2, and for a large
    # epsilon the probability is too small; hence two formulas.
    if epsilon < 1:
        mu = 2 * math.sqrt(2) * float(special.erfinv(math.tanh(epsilon / 2)))
    else:
        mu = -2 * float(special.ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon))))
    return Fraction(mu * (1 + _ROUNDING_OF_MU)) ** 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon at ``delta`` of a rho-zCDP mechanism.

    It is the minimum, over alpha > 1, of alpha rho + (ln(1/delta) + alpha ln(1 - 1/alpha) -
    ln(alpha - 1))/(alpha - 1). Every alpha is valid, so the search cannot make it too small.

    Args:
        rho: at least 0.
        delta: at least 0 and below 1.

    Returns:
        An epsilon of at least 0, infinite for delta = 0 unless rho = 0.

    Raises:
        ConfigError: an argument is out of range.

    Source: Canonne, Kamath, Steinke 2020, section 2.3 (their conversion from Renyi divergences).
    """
    numbers.check_at_least("rho", rho, 0)
    numbers.check_delta(delta)
    if rho == 0:
        return 0.0
    if delta == 0:
        return math.inf
    log_inverse = -math.log(delta)

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        return _epsilon_at(excess, (1 + excess) * rho, log_inverse)

    guess = 0.5 * math.log((log_inverse + 1) / rho)  # a guess of the excess that ignores the gain
    return max(bound(minimise(bound, guess - 20, guess + 20, 1e-9)), 0.0)


def renyi_epsilon(divergences: Iterable[tuple[float, float]], delta: float) -> tuple[float, float]:
    """Return an epsilon at ``delta`` that follows from Renyi divergences, and the order it uses.

    Args:
        divergences: pairs of an order above 1 and a bound on the divergence of that order.
        delta: above 0 and below 1.

    Returns:
        The least epsilon over the orders, at least 0, rounded up; infinity and 0 if there are none.

    Source: as for ``zcdp_epsilon``.
    """
    numbers.check_delta(delta)
    best = math.inf, 0.0
    for order, divergence in divergences:
        numbers.check_at_least("divergence", divergence, 0)
        epsilon = _epsilon_at(order - 1, divergence, -math.log(delta))
        best = min(best, (max(epsilon, 0.0), order))
    return best


def _epsilon_at(excess: float, divergence: float, log_inverse: float) -> float:
    """Return the epsilon that follows from a Renyi divergence, rounded up; see ``zcdp_epsilon``.

    Args:
        excess: alpha - 1, where alpha is the divergence's order.
        divergence: the divergence.
        log_inverse: ln(1/delta).
    """
    # alpha ln(1 - 1/alpha) - ln(alpha - 1) = -excess ln(1 + 1/excess) - ln(alpha)
    gain = excess * math.log1p(1 / excess) + math.log1p(excess)
    terms = divergence, log_inverse / excess, gain / excess
    return terms[0] + terms[1] - terms[2] + 1e-14 * sum(terms)


def _tail_ratio(x: float) -> float:
    """Return (1 - Phi(x))/phi(x) (Mills's ratio)."""
    return math.sqrt(math.pi / 2) * float(special.erfcx(x / math.sqrt(2)))
