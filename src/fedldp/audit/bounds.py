"""Lower bounds on epsilon from an attack's counts, at a stated confidence level.

A mechanism that is (epsilon, delta)-private has P(E) <= e^epsilon Q(E) + delta for every event E,
where P and Q are the laws of what is seen under two neighbouring inputs. So every E proves

    epsilon >= ln((P(E) - delta)/Q(E)),

and any p <= P(E) and q >= Q(E) prove epsilon >= ln((p - delta)/q), where p > delta.

Theorem. Let E be fixed before the counts, H ~ Binomial(n, P(E)) and F ~ Binomial(m, Q(E)) be
independent of the choice of E, and let alpha be 1 - confidence. Then the bound from
``epsilon_lower`` is above the true epsilon with probability at most alpha.
Proof. With p the lower Clopper-Pearson bound of H at level alpha/2, P[p > P(E)] <= alpha/2: p is
the smallest probability of the event for which H or more hits have probability alpha/2 or more.
Likewise P[q < Q(E)] <= alpha/2. With probability at least 1 - alpha, neither happens, and then the
inequality above holds. H and F need not be independent of each other.

Source: Clopper, Pearson 1934; Jagielski, Ullman, Oprea 2020, "Auditing Differentially Private
Machine Learning"; Nasr et al. 2021, "Adversary Instantiation".
"""

from __future__ import annotations

import math
from bisect import bisect_left

from scipy.stats import beta

from fedldp.core.errors import ConfigError

# Larger than the relative error of scipy's quantiles, which is about 1e-12.
_SAFE_SIDE = 1e-9


def probability_at_least(hits: int, trials: int, alpha: float) -> float:
    """Return the exact (Clopper-Pearson) lower bound on a probability, at level ``alpha``.

    Args:
        hits: how often the event occurred.
        trials: how often it could have occurred.
        alpha: the probability that the bound is too large, above 0 and below 1.

    Raises:
        ConfigError: the counts are invalid.
    """
    _check_counts(hits, trials)
    return 0.0 if hits == 0 else float(beta.ppf(alpha, hits, trials - hits + 1)) * (1 - _SAFE_SIDE)


def probability_at_most(hits: int, trials: int, alpha: float) -> float:
    """Return the exact (Clopper-Pearson) upper bound on a probability, at level ``alpha``.

    Args:
        hits: how often the event occurred.
        trials: how often it could have occurred.
        alpha: the probability that the bound is too small, above 0 and below 1.

    Raises:
        ConfigError: the counts are invalid.
    """
    _check_counts(hits, trials)
    if hits == trials:
        return 1.0
    return min(1.0, float(beta.isf(alpha, hits + 1, trials - hits)) * (1 + _SAFE_SIDE))


def epsilon_lower(
    hits: int,
    trials: int,
    false_hits: int,
    false_trials: int,
    *,
    delta: float,
    confidence: float,
) -> float:
    """Return a lower bound on epsilon at ``delta``; 0 if the counts prove nothing.

    Args:
        hits: how often the event occurred with one input.
        trials: the number of trials with that input.
        false_hits: how often it occurred with the other input.
        false_trials: the number of trials with the other input.
        delta: the delta at which epsilon is bounded, at least 0 and below 1.
        confidence: the confidence level of the bound, counting errors on both sides; above 0 and
            below 1.

    Raises:
        ConfigError: an argument is out of range.

    >>> round(epsilon_lower(731, 1000, 269, 1000, delta=0.0, confidence=0.999), 4)
    0.7694
    """
    check_confidence(confidence)
    if not 0 <= delta < 1:
        raise ConfigError(f"delta = {delta}: give a number of at least 0 and below 1")
    alpha = (1 - confidence) / 2
    high = probability_at_least(hits, trials, alpha) - delta
    if high <= 0:
        return 0.0
    return max(0.0, math.log(high / probability_at_most(false_hits, false_trials, alpha)))


def smallest_found(
    proven: float | None, false_hits: int, trials: int, *, delta: float, confidence: float
) -> float | None:
    """Return the smallest epsilon that such counts would have shown to exceed ``proven``.

    It is the epsilon of an event that occurs under the other input as often as was counted (half a
    time if it never occurred), and under this input just often enough. None if no event that rare
    suffices, or if nothing is proven; in both cases the game finds no mistake, however large.

    Args:
        proven: the proven epsilon at ``delta``.
        false_hits: how often the event occurred with the other input.
        trials: the number of trials with each input.
        delta: as in ``epsilon_lower``.
        confidence: as in ``epsilon_lower``.

    >>> round(smallest_found(1.0, 100, 1000, delta=0.0, confidence=0.999), 4)
    1.4516
    """
    if proven is None:
        return None

    def shown(hits: int) -> bool:
        counts = (hits, trials, false_hits, trials)
        return epsilon_lower(*counts, delta=delta, confidence=confidence) > proven

    if not shown(trials):
        return None
    hits = bisect_left(range(trials), True, key=shown)
    return math.log((hits / trials - delta) / (max(false_hits, 0.5) / trials))


def check_confidence(confidence: float) -> None:
    """Refuse an invalid confidence.

    Raises:
        ConfigError: it is not above 0 and below 1.
    """
    if not 0 < confidence < 1:
        raise ConfigError(
            f"confidence = {confidence}: give a number above 0 and below 1, such as 0.999"
        )


def _check_counts(hits: int, trials: int) -> None:
    if not 0 <= hits <= trials or trials < 1:
        raise ConfigError(f"{hits} of {trials} trials: give counts with 0 <= hits <= trials")
