"""Gaussian noise on the sum of a secret random sample, if one member of a population is replaced.

A release samples members, adds up one vector of bounded norm (the clip) for each, and adds Gaussian
noise. Measure in units of the clip; s is the noise's deviation, and q the probability that a member
is in the sample. Two populations that differ in one member are then no easier to tell apart than

- P = (1-q) N(0, s^2) + q N(1, s^2) and Q = (1-q) N(0, s^2) + q N(-1, s^2) for Poisson samples,
  which include each member independently;
- for samples of a fixed size, P = (1-q) N(-1, s^2) + q N(1, s^2) and Q = N(-1, s^2) where P is
  likelier, and the same with P and Q exchanged where Q is likelier.

Each pair is unchanged if P and Q are exchanged, so it bounds both orders of the populations at
once. Many releases, even adaptive ones, cost at most as much as that many of these pairs. For a
single release both bounds are attained. For many, the Poisson bound is attained; for samples of a
fixed size, no members are known whose cost quite reaches the bound in both directions at once.

Source: ``docs/privacy`` has the proofs. For fixed sizes also Balle, Barthe, Gaboardi, "Privacy
Amplification by Subsampling: Tight Analyses via Couplings and Divergences", NeurIPS 2018; for
composition Zhu, Dong, Wang, "Optimal Accounting of Differential Privacy via Characteristic
Function", AISTATS 2022, Theorem 10; for what goes wrong if only one order of the pair is composed,
Lebeda, Regehr, Kamath, Steinke, "Avoiding Pitfalls for Privacy Accounting of Subsampled Mechanisms
under Composition", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from fedldp.accounting.numerics.gaussian import gaussian_epsilon, gaussian_sigma
from fedldp.accounting.numerics.known import Test, check
from fedldp.accounting.numerics.losses import Floats, Losses
from fedldp.accounting.numerics.pld_fft import compose_upper
from fedldp.accounting.numerics.shuffle import exponent_for
from fedldp.accounting.numerics.solve import solve
from fedldp.core.deferred import special
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import SMALLEST_DELTA, check_count, check_delta, check_positive, round_up

# Noise multipliers for which sampling is counted; for others, the bound ignores sampling.
_LEAST_NOISE, _MOST_NOISE = 0.05, 1e6

_BINS_PER_DEVIATION = 500
_NODES, _WEIGHTS = (np.asarray(a, np.float64) for a in np.polynomial.legendre.leggauss(5))
# Several times the true error of log-masses, and several times the true relative error of losses.
_ROUNDING = 1e-11
_SHARE_ROUNDING = 1e-5  # error of the share of an outcome that goes to each end of its bin


@dataclass(frozen=True, kw_only=True)
class SampledRelease:
    """One release of a noisy sum over a sample.

    Attributes:
        noise_multiplier: s, the noise's standard deviation over the clip. The clip bounds the norm
            of one member's vector, so replacing a member moves the sum by up to twice the clip.
        sampling_rate: q, above 0 and up to 1.
        sample: the kind of sample, "poisson" or "fixed-size".

    Raises:
        ConfigError: an argument is out of range.
    """

    noise_multiplier: float
    sampling_rate: float
    sample: Literal["poisson", "fixed-size"]

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)
        if not 0 < self.sampling_rate <= 1:
            raise ConfigError(
                f"sampling_rate = {self.sampling_rate}: give a probability above 0 and up to 1"
            )

    def losses(self, exponent: float) -> Losses:
        """Return losses that bound those of the pair from above, with an excess of second order.

        Outcomes with P > Q are cut into bins. The outcomes of a bin are split between the losses at
        its ends, preserving their P-mass and Q-mass (as in ``pld_fft``) or giving more to the
        larger end. The other outcomes mirror these: a P-mass m at the loss l comes with m e^-l at
        -l.

        Args:
            exponent: outcomes with probability below about e^-exponent are left out.
        """
        end = 1 + self.noise_multiplier * math.sqrt(2 * exponent)
        bins = math.ceil(end / self.noise_multiplier * _BINS_PER_DEVIATION)
        width = end / bins
        ends = np.linspace(0.0, end, bins + 1)
        # The integrals over a bin use Gauss's rule. For densities this smooth, its error is far
        # below rounding.
        nodes = ends[:-1, None] + width / 2 * (1 + _NODES)
        log_weights = self._log_mixture(nodes, 1.0) + np.log(width / 2 * _WEIGHTS)
        log_masses = special.logsumexp(log_weights, axis=1)
        weights = np.exp(log_weights - log_masses[:, None])
        upper = self._loss(ends[1:])
        lower = np.append(0.0, upper[:-1])
        reach = upper - lower
        # If the two losses are nearly equal, their difference has too few digits.
        clear = reach > _SHARE_ROUNDING * upper
        parts = np.sum(weights * np.expm1(lower[:, None] - self._loss(nodes)), axis=1)
        exact = parts / np.expm1(-np.where(clear, reach, 1.0))
        shares = np.where(clear, np.clip(exact + _SHARE_ROUNDING, 0.0, 1.0), 1.0)
        rests = np.maximum(1 - shares[1:], 1e-300)
        # The remainder of the first bin, and of the probability, has a loss of zero.
        above = log_masses + np.log(shares)
        above[:-1] = np.logaddexp(above[:-1], log_masses[1:] + np.log(rests))
        below = above - upper
        middle = 1 - float(np.exp(above).sum() + np.exp(below).sum()) + _ROUNDING
        signs = np.concatenate([np.full(bins, -1.0), np.zeros(1), np.ones(bins)])
        values = np.concatenate([upper[::-1], np.zeros(1), upper])
        return Losses(
            values=signs * values + _ROUNDING * values,
            log_masses=np.concatenate([below[::-1], [math.log(middle)], above]),
            errors=_ROUNDING * (1 + values),
            missing=4 * math.exp(-exponent),
        )

    def _loss(self, y: Floats) -> Floats:
        """Return ln(P/Q) at y > 0 to full relative precision, as ln(1 + (P - Q)/Q)."""
        variance = self.noise_multiplier**2
        log_difference = (
            math.log(self.sampling_rate)
            + self._log_density(y, 1.0)
            + np.log(-np.expm1(-2 * y / variance))
        )
        return np.asarray(np.logaddexp(0.0, log_difference - self._log_mixture(y, -1.0)))

    def _log_mixture(self, y: Floats, mean: float) -> Floats:
        """Return the logarithm of P (mean 1) or Q (mean -1) at y; the two agree at y = 0."""
        q = self.sampling_rate
        others = 0.0 if self.sample == "poisson" else -1.0
        log_rest = math.log1p(-q) if q < 1 else -math.inf
        return np.asarray(
            np.logaddexp(
                log_rest + self._log_density(y, others), math.log(q) + self._log_density(y, mean)
            )
        )

    def _log_density(self, y: Floats, mean: float) -> Floats:
        deviation = self.noise_multiplier
        normaliser = math.log(deviation * math.sqrt(2 * math.pi))
        return np.asarray(-(((y - mean) / deviation) ** 2) / 2 - normaliser)


def poisson_sample(noise_multiplier: float, sampling_rate: float) -> SampledRelease:
    """Return the release of a sum over a sample that includes each member independently.

    Raises:
        ConfigError: an argument is out of range.
    """
    return SampledRelease(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, sample="poisson"
    )


def fixed_size_sample(noise_multiplier: float, sample_size: int, population: int) -> SampledRelease:
    """Return the release of a sum over ``sample_size`` of ``population`` members.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_count("population", population, least=1)
    check_count("sample_size", sample_size, least=1)
    if sample_size > population:
        raise ConfigError(f"sample_size = {sample_size}: give at most the population, {population}")
    return SampledRelease(
        noise_multiplier=noise_multiplier,
        # A larger rate costs more, so rounding it up is safe.
        sampling_rate=round_up(Fraction(sample_size, population)),
        sample="fixed-size",
    )


