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

``one_run_lower`` is for a whole training that runs only once and has many canaries, each with its
own coin.

Theorem (Steinke, Nasr, Jagielski 2023, "Privacy Auditing with One (1) Training Run", Theorem 5.2).
Let S be uniform on {-1, 1}^m, let M be (epsilon, delta)-private under a change of one coordinate of
S, and let T in {-1, 0, 1}^m be any function of M's output: a guess of S, with 0 for no guess. If V
of r guesses are right, then for every v

    P[V >= v] <= f(v) + 2 m delta max over i of (f(v - i) - f(v))/i,
    f(v) = P[Binomial(r, e^epsilon/(1 + e^epsilon)) >= v].

So if v correct guesses were counted, all epsilon for which the right side is below alpha are
refuted, except with probability alpha. Here coordinate i of S says which of two inputs record i, or
client i, has. So a change of one coordinate is a replacement, as in the statement.

Proof idea at delta 0. Given T = t, by Bayes' rule each S_i equals t_i with odds of at most
e^epsilon to 1, whatever the other coordinates are. So V is at most a sum of independent coins with
that bias. One run thus gives m trials, and the bound holds although they share a run. Which guesses
are made may depend on the output, but their number must be fixed beforehand.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from fedldp.core.errors import ConfigError
from fedldp.core.numbers import check_delta

# Larger than the relative error of scipy's quantiles, which is about 1e-12.
_SAFE_SIDE = 1e-9

SHARES = (0.25, 0.5, 1.0)
"""Shares of the canaries that are guessed, surest first; each share is a separate test."""

_LARGEST = 50.0
_STEPS = 60


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
    check_delta(delta)
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


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the theorem's bound on the probability of at least ``right`` correct guesses.

    Args:
        canaries: m.
        guesses: r, at most m.
        right: v, at most r.
        epsilon: the tested epsilon.
        delta: the tested delta.
    """
    bias = 1 / (1 + math.exp(-epsilon))
    at_least = float(binom.sf(right - 1, guesses, bias))
    if delta == 0 or right == 0:
        return at_least
    steps = np.arange(1, right + 1)
    between = binom.cdf(right - 1, guesses, bias) - binom.cdf(right - steps - 1, guesses, bias)
    return min(1.0, at_least + 2 * canaries * delta * float((between / steps).max()))


def one_run_lower(
    canaries: int, guesses: int, right: int, *, delta: float, confidence: float
) -> float:
    """Return a lower bound on epsilon at ``delta`` from the guesses of one run; 0 if there is none.

    Args:
        canaries: m, whose coins are independent and fair.
        guesses: r, a number fixed before the run.
        right: v, the number of correct guesses.
        delta: the delta at which epsilon is bounded, at least 0 and below 1.
        confidence: the confidence level of the bound.

    Raises:
        ConfigError: an argument is out of range.

    >>> round(one_run_lower(100, 100, 100, delta=0.0, confidence=0.95), 4)
    3.493
    """
    check_confidence(confidence)
    if not 0 <= right <= guesses <= canaries or guesses < 1:
        raise ConfigError(
            f"{right} of {guesses} guesses right: give 0 <= right <= guesses <= {canaries}"
        )
    check_delta(delta)
    alpha = 1 - confidence
    if p_value(canaries, guesses, right, 0.0, delta) >= alpha:
        return 0.0
    low, high = 0.0, _LARGEST
    for _ in range(_STEPS):  # bisect, because the p-value grows with epsilon
        middle = (low + high) / 2
        if p_value(canaries, guesses, right, middle, delta) < alpha:
            low = middle
        else:
            high = middle
    return low


def guessed(scores: NDArray[np.float64], coins: NDArray[np.bool_], share: float) -> tuple[int, int]:
    """Return the number of guesses, and the number of correct ones.

    Args:
        scores: the score of each canary: the larger it is, the likelier the canary's coin shows
            heads; 0 means no evidence.
        coins: the outcomes of the coin flips.
        share: the share of the canaries that are guessed: those whose scores have the largest
            absolute values.
    """
    guesses = max(1, int(share * len(scores)))
    surest = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return guesses, int(((scores[surest] > 0) == coins[surest]).sum())


def best_one_run_lower(
    scores: NDArray[np.float64], coins: NDArray[np.bool_], *, delta: float, confidence: float
) -> tuple[float, str]:
    """Return the largest bound over ``SHARES``, at a joint confidence, and its guesses."""
    each = 1 - (1 - confidence) / len(SHARES)
    found = []
    for share in SHARES:
        guesses, right = guessed(scores, coins, share)
        lower = one_run_lower(len(scores), guesses, right, delta=delta, confidence=each)
        found.append((lower, f"{right} of {guesses} guesses correct"))
    return max(found, key=lambda one: one[0])


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
