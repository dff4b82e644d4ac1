"""Privacy losses under a tilted measure, in which the law of their sum is computed.

The mass of a loss L is multiplied by e^(tilt L), and all masses are normalised. The sum of many
losses is then centred on the epsilon that is sought, not on its mean under P.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedldp.accounting.numerics.losses import Floats, Losses
from fedldp.accounting.numerics.solve import minimise

RepeatedLosses = tuple[Losses, int]
"""The losses of a mechanism and the number of times it is used."""

_NOTHING = 1e-300  # tilted masses below this are left out
_BINS = 1 << 16  # the number of losses in an outline


@dataclass(frozen=True)
class TiltedLaw:
    """The law of a loss, or of a sum of losses, under tilted measures.

    There is one row, or one for P and one for Q. The true mass of losses[i] is
    weights[row, i] e^(log_scales[row] - tilts[row] losses[i]). The weights of a row sum to about 1.
    In total they miss at most errors[row] of the tilted measure.
    """

    losses: Floats  # (k,)
    weights: Floats  # (rows, k)
    tilts: Floats  # (rows,)
    log_scales: Floats  # (rows,)
    errors: Floats  # (rows,)


Term = tuple[TiltedLaw, int]
"""A law and the number of independent draws from it that are added."""


def tilted(losses: Floats, log_masses: Mapping[float, Floats]) -> TiltedLaw:
    """Return the law of one loss, given the logarithms of its masses for each tilt."""
    tilts = np.array(list(log_masses))
    log_weights = np.stack(list(log_masses.values())) + np.outer(tilts, losses)
    largest = log_weights.max(axis=1)
    log_scales = largest + np.log(np.exp(log_weights - largest[:, None]).sum(axis=1))
    weights = np.exp(log_weights - log_scales[:, None])
    weights[weights < _NOTHING] = 0.0
    errors = np.full(len(tilts), len(losses) * _NOTHING)
    return TiltedLaw(losses, weights, tilts, log_scales, errors)


def outline(law: TiltedLaw) -> TiltedLaw:
    """Return a coarser law with fewer losses, to choose a tilt or window from it (any is valid)."""
    if len(law.losses) <= _BINS:
        return law
    low, width = float(law.losses.min()), float(np.ptp(law.losses)) / (_BINS - 1)
    bins = np.rint((law.losses - low) / width).astype(np.int64)
    weights = np.array([np.bincount(bins, row, _BINS) for row in law.weights], np.float64)
    return replace(law, losses=low + np.float64(width) * np.arange(_BINS), weights=weights)


def log_mean(weights: Floats, exponents: Floats) -> float:
    """Return ln sum_i weights_i e^(exponents_i)."""
    # If no weight is zero, a plain maximum takes a fraction of the time of a masked one.
    if weights.min() > 0:
        largest = float(exponents.max())
    else:
        largest = float(np.max(exponents, where=weights > 0, initial=-math.inf))
    relative = np.minimum(exponents - largest, 0.0)
    return largest + math.log(np.dot(weights, np.exp(relative, out=relative)))


def cumulant(terms: Sequence[Term], rate: float) -> float:
    """Return ln E e^(rate S) of the sum S of all draws, in the first tilted measure."""
    return sum(count * log_mean(law.weights[0], rate * law.losses) for law, count in terms)


def mean_and_deviation(terms: Sequence[Term]) -> tuple[float, float]:
    """Return the mean and the deviation of the sum, in the first tilted measure.

    The deviation serves as a scale, and is never exactly zero.
    """
    mean = variance = 0.0
    for law, count in terms:
        center = float(np.dot(law.weights[0], law.losses))
        mean += count * center
        variance += count * float(np.dot(law.weights[0], (law.losses - center) ** 2))
        variance += count * (1e-6 * float(np.ptp(law.losses))) ** 2
    return mean, math.sqrt(variance)


def spread(terms: Sequence[Term]) -> float:
    """Return the largest difference between two losses of one draw."""
    return max(float(np.ptp(law.losses)) for law, _ in terms)


def best_rate(function: Callable[[float], float], low: float, high: float) -> float:
    """Return roughly the rate in [low, high] with the least value; any rate gives a valid bound."""
    found = minimise(lambda x: function(math.exp(x)), math.log(low), math.log(high), 1e-2)
    return math.exp(found)


def best_tilt(parts: Sequence[RepeatedLosses], delta: float) -> float:
    """Return the tilt of the best Renyi bound."""
    laws = [outline(tilted(part.values, {0.0: part.log_masses})) for part, _ in parts]
    terms = [(law, count) for law, (_, count) in zip(laws, parts, strict=True)]
    # A Gaussian sum needs a tilt that moves its mean by sqrt(2 ln(1/delta)) deviations. If the sum
    # attains its maximum with probability above delta, a much larger tilt would lose the
    # outcomes that determine epsilon in rounding errors.
    most = (2 + 3 * math.sqrt(-2 * math.log(delta))) / mean_and_deviation(terms)[1]

    def renyi_epsilon(tilt: float) -> float:
        # The conversion of Canonne, Kamath, Steinke 2020, section 2.3, at order tilt + 1
        gain = tilt * math.log1p(1 / tilt) + math.log1p(tilt)
        return (cumulant(terms, tilt) - math.log(delta) - gain) / tilt

    # If large losses are rare, they are far above the deviation, and the best tilt is far below
    # ``most``.
    least = min(1e-3 * most, 1e-2 / spread(terms))
    return best_rate(renyi_epsilon, least, most)