def sampled_epsilon(counts: Mapping[SampledRelease, int], delta: float) -> float:
    """Return an epsilon at ``delta`` of sampled Gaussian releases if one member is replaced.

    The pairs are composed numerically, and the result is rounded up, by about a relative 1e-5. It
    never exceeds the closed form for the same number of Gaussian releases that include every
    member. For Poisson samples (DP-SGD), the worst vectors attain it.

    Args:
        counts: the number of releases of each kind, at least 0; adaptive composition is covered.
        delta: at least 0 and below 1.

    Returns:
        An epsilon; infinite for a delta below 1e-300, unless there are no releases.

    Raises:
        ConfigError: an argument is out of range.

    Source: see the module's docstring.

    >>> round(sampled_epsilon({poisson_sample(1.0, 0.01): 1000}, 1e-5), 4)
    2.8434
    >>> round(sampled_epsilon({fixed_size_sample(2.0, 10, 100): 100}, 1e-5), 4)
    7.8049
    """
    check_delta(delta)
    for count in counts.values():
        check_count("count", count)
    present = tuple((one, count) for one, count in counts.items() if count > 0)
    return _sampled_epsilon(present, delta)


@lru_cache(maxsize=256)
def _sampled_epsilon(parts: tuple[tuple[SampledRelease, int], ...], delta: float) -> float:
    if not parts:
        return 0.0
    _test()
    squares = [4 * n / Fraction(one.noise_multiplier) ** 2 for one, n in parts]
    mu = math.nextafter(math.sqrt(round_up(sum(squares, Fraction(0)))), math.inf)
    # Replacing a member moves each sum by up to 2 clips; sampling can only hide this.
    unsampled = gaussian_epsilon(mu, delta)
    computed = all(_LEAST_NOISE <= one.noise_multiplier <= _MOST_NOISE for one, _ in parts)
    if delta < SMALLEST_DELTA or not computed:
        return unsampled
    exponent = exponent_for(delta, sum(n for _, n in parts))
    return min(compose_upper([(one.losses(exponent), n) for one, n in parts], delta), unsampled)


