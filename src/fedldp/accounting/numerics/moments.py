"""The moments accountant as published: it reproduces papers' claims and proves nothing here.

Its neighbours differ by adding or removing a member. The neighbours in this package's guarantees
differ by replacing a member, which costs about twice as much as adding or removing one.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Theorem 2; Mironov, Talwar, Zhang, "Renyi Differential Privacy of the Sampled
Gaussian Mechanism", 2019, section 3.3, for the moments in closed form.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp

from fedldp.core.errors import ConfigError
from fedldp.core.numbers import check_count, check_delta, check_positive

LARGEST_ORDER = 32
"""The largest order whose moment Abadi et al. compute."""


def moments_epsilon(
    noise_multiplier: float, sampling_rate: float, releases: int, delta: float
) -> float:
    """Return the moments accountant's epsilon for sampled sums with Gaussian noise.

    It is the minimum, over the orders l = 1, ..., 32, of (releases alpha(l) + ln(1/delta))/l. With
    n = l + 1, alpha(l) is ln of the sum over k of binom(n, k) (1 - q)^(n - k) q^k e^(k (k - 1)/(2
    s^2)).

    Args:
        noise_multiplier: s, the noise's standard deviation over the clip of one member's vector.
        sampling_rate: q, above 0 and up to 1.
        releases: the number of sums.
        delta: above 0 and below 1.

    Raises:
        ConfigError: an argument is out of range.

    >>> round(moments_epsilon(4.0, 0.01, 10_000, 1e-5), 2)
    1.26
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_count("releases", releases, least=1)
    check_positive("delta", delta)
    check_delta(delta)
    if not 0 < sampling_rate <= 1:
        raise ConfigError(
            f"sampling_rate = {sampling_rate}: give a probability above 0 and up to 1"
        )
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
    log_shares = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    log_shares += k * math.log(sampling_rate) + (n - k) * math.log1p(-sampling_rate)
    return max(0.0, float(logsumexp(log_shares + gains)))
