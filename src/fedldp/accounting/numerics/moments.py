"""The moments accountant as it was published, which papers' claims rest on."""

from __future__ import annotations

import math

import numpy as np

from fedldp.core.deferred import special

LARGEST_ORDER = 32
"""The largest order whose moment Abadi et al. compute."""


def moments_epsilon(
    noise_multiplier: float, sampling_rate: float, releases: int, delta: float
) -> float:
    """Return the moments accountant's epsilon as published; it proves nothing here.

    It reproduces papers' claims. Its neighbours differ by adding or removing a member. The
    neighbours in this package's guarantees differ by replacing a member, which costs about twice as
    much as adding or removing one.

    It is the minimum, over the orders l = 1, ..., 32, of (releases alpha(l) + ln(1/delta))/l. With
    n = l + 1, alpha(l) is ln of the sum over k of binom(n, k) (1 - q)^(n - k) q^k e^(k (k - 1)/(2
    s^2)).

    Args:
        noise_multiplier: s, the noise's standard deviation over the clip of one member's vector.
        sampling_rate: q, above 0 and up to 1.
        releases: the number of sums.
        delta: above 0 and below 1.

    >>> round(moments_epsilon(4.0, 0.01, 10_000, 1e-5), 2)
    1.26

    Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with
    Differential Privacy", CCS 2016, Theorem 2; Mironov, Talwar, Zhang, "Renyi Differential Privacy
    of the Sampled Gaussian Mechanism", 2019, section 3.3, for the moments in closed form.
    """
    return min(
        (releases * _log_moment(order, noise_multiplier, sampling_rate) - math.log(delta)) / order
        for order in range(1, LARGEST_ORDER + 1)
    )


def _log_moment(order: int, noise_multiplier: float, sampling_rate: float) -> float:
    """Return alpha(order)."""
    n = order + 1
    k = np.arange(n + 1)
    gains = k * (k - 1) / (2 * noise_multiplier**2)
    if sampling_rate == 1:
        return float(gains[-1])
    log_shares = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    log_shares += k * math.log(sampling_rate) + (n - k) * math.log1p(-sampling_rate)
    return max(0.0, float(special.logsumexp(log_shares + gains)))