@Test
def _test() -> None:
    poisson = sampled_epsilon({poisson_sample(1.0, 0.5): 1}, 1e-5)
    check("poisson_sample", poisson, 4.222607563000935, 1e-6)
    fixed = sampled_epsilon({fixed_size_sample(1.0, 1, 4): 1}, 1e-5)
    check("fixed_size_sample", fixed, 7.953870384179362, 1e-6)


@lru_cache(maxsize=256)
def poisson_noise(epsilon: float, sampling_rate: float, steps: int, delta: float) -> float:
    """Return a noise multiplier for which Poisson samples cost ``epsilon`` or slightly less.

    It is larger than necessary by at most a relative 1e-3.

    Args:
        epsilon: positive.
        sampling_rate: above 0 and up to 1.
        steps: at least 1.
        delta: above 0 and below 1.

    Raises:
        ConfigError: an argument is out of range.

    >>> noise = poisson_noise(2.0, 0.01, 1000, 1e-5)
    >>> 1.99 < sampled_epsilon({poisson_sample(noise, 0.01): 1000}, 1e-5) <= 2.0
    True
    """
    check_count("steps", steps, least=1)
    poisson_sample(1.0, sampling_rate)  # refuses an invalid rate
    aim = epsilon * (1 - 1e-4)  # the result for slightly more noise may be rounded up
    # Without sampling, each sum moves by up to 2 clips.
    most = 2 * math.sqrt(steps) * gaussian_sigma(aim, delta) * (1 + 1e-6)

    def reached(noise: float) -> float:
        return sampled_epsilon({poisson_sample(noise, sampling_rate): steps}, delta)

    least = most * sampling_rate / 2
    while reached(least) <= aim:
        most, least = least, least / 4
    return solve(reached, aim, start=most, end=least, precision=1e-3)
